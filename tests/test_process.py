"""A child process runs this very package, from a folder or from the archive, whatever lies in the current folder."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.answers.collector import build_collector
from core.process import python_command


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder that holds a package called core."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise RuntimeError('the wrong core')")
    return tmp_path


def planned(command: list[str], here: Path) -> str:
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["request"]["preset"])


def test_a_folder_called_core_does_not_stand_in_for_the_package(trap: Path) -> None:
    assert planned(python_command("core.measure", "plan", "--device", "cpu", "--json"), trap) == "quick"


def test_a_child_of_the_archive_runs_from_the_archive(trap: Path) -> None:
    (trap / "a:b").mkdir()  # a colon would split PYTHONPATH
    archive = trap / "a:b" / "collect.pyz"
    archive.write_bytes(build_collector())
    code = (f"import sys; sys.path.insert(0, {str(archive)!r}); from core.process import python_command; "
            "import json; print(json.dumps(python_command('core.measure', 'plan', '--device', 'cpu', '--json')))")
    done = subprocess.run([sys.executable, "-c", code], cwd=trap, capture_output=True, text=True, check=True)
    command = json.loads(done.stdout)
    assert str(archive) in command[2]
    assert planned(command, trap) == "quick"


def test_words_reach_the_module_as_they_are() -> None:
    command = python_command("json.tool", "--no-ensure-ascii", "a b'c")
    assert (command[0], command[1], command[3:]) == (sys.executable, "-c", ["--no-ensure-ascii", "a b'c"])
