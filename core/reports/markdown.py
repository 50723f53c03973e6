"""A report as Markdown for a pull request: sentences and tables, no pictures. Texts of other people stay text."""

from __future__ import annotations

import re

from core.reports.html import cell_text
from core.reports.sections import Report, Section, Table, made_words, verdict_word

_SPECIAL = re.compile(r"([\\`*_{}\[\]>|~#&!$])")
_LINE_START = re.compile(r"^([-+=]+|\d+[.)])(?=\s|$)")


def plain(text: object) -> str:
    """Any text as one line of Markdown that shows it letter by letter: no markup, no link, nobody called."""
    line = " ".join(str(text).split())
    line = _SPECIAL.sub(r"\\\1", line).replace("<", "&lt;")
    line = line.replace("://", ":\\//").replace("www.", "www\\.").replace("@", "@<!-- -->")
    return _LINE_START.sub(lambda match: f"{match[1][:-1]}\\{match[1][-1]}", line)


def code(text: object) -> str:
    """Any text as a code span; its fence is longer than every run of backticks in it."""
    line = " ".join(str(text).split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def markdown_report(report: Report) -> bytes:
    """UTF-8."""
    parts = [f"# {plain(report.title)}", plain(made_words(report))]
    parts += [part for section in report.sections for part in _section(section)]
    return ("\n\n".join(parts) + "\n").encode()


def _section(section: Section) -> list[str]:
    parts = [f"## {plain(section.title)}"]
    if section.verdict:
        parts.append(f"Verdict: **{plain(verdict_word(section))}**")
    parts += [plain(section.headline), *map(plain, section.remarks), _table(section.figures)]
    if section.causes:
        parts.append("### Causes")
        parts.append("\n".join(f"- **{plain(cause.grade)}** {plain(cause.text)} {code(cause.command)}"
                               for cause in section.causes))
    for table in section.tables:
        parts += [f"### {plain(table.caption)}", _table(table)]
    if section.rests_on:
        parts += ["### What this rests on", "\n".join(f"- {plain(text)}" for text in section.rests_on)]
    return parts


def _table(table: Table) -> str:
    names = [plain(name) for name in table.rows.columns]
    rows = [[plain(cell_text(value)) for value in row] for row in table.rows.itertuples(index=False)]
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
