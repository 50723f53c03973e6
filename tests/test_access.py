"""One rule says who may write, below every path that writes; it listens to the server's settings alone."""
from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_state import (
    CARD,
    DELETED,
    HELD_ITEM,
    NEW_FILE,
    RELEASED_ITEM,
    RUNNING,
    STOPPED,
    STORED,
    VIEW,
    Stored,
    filled,
    snapshot,
)

from core.errors import UserError
from core.gpus import set_added_cards
from core.records import RunsFolder
from core.store import access, cards, jobs, pins, quarantine, uploads
from core.store.access import EDITOR, VIEWER, Roles, Sharing, Visitor, may_see, may_write, reached_by, read_roles
from core.store.journal import Journal
from pages.parts import access as visiting
from pages.parts import planned

ROOT = Path(__file__).resolve().parent.parent
ADA, BOB, EVE = Visitor("ada@example.org", True), Visitor("Bob@Example.org", True), Visitor("eve@example.org", True)
ROLES = Roles({"ada@example.org": EDITOR, "bob@example.org": VIEWER})


# --- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharing", "visitor", "writes"),
    [
        (Sharing(), None, True),  # this machine alone, no login
        (Sharing(read_only=True), None, False),
        (Sharing(read_only=True, write=True), None, False),
        (Sharing("it listens on 0.0.0.0"), None, False),
        (Sharing("it listens on 0.0.0.0", write=True), None, True),
        (Sharing(roles=ROLES), None, False),
        (Sharing(roles=ROLES), ADA, True),
        (Sharing(roles=ROLES), BOB, False),  # a viewer, however the address is written
        (Sharing(roles=ROLES), EVE, False),
        (Sharing(roles=ROLES, write=True), BOB, False),  # GAPSCOPE_WRITE is for apps without a login
        (Sharing("it listens on 0.0.0.0", ROLES), ADA, True),
        (Sharing(roles=ROLES, read_only=True), ADA, False),  # a meeting room binds editors, too
        (Sharing(roles=ROLES), Visitor("ada@example.org", verified=False), False),
        (Sharing(roles=Roles(ROLES.listed, unverified_email=True)), Visitor("ada@example.org"), True),
        (Sharing(roles=ROLES), Visitor(None), False),
        (Sharing(roles=Roles({}, EDITOR)), EVE, True),
    ],
)
def test_who_may_write(sharing: Sharing, visitor: Visitor | None, writes: bool) -> None:
    assert may_write(sharing, visitor) is writes


def test_after_a_login_only_those_with_a_role_see_anything() -> None:
    assert may_see(Sharing(), None)
    assert may_see(Sharing("it listens on 0.0.0.0"), None)
    assert [may_see(Sharing(roles=ROLES), who) for who in (None, ADA, BOB, EVE)] == [False, True, True, False]
    assert may_see(Sharing(roles=Roles({}, VIEWER)), EVE)
    assert not may_see(Sharing(roles=Roles({}, VIEWER)), None)


@given(
    st.builds(Sharing, st.none() | st.just("it listens"), st.none() | st.just(ROLES), st.booleans(), st.booleans()),
    st.sampled_from([None, ADA, BOB, EVE]),
)
def test_nothing_that_is_set_lets_a_stranger_write_where_a_login_is_and_read_only_beats_all(
    sharing: Sharing, visitor: Visitor | None
) -> None:
    if sharing.read_only or (sharing.roles is not None and visitor is not ADA):
        assert not may_write(sharing, visitor)
    if may_write(sharing, visitor):
        assert may_see(sharing, visitor)


@pytest.mark.parametrize(
    ("address", "hosts", "cors", "reached"),
    [
        ("127.0.0.1", ["localhost"], True, False), ("localhost", ["localhost"], True, False),
        ("::1", ["localhost"], True, False), ("127.8.8.8", ["localhost"], True, False),
        (None, ["localhost"], True, True), ("", ["localhost"], True, True), ("0.0.0.0", ["localhost"], True, True),
        ("::", ["localhost"], True, True), ("192.168.1.7", ["localhost"], True, True),
        ("127.1", ["localhost"], True, True),  # loopback for a resolver, but not in so many words
        ("workstation", ["localhost"], True, True), ("unix:///tmp/app.sock", ["localhost"], True, True),
        ("127.0.0.1", [], True, True), ("127.0.0.1", ["*"], True, True), ("127.0.0.1", ["localhost"], False, True),
    ],
)
def test_an_app_counts_as_shared_unless_it_can_only_be_reached_from_here(
    address: str | None, hosts: list[str], cors: bool, reached: bool
) -> None:
    assert (reached_by(address, hosts, cors) is not None) is reached


