"""The visual language: one set of tokens for pages, charts and reports, in light and dark.

A GPU's colour comes from its architecture family and its shade from the card, so that it is the same on every page and
in every filter. Origins differ by mark (filled, hollow), never by hue. Verdicts have a colour, a word and an icon.
Contrast (tests hold it): text 4.5:1, marks 3:1 against the background they lie on.
"""

from __future__ import annotations

import colorsys
import json
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
from altair.utils import schemapi

from core.gpus import catalogue, follows_catalogue

# Altair checks each part of a chart against its schema while it is made: 0.2 s for a page of two charts. The tests
# check whole charts instead.
schemapi.disable_debug_mode()

Mode = Literal["light", "dark"]

FONT = '"Source Sans", "Source Sans Pro", "Liberation Sans", Arial, sans-serif'

TITLE_SIZE, SUBTITLE_SIZE, LABEL_SIZE, AXIS_SIZE = 18, 14, 14, 13


@dataclass(frozen=True)
class Tokens:
    background: str
    surface: str
    text: str
    muted: str
    line: str
    grid: str
    accent: str
    band: str


TOKENS: dict[Mode, Tokens] = {
    "light": Tokens(
        background="#FFFFFF",
        surface="#F3F5F7",
        text="#1B232B",
        muted="#5A6570",
        line="#8A949E",
        grid="#E3E7EB",
        accent="#0067A5",
        band="#7C8791",
    ),
    "dark": Tokens(
        background="#12161B",
        surface="#1C2229",
        text="#E9ECEF",
        muted="#A4AEB8",
        line="#6C7782",
        grid="#2A323A",
        accent="#5DB1EE",
        band="#8E99A4",
    ),
}


# --- verdicts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VerdictStyle:
    word: str
    icon: str  # a Material symbol, drawn by Streamlit's own font
    badge: Literal["blue", "green", "orange", "red", "gray"]
    light: str
    dark: str

    def colour(self, mode: Mode) -> str:
        return self.light if mode == "light" else self.dark


VERDICTS: dict[str, VerdictStyle] = {
    "as_expected": VerdictStyle("As expected", ":material/check_circle:", "blue", "#0067A5", "#5DB1EE"),
    "faster_than_expected": VerdictStyle(
        "Faster than expected", ":material/trending_up:", "green", "#007A70", "#3CC6B8"
    ),
    "slower_than_expected": VerdictStyle(
        "Slower than expected", ":material/trending_down:", "orange", "#9A5B00", "#F0B041"
    ),
    "beyond_hardware": VerdictStyle("Beyond hardware", ":material/error:", "red", "#BF3B12", "#FF8057"),
    "undecided": VerdictStyle("Undecided", ":material/help:", "gray", "#5A6570", "#A4AEB8"),
    "not_comparable": VerdictStyle("Not comparable", ":material/block:", "gray", "#5A6570", "#A4AEB8"),
}


def verdict_style(verdict: str | None) -> VerdictStyle:
    return VERDICTS.get(verdict or "", VERDICTS["undecided"])


# --- colours of devices ----------------------------------------------------------------------------------------------

# Family -> (light, dark), Okabe-Ito based, moved in lightness until each reaches 3:1 on its background.
FAMILIES: dict[str, tuple[str, str]] = {
    "Kepler": ("#6E7781", "#98A2AC"),
    "Maxwell": ("#6E7781", "#98A2AC"),
    "Pascal": ("#6E7781", "#98A2AC"),
    "Volta": ("#7B4FA3", "#B48FD8"),
    "Turing": ("#BA7300", "#F0A93A"),
    "Ampere": ("#1E8449", "#4FC27F"),
    "Ada Lovelace": ("#1490A3", "#4FD0E0"),
    "Hopper": ("#0072B2", "#58A9E8"),
    "Blackwell": ("#B8478F", "#E58BC2"),
}
CPU_COLOURS = ("#2B333B", "#DDE2E7")
UNKNOWN_COLOURS = ("#8C5A2B", "#C99361")

