"""Files that people bring: looked at in a limited child process, kept under their hash, taken back when asked.

    found = preview(data, "run.jsonl")      what is in it, or a `UserError` that says in one sentence why it is refused
    accept(runs, data, "run.jsonl")         the original under runs/uploads/<sha256> and a line in the journal; the
                                            ingester does the rest, as with any other file
    undo(runs, upload_id)                   a journal line: its rows go, the original stays
"""
from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.records import RunsFolder
from core.store import queries
from core.store.journal import DELETE, RESTORE, UNDO, UPLOAD, Entry, Journal, active_uploads, hidden_runs, sync_folder
from core.store.rows import gpu_identity
from core.store.store import INGESTED_NAME, Store, database_path, open_if_free

MAX_UPLOAD_BYTES = 50 * 1024 * 1024
LIMITS = {
    "unpacked_bytes": 400 * 1024 * 1024, "ratio": 100, "line_bytes": 4 * 1024 * 1024, "lines": 200_000,
    "memory_bytes": 1024 * 1024 * 1024, "cpu_s": 60,
}
TIMEOUT_S = 90.0
INGEST_WAIT_S = 10.0
_CHILD = Path(__file__).with_name("read_upload.py")

_OTHER_FORMATS: tuple[tuple[bytes, int, str, str], ...] = (
    (b"PK\x03\x04", 0, "a zip archive (torch.save and numpy write those, too)", "unpack it and give the .jsonl in it"),
    (b"DUCK", 8, "a DuckDB database", "give the run files it was made of: its runs/ folder"),
    (b"PAR1", 0, "a Parquet table", "give the run file it was made of"),
    (b"\x89HDF", 0, "an HDF5 file", "give the run file"),
    (b"SQLite format 3", 0, "an SQLite database", "give the run file"),
    (b"\x28\xb5\x2f\xfd", 0, "a zstd archive", "unpack it and give the .jsonl in it"),
    (b"\xfd7zXZ", 0, "an xz archive", "unpack it and give the .jsonl in it"),
    (b"BZh", 0, "a bzip2 archive", "unpack it and give the .jsonl in it"),
    (b"%PDF", 0, "a PDF", "give the run file"),
    (b"\x89PNG", 0, "an image", "give the run file"),
    (b"\x7fELF", 0, "a program", "give the run file"),
)


@dataclass(frozen=True)
class FoundRun:
    """One run in an upload. The last three are None when no store was asked."""

    run_id: str
    label: str | None
    device: str | None
    gpu_key: str | None
    gpu_label: str | None
    origin: str | None
    started_at: str | None
    lines: int
    cells: int
    ok: int
    new_lines: int | None = None
    known_lines: int | None = None
    conflicting_lines: int | None = None


@dataclass(frozen=True)
class FoundProblem:
    line: int
    field: str
    found: str
    expected: str


@dataclass(frozen=True)
class Preview:
    """What an upload holds, before anything is kept. `problems`: the first 100 of `bad_lines`."""

    upload_id: str
    name: str
    size_bytes: int
    runs: tuple[FoundRun, ...]
    lines: int
    bad_lines: int
    problems: tuple[FoundProblem, ...]
    torn: str | None
    complete_bytes: int
    already_known: bool

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(run.run_id for run in self.runs)

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.gpu_label for run in self.runs if run.gpu_label is not None))

    @property
    def cells(self) -> int:
        return sum(run.cells for run in self.runs)

    @property
    def ok(self) -> int:
        return sum(run.ok for run in self.runs)


@dataclass(frozen=True)
class UploadRecord:
    """One upload as the journal has it; `active` is False after an undo."""

    upload_id: str
    name: str
    label: str | None
    actor: str
    time: str
    run_ids: tuple[str, ...]
    active: bool


@dataclass(frozen=True)
class IngestResult:
    """`by`: who made the rows: "command" (this process), "app" (the one that holds the database), or "nobody yet"."""

    preview: Preview
    upload_id: str | None
    by: str
    waited_s: float
    conflicts: int = 0
    """Lines left out, since another content is stored under their run and number."""


