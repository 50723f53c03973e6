"""Files that people bring: looked at in a limited child process, kept under their hash, taken back when asked.

    found = preview(data, "run.jsonl")      what is in it, or a `UserError` that says in one sentence why it is refused;
                                            of another program's file also what must be asked (`found.imported`)
    accept(runs, data, "run.jsonl")         the original under runs/uploads/<sha256> and a line in the journal; the
                                            ingester does the rest, as with any other file
    undo(runs, upload_id)                   a journal line: its rows go, the original stays
"""
from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.records import RunsFolder, now_utc
from core.store import imported, queries
from core.store.access import require_write
from core.store.child import PACKED_FORMATS, read_in_child
from core.store.imported import OF_ONE_FILE, Imported, Question, mapping_target, saved_answers
from core.store.importers.model import with_article
from core.store.journal import (
    DELETE,
    MAPPING,
    RESTORE,
    UNDO,
    UPLOAD,
    Entry,
    Journal,
    active_uploads,
    hidden_runs,
    sync_folder,
)
from core.store.rows import gpu_identity
from core.store.store import INGESTED_NAME, Store, database_path, open_if_free, open_reading

MAX_UPLOAD_BYTES = 50 * 1024 * 1024
LIMITS = {
    "unpacked_bytes": 400 * 1024 * 1024, "ratio": 100, "line_bytes": 4 * 1024 * 1024, "lines": 200_000,
    "memory_bytes": 1024 * 1024 * 1024, "cpu_s": 60, "foreign_bytes": 200 * 1024 * 1024,
}
TIMEOUT_S = 90.0
INGEST_WAIT_S = 10.0

KNOWN_FILES = "a run file (.jsonl or .jsonl.gz), a trace or report of a known program, or a table with a header"
TORCH_RECIPE = ("never loaded here, since loading runs code; write the numbers out where it was made: "
                "a CSV with a header such as task,ms, of torch.utils.benchmark one row per value of Measurement.times")