_SHADE_RANGE = 0.085
"""How far the lightness of a card may lie from its family's, up and down."""


def family_of(architecture: str) -> str:
    """ "Blackwell (RTX)" and "Blackwell Ultra" are Blackwell."""
    return next((name for name in FAMILIES if architecture.startswith(name)), "unknown")


@follows_catalogue(1)
def _shade_of_card() -> dict[str, float]:
    """Catalogue key -> shade in -1..1: cards of one family in catalogue order, neighbours as far apart as can be."""
    seen: dict[str, int] = {}
    shades: dict[str, float] = {}
    for key, gpu in catalogue().items():
        family = family_of(gpu.architecture)
        index = seen.get(family, 0)
        seen[family] = index + 1
        place, step, rest = 0.0, 0.5, index  # van der Corput: 0, 1/2, 1/4, 3/4, 1/8, ...
        while rest:
            place += step * (rest % 2)
            rest //= 2
            step /= 2
        shades[key] = 0.0 if index == 0 else 2 * place - 1
    return shades


def gpu_colour(key: str | None, mode: Mode) -> str:
    """The colour of a card by its catalogue key; `cpu` is near-black (near-white in dark), an unknown card brown."""
    index = 0 if mode == "light" else 1
    if key == "cpu":
        return CPU_COLOURS[index]
    gpu = catalogue().get(key or "")
    if gpu is None or family_of(gpu.architecture) == "unknown":
        return UNKNOWN_COLOURS[index]
    base = FAMILIES[family_of(gpu.architecture)][index]
    return _lighter(base, _shade_of_card()[key or ""] * _SHADE_RANGE, mode)


def _lighter(colour: str, amount: float, mode: Mode) -> str:
    """`colour` with its lightness moved by `amount`; a step towards the background is halved to keep its contrast."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    towards_background = amount > 0 if mode == "light" else amount < 0
    step = amount * (0.4 if towards_background else 1.0)
    rgb = colorsys.hls_to_rgb(hue, min(max(lightness + step, 0.0), 1.0), saturation)
    return "#" + "".join(f"{round(part * 255):02X}" for part in rgb)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours after WCAG 2.1 (1 to 21)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


_NOISE = re.compile(
    r"\((?:R|TM|C)\)|\b(?:NVIDIA|GeForce|CPU|Processor|Edition|\d+-Core)\b|@ *[\d.]+ *[GM]Hz|\bwith .* Graphics",
    flags=re.IGNORECASE,
)


def short_name(label: str) -> str:
    """A device's name without what every name carries, for axes and sentences; tables keep the full one."""
    return " ".join(_NOISE.sub(" ", label).split()) or label


# Precisions of one GPU side by side: the same hue, told apart by shape and direct label.
PRECISION_SHAPES = {"fp32": "circle", "default": "square", "tf32": "triangle-up", "fp16": "diamond", "bf16": "cross"}
PRECISION_DASHES: dict[str, list[int]] = {
    "fp32": [1, 0],
    "default": [10, 3],
    "tf32": [5, 3],
    "fp16": [2, 2],
    "bf16": [10, 3, 2, 3],
}

# Theory lines: bandwidth long dash, compute short dash, measured ceilings solid thin.
DASHES: dict[str, list[int]] = {"bandwidth": [12, 4], "compute": [4, 3], "measured": [1, 0]}

# Stages keep their colour on every page; an unknown stage takes the last one.
STAGE_COLOURS: dict[str, tuple[str, str]] = {
    "encoder": ("#0072B2", "#58A9E8"),
    "cost volume": ("#1490A3", "#4FD0E0"),
    "correlation": ("#BA7300", "#F0A93A"),
    "correlation encoder": ("#B8478F", "#E58BC2"),
    "transformer": ("#1E8449", "#4FC27F"),
    "other": ("#6E7781", "#98A2AC"),
}


def stage_colour(name: str, mode: Mode) -> str:
    index = 0 if mode == "light" else 1
    known = STAGE_COLOURS.get(name.replace("_", " ").lower())
    return known[index] if known else UNKNOWN_COLOURS[index]


