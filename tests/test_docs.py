"""What the documents name exists: files, commands, and the figures that can be computed."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def commands() -> set[str]:
    command = [sys.executable, "-m", "core", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(re.findall(r"^ {4}([a-z]+)(?: |$)", done.stdout, re.M))
    assert names
    return names


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path: Path) -> None:
    for name in re.findall(r"`((?:core|tests|benchmarks|docs|pages)/[\w./-]+\.\w+)`", path.read_text()):
        if "NAME" not in name:  # a pattern
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_named_exist(path: Path, commands: set[str]) -> None:
    for name in re.findall(r"python -m core ([a-z]+)", path.read_text()):
        assert name in commands, name


def test_every_command_is_in_the_readme_or_its_links(commands: set[str]) -> None:
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    for name in commands:
        assert re.search(rf"python -m core {name}\b", text), f"{name} is not in the documents"


def test_the_readme_s_commands_need_nothing_but_python() -> None:
    text = (ROOT / "README.md").read_text()
    for title in ("Set up and start", "Set up and test"):
        block = re.search(rf"### {title}\n+```\n(.+?)\n```", text, re.S)
        assert block is not None, title
        assert block.group(1).startswith("python3 -m venv .venv && .venv/bin/pip install -r requirements")
        assert "-c constraints.txt" in block.group(1)


def test_every_pin_lies_in_the_range_that_users_install() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    ranges = [line for line in (ROOT / "requirements.txt").read_text().split("\n") if line]
    for line in ranges:
        name = re.split(r"[<>=!]", line)[0]
        version = tuple(int(part) for part in pins[name].split(".")[:3] if part.isdigit())
        for operator, bound in re.findall(r"(>=|<|!=)([\d.]+)", line):
            limit = tuple(int(part) for part in bound.split("."))
            assert {">=": version >= limit, "<": version < limit, "!=": version != limit}[operator], line
    assert pins["torch"] == "2.13.0"
