"""`collect.pyz`: the measuring branch of this package in one file, to be carried to another machine. No package needed.

    data = build_collector()       the file's bytes; the same sources give the same bytes on every machine
    collector(data)                what it is, what it needs, and the commands for four kinds of machine

The file is a zip archive that Python runs: readable by any zip tool, stored without compression (so that no version of
zlib changes its bytes). Its program is `core/measure/collect.py`.
"""
from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from core import units

FILE_NAME = "collect.pyz"

MODULES = ("__init__.py", "errors.py", "process.py", "units.py")
PACKAGES = ("gpus", "measure", "records", "trackers")
_SUFFIXES = (".py", ".csv")
_SHEBANG = b"#!/usr/bin/env python3\n"
_OLDEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
_UNIX = 3

# Valid in every Python since 2.7, so that an old one gets a sentence and no traceback.
_MAIN = b"""\
import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "error: this is Python %d.%d (%s); expected 3.10 or newer; start collect.pyz with the python that has your "
        "torch, such as python3.12 collect.pyz.\\n" % (sys.version_info[0], sys.version_info[1], sys.executable)
    )
    sys.exit(2)

from core.measure.collect import main

if __name__ == "__main__":
    sys.exit(main())
"""


@functools.lru_cache(maxsize=1)
def build_collector() -> bytes:
    """The bytes of `collect.pyz`, made once a process from the sources that this process runs from."""
    members = {"__main__.py": _MAIN}
    root = files("core")
    for name in MODULES:
        members[f"core/{name}"] = _text(root / name)
    for name in PACKAGES:
        members.update(_members(root / name, f"core/{name}"))
    stream = io.BytesIO()
    stream.write(_SHEBANG)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name, _OLDEST_ZIP_TIME)
            entry.external_attr, entry.create_system = _REGULAR_FILE, _UNIX
            archive.writestr(entry, members[name])
    return stream.getvalue()


def _members(folder: Traversable, name: str) -> dict[str, bytes]:
    """Sources and data below a folder, by their name in the archive."""
    found: dict[str, bytes] = {}
    for item in folder.iterdir():
        if item.is_dir() and not item.name.startswith((".", "__pycache__")):
            found.update(_members(item, f"{name}/{item.name}"))
        elif item.name.endswith(_SUFFIXES) and not item.name.startswith("."):
            found[f"{name}/{item.name}"] = _text(item)
    return found


def _text(item: Traversable) -> bytes:
    """With the line ends of the repository, also in a checkout on Windows."""
    return item.read_bytes().replace(b"\r\n", b"\n")


def is_collector(data: bytes) -> bool:
    """Whether these bytes are a `collect.pyz` of some version."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {"__main__.py", "core/measure/collect.py"} <= set(archive.namelist())
    except zipfile.BadZipFile:
        return False


def commands() -> list[dict[str, str]]:
    """What to type on the other machine: `where` it is, `text` to copy. Each starts where collect.pyz lies."""
    return [
        {"where": "A plain shell", "text": _SHELL},
        {"where": "Colab", "text": _COLAB},
        {"where": "Slurm", "text": _SLURM},
        {"where": "An air-gapped container", "text": _CONTAINER},
    ]


_SHELL = """\
# in the environment that has torch and numpy; nvidia-ml-py adds clocks, power and temperature
python3 -m pip install nvidia-ml-py
# a minute, to see that everything works
python3 collect.pyz
# what comparisons between GPUs need
python3 collect.pyz --preset standard --budget 30m
"""

_COLAB = """\
# one cell of a notebook with a GPU runtime; collect.pyz lies in its files (folder icon on the left)
!pip install -q nvidia-ml-py
!python3 collect.pyz --preset standard --budget 30m
import glob, os
from google.colab import files
files.download(max(glob.glob("gapscope-*.jsonl"), key=os.path.getmtime))
"""

_SLURM = """\
#!/bin/bash
#SBATCH --job-name=gapscope
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=00:45:00
#SBATCH --signal=B:TERM@180
# save as gapscope.sbatch, then: sbatch gapscope.sbatch
# here the line that gives you a python with torch, such as: module load pytorch
# exec: the signal before the time limit then reaches the sweep, which ends its file properly
exec python3 collect.pyz --preset standard --budget 30m
"""

_CONTAINER = """\
# IMAGE: one with torch that is there already; the run file appears beside collect.pyz
docker run --rm --gpus all --network none -v "$PWD":/data -w /data IMAGE \\
  python3 collect.pyz --preset standard --budget 30m
# or with Apptainer
apptainer exec --nv --bind "$PWD":/data --pwd /data IMAGE.sif \\
  python3 collect.pyz --preset standard --budget 30m
"""


def collector(data: bytes) -> dict[str, Any]:
    """The answer about this file: `name`, `size_bytes`, `sha256`, `needs`, `commands` (see `commands`), `headline`."""
    return {
        "name": FILE_NAME, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
        "needs": ["Python 3.10 or newer", "torch 2.1 or newer", "numpy"], "uses_if_there": ["nvidia-ml-py"],
        "commands": commands(),
        "headline": f"{FILE_NAME} ({units.bytes_size(len(data))}) measures on any machine with Python 3.10, torch 2.1 "
                    "and numpy, or newer; it writes one run file, without host name, user name or path.",
    }