def preview(data: bytes, name: str, store: Store | None = None) -> Preview:
    """What is in these bytes, read in a limited child process. `already_known`: every line of it is stored (`store`).

    Raises `UserError`, one sentence, for a file that is too large, no run file, of another schema, or that does
    something to its reader.
    """
    name = _base_name(name)
    if len(data) > MAX_UPLOAD_BYTES:
        raise UserError(f"{name} has {len(data)} bytes", f"at most {MAX_UPLOAD_BYTES}", "gzip it, or split the sweep")
    _refuse_other_formats(data, name)
    found = _read_in_child(data, name)
    if "refused" in found:
        what, expected = found["refused"]
        raise UserError(f"{name}: {what}", expected, "nothing was kept")
    problems = tuple(FoundProblem(*item) for item in found["problems"])
    _refuse_without_lines(found, problems, name)
    runs = tuple(_found_run(run_id, run) for run_id, run in found["runs"].items())
    runs, already_known = _compare(runs, found["keys"], store)
    _refuse_without_header(runs, problems, name, store)
    return Preview(
        hashlib.sha256(data).hexdigest(), name, len(data), runs, found["lines"], found["bad_lines"], problems,
        found["torn"], found["complete_bytes"], already_known,
    )


def accept(
    runs: RunsFolder, data: bytes, name: str, *, actor: str = "", label: str | None = None,
    found: Preview | None = None, good_lines_only: bool = False,
) -> UploadRecord:
    """Keep an upload; when this returns it survives a power cut, and the ingester will take it in.

    The same bytes again change nothing. `found`: the preview of these bytes, to spare reading them twice.
    A file with bad lines is refused unless `good_lines_only`, which is a person's choice: they then stay in the file
    and are listed by `queries.problems`. Raises `UserError` for that, and as `preview` does.
    """
    upload_id = hashlib.sha256(data).hexdigest()
    if found is None or found.upload_id != upload_id:
        found = preview(data, name)
    if found.bad_lines and not good_lines_only:
        raise _mixed_error(found)
    runs.uploads.mkdir(parents=True, exist_ok=True)
    path = runs.uploads / upload_id
    if not path.exists():
        temporary = runs.uploads / f".incoming-{secrets.token_hex(8)}"
        try:
            with open(temporary, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(runs.uploads)
    journal = Journal(runs.journal)
    earlier = next((u for u in history(runs) if u.upload_id == upload_id and u.active), None)
    if earlier is not None:
        return earlier
    entry = journal.append(UPLOAD, f"upload:{upload_id}", actor=actor, data={
        "name": found.name, "label": label, "bytes": len(data), "run_ids": list(found.run_ids)[:100],
        "cells": found.cells, "bad_lines": found.bad_lines,
    })
    return _upload_record(entry, True)


def undo(runs: RunsFolder, upload_id: str, *, actor: str = "") -> None:
    """Take an upload's rows out again; the original stays and can be accepted again."""
    if upload_id not in active_uploads(Journal(runs.journal).entries()):
        raise UserError(f"no upload {upload_id[:12]} to undo", "an upload that is in", "the Data page lists them")
    Journal(runs.journal).append(UNDO, f"upload:{upload_id}", actor=actor)


def redo(runs: RunsFolder, upload_id: str, *, actor: str = "") -> None:
    """Bring an undone upload back."""
    known = next((u for u in history(runs) if u.upload_id == upload_id), None)
    if known is None or not (runs.uploads / upload_id).is_file():
        raise UserError(f"no upload {upload_id[:12]} to bring back", "an upload that was undone", "upload it again")
    if not known.active:
        Journal(runs.journal).append(UPLOAD, f"upload:{upload_id}", actor=actor, data={
            "name": known.name, "label": known.label, "run_ids": list(known.run_ids),
        })


def delete_run(runs: RunsFolder, run_id: str, *, actor: str = "") -> None:
    """Hide a run from every answer; its files stay, `restore_run` brings it back."""
    Journal(runs.journal).append(DELETE, f"run:{run_id}", actor=actor)


def restore_run(runs: RunsFolder, run_id: str, *, actor: str = "") -> None:
    if run_id not in hidden_runs(Journal(runs.journal).entries()):
        raise UserError(f"run {run_id} is not deleted", "a deleted run", "")
    Journal(runs.journal).append(RESTORE, f"run:{run_id}", actor=actor)


def history(runs: RunsFolder) -> list[UploadRecord]:
    """Every upload once, newest first, undone ones too."""
    entries = Journal(runs.journal).entries()
    active = active_uploads(entries)
    found = {
        entry.target.partition(":")[2]: entry for entry in entries
        if entry.act == UPLOAD and entry.target.startswith("upload:")
    }
    return [_upload_record(entry, upload_id in active) for upload_id, entry in reversed(found.items())]


def ingest_file(
    path: str | Path, db_path: str | Path | None = None, *, actor: str = "", dry_run: bool = False,
    reference: Path | None = None, wait_s: float = INGEST_WAIT_S, good_lines_only: bool = False,
) -> IngestResult:
    """Take a run file in, whether or not an app is open; returns when its rows are there, or after `wait_s`.

    With `dry_run` nothing is kept. A file that lies in the runs folder already is only waited for.
    `good_lines_only` as in `accept`. Raises `UserError` as `preview` does, and when the file cannot be read.
    """
    path = Path(path)
    data = _read(path)
    found = preview(data, path.name)
    if dry_run:
        return IngestResult(found, None, "nobody yet", 0.0)
    database = database_path(db_path)
    runs = RunsFolder.beside(database)
    inside = path.resolve().is_relative_to(runs.root.resolve()) and path.resolve() in [
        p.resolve() for p in runs.files()
    ]
    if inside and path.resolve().parent != runs.uploads.resolve():
        upload_id, key = None, f"runs/{path.resolve().relative_to(runs.root.resolve()).as_posix()}"
    else:
        upload_id = accept(runs, data, path.name, actor=actor, found=found,
                           good_lines_only=good_lines_only).upload_id
        key = f"uploads/{upload_id}"
    started = time.monotonic()
    while True:
        store = open_if_free(database, reference=reference)
        if store is not None:
            with store:
                conflicts = queries.conflicts_of(store, key)
            return IngestResult(found, upload_id, "command", time.monotonic() - started, conflicts)
        if _told_by_app(runs, "sources", key, -1) >= found.complete_bytes:
            return IngestResult(found, upload_id, "app", time.monotonic() - started,
                                _told_by_app(runs, "conflicts", key, 0))
        if time.monotonic() - started > wait_s:
            return IngestResult(found, upload_id, "nobody yet", time.monotonic() - started)
        time.sleep(0.1)


def _told_by_app(runs: RunsFolder, what: str, key: str, otherwise: int) -> int:
    """What the app says about this source: bytes that are in ("sources"), lines that were left out ("conflicts")."""
    try:
        return int(json.loads((runs.root / INGESTED_NAME).read_text())[what].get(key, otherwise))
    except (OSError, ValueError, KeyError, AttributeError):
        return otherwise


def _read(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_UPLOAD_BYTES:
            raise UserError(f"{path.name} has {size} bytes", f"at most {MAX_UPLOAD_BYTES}",
                            "gzip it, or put it into the runs folder")
        with open(path, "rb") as stream:  # of a pipe or a device the size is not known before
            data = stream.read(MAX_UPLOAD_BYTES + 1)
        if len(data) > MAX_UPLOAD_BYTES:
            raise UserError(f"{path.name} has more than {MAX_UPLOAD_BYTES} bytes", f"at most {MAX_UPLOAD_BYTES}",
                            "gzip it, or put it into the runs folder")
        return data
    except FileNotFoundError:
        raise UserError(f"no file {path.name}", "a run file (.jsonl or .jsonl.gz)", "check the path") from None
    except OSError as error:
        raise UserError(f"{path.name} cannot be read ({error.strerror or error})", "a run file") from None


def _base_name(name: str) -> str:
    """The last part of a path of any system, printable."""
    base = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(char for char in base if char.isprintable())[:100] or "the file"


# --- refusals --------------------------------------------------------------------------------------------------------


def _refuse_other_formats(data: bytes, name: str) -> None:
    expected = "a run file (.jsonl or .jsonl.gz)"
    if not data.strip():
        raise UserError(f"{name} is empty", expected, "make one with `python -m core run`")
    head = _head(data)
    for magic, at, what, fix in _OTHER_FORMATS:
        if head[at:at + len(magic)] == magic:
            raise UserError(f"{name} is {what}", expected, fix)
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        raise UserError(f"{name} is a Python pickle, which is never loaded here", expected, "give the run file")
    start = head.lstrip()[:200].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        raise UserError(f"{name} is a web page", expected, "download the file itself, not the page that shows it")
    if b"\x00" in head[:1024]:
        raise UserError(f"{name} is a binary file", expected, "give the run file")


def _head(data: bytes) -> bytes:
    """The first bytes, of the content if it is packed."""
    if data[:2] != b"\x1f\x8b":
        return data[:4096]
    try:
        return zlib.decompressobj(wbits=31).decompress(data[:65536], 4096)
    except zlib.error:
        return b"{"  # the child says what is wrong with it


def _refuse_without_lines(found: dict[str, Any], problems: Sequence[FoundProblem], name: str) -> None:
    if found["lines"]:
        return
    if problems and problems[0].field == "schema":
        raise UserError(f"{name} has schema {problems[0].found}", problems[0].expected)
    if problems:
        first = problems[0]
        raise UserError(
            f"{name} is no run file (line {first.line}, field {first.field}: {first.found})", first.expected,
            "make one with `python -m core run`",
        )
    raise UserError(f"{name} holds no complete line", "a run file (.jsonl or .jsonl.gz)",
                    "make one with `python -m core run`")


def _mixed_error(found: Preview) -> UserError:
    first = found.problems[0]
    count = f"{found.bad_lines} of {found.lines + found.bad_lines} lines"
    return UserError(
        f"{found.name}: {count} cannot be used (line {first.line}, field {first.field}: {first.found})",
        first.expected, "mend them, or take the good lines alone (python -m core ingest FILE --good-lines)",
    )


def _refuse_without_header(
    runs: Sequence[FoundRun], problems: Sequence[FoundProblem], name: str, store: Store | None
) -> None:
    missing = [run.run_id for run in runs if run.device is None]
    if store is not None and missing:
        stored = set(queries.runs(store)["run_id"])
        missing = [run_id for run_id in missing if run_id not in stored]
    if missing and len(missing) == len(runs):
        if problems and problems[0].line == 1:
            first = problems[0]
            raise UserError(f"{name} begins with a line that cannot be used (field {first.field}: {first.found})",
                            first.expected, "nothing was kept")
        raise UserError(f"{name} has lines of run {missing[0]}, but not the line that names its device",
                        "a whole run file, from its first line", "copy it again")


# --- the child -------------------------------------------------------------------------------------------------------


def _read_in_child(data: bytes, name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gapscope-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(data)
        command = [sys.executable, "-I", "-S", str(_CHILD), str(path), json.dumps(LIMITS)]
        environment = {"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {}
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
                env=environment, timeout=TIMEOUT_S, start_new_session=True, check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{name} takes longer than {TIMEOUT_S:.0f} s to read", "a run file",
                            "nothing was kept") from None
    if done.returncode != 0:
        raise UserError(f"{name} takes more time or memory to read than is allowed", "a run file",
                        "nothing was kept")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _found_run(run_id: str, run: dict[str, Any]) -> FoundRun:
    header = run["header"]
    if header is None:
        return FoundRun(run_id, None, None, None, None, None, None, run["lines"], run["cells"], run["ok"])
    key, label = gpu_identity(header["type"], header["name"], header["memory_bytes"], header["sm_count"])
    return FoundRun(
        run_id, header["label"], header["name"], key, label, header["origin"], header["started_at"], run["lines"],
        run["cells"], run["ok"],
    )


def _compare(
    runs: tuple[FoundRun, ...], keys: list[list[Any]], store: Store | None
) -> tuple[tuple[FoundRun, ...], bool]:
    """Each run with what of it is stored already, and whether all of it is."""
    if store is None:
        return runs, False
    stored = queries.known_lines(store, [(run_id, seq, sha) for run_id, seq, sha in keys])
    compared = []
    for run in runs:
        own = stored[stored["run_id"] == run.run_id]["equal"]
        known, conflicting = int(own.sum()), int((~own.astype(bool)).sum())
        compared.append(FoundRun(
            run.run_id, run.label, run.device, run.gpu_key, run.gpu_label, run.origin, run.started_at, run.lines,
            run.cells, run.ok, run.lines - known - conflicting, known, conflicting,
        ))
    return tuple(compared), all(run.new_lines == 0 and run.conflicting_lines == 0 for run in compared)


def _upload_record(entry: Entry, active: bool) -> UploadRecord:
    data = entry.data
    label, run_ids = data.get("label"), data.get("run_ids")
    return UploadRecord(
        entry.target.partition(":")[2], str(data.get("name") or "the file"), str(label) if label else None,
        entry.actor, entry.time, tuple(str(r) for r in run_ids) if isinstance(run_ids, list) else (), active,
    )
