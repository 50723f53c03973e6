"""A report as one HTML file: no script, no request to anywhere, good on screen and on paper.

Every text is escaped here, whatever it came from; a content policy in the file forbids scripts and requests besides.
"""

from __future__ import annotations

from html import escape

import pandas as pd

from core import units
from core.charts import theme
from core.charts.theme import TOKENS
from core.errors import UserError
from core.reports.sections import Report, Section, Table, made_words, verdict_word
from core.reports.svg import drawn

MOST_BYTES = 3_000_000


def html_report(report: Report) -> bytes:
    """UTF-8. Raises `UserError` when charts cannot be drawn, and for more sections than a report of 3 MB holds."""
    pictures = [picture for section in report.sections for picture in section.pictures]
    svgs = iter(drawn([theme.spec(picture.draw(*picture.arguments, mode="light")) for picture in pictures]))
    several = len(report.sections) > 1
    body = [f"<header><h1>{escape(report.title)}</h1>", f"<p class=small>{escape(made_words(report))}</p>"]
    if several:
        body += ["<ol>", *(f'<li><a href="#s{place}">{escape(section.title)}</a></li>'
                           for place, section in enumerate(report.sections)), "</ol>"]
    body.append("</header>")
    for place, section in enumerate(report.sections):
        body.append(_section(section, place, [next(svgs) for _ in section.pictures]))
    page = _PAGE.replace("{title}", escape(report.title)).replace("{style}", _STYLE)
    made = page.replace("{body}", "\n".join(body)).encode()
    if len(made) > MOST_BYTES:
        most = f"at most {MOST_BYTES / 1e6:g} MB"
        raise UserError(f"a report of {len(made) / 1e6:.1f} MB", most, "choose fewer pins")
    return made


def _section(section: Section, place: int, svgs: list[str]) -> str:
    parts = [f'<section id="s{place}"><h2>{escape(section.title)}</h2>']
    if section.verdict:
        colour = theme.verdict_style(section.verdict).light
        parts.append(f'<p class=verdict style="color:{colour}">{escape(verdict_word(section))}</p>')
    parts.append(f"<p class=headline>{escape(section.headline)}</p>")
    parts += [f"<p class=remark>{escape(remark)}</p>" for remark in section.remarks]
    parts.append(_table(section.figures))
    for picture, svg in zip(section.pictures, svgs, strict=True):
        parts.append(f'<figure role=img aria-label="{escape(picture.finding)}">{svg}</figure>')
    if section.causes:
        parts.append("<h3>Causes</h3><ul class=causes>")
        parts += [f"<li><b>{escape(cause.grade)}</b> {escape(cause.text)} <code>{escape(cause.command)}</code></li>"
                  for cause in section.causes]
        parts.append("</ul>")
    parts += [_table(table) for table in section.tables]
    if section.rests_on:
        parts.append("<h3>What this rests on</h3><ul>")
        parts += [f"<li>{escape(text)}</li>" for text in section.rests_on]
        parts.append("</ul>")
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    head = "".join(f"<th scope=col>{escape(str(name))}</th>" for name in table.rows.columns)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell_text(value))}</td>' for value in row)}</tr>"
        for row in table.rows.itertuples(index=False)
    )
    return (f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead>\n"
            f"<tbody>{rows}</tbody></table>")


def cell_text(value: object) -> str:
    """A cell as the pages show it: three digits of a number, a dash for what is missing."""
    if value is None or (isinstance(value, float) and units.is_missing(value)) or value is pd.NA:
        return units.MISSING
    return units.significant(value) if isinstance(value, float) else str(value)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""

_INK = TOKENS["light"]
_STYLE = f"""
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 {theme.FONT}; color: {_INK.text}; background: {_INK.background}; max-width: 1000px;
  margin: 0 auto; padding: 1.5rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.8rem; margin: 0; }} h2 {{ font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; }}
h3 {{ font-size: 1.1rem; margin: 1.4rem 0 .3rem; }}
section {{ margin-top: 2rem; padding-top: 1.2rem; border-top: 2px solid {_INK.line}; }}
.small, .remark {{ color: {_INK.muted}; margin: .2rem 0; }} .remark {{ white-space: pre-line; }}
.verdict {{ font-weight: 700; margin: .2rem 0; }} .headline {{ font-size: 1.2rem; font-weight: 600; margin: .3rem 0; }}
figure {{ margin: 1.2rem 0; break-inside: avoid; }} figure svg {{ width: 100%; height: auto; display: block; }}
table {{ border-collapse: collapse; width: 100%; margin: 1.2rem 0; font-size: .875rem; }}
caption {{ text-align: left; font-weight: 600; font-size: 1.1rem; padding-bottom: .3rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid {_INK.grid};
  overflow-wrap: break-word; font-variant-numeric: tabular-nums; }}
th {{ color: {_INK.muted}; font-weight: 600; }} tr {{ break-inside: avoid; }}
code {{ font-size: .9em; background: {_INK.surface}; padding: .1rem .3rem; border-radius: .2rem; }}
.causes li {{ margin-bottom: .5rem; break-inside: avoid; }}
@page {{ size: A4; margin: 14mm; }}
@media print {{ body {{ font-size: 10pt; max-width: none; padding: 0; }} h2, h3, caption {{ break-after: avoid; }}
  section + section {{ break-before: page; }} }}
"""
