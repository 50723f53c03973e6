"""Vega-Lite charts drawn as SVG that can stand inside a page: no script, no link, ids of their own.

Drawn by vl-convert in a process of its own (core.reports.draw), which ends with the drawing: it holds a JavaScript
engine, and the app stays small.
"""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

from core.charts import theme
from core.errors import UserError
from core.process import python_command

WIDTH = 1000
"""Pixels that a chart is drawn at; a page scales it."""
TIMEOUT_S = 120
_NAMESPACE = "http://www.w3.org/2000/svg"
_ALLOWED = {"svg", "g", "path", "rect", "text", "tspan", "defs", "clipPath", "line", "title", "desc", "linearGradient",
            "stop", "circle"}  # fmt: skip


def drawn(specs: Sequence[dict[str, Any]]) -> list[str]:
    """Each specification as one <svg>. Raises `UserError` without vl-convert, and when a chart cannot be drawn."""
    if not specs:
        return []
    fixed = [_at_width(spec) for spec in specs]
    try:
        done = subprocess.run(python_command("core.reports.draw"), input=json.dumps(fixed), capture_output=True,
                              text=True, encoding="utf-8", timeout=TIMEOUT_S, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UserError(f"the charts were not drawn within {TIMEOUT_S} s", "a machine that is less busy",
                        "try again") from None  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word of why"])[-1][:200]
        fix = "pip install -r requirements.txt" if "vl_convert" in last else ""
        raise UserError(f"the charts could not be drawn ({last})", "vl-convert-python", fix)
    return [inline(svg, f"chart{place}") for place, svg in enumerate(json.loads(done.stdout))]


def _at_width(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart at WIDTH. Its title breaks for this width from the start: there is no element whose width could tell,
    and the plot's own changes after the title was given its room."""
    others = [param for param in spec.get("params", []) if param["name"] != theme.CHART_WIDTH]
    return {**spec, "width": WIDTH, "params": [*others, {"name": theme.CHART_WIDTH, "value": WIDTH}]}


def inline(svg: str, prefix: str) -> str:
    """A drawing as part of a page. Its ids begin with `prefix`, since ids of a page are one space.

    Raises ValueError for a part that is not plain drawing: the words in a chart come from files.
    """
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        tag = element.tag.removeprefix(f"{{{_NAMESPACE}}}")
        if tag not in _ALLOWED:
            raise ValueError(f"a drawing with <{tag}>")
        for name, value in list(element.attrib.items()):
            if name.lower().startswith("on") or name.endswith("href"):
                raise ValueError(f"a drawing with {name}=")
            if name == "id":
                element.set(name, f"{prefix}-{value}")
            elif "url(#" in value:
                element.set(name, value.replace("url(#", f"url(#{prefix}-"))
    ElementTree.register_namespace("", _NAMESPACE)
    return ElementTree.tostring(root, encoding="unicode")
