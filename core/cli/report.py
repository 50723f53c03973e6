"""`report`: one explanation, or the pins of the review meeting, as a file that needs nothing else."""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli.options import add_db, add_filters, add_sides, filters_of
from core.errors import UserError

if TYPE_CHECKING:
    from core.reports.sections import Section


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report", help="the self-contained report of two sides, or of pins",
        description="One file for a mail, a printer or a pull request: verdict, figures, charts, causes and tables of "
                    "`explain`, or of the pins of the Review page with then and now. HTML has its charts drawn in and "
                    "needs no network; Markdown has no charts.",
    )
    add_sides(parser, required=False)
    parser.add_argument("--pins", nargs="+", metavar="ID",
                        help="pins instead of two sides: open, decided, done, all, or pin ids")
    parser.add_argument("--out", metavar="FILE", required=True, help="FILE.html or FILE.md; must not exist yet")
    parser.add_argument("--format", choices=("html", "md"), metavar="html|md", help="default: by the ending of --out")
    add_filters(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import hint
    from core.reports.html import html_report
    from core.reports.markdown import markdown_report
    from core.reports.sections import report_of

    path = Path(arguments.out)
    if path.exists():
        raise UserError(f"{path.name} exists already", "a new file name")
    as_markdown = (arguments.format or path.suffix.lower().lstrip(".")) in ("md", "markdown")
    if arguments.pins and (arguments.baseline or arguments.target):
        raise UserError("--pins together with --baseline or --target", "one of the two")
    sections = _of_pins(arguments) if arguments.pins else [_of_sides(arguments)]
    report = report_of(sections)
    data = markdown_report(report) if as_markdown else html_report(report)
    try:
        with open(path, "xb") as stream:
            stream.write(data)
    except OSError as error:
        raise UserError(f"{path.name} cannot be written ({error.strerror})", "a writable folder") from None
    hint(f"Wrote {path.name} ({len(data) / 1000:.0f} kB).")
    return 0


def _of_sides(arguments: argparse.Namespace) -> Section:
    from core.answers.explain import explain
    from core.cli.reading import ask
    from core.reports.sections import of_answers

    if not arguments.baseline or not arguments.target:
        raise UserError("report needs two sides", "--baseline SEL and --target SEL, or --pins")
    filters = filters_of(arguments)
    answer = ask(arguments.db, (arguments.baseline, arguments.target),
                 lambda store: explain(store, arguments.baseline, arguments.target, filters))
    return of_answers([answer])


def _of_pins(arguments: argparse.Namespace) -> list[Section]:
    from core.answers import review
    from core.reports.sections import of_item
    from core.store import open_reading
    from core.store.pins import STATUSES

    with open_reading(arguments.db) as store:
        assert store.runs is not None  # what open_reading opens always has a runs folder
        items = review.agenda(store, store.runs)
        chosen = [item for item in items
                  if {item.pin.id, item.pin.words.status, "all"} & set(arguments.pins)]
        unknown = set(arguments.pins) - {*STATUSES, "all", *(item.pin.id for item in items)}
        if unknown:
            raise UserError(f"no pin {min(unknown)[:60]!r}", "open, decided, done, all or the id of a pin",
                            f"there are {len(items)} pins" if items else "nothing is pinned yet")
        return [of_item(item, review.then_and_now(store, item.pin)) for item in chosen]