@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("no", True), ("0", False), ("", False),
                                           (None, False)])
def test_a_variable_is_on_unless_it_is_empty_or_0(
    value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(access.READ_ONLY, raising=False)
    if value is not None:
        monkeypatch.setenv(access.READ_ONLY, value)
    assert access.is_set(access.READ_ONLY) is on


# --- the file of roles -----------------------------------------------------------------------------------------------


def test_roles_are_read_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / access.ROLES_NAME
    assert read_roles(path) is None
    path.write_text('default = "viewer"\n[roles]\n"Ada@Example.org " = "editor"\n')
    assert read_roles(path) == Roles({"ada@example.org": "editor"}, "viewer")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[roles]\n"ada@example.org" = "admin"\n', "gives ada@example.org the role 'admin'; expected viewer or editor"),
        ('default = "owner"\n', "gives default the role 'owner'; expected viewer or editor"),
        ('[roles]\n"ada@example.org" = ["editor"]\n', "gives ada@example.org the role"),
        ("[role]\n", "has 'role'; expected default"),
        ("roles = 3\n", r"has no table \[roles\]"),
        ('unverified_email = "yes"\n', "has unverified_email = 'yes'"),
        ("[roles\n", "cannot be read"),
    ],
)
def test_a_file_of_roles_that_is_wrong_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / access.ROLES_NAME
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_roles(path)
    assert "\n" not in str(caught.value)


def test_a_named_file_of_roles_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(access.ROLES_FILE, str(tmp_path / "none.toml"))
    assert access.roles_path(tmp_path / "results.duckdb") == tmp_path / "none.toml"
    with pytest.raises(UserError, match=r"GAPSCOPE_ROLES names none\.toml, which is not there"):
        read_roles(access.roles_path(tmp_path / "results.duckdb"))


def test_roles_without_a_login_stop_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access.govern(visiting._who)  # as the app does when it imports the module
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    assert visiting.sharing() == Sharing()
    path = tmp_path / access.ROLES_NAME
    path.write_text('[roles]\n"ada@example.org" = "editor"\n')
    with pytest.raises(UserError, match="names roles, but no login is set up"):
        visiting.sharing()
    path.write_text('[roles]\n"ada@example.org" = "admin"\n')
    with pytest.raises(UserError, match="the role 'admin'"):
        visiting.sharing()
    assert access.refused() is not None  # settings that cannot be read: nobody writes


def test_a_header_never_says_who_somebody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    real = visiting.st.get_option
    monkeypatch.setattr(visiting.st, "get_option", lambda name: {"X-User": "email"}
                        if name == "server.trustedUserHeaders" else real(name))
    with pytest.raises(UserError, match="a header would say who somebody is"):
        visiting.sharing()


# --- below every path that writes ------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[RunsFolder, Stored], Any]] = {
    "start a sweep": lambda runs, of: jobs.start_sweep([], runs),
    "resume a sweep": lambda runs, of: jobs.resume(STOPPED, runs),
    "stop a sweep": lambda runs, of: jobs.stop(RUNNING, runs),
    "keep an upload": lambda runs, of: uploads.accept(runs, NEW_FILE, "new.jsonl"),
    "keep another program's file, with its answers": lambda runs, of: uploads.accept(
        runs, CSV, "times.csv", answers=CSV_ANSWERS),
    "undo an upload": lambda runs, of: uploads.undo(runs, of.upload_in),
    "bring an upload back": lambda runs, of: uploads.redo(runs, of.upload_out),
    "delete a run": lambda runs, of: uploads.delete_run(runs, STORED),
    "restore a run": lambda runs, of: uploads.restore_run(runs, DELETED),
    "release from quarantine": lambda runs, of: quarantine.release(runs, HELD_ITEM, "because"),
    "hold back again": lambda runs, of: quarantine.hold(runs, RELEASED_ITEM),
    "add a card": lambda runs, of: cards.add_card(runs, {**CARD, "name": "RTX 9091", "nvml_names": ["Prototype 91"]}),
    "take a card away": lambda runs, of: cards.remove_card(runs, "rtx-9090"),
    "pin": lambda runs, of: pins.add_pin(runs, VIEW, pins.Words("Why?")),
    "edit a pin": lambda runs, of: pins.edit_pin(runs, of.pin, pins.Words("Why!"), base_version=1),
    "decide": lambda runs, of: pins.edit_pin(runs, of.pin, pins.Words("Why?", status="decided"), base_version=1),
    "remove a pin": lambda runs, of: pins.remove_pin(runs, of.pin, base_version=1),
    "any other act, such as a price": lambda runs, of: Journal(runs.journal).append("price", "gpu:t4", {"usd": 1}),
}
CSV, CSV_ANSWERS = b"gpu,task,ms\nTesla T4,a,1.5\nTesla T4,a,1.6\n", {"precision": "fp32"}