_OTHER_FORMATS: tuple[tuple[bytes, int, str, str], ...] = (
    (b"PK\x03\x04", 0, "a zip archive (torch.save and numpy write those, too)",
     f"unpack it and give the file in it; what torch.save wrote is {TORCH_RECIPE}"),
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
    imported: Imported | None = None
    lines_text: bytes = field(default=b"", repr=False)
    """The lines that another program's file becomes; empty while a question is open."""

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """What must be answered before anything comes in."""
        asked = self.imported.questions if self.imported is not None else ()
        return tuple(question for question in asked if question.default is None)

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


def preview(
    data: bytes, name: str, store: Store | None = None, *, answers: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None, runs: RunsFolder | None = None, use_saved: bool = True,
) -> Preview:
    """What is in these bytes, read in a limited child process. `already_known`: every line of it is stored (`store`).

    Of another program's file `imported` says what was understood and asked. `answers` of a person go before `facts`
    of a companion file, these before what was answered for this very file, else for a table with the same columns
    (`runs`, else the store's; not at all without `use_saved`).
    Raises `UserError`, one sentence, for a file that is too large, that nobody here can read, of another schema, that
    does something to its reader, or that is to be attached to a run that is not stored (`store`).
    """
    folder = runs or (store.runs if store is not None else None)
    name = _base_name(name)
    if len(data) > MAX_UPLOAD_BYTES:
        raise UserError(f"{name} has {len(data)} bytes", f"at most {MAX_UPLOAD_BYTES}", "gzip it, or split the sweep")
    _refuse_other_formats(data, name)
    upload_id, received_at = hashlib.sha256(data).hexdigest(), now_utc()

    def read(given: Mapping[str, str]) -> dict[str, Any]:
        answer = read_in_child(data, name, limits=LIMITS, timeout_s=TIMEOUT_S, sha=upload_id, answers=given,
                               received_at=received_at)
        if "refused" in answer:
            raise _refused(name, *answer["refused"])
        return answer

    own = {**(facts or {}), **(answers or {})}
    found = read(own)
    saved: Mapping[str, str] = {}
    if "import" in found and folder is not None and use_saved and not answers:
        saved = _kept_answers(folder, upload_id) or saved_answers(
            folder, found["import"]["format"], found["import"]["columns"])
        if saved:
            found = read({**saved, **own})
    if "import" in found:
        if store is not None:
            check_attached(found["import"]["answers"], store)
        return _foreign(found, upload_id, name, len(data), received_at, saved, store)
    problems = tuple(FoundProblem(*item) for item in found["problems"])
    _refuse_without_lines(found, problems, name)
    found_runs = tuple(_found_run(run_id, run) for run_id, run in found["runs"].items())
    found_runs, already_known = _compare(found_runs, found["keys"], store)
    _refuse_without_header(found_runs, problems, name, store)
    return Preview(
        upload_id, name, len(data), found_runs, found["lines"], found["bad_lines"], problems,
        found["torn"], found["complete_bytes"], already_known,
    )


def _foreign(
    found: dict[str, Any], upload_id: str, name: str, size: int, received_at: str, saved: Mapping[str, str],
    store: Store | None,
) -> Preview:
    about = imported.from_child(found["import"], received_at, bool(saved))
    found_runs = tuple(_found_run(run_id, run) for run_id, run in found["runs"].items())
    active = active_uploads(Journal(store.runs.journal).entries()) if store is not None and store.runs else {}
    known = upload_id in active
    if about.format == imported.DATABASE and store is not None:
        found_runs, known = _compare(found_runs, found["keys"], store)
        stored = set(queries.runs(store)["run_id"])
        here = sum(run.run_id.removeprefix(imported.COPY) in stored for run in found_runs)
        if here:
            about = replace(about, said=(*about.said, f"{here} of {len(found_runs)} runs are here already."))
        known = known or here == len(found_runs)
    return Preview(
        upload_id, name, size, found_runs, found["lines"], 0,
        tuple(FoundProblem(*item) for item in found["import"]["problems"]), None, found["complete_bytes"], known,
        about, (found["import_lines"] or "").encode(),
    )


def _kept_answers(runs: RunsFolder, upload_id: str) -> Mapping[str, str] | None:
    """How a file of another program was answered that is in now; None when it is not."""
    entries = Journal(runs.journal).entries()
    position = active_uploads(entries).get(upload_id)
    kept = entries[position].data.get("import") if position is not None else None
    answers = kept.get("answers") if isinstance(kept, Mapping) else None
    return {str(key): str(value) for key, value in answers.items()} if isinstance(answers, Mapping) else None


def check_attached(answers: Mapping[str, str], store: Store) -> None:
    """Raises `UserError` when the answer `attach` names a run, or a line of a cell, that is not stored."""
    target = answers.get("attach", "none")
    if target in ("none", "by time"):
        return
    run_id, mark, line = target.partition(":")
    if run_id not in set(queries.runs(store)["run_id"]):
        raise UserError(f"the answer attach={target[:80]}, and no such run is stored", "a run id, or RUN_ID:LINE",
                        "python -m core runs lists them")
    lines = set(queries.cells(store, run_ids=[run_id], older_attempts=True)["seq"]) if mark else set()
    if mark and not (line.isascii() and line.isdecimal() and int(line) in lines):
        some = ", ".join(str(number) for number in sorted(lines)[:8])
        raise UserError(f"the answer attach={target[:80]}, and line {line[:20]} of that run is no cell",
                        f"one of its lines with a cell ({some})" if some else "a run with cells")


def _refused(name: str, found: str, expected: str, fix: str = "nothing was kept") -> UserError:
    """A refusal of the child; what it calls "a ..." is the file itself."""
    return UserError(f"{name} is {found}" if found.startswith(("a ", "an ")) else f"{name}: {found}", expected,
                     fix or "nothing was kept")


def accept(
    runs: RunsFolder, data: bytes, name: str, *, actor: str = "", label: str | None = None,
    found: Preview | None = None, good_lines_only: bool = False, answers: Mapping[str, str] | None = None,
) -> UploadRecord:
    """Keep an upload; when this returns it survives a power cut, and the ingester will take it in.

    The same bytes again change nothing; with other answers than those by which they are here they are refused.
    `found`: the preview of these bytes, to spare reading them twice.
    A file with bad lines is refused unless `good_lines_only`, which is a person's choice: they then stay in the file
    and are listed by `queries.problems`. Of another program's file the answers go into the journal, so that a
    rebuild makes the same rows of the original; what was answered for a table is offered for the next one.
    Raises `UserError` for bad lines, for open questions, and as `preview` does.
    """
    require_write("the upload")
    upload_id = hashlib.sha256(data).hexdigest()
    if found is None or found.upload_id != upload_id:
        found = preview(data, name, answers=answers, runs=runs)
    if found.bad_lines and not good_lines_only:
        raise _mixed_error(found)
    if found.imported is not None and not found.lines_text:
        raise _open_error(found, found.imported)
    kept = _kept_answers(runs, upload_id)
    if kept is not None and found.imported is not None and kept != dict(found.imported.answers):
        told = ", ".join(f"{key} {value}" for key, value in kept.items()) or "none"
        raise UserError(f"{found.name} is here already, read with other answers ({told[:300]})", "the same answers",
                        "undo it on the Data page, then give it again")
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
    about: dict[str, Any] = {
        "name": found.name, "label": label, "bytes": len(data), "run_ids": list(found.run_ids)[:100],
        "cells": found.cells, "bad_lines": found.bad_lines,
    }
    if found.imported is not None:
        about["import"] = found.imported.for_journal(found.name)
        imported.keep_lines(runs, upload_id, about["import"], found.lines_text)
        target = mapping_target(found.imported.format, found.imported.columns)
        if found.imported.columns and found.imported.answers and not found.imported.from_saved:
            journal.append(MAPPING, target, actor=actor, data={
                "format": found.imported.format, "columns": list(found.imported.columns)[:200], "name": found.name,
                "answers": {key: value for key, value in found.imported.answers.items() if key not in OF_ONE_FILE},
            })
    entry = journal.append(UPLOAD, f"upload:{upload_id}", actor=actor, data=about)
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
        journal = Journal(runs.journal)
        last = [e for e in journal.entries(f"upload:{upload_id}") if e.act == UPLOAD][-1]
        journal.append(UPLOAD, f"upload:{upload_id}", actor=actor, data={
            key: last.data[key] for key in ("name", "label", "run_ids", "import") if key in last.data
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
    answers: Mapping[str, str] | None = None, facts: Mapping[str, str] | None = None,
) -> IngestResult:
    """Take a run file in, or a file of another program with its `answers`, whether or not an app is open.

    Returns when its rows are there, or after `wait_s`.

    With `dry_run` nothing is kept. A file that lies in the runs folder already is only waited for.
    `good_lines_only` as in `accept`. Raises `UserError` as `preview` does, and when the file cannot be read.
    """
    path = Path(path)
    data = read_file(path)
    database = database_path(db_path)
    runs = RunsFolder.beside(database)
    found = preview(data, path.name, answers=answers, facts=facts, runs=runs)
    if found.imported is not None and found.imported.answers.get("attach", "none") not in ("none", "by time"):
        with open_reading(database, reference=reference) as reading:
            check_attached(found.imported.answers, reading)
    if dry_run:
        return IngestResult(found, None, "nobody yet", 0.0)
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


def read_file(path: Path) -> bytes:
    """The bytes of an upload. Raises `UserError` for one that is missing, too large or without an end."""
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
        raise UserError(f"{name} is a Python pickle, which is {TORCH_RECIPE.partition(';')[0]}", expected,
                        TORCH_RECIPE.partition("; ")[2])
    start = head.lstrip()[:200].lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        raise UserError(f"{name} is a web page", expected, "download the file itself, not the page that shows it")
    is_known_binary = head[:4] == PACKED_FORMATS[0] or head[8:12] == PACKED_FORMATS[1]
    if b"\x00" in head[:1024] and head[:2] not in (b"\xff\xfe", b"\xfe\xff") and not is_known_binary:
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
    unknown = found.get("unknown")
    if unknown is not None:
        where = f" (line {problems[0].line}, field {problems[0].field}: {problems[0].found})" if problems else ""
        raise UserError(f"{name} is no run file{where}, and {unknown}", KNOWN_FILES,
                        "export it as CSV with a header and a column of times")
    if problems:
        first = problems[0]
        raise UserError(
            f"{name} is no run file (line {first.line}, field {first.field}: {first.found})", first.expected,
            "make one with `python -m core run`",
        )
    raise UserError(f"{name} holds no complete line", "a run file (.jsonl or .jsonl.gz)",
                    "make one with `python -m core run`")


def _open_error(found: Preview, about: Imported) -> UserError:
    if about.facts_for is not None:
        return UserError(f"{found.name} is {with_article(about.title)}, which holds no figures",
                         "the file that it belongs to", "give both together")
    asked = found.open_questions
    names = " ".join(f"--answer {question.key}=..." for question in asked)
    return UserError(f"{found.name} is {with_article(about.title)} that does not say everything: "
                     + " ".join(question.text for question in asked)[:600], names,
                     "answer in the form of the Data page, or with these options")


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


# --- what the child said ---------------------------------------------------------------------------------------------


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
