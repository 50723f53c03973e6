"""What the commands of the measuring branch share: their parser, and how they end when something goes wrong."""
from __future__ import annotations

import argparse
import contextlib
import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from core.errors import UserError
from core.measure import reasons

FAILURE, USER_MISTAKE, INTERRUPTED = 1, 2, 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are UserErrors, so that they take one line like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, fix=f"see {self.prog} --help")


def exit_code(name: str, act: Callable[[], int]) -> int:
    """What `act` returns, or the code of what it raised: 2 a user's mistake, 1 a failure, 130 Ctrl-C, one line each."""
    try:
        return act()
    except UserError as error:
        return failed(str(error), USER_MISTAKE)
    except KeyboardInterrupt:
        return failed("interrupted", INTERRUPTED)
    except (RuntimeError, OSError) as error:
        if isinstance(error, OSError):
            told = unwritten(error, Path("the run file"), "start again")
            if isinstance(told, UserError):
                return failed(str(told), USER_MISTAKE)
        return failed(f"{name} failed: {reasons.clean(str(error)) or type(error).__name__}", FAILURE)


def failed(text: str, code: int) -> int:
    """Tell it in one line on stderr; returns `code`."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return code


def unwritten(error: OSError, path: Path, go_on: str) -> Exception:
    """What to raise for an OSError met while the run file `path` was written: a UserError for a full disk or a
    forbidden folder, else `error` itself. Whole lines that are on the disk stay.

    go_on: what to do once there is room.
    """
    if error.errno in _NO_ROOM:
        return UserError(f"{path.name} cannot be written ({error.strerror})", "free space on its disk",
                         f"make room, then {go_on}")
    if error.errno in _NO_PERMISSION:
        where = Path(error.filename).name if isinstance(error.filename, str) else path.name
        return UserError(f"{where} cannot be written ({error.strerror})", "a folder that you may write to",
                         "name another one, or change its permissions")
    return error
