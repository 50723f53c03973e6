"""How a Python process of this package's own is started. Standard library only."""
from __future__ import annotations

import sys
from pathlib import Path

import core


def python_command(module: str, *words: str) -> list[str]:
    """What subprocess is given for `python -m MODULE WORDS` with this very package, installed or not.

    `-m` alone looks into the current folder first, where a folder called core may lie; `-P`, which forbids that, is
    unknown to Python 3.10. So the child is told where this package is: a folder, or the archive collect.pyz.
    """
    root = str(Path(core.__file__).resolve().parent.parent)
    start = (
        f"import runpy, sys; sys.path[:] = [{root!r}, *filter(None, sys.path)]; "
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", start, *words]
