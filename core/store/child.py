"""Starting the limited process in which a stranger's file is read (core.store.read_upload)."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import UserError

SCRIPT = Path(__file__).with_name("read_upload.py")
PACKED_FORMATS = (b"PAR1", b"DUCK")
"""First bytes (DuckDB's from the ninth on) of files that only installed packages can read."""


def read_in_child(
    data: bytes, name: str, *, limits: Mapping[str, int], timeout_s: float, sha: str = "",
    answers: Mapping[str, str] | None = None, received_at: str = "",
) -> dict[str, Any]:
    """What `read_upload.examine` says of these bytes. Raises `UserError` when the process runs into a limit."""
    request = {"limits": dict(limits), "name": name, "sha": sha, "answers": dict(answers or {}),
               "received_at": received_at}
    needs_packages = data[:4] == PACKED_FORMATS[0] or data[8:12] == PACKED_FORMATS[1]
    with tempfile.TemporaryDirectory(prefix="gapscope-") as folder:
        path = Path(folder) / "upload"
        path.write_bytes(data)
        command = [sys.executable, "-I", *([] if needs_packages else ["-S"]), str(SCRIPT), str(path)]
        try:
            # By stdin: an answer may name a column, which is as long as a stranger made it, and arguments are not.
            done = subprocess.run(
                command, input=json.dumps(request).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd=folder, env=_environment(), timeout=timeout_s, start_new_session=True, check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{name} takes longer than {timeout_s:.0f} s to read", "a run file",
                            "nothing was kept") from None
    if done.returncode != 0:
        raise UserError(f"{name} takes more time or memory to read than is allowed", "a run file",
                        "nothing was kept")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _environment() -> dict[str, str]:
    """One thread, one arena: of address space, which is limited, every thread would take its share."""
    made = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system",
            "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return made | ({"SYSTEMROOT": os.environ["SYSTEMROOT"]} if "SYSTEMROOT" in os.environ else {})
