"""Shared safely: whoever may only look is refused on the server, whatever their browser or script sends it."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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

from core.records import RunsFolder

from .conftest import Server
from .raw_client import RawClient

# Reached from elsewhere, by the rule; the test itself stays on loopback.
SHARED = ("--server.allowedHosts", "*")


@dataclass(frozen=True)
class Way:
    """One way to write: the page, its query, and what is pressed there, by key; `fill` says what other fields hold."""

    page: str
    press: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    fill: tuple[tuple[str, str], ...] = ()


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


def test_every_way_to_write_writes_where_one_may_and_is_refused_where_one_may_not(tmp_path: Path) -> None:
    known: dict[str, str] = {}
    with served(tmp_path / "open", *SHARED, GAPSCOPE_WRITE="1") as (server, of):
        for name, way in {"upload": None, **ways(of)}.items():
            before = snapshot(server.runs)
            with RawClient(server.url) as client:
                take(client, way, known) if way is not None else send_file(client, known)
            assert snapshot(server.runs) != before, name
    for folder, options, variables in (("shared", SHARED, {}), ("meeting", (), {"GAPSCOPE_READ_ONLY": "1"})):
        with served(tmp_path / folder, *options, **variables) as (server, of):
            assert_refuses(server, of, known)


def assert_refuses(server: Server, of: Stored, known: dict[str, str], **signed_in: str) -> None:
    """Every way, with the buttons of the page or, where it makes none, with those of a page that may."""
    before = snapshot(server.runs)
    for name, way in {"upload": None, **ways(of)}.items():
        with RawClient(server.url, **signed_in) as client:
            take(client, way, known) if way is not None else send_file(client, known)
        assert snapshot(server.runs) == before, name