# --- titles ----------------------------------------------------------------------------------------------------------

# Widths of a chart in pixels at which its title is broken anew, and the pixels that an average character takes.
_WIDTHS = (300, 360, 430, 520, 620, 740, 880, 1040, 1240, 1480)
_TITLE_PIXELS, _SUBTITLE_PIXELS = 8.7, 6.5


CHART_WIDTH = "chart_width"
"""The parameter of a chart whose value decides where its title breaks."""


def _lines(text: str, characters: int) -> list[str]:
    return textwrap.wrap(text, characters, break_long_words=True) or [""]


def title(finding: str, conditions: str = "") -> alt.TitleParams:
    """Title = the finding, subtitle = its conditions (units, n, baseline, origin)."""
    extra: dict[str, Any] = {"subtitle": [conditions]} if conditions else {}
    return alt.TitleParams(text=[finding], **extra)


def plain_title(chart: Any) -> tuple[str, str]:
    """Title and subtitle of a chart as text."""
    given = chart.title.to_dict() if isinstance(chart.title, alt.TitleParams) else {}
    return " ".join(given.get("text", [])), " ".join(given.get("subtitle", []))


def spec(chart: Any) -> dict[str, Any]:
    """The chart as a Vega-Lite specification whose title breaks into lines that fit the width it is drawn at.

    Vega never wraps a title; here the lines for each width are given and the width of the element that holds the chart
    chooses. (The plot's own width would change once its labels are placed, too late for the layout of the title.)
    Altair's own schema does not know an expression as a subtitle (Vega does), so this is done on the dictionary.
    """
    drawn: dict[str, Any] = chart.to_dict(validate=False)
    _inline(drawn)
    beside = (drawn.get("usermeta") or {}).get("beside", 0)
    if isinstance(drawn.get("title"), dict):
        held = f"(containerSize()[0] > 0 ? containerSize()[0] : width + {beside})"
        drawn["params"] = [*drawn.get("params", []), {"name": CHART_WIDTH, "expr": held}]
        for part, pixels in (("text", _TITLE_PIXELS), ("subtitle", _SUBTITLE_PIXELS)):
            lines = drawn["title"].get(part)
            if lines:
                drawn["title"][part] = _by_width(" ".join(lines), pixels)
    return drawn


MOST_INLINE_ROWS = 300
"""Tables up to this size travel inside the chart: Streamlit packs every named one for itself, on both ends."""