# What else in the app's own process writes a file or starts a process, and why that is no way around the rule.
NO_PERSONS_WRITE = {
    "core/store/child.py": "reads an upload in a limited process; its folder is temporary",
    "core/store/imported.py": "keep_lines: a copy beside the upload that accept has let in",
    "core/store/schema.py": "moves a damaged database aside; the run files stay",
    "core/store/store.py": "tells waiting commands how far the rows are",
    "core/answers/imports.py": "looks at an upload from a temporary folder",
    "core/reports/svg.py": "draws the charts of a report, from their specification to text",
    "core/answers/doctor.py": "looks at this machine; asked anew only by who may write (pages/parts/machine.py)",
    "pages/parts/planned.py": "asks for a plan and for the names of the GPUs; options that name files are refused",
}
GUARDED = {"core/store/journal.py", "core/store/jobs.py", "core/store/uploads.py"}


@pytest.fixture(autouse=True)
def nobody_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (access.READ_ONLY, access.WRITE, access.ROLES_FILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jobs, "RUNNER", ("-c", "pass"))
    yield
    set_added_cards(())


@pytest.mark.parametrize("act", WRITES)
def test_what_may_not_write_writes_nothing_and_what_may_does(
    act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunsFolder(tmp_path / "runs")
    with filled(runs) as of:
        before = snapshot(tmp_path)
        monkeypatch.setattr(access, "_who", lambda: (Sharing("it listens on 0.0.0.0"), None))
        with pytest.raises(UserError, match=r"was refused: this app is read-only: it listens on 0\.0\.0\.0"):
            WRITES[act](runs, of)
        assert snapshot(tmp_path) == before
        monkeypatch.setattr(access, "_who", lambda: (Sharing(roles=ROLES), ADA))
        WRITES[act](runs, of)
        assert snapshot(tmp_path) != before
        assert {e.actor for e in Journal(runs.journal).entries()} <= {"", "ada@example.org"}


def test_whatever_writes_a_file_or_starts_a_process_in_the_app_is_guarded_or_named_here() -> None:
    writing = {"write_text", "write_bytes", "mkdir", "replace", "rename", "unlink", "Popen", "run", "request_stop",
               "clear_stop", "write_runner", "truncate", "open"}
    found = set()
    for path in sorted(itertools.chain(*((ROOT / part).rglob("*.py") for part in ("core/store", "core/answers",
                                                                                  "core/reports", "pages")))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and name_of(node) in writing and writes(node):
                found.add(path.relative_to(ROOT).as_posix())
    assert GUARDED <= found <= {*GUARDED, *NO_PERSONS_WRITE}
    for path_name in GUARDED:
        assert "require_write(" in (ROOT / path_name).read_text(encoding="utf-8")


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def writes(call: ast.Call) -> bool:
    """Not for reading, and not the namesake of a text, a dataclass or a page."""
    name, on = name_of(call), ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "open":
        return any(set(mode) & set("wax+") and len(mode) <= 3 for mode in modes)
    if name == "replace":
        return on == "os"
    if name == "run":
        return on == "subprocess"
    if name == "rename":
        return not call.keywords
    return True


@pytest.mark.parametrize("words", [
    ["--entry", "evil.py:build"], ["--ent", "evil.py:build"], ["--resolution", "256", "--out", "/tmp/x"],
    ["--checkout=cotracker3=/tmp"], ["--frames", "47", "--weights", "w.pt"], ["--video", "clip.mp4"], ["-x"], ["--"],
    ["--runs", "/tmp"], ["--resume", "/tmp/run.jsonl"],
])
def test_a_value_of_the_form_cannot_become_an_option_that_names_a_file(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="among the values of a sweep"):
        jobs.start_sweep(["--preset", "quick", *words], RunsFolder(tmp_path / "runs"))
    with pytest.raises(UserError, match="among the values of a sweep"):
        planned.plan(("--preset", "quick", *words))
    assert not (tmp_path / "runs").exists()
