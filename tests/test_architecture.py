"""Arrows point down only (app -> cli -> reports -> charts -> answers -> store -> analysis -> facts)."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Height of each part; an import may only point to a lower one or stay inside its part.
HEIGHT = {
    "app": 10, "pages": 10, "cli": 9, "reports": 8, "charts": 7, "answers": 6, "store": 5, "analysis": 4,
    "measure": 3, "trackers": 2, "gpus": 2, "records": 1, "units": 1, "process": 1, "errors": 0,
}
# Third-party packages that each part may import; what is not listed may import the standard library only.
PACKAGES = {
    "app": {"streamlit", "pages"}, "pages": {"streamlit", "pandas", "pages"},
    "cli": {"rich", "pandas"}, "reports": {"altair", "pandas", "vl_convert"}, "charts": {"altair", "pandas", "numpy"},
    "answers": {"pandas", "numpy"}, "store": {"duckdb", "pandas", "numpy", "pyarrow"},
    "analysis": {"numpy", "pandas"}, "measure": {"torch", "numpy", "pynvml", "av"},
    "trackers": {"torch"},
}
STDLIB_ONLY = {"core/trackers/registry.py", "core/trackers/info.py", "core/trackers/plan.py", "core/trackers/stages.py",
               "core/trackers/__init__.py", "core/trackers/entries/__init__.py",
               "core/measure/plan.py", "core/measure/handicaps.py", "core/measure/collect.py",
               "core/measure/__init__.py",
               "core/answers/collector.py"}


def modules() -> list[Path]:
    found = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py")), *sorted((ROOT / "core").rglob("*.py"))]
    return [path for path in found if path.exists() and "reference" not in path.relative_to(ROOT).parts]


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    if relative.parts[0] in ("app.py", "pages"):
        return relative.parts[0].removesuffix(".py")
    name = relative.parts[1].removesuffix(".py")
    return {"__main__": "cli", "__init__": "errors"}.get(name, name)


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "core":
                names |= {f"core.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    part = part_of(path)
    allowed = set() if str(path.relative_to(ROOT)) in STDLIB_ONLY else PACKAGES.get(part, set())
    for name in imports(path):
        top = name.split(".")[0]
        if top == "core":
            target = name.split(".")[1] if "." in name else "errors"
            if target == part:
                continue
            if target == "measure":
                # The plan is pure arithmetic without torch: the shell shares its options (contract of core/measure).
                assert part == "cli", f"{part} must not import core.measure; it is a process of its own"
                assert name.startswith("core.measure.plan") or name == "core.measure", name
                continue
            assert HEIGHT[target] < HEIGHT[part], f"{path.name} ({part}) imports {name}, which lies above it"
            if target == "trackers" and part != "measure":
                assert name in ("core.trackers", "core.trackers.registry"), f"{part} imports {name}: models need torch"
        elif top not in sys.stdlib_module_names:
            assert top in allowed, f"{path.relative_to(ROOT)} imports {top}"


def test_nothing_that_the_app_imports_loads_torch() -> None:
    code = (
        "import sys, pkgutil, importlib\n"
        "for part in ('records', 'gpus', 'analysis', 'store', 'answers', 'charts', 'reports', 'cli'):\n"
        "    package = importlib.import_module(f'core.{part}')\n"
        "    for item in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not item.name.endswith('__main__'): importlib.import_module(item.name)\n"
        "import core.trackers.registry, core.measure.plan\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_tracked_file_names_a_machine_path() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = done.stdout.split("\n")
    words = ["/" + "work/", "/" + "root/", "/" + "farm/", "/" + "tmp/gs"]
    for name in listed:
        path = ROOT / name
        if name and path.suffix in {".py", ".md", ".toml", ".txt", ".csv", ".json", ".jsonl", ""} and path.is_file():
            text = path.read_text(errors="replace")
            assert not any(word in text for word in words), name
