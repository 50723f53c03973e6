"""Checkouts are recognised, and their version is read, from files alone; the registry says what is missing."""
from __future__ import annotations

import dataclasses
import hashlib
import struct
from pathlib import Path

import pytest

from core.errors import UserError
from core.trackers import checkout, registry
from core.trackers.info import OFFICIAL, Checkout

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KIND = Checkout("toy", "somebody/toy", "code", ("toy",), ("code/toy/net.py",), torch_hub=True)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A copy of the toy repository without `.git`."""
    folder = tmp_path / "copy"
    (folder / "code/toy").mkdir(parents=True)
    (folder / "code/toy/net.py").write_text("x = 1\n")
    (folder / "code/other.py").write_text("not importable as toy\n")
    return folder


def write_git(folder: Path, head: str, **files: str) -> None:
    folder.mkdir(parents=True)
    (folder / "HEAD").write_text(head + "\n")
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("packed_refs", "packed-refs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def write_index(git: Path, contents: dict[str, bytes], version: int = 2) -> None:
    """git's index as gitformat-index describes it: a header, and entries padded to multiples of eight bytes."""
    data = struct.pack(">4sII", b"DIRC", version, len(contents))
    for name, content in contents.items():
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).digest()
        entry = bytes(40) + blob + struct.pack(">H", len(name)) + name.encode()
        data += entry + bytes(8 - len(entry) % 8)
    (git / "index").write_bytes(data)