def _inline(drawn: dict[str, Any]) -> None:
    """Put small named tables where they are used; a table that no part uses any more goes."""
    tables: dict[str, Any] = drawn.get("datasets") or {}
    small = {name: rows for name, rows in tables.items() if len(rows) <= MOST_INLINE_ROWS}

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            data = part.get("data")
            if isinstance(data, dict) and data.get("name") in small:
                part["data"] = {"values": [_plain_row(row) for row in small[data["name"]]]}
            for name in ("layer", "hconcat", "vconcat", "concat"):
                for inner in part.get(name, ()):
                    walk(inner)

    walk(drawn)
    for name in small:
        del tables[name]
    if not tables:
        drawn.pop("datasets", None)


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """JSON knows neither NaN nor infinity: both are missing."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _by_width(text: str, pixels: float) -> dict[str, str] | list[str]:
    wraps = [(width, _lines(text, int(width / pixels))) for width in _WIDTHS]
    if all(len(lines) == 1 for _, lines in wraps):
        return wraps[0][1]
    expression = json.dumps(wraps[0][1])
    for width, lines in wraps[1:]:
        expression = f"{CHART_WIDTH} >= {width} ? {json.dumps(lines)} : {expression}"
    return {"expr": expression}


# --- configuration ---------------------------------------------------------------------------------------------------


def config(mode: Mode) -> dict[str, Any]:
    t = TOKENS[mode]
    return {
        "background": t.background,
        "font": FONT,
        "view": {"stroke": None},
        "title": {
            "anchor": "start",
            "frame": "bounds",
            "color": t.text,
            "subtitleColor": t.muted,
            "fontSize": TITLE_SIZE,
            "subtitleFontSize": SUBTITLE_SIZE,
            "fontWeight": 600,
            "offset": 14,
            "lineHeight": 23,
            "subtitleLineHeight": 18,
            "subtitlePadding": 5,
            "limit": 0,
        },
        "axis": {
            "labelColor": t.text,
            "titleColor": t.muted,
            "gridColor": t.grid,
            "domainColor": t.line,
            "tickColor": t.line,
            "labelFontSize": AXIS_SIZE,
            "titleFontSize": AXIS_SIZE,
            "titleFontWeight": 400,
            "titlePadding": 8,
            "labelLimit": 300,
            "titleLimit": 0,
        },
        "legend": {
            "labelColor": t.text,
            "titleColor": t.muted,
            "labelFontSize": AXIS_SIZE,
            "titleFontSize": AXIS_SIZE,
            "titleFontWeight": 400,
            "orient": "top",
            "direction": "horizontal",
            "labelLimit": 300,
        },
        "header": {"labelColor": t.text, "titleColor": t.muted, "labelFontSize": AXIS_SIZE, "titleFontSize": AXIS_SIZE},
        "text": {"color": t.text, "fontSize": LABEL_SIZE},
        "rule": {"color": t.text},
        "bar": {"cornerRadiusEnd": 2},
        "range": {
            "category": [
                FAMILIES[name][0 if mode == "light" else 1]
                for name in ("Hopper", "Turing", "Ampere", "Blackwell", "Ada Lovelace", "Volta", "Pascal")
            ]
        },
    }


def finish(
    chart: Any, mode: Mode, heading: alt.TitleParams | None = None, height: int | None = None, names: Sequence[str] = ()
) -> Any:
    """The last step of every chart: title, width of its container, height, configuration of the theme.

    `names`: the row names left of the plot, over which a title may reach.
    """
    properties: dict[str, Any] = {
        "width": "container",
        "autosize": alt.AutoSizeParams(type="fit-x", contains="padding"),
    }
    if heading is not None:
        properties["title"] = heading
    if height is not None:
        properties["height"] = height
    if names:
        widest = max(
            max(map(len, name.split("\n"))) if "\n" in name else min(len(short_name(name)), 30) for name in names
        )
        properties["usermeta"] = {"beside": round(widest * 6.8) + 16}
    finished = chart.properties(**properties)
    finished.config = alt.Config.from_dict(config(mode), validate=False)
    return finished


# --- placing labels --------------------------------------------------------------------------------------------------

CHARACTER_WIDTH = 7.3
"""Pixels of an average character at `LABEL_SIZE`, on the wide side."""


def label_rows(positions: Sequence[float], texts: Sequence[str], width: float, outer_first: bool = True) -> list[int]:
    """A row for each label of a line so that no label covers another or is crossed by a line that reaches higher.

    `positions` in 0..1 of `width` pixels; text stands to the right of its line, in the right half to its left. Rows
    count from 0. A line ends at its label's row, so of two lines side by side the outer one gets the lower row
    (without `outer_first`: rows fill from left to right).
    """
    gap = 14.0
    ends: list[list[tuple[float, float]]] = []
    rows = [0] * len(positions)
    for index in sorted(
        range(len(positions)),
        key=lambda i: (positions[i] > 0.5, abs(positions[i] - 0.5)) if outer_first else (False, positions[i]),
    ):
        start = positions[index] * width
        length = len(texts[index]) * CHARACTER_WIDTH
        span = (start - gap, start + length + gap) if positions[index] <= 0.5 else (start - length - gap, start + gap)
        row = 0
        while row < len(ends) and any(span[0] < end and begin < span[1] for begin, end in ends[row]):
            row += 1
        if row == len(ends):
            ends.append([])
        ends[row].append(span)
        rows[index] = row
    return rows
