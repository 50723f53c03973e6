"""`ingest`: take run files and files of other programs in, or bring the database up to date."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_json
from core.errors import UserError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "ingest", help="take run files and other programs' results in; without a file, bring the database up to date",
        description="Take files in: run files, profiler traces, nvidia-smi logs, benchmark reports, tables. They are "
                    "checked, kept in the runs folder and stored. What a file does not say is asked: --dry-run lists "
                    "the questions, --answer answers them. Works while the app is open. Without a file: create the "
                    "database, or bring it up to date.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help="run files (.jsonl or .jsonl.gz), or files of other programs; a report and its "
                             "configuration together")
    parser.add_argument("--dry-run", action="store_true",
                        help="only say what would come in; exit 2 when the format is not recognised")
    parser.add_argument("--good-lines", action="store_true",
                        help="take the good lines of a file that has bad ones, too; without it such a file is refused")
    parser.add_argument("--answer", action="append", default=[], metavar="KEY=VALUE",
                        help="what the file does not say, such as gpu=\"RTX 3090\" or unit=ms; may be repeated")
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import print_json, say

    if not arguments.files:
        if arguments.dry_run:
            raise UserError("--dry-run without a file", "a file to look at")
        answer = _catch_up(arguments.db)
        if arguments.json:
            print_json(answer)
        else:
            say(answer["headline"])
        return 0
    answers = _answers(arguments.answer)
    taken, refused = [], []
    facts, companions = _companions(arguments.files) if len(arguments.files) > 1 else ({}, {})
    for name in arguments.files:
        try:
            if name in companions and not arguments.dry_run:
                taken.append(companions[name])
            else:
                taken.append(_take(name, arguments, answers, facts.get(name, {})))
        except UserError as error:
            if len(arguments.files) == 1:
                raise
            refused.append(str(error))  # one bad file does not keep the others out
    if arguments.json:
        print_json({"files": taken, "refused": refused})
    else:
        for file in taken:
            say(file["headline"])
            for sentence in file["understood"]:
                say(f"  {sentence}")
            if file["assumed"] and file["stored_by"]:
                assumed = ", ".join(f"{key} {value}" for key, value in file["assumed"].items())
                say(f"  assumed: {assumed} (--answer says otherwise)")
            for question in file["questions"] if file["dry_run"] else ():
                offered = f" [{', '.join(question['choices'][:12])}]" if question["choices"] else ""
                default = "" if question["default"] is None else f" (without an answer: {question['default']})"
                say(f"  {question['key']}: {question['question']}{offered}{default}")
            for problem in file["problems"][:5]:
                say(f"  left out: line {problem['line']}, field {problem['field']}: {problem['found']}, expected "
                    f"{problem['expected']}")
    if refused:
        raise UserError("; ".join(refused))
    return 0


def _answers(given: list[str]) -> dict[str, str]:
    """KEY=VALUE words. Raises `UserError` for a word without one, and for a key given twice."""
    found: dict[str, str] = {}
    for word in given:
        key, mark, value = word.partition("=")
        key = key.strip().lower()
        if not mark or not key or not value.strip():
            raise UserError(f"--answer {word!r}", 'a key and its value, such as gpu="RTX 3090"')
        if key in found:
            raise UserError(f"two answers for {key}", "one")
        found[key] = value.strip()
    return found


def _companions(names: list[str]) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
    """File -> what a companion among these files says of it; and the companions, which bring no rows themselves."""
    from pathlib import Path

    from core.answers.imports import facts_by_format
    from core.store.uploads import preview, read_file

    looked = {}
    for name in names:
        if not name.endswith((".jsonl", ".jsonl.gz")):
            try:
                looked[name] = preview(read_file(Path(name)), Path(name).name)
            except UserError:
                continue  # said when it is its turn
    facts = facts_by_format(list(looked.values()))
    companions, found = {}, {}
    for name, seen in looked.items():
        about = seen.imported
        if about is not None and about.facts_for in facts:
            companions[name] = {
                **_described(seen), "dry_run": False, "stored_by": None, "upload_id": None, "conflicts": 0,
                "headline": f"{seen.name}: {about.title}, read together with the file that it belongs to.",
            }
        elif about is not None and about.format in facts:
            found[name] = facts[about.format]
    return found, companions


def _catch_up(db: str | None) -> dict[str, Any]:
    from core.answers.runs import runs
    from core.store import database_path, open_reading

    with open_reading(db, progress=_progress()) as store:
        answer = runs(store)
        held = store.in_memory
        notices = list(store.notices)
    name = database_path(db).name
    how = f"{name} is held by the app, which keeps it up to date" if held else f"{name} is up to date"
    return {"database": name, "held_by_another": held, "runs": len(answer["runs"]), "notices": notices,
            "headline": "\n".join([f"{how}. {answer['headline']}", *notices])}


def _progress() -> Any:
    """A bar on a terminal, since the first build takes seconds; nothing elsewhere."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(file: str, share: float) -> None:
        end = "\r" if share < 1 else "\n"
        print(f"\rreading {file[:60]:<60} {share:4.0%}", end=end, file=sys.stderr, flush=True)

    return show


