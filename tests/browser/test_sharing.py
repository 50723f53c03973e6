"""Shared safely: whoever may only look is refused on the server, whatever their browser or script sends it."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from stored_state import (
    CARD,
    DELETED,
    NEW_FILE,
    RELEASED_ITEM,
    RUNNING,
    STOPPED,
    STORED,
    Stored,
    filled,
    snapshot,
)
from streamlit.proto.Common_pb2 import FileUploaderState, UploadedFileInfo
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.exceptions import InvalidStatus

from core.records import RunsFolder

from .conftest import Server
from .oidc_provider import CLIENT, SECRET, running_provider
from .raw_client import RawClient

# Reached from elsewhere, by the rule; the test itself stays on loopback.
SHARED = ("--server.allowedHosts", "*")


@dataclass(frozen=True)
class Way:
    """One way to write: the page, its query, and what is pressed there, by key.

    `fill`: what fields hold first; `opened`: a popover that is opened first.
    """

    page: str
    press: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    fill: tuple[tuple[str, str], ...] = ()
    opened: str = ""


def ways(of: Stored) -> dict[str, Way]:
    """Every way in which a page writes. The last ones start processes that measure."""
    card = {**CARD, "name": "RTX 9091", "nvml_names": "Prototype 91"}
    return {
        "undo an upload": Way("data", (f"undo_{of.upload_in}",)),
        "bring an upload back": Way("data", (f"redo_{of.upload_out}",)),
        "delete a run": Way("data", ("delete", "delete_yes"), (("run", f"{STORED}, Tesla T4"),)),
        "restore a run": Way("data", (f"restore_{DELETED}",)),
        "release from quarantine": Way("data", ("release",), fill=(("quarantine_reason", "because"),)),
        "hold back again": Way("data", (f"hold_{RELEASED_ITEM}",)),
        "add a card": Way("gpus", ("Add this card",), fill=tuple((f"new_{k}", str(v)) for k, v in card.items())),
        "take a card away": Way("gpus", ("remove",), (("gpu", "RTX 9090"),)),
        "pin": Way("gap", ("Pin this view",), opened="pin"),
        "decide": Way("review", (f"decide_{of.pin}",)),
        "edit a pin": Way("review", ("Save",), (("status", "all"), (f"edit_{of.pin}", "true"))),
        "remove a pin": Way("review", (f"remove_{of.pin}",), (("status", "all"),)),
        "stop a sweep": Way("sweep", ("stop",), (("run", RUNNING),)),
        "resume a sweep": Way("sweep", ("resume",), (("run", STOPPED),)),
        "start a sweep": Way("sweep", ("start",)),
        "measure this machine": Way("", ("Measure this machine",)),
    }


def take(client: RawClient, way: Way, known: dict[str, str]) -> None:
    """Go that way, whether or not its buttons are enabled.

    `known`: ids from a server where one may write, for widgets that this page does not even make.
    """
    client.open(way.page, **dict(way.query))
    fields = [WidgetState(id=client.find(name, known), string_value=value) for name, value in way.fill]
    if way.opened:
        fields.append(WidgetState(id=client.find(way.opened, known), bool_value=True))
    if fields:
        client.tell(*fields)  # a button acts with what its fields held when the page was made
    for key in way.press:
        client.press(client.find(key, known), *fields)


@contextmanager
def served(folder: Path, *options: str, **variables: str) -> Iterator[tuple[Server, Stored]]:
    server = Server(folder, options, variables)
    with filled(RunsFolder(server.runs)) as of:
        try:
            server.start()
            yield server, of
        finally:
            server.stop()


def send_file(client: RawClient, known: dict[str, str]) -> None:
    """Put a file to the upload endpoint, past the page; then say that the page's uploader holds it, and confirm."""
    client.open("data")
    status, file_id = client.put_file("new.jsonl", NEW_FILE)
    assert status == 204  # Streamlit holds it in memory for this session
    info = UploadedFileInfo(file_id=file_id, name="new.jsonl", size=len(NEW_FILE))
    info.file_urls.file_id = file_id
    held = WidgetState(id=client.find("upload_0", known),
                       file_uploader_state_value=FileUploaderState(uploaded_file_info=[info]))
    client.tell(held)
    client.press(client.find("confirm", known), held)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Ids of the widgets by which every way was gone where one may write; each of them wrote."""
    found: dict[str, str] = {}
    with served(tmp_path_factory.mktemp("sharing") / "open", *SHARED, GAPSCOPE_WRITE="1") as (server, of):
        for name, way in {"upload": None, **ways(of)}.items():
            before = snapshot(server.runs)
            with RawClient(server.url) as client:
                take(client, way, found) if way is not None else send_file(client, found)
            assert snapshot(server.runs) != before, name
    return found


def test_every_way_to_write_is_refused_by_a_shared_app_without_a_login(known: dict[str, str], tmp_path: Path) -> None:
    with served(tmp_path / "app", *SHARED) as (server, of):
        with RawClient(server.url) as client:
            client.open("data")
            assert any("read\\-only" in text for text in client.texts)
        assert_refuses(server, of, known)
        assert_other_messages_do_no_harm(server)


def test_in_a_meeting_room_nobody_writes_from_this_machine_either(known: dict[str, str], tmp_path: Path) -> None:
    with served(tmp_path / "app", GAPSCOPE_READ_ONLY="1", GAPSCOPE_WRITE="1") as (server, of):
        before = snapshot(server.runs)
        with RawClient(server.url) as client:
            send_file(client, known)
        for name in ("undo an upload", "start a sweep"):
            with RawClient(server.url) as client:
                take(client, ways(of)[name], known)
        assert snapshot(server.runs) == before


def assert_other_messages_do_no_harm(server: Server) -> None:
    """What else Streamlit answers: its other messages, its agent API, paths that lead out of its folders."""
    before = snapshot(server.runs)
    with RawClient(server.url) as client:
        client.open("data")
        client.send(clear_cache=True)
        client.send(debug_shutdown_runtime=True)
        client.send(set_run_on_save=True)
        client.open("data")
        assert any("Add run files" in text for text in client.texts)  # the app still has its database
        for path in ("/_stcore/agent/interact", "/_stcore/agent/mcp"):
            status, body, _ = client.request("POST", path, b"{}", **{"Content-Type": "application/json"})
            assert status in (400, 403)
            assert b"does not serve the agent API" in body
        assert client.request("PUT", f"/_stcore/upload_file/{client.session}/x", b"x")[0] == 403  # no token
        for path in ("/app/static/../results.duckdb", "/media/../../results.duckdb", "/component/../app.py",
                     "/static/%2e%2e/%2e%2e/app.py", "/_stcore/bidi-components/../../app.py"):
            for method in ("GET", "PUT", "POST", "DELETE"):
                status, body, _ = client.request(method, path)
                assert status >= 400 or b"<!doctype html>" in body[:200].lower(), (method, path, status)
    assert snapshot(server.runs) == before


def test_another_host_or_origin_is_not_answered(server: Server) -> None:
    for host, origin in (("evil.example", "http://evil.example"), (f"localhost:{server.port}", "http://evil.example")):
        with pytest.raises(InvalidStatus):
            RawClient(server.url, host=host, origin=origin)


def assert_refuses(server: Server, of: Stored, known: dict[str, str], **who: str) -> None:
    """Every way, with the buttons of the page or, where it makes none, with those of a page that may."""
    before = snapshot(server.runs)
    for name, way in {"upload": None, **ways(of)}.items():
        with RawClient(server.url, **who) as client:
            take(client, way, known) if way is not None else send_file(client, known)
        assert snapshot(server.runs) == before, name


# --- a login ---------------------------------------------------------------------------------------------------------

ROLES = '[roles]\n"ada@example.org" = "editor"\n"bob@example.org" = "viewer"\n'


@contextmanager
def served_with_login(folder: Path) -> Iterator[tuple[Server, Stored]]:
    """An app whose login is a real OpenID provider on this machine, ada an editor and bob a viewer."""
    folder.mkdir()
    with running_provider() as provider:
        (folder / "secrets.toml").write_text(
            f'[auth]\nredirect_uri = "http://localhost:{{port}}/oauth2callback"\ncookie_secret = "{"c" * 40}"\n'
            f'client_id = "{CLIENT}"\nclient_secret = "{SECRET}"\n'
            f'server_metadata_url = "{provider.url}/.well-known/openid-configuration"\n'
        )
        (folder / "gapscope_roles.toml").write_text(ROLES)
        with served(folder, "--secrets.files", str(folder / "secrets.toml"), NO_PROXY="localhost") as found:
            yield found


def log_in(browser: Any, server: Server, email: str, verified: bool = True) -> Any:
    """A tab of a browser of its own, behind the provider's door."""
    page = browser.new_context().new_page()
    page.set_default_timeout(20_000)
    page.goto(server.url)
    page.get_by_role("button", name="Log in").click()
    page.get_by_label("Address").fill(email)
    page.get_by_label("Verified").set_checked(verified)
    page.get_by_role("button", name="Enter").click()
    page.wait_for_url(f"{server.url}/**")
    return page