def test_a_commit_is_read_without_git(top: Path, tmp_path: Path) -> None:
    assert checkout.commit(top) is None
    write_git(top / ".git", COMMIT)
    assert checkout.commit(top) == COMMIT
    (top / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert checkout.commit(top) is None
    (top / ".git/packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert checkout.commit(top) == COMMIT
    (top / ".git/refs/heads").mkdir(parents=True)
    (top / ".git/refs/heads/main").write_text("f" * 40)
    assert checkout.commit(top) == "f" * 40


def test_a_linked_worktree_finds_its_branch_in_the_main_repository(top: Path, tmp_path: Path) -> None:
    main = tmp_path / "main/.git"
    write_git(main, "ref: refs/heads/main", refs__heads__work=COMMIT)
    write_git(main / "worktrees/copy", "ref: refs/heads/work", commondir="../..")
    (top / ".git").write_text(f"gitdir: {main}/worktrees/copy\n")
    assert checkout.commit(top) == COMMIT


@pytest.mark.parametrize("version", [2, 3])
def test_edited_code_is_told_from_committed_code(top: Path, version: int) -> None:
    write_git(top / ".git", COMMIT)
    write_index(top / ".git", {"README.md": b"gone", "code/toy/net.py": b"x = 1\n"}, version)
    assert checkout.revision(top, KIND) == "0123456789ab"
    (top / "code/toy/net.py").write_bytes(b"x = 1\r\n")  # the same with the line ends of Windows
    assert checkout.revision(top, KIND) == "0123456789ab"
    (top / "code/toy/net.py").write_text("x = 2\n")
    assert checkout.revision(top, KIND) == f"0123456789ab+{checkout.content_hash(top, KIND)}"
    (top / "code/toy/net.py").write_text("x = 1\n")
    (top / "code/toy/new.py").write_text("")
    assert checkout.revision(top, KIND).startswith("0123456789ab+")


def test_code_without_a_commit_is_named_by_its_content(top: Path) -> None:
    first = checkout.revision(top, KIND)
    assert first == f"unknown+{checkout.content_hash(top, KIND)}"
    (top / "code/other.py").write_text("changed\n")
    (top / "README.md").write_text("changed\n")
    assert checkout.revision(top, KIND) == first
    (top / "code/toy/net.py").write_text("x = 3\n")
    assert checkout.revision(top, KIND) != first


def test_an_unreadable_index_does_not_call_code_edited(top: Path) -> None:
    write_git(top / ".git", COMMIT)
    for content in (b"", b"DIRC", struct.pack(">4sII", b"DIRC", 4, 1), struct.pack(">4sII", b"DIRC", 2, 5) + b"short"):
        (top / ".git/index").write_bytes(content)
        assert not checkout.is_edited(top, KIND)


def test_a_folder_is_recognised_by_its_files(top: Path, tmp_path: Path) -> None:
    assert checkout.locate(KIND, top) == top
    with pytest.raises(UserError, match=r"no folder 'gone' for the checkout toy; .*git clone https://github.com/somebody"):
        checkout.locate(KIND, tmp_path / "gone")
    with pytest.raises(UserError, match=r"'code' is no copy of somebody/toy: code/toy/net.py is not in it"):
        checkout.locate(KIND, top / "code")


def test_the_copy_of_torch_hub_is_used_and_never_fetched(
    top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    with pytest.raises(UserError, match=r"has not fetched somebody/toy .*torch.hub.list\('somebody/toy:main'"):
        checkout.locate(KIND, checkout.TORCH_HUB)
    (tmp_path / "home/hub").mkdir(parents=True)
    top.rename(tmp_path / "home/hub/somebody_toy_main")
    assert checkout.locate(KIND, checkout.TORCH_HUB).name == "somebody_toy_main"
    with pytest.raises(UserError, match=r"torch.hub has no somebody/toy"):
        checkout.locate(dataclasses.replace(KIND, torch_hub=False), checkout.TORCH_HUB)


def test_options_and_file_give_paths_by_checkout(tmp_path: Path) -> None:
    file = tmp_path / "trackers.toml"
    file.write_text('[checkouts]\nlocotrack = "here"\ntapir = "/there"\ncotracker = "torch.hub"\n')
    found = registry.checkouts(["locotrack=elsewhere"], file)
    assert found == {"locotrack": "elsewhere", "tapnet": "/there", "cotracker": "torch.hub"}
    assert registry.checkouts(file=file)["locotrack"] == str(tmp_path / "here")


@pytest.mark.parametrize(("text", "message"), [
    ("locotrack", "expected NAME=PATH"),
    ("=path", "expected NAME=PATH"),
    ("locotrak=path", "no tracker uses a checkout 'locotrak'; expected locotrack"),
    ("local4d=path", "no tracker uses a checkout 'local4d'"),
])
def test_a_wrong_checkout_option_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        registry.checkouts([text])


@pytest.mark.parametrize("text", ["", "[checkouts", "[checkouts]\nx = 1\n", "checkouts = 3\n"])
def test_a_wrong_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "trackers.toml").write_text(text)
    with pytest.raises(UserError, match=r"trackers\.toml"):
        registry.checkouts(file=tmp_path / "trackers.toml")


def test_weights_are_named_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(b"abc")
    assert checkout.weights_name(tmp_path / "a.pt") == "sha256:ba7816bf"  # the published SHA-256 of "abc"
    with pytest.raises(UserError, match=r"no weights file 'b\.pt'"):
        checkout.weights_name(tmp_path / "b.pt")


# --- what the registry says about official trackers ------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, info in registry.TRACKERS.items() if info.implementation == OFFICIAL])
def test_what_is_missing_is_named_with_the_command_that_gets_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = registry.TRACKERS[name]
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    told = str(registry.missing(info))
    if info.checkout is not None:
        assert f"git clone https://github.com/{info.checkout.repository}" in told
        assert f"--checkout {info.checkout.name}=PATH" in told
        place = Path(__file__).parent / "official_standins" / info.checkout.name
        told = str(registry.missing(info, {info.checkout.name: str(place)}))
    if info.packages:
        assert f"pip install {registry.INDEX_NAMES.get(info.packages[0], info.packages[0])}" in told
    else:
        assert told == "None"


def test_nothing_is_missing_for_a_built_in_tracker() -> None:
    assert registry.missing(registry.TRACKERS["local4d"]) is None
    assert registry.revision(registry.TRACKERS["local4d"]) == registry.TRACKERS["local4d"].revision


def test_a_work_key_holds_the_code_and_the_weights_that_ran() -> None:
    work = registry.work_key("cotracker3:online", 47, 256, 256, 64, revision="82e02e8029ba", weights="sha256:0011aabb")
    assert (work.implementation, work.revision, work.weights) == ("official", "82e02e8029ba", "sha256:0011aabb")
    assert (work.window, work.iterations, work.points) == (16, 4, 64)
    other = registry.work_key("cotracker3:offline-predictor", 47, 256, 256, 64)
    assert (other.window, other.iterations, other.weights) == (None, 6, "random")
    assert work.key() != dataclasses.replace(work, revision="unknown").key()


def test_a_dense_tracker_has_no_number_of_points() -> None:
    assert registry.work_key("raft", 8, 128, 128, 64).points is None
    assert registry.work_key("raft", 8, 128, 128, None) == registry.work_key("raft", 8, 128, 128, 7)
    with pytest.raises(UserError, match="points is 0"):
        registry.work_key("locotrack", 8, 128, 128, None)


@pytest.mark.parametrize(("selector", "size", "message"), [
    ("cotracker3:online", (15, 256, 256, 1), "at least 16 for cotracker3, whose window is that long; use --frames 16"),
    ("cotracker2", (7, 256, 256, 1), "use --frames 8"),
    ("cotracker3:offline", (8, 250, 256, 1), "use 252x256"),
    ("alltracker", (16, 64, 256, 1), "use 72x256"),
    ("raft", (8, 96, 131, 1), "use 128x128"),
    ("tapnext", (8, 255, 256, 1), "use 256x256"),
])
def test_a_size_that_an_official_tracker_cannot_take_gets_the_nearest(
    selector: str, size: tuple[int, int, int, int], message: str
) -> None:
    info, _ = registry.resolve(selector)
    with pytest.raises(UserError, match=message):
        registry.check_workload(info, *size)


def test_a_variant_may_differ_from_its_tracker() -> None:
    registry.check_workload(registry.resolve("cotracker3:offline")[0], 2, 64, 64, 1)
    registry.check_workload(registry.resolve("cotracker3:offline-predictor")[0], 2, 65, 63, 1)
    for row in registry.table():
        assert row["min_frames"] >= (row["window"] or 1)


def test_the_table_has_a_row_for_every_selector() -> None:
    rows = registry.table()
    assert tuple(row["selector"] for row in rows) == registry.selectors()
    assert [row["title"] for row in rows if row["default"] and row["tracker"] == "tapir"] == ["TAPIR"]
    assert {row["licence"] for row in rows if row["checkout"] == "cotracker"} == {"CC-BY-NC-4.0"}
    assert all(row["stages"] and row["paper"] for row in rows)