def _take(name: str, arguments: argparse.Namespace, answers: dict[str, str], facts: dict[str, str]) -> dict[str, Any]:
    from core.store.uploads import ingest_file

    dry_run = arguments.dry_run
    result = ingest_file(name, arguments.db, dry_run=dry_run, good_lines_only=arguments.good_lines, answers=answers,
                         facts=facts)
    found, about = result.preview, result.preview.imported
    devices = ", ".join(dict.fromkeys(run.gpu_label or "unknown device" for run in found.runs))
    if found.lines:
        what = (f"{found.name}: {_count(len(found.runs), 'run')} on {devices}, {_count(found.cells, 'cell line')} "
                f"({found.ok} ok)")
    else:
        what = f"{found.name}: {about.title if about else 'nothing'}"
    if about is not None and about.from_saved:
        what += ", answered as for the last table with these columns"
    if found.bad_lines:
        what += f", {_count(found.bad_lines, 'bad line')} left out"
    if about is not None and about.left_out:
        what += f", {_count(about.left_out, 'part')} of it left out"
    if result.conflicts:
        verb = "differs" if result.conflicts == 1 else "differ"
        what += (f", {_count(result.conflicts, 'line')} left out that {verb} from what is stored under the same run "
                 "and number")
    if found.torn:
        what += ", its end is torn"
    waits = "would come in" if found.lines else \
        "says something about another file; give both together" if about is not None and about.facts_for else \
        f"would come in once {_count(len(found.open_questions), 'question')} without default are answered"
    end = {
        "command": "is stored", "app": f"was taken in by the app after {result.waited_s:.1f} s",
        "nobody yet": waits if dry_run else
        "is kept in the runs folder; the app that holds the database has not read it yet",
    }[result.by]
    return {
        **_described(found), "dry_run": dry_run, "stored_by": result.by, "upload_id": result.upload_id,
        "conflicts": result.conflicts, "headline": f"{what}: {end}.",
    }


def _described(found: Any) -> dict[str, Any]:
    """What a preview (core.store.uploads.Preview) holds, for --json."""
    about = found.imported
    return {
        "file": found.name, "format": about.title if about is not None else "gapscope run file",
        "runs": [
            {"run_id": run.run_id, "label": run.label, "device": run.device, "gpu_key": run.gpu_key,
             "gpu_label": run.gpu_label, "origin": run.origin, "started_at": run.started_at, "lines": run.lines,
             "cells": run.cells, "ok": run.ok}
            for run in found.runs
        ],
        "cells": found.cells, "ok": found.ok, "lines": found.lines,
        "problems": [{"line": p.line, "field": p.field, "found": p.found, "expected": p.expected}
                     for p in found.problems],
        "bad_lines": found.bad_lines,
        "understood": list(about.said) if about is not None else [],
        "questions": [
            {"key": q.key, "question": q.text, "choices": list(q.choices), "default": q.default, "free": q.free,
             "many": q.many}
            for q in (about.questions if about is not None else ())
        ],
        "answers": dict(about.answers) if about is not None else {},
        "assumed": dict(about.assumed) if about is not None else {},
        "tasks": [dict(task) for task in about.tasks] if about is not None else [],
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