def signed_in(page: Any) -> dict[str, str]:
    """What a script needs to act as this browser."""
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    return {"cookies": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "token": cookies["_streamlit_xsrf"]}


def test_after_a_login_an_editor_writes_a_viewer_looks_and_a_stranger_sees_nothing(
    browser: Any, known: dict[str, str], tmp_path: Path
) -> None:
    with served_with_login(tmp_path / "app") as (server, of):
        stranger = log_in(browser, server, "eve@example.org")
        stranger.get_by_text("eve@example.org has no role here").wait_for()
        assert stranger.get_by_role("link", name="Sweep").count() == 0
        unverified = log_in(browser, server, "ada@example.org", verified=False)
        unverified.get_by_text("ada@example.org has no role here").wait_for()
        viewer = log_in(browser, server, "Bob@example.org")
        viewer.get_by_text("You are logged in as a viewer").wait_for()
        viewer.goto(f"{server.url}/data")
        viewer.get_by_role("heading", name="Runs", exact=True).wait_for()
        assert viewer.get_by_role("button", name="Undo").is_disabled()
        assert viewer.locator('input[type="file"]').count() == 0
        editor = log_in(browser, server, "ada@example.org")
        editor.get_by_text("ada@example.org, editor").wait_for()
        editor.goto(f"{server.url}/data")
        editor.get_by_role("button", name="Undo").click()
        editor.get_by_text(re.compile(r"^in\.jsonl, .*; undone")).wait_for()
        last = json.loads(server.runs.joinpath("journal.jsonl").read_text().splitlines()[-1])
        assert (last["act"], last["actor"]) == ("undo", "ada@example.org")

        with RawClient(server.url, **signed_in(editor)) as client:
            client.open("data")
            client.press(client.find(f"redo_{of.upload_in}"))
            client.open("data")
            undo = client.find(f"undo_{of.upload_in}")
        before = snapshot(server.runs)
        for who in ({}, signed_in(stranger), signed_in(unverified), signed_in(viewer),
                    {"headers": {"X-User-Email": "ada@example.org", "X-Forwarded-For": "127.0.0.1"}},
                    {**signed_in(viewer), "token": "forged"}):
            with RawClient(server.url, **who) as client:
                client.open("data")
                client.press(undo)
            assert snapshot(server.runs) == before, who
        assert_refuses(server, of, known, **signed_in(viewer))

        (server.folder / "gapscope_roles.toml").write_text(ROLES.replace("editor", "viewer"))
        with RawClient(server.url, **signed_in(editor)) as client:  # a role that is taken away is gone at once
            client.open("data")
            client.press(undo)
        assert snapshot(server.runs) == before
        (server.folder / "gapscope_roles.toml").write_text(ROLES.replace("editor", "admin"))
        editor.reload()
        editor.get_by_text("gapscope_roles.toml gives ada@example.org the role 'admin'").wait_for()
        assert editor.get_by_role("link", name="Sweep").count() == 0
