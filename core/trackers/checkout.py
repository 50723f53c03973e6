"""The user's own copies of public repositories: where they are, whether they are what they should be, their version.

Nothing here runs their code or needs git: a commit is read from the files in `.git`. Standard library only.
"""
from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from core.errors import UserError
from core.trackers.info import Checkout

TORCH_HUB = "torch.hub"
"""Given instead of a path: the copy that torch.hub has fetched before."""

SHORT = 12  # characters of a commit or hash that enter a revision


def parse_option(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=PATH` texts of --checkout -> path by name. Raises UserError for anything else."""
    found = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (equals and name.strip() and path.strip()):
            raise UserError(f"--checkout {text[:60]!r}", "NAME=PATH, such as locotrack=../locotrack")
        found[name.strip()] = path.strip()
    return found


def read_file(path: Path) -> dict[str, str]:
    """The table [checkouts] of a trackers.toml: path by name; relative paths start at the file's folder.

    Raises UserError for a file that cannot be read or has no such table.
    """
    try:
        import tomllib
    except ImportError:
        raise UserError("Python 3.10 cannot read trackers.toml", "Python 3.11 or newer for it",
                        "use --checkout NAME=PATH") from None
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("checkouts")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path.name} cannot be read ({type(error).__name__})", "a TOML file") from None
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise UserError(f"{path.name} has no table [checkouts] of paths", 'lines such as locotrack = "../locotrack"')
    return {
        name: value if value == TORCH_HUB else str(path.parent / Path(value).expanduser())
        for name, value in table.items()
    }


def locate(checkout: Checkout, given: str | Path) -> Path:
    """The top folder of a copy of `checkout`. Raises UserError unless `given` is one.

    given: its path, or `torch.hub` for the copy in torch.hub's folder. Nothing is fetched here.
    """
    if str(given) == TORCH_HUB:
        return _in_torch_hub(checkout)
    top = Path(given).expanduser()
    if not top.is_dir():
        raise UserError(f"no folder {top.name!r} for the checkout {checkout.name}", f"a copy of {checkout.repository}",
                        f"run `{checkout.clone_command}`")
    lacking = [marker for marker in checkout.markers if not (top / marker).is_file()]
    if lacking:
        raise UserError(f"the folder {top.name!r} is no copy of {checkout.repository}: {lacking[0]} is not in it",
                        "the top folder of that repository", f"run `{checkout.clone_command}`")
    return top


def revision(top: Path, checkout: Checkout) -> str:
    """Which code a copy holds: the commit; with a hash of the code beside it where that was changed or has no commit.

    `82e02e8029ba`, `82e02e8029ba+5d41402abc4b` (edited after the commit) or `unknown+5d41402abc4b`.
    """
    known = commit(top)
    if known is None:
        return f"unknown+{content_hash(top, checkout)}"
    return known[:SHORT] if not is_edited(top, checkout) else f"{known[:SHORT]}+{content_hash(top, checkout)}"


def commit(top: Path) -> str | None:
    """The 40 digits of the commit that is checked out in `top`; None where no `.git` tells."""
    git = _git_folder(top)
    if git is None:
        return None
    head = _line(git / "HEAD")
    if not head.startswith("ref: "):
        return head if _is_commit(head) else None
    name = head.removeprefix("ref: ").strip()
    shared = _line(git / "commondir")  # a linked worktree keeps its branches in the main one
    for folder in (git, (git / shared).resolve() if shared else git):
        if _is_commit(_line(folder / name)):
            return _line(folder / name)
        for line in _text(folder / "packed-refs").splitlines():
            value, _, reference = line.partition(" ")
            if reference.strip() == name and _is_commit(value):
                return value
    return None


def is_edited(top: Path, checkout: Checkout) -> bool:
    """Whether a Python file of the copy differs from what git recorded when it was checked out.

    Files that are gone do not count (they cannot run), new ones do. False where the record cannot be read.
    """
    git = _git_folder(top)
    recorded = _recorded_blobs(git / "index") if git is not None else None
    if recorded is None:
        return False
    for name, content in _python_files(top, checkout):
        plain = content.replace(b"\r\n", b"\n")  # git may have written other line ends than it stores
        if recorded.get(name) not in (_blob(content), _blob(plain)):
            return True
    return False


def content_hash(top: Path, checkout: Checkout) -> str:
    """12 digits of a SHA-256 over names and contents of the copy's importable Python files."""
    digest = hashlib.sha256()
    for name, content in _python_files(top, checkout):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:SHORT]


def weights_name(path: str | Path) -> str:
    """How a weights file enters a work key: `sha256:` and the first 8 digits. Raises UserError when it is not there."""
    path = Path(path).expanduser()
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        raise UserError(f"no weights file {path.name!r}", "`random` or a readable checkpoint file") from None
    return f"sha256:{digest.hexdigest()[:8]}"


def _in_torch_hub(checkout: Checkout) -> Path:
    if not checkout.torch_hub:
        raise UserError(f"torch.hub has no {checkout.repository}", "the path of a copy",
                        f"run `{checkout.clone_command}`")
    top = _hub_folder(os.environ) / f"{checkout.repository.replace('/', '_')}_main"
    if not top.is_dir():
        raise UserError(
            f"torch.hub has not fetched {checkout.repository} on this machine", "its copy in torch.hub's folder",
            f"run `python -c \"import torch; torch.hub.list('{checkout.repository}:main', trust_repo=True)\"`",
        )
    return locate(checkout, top)


def _hub_folder(environment: Mapping[str, str]) -> Path:
    """Where torch.hub keeps repositories (documentation of torch.hub.set_dir)."""
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(environment.get("TORCH_HOME") or f"{cache}/torch").expanduser() / "hub"


def _python_files(top: Path, checkout: Checkout) -> Iterator[tuple[str, bytes]]:
    """(path relative to `top`, content) of every Python file that can be imported, in order of path."""
    root = top / checkout.package_root
    files = [file for package in checkout.packages for file in (root / package).rglob("*.py")]
    for file in sorted(files):
        if file.is_file():
            yield file.relative_to(top).as_posix(), file.read_bytes()


def _git_folder(top: Path) -> Path | None:
    git = top / ".git"
    if git.is_file():  # a worktree or submodule: one line `gitdir: PATH`
        target = _line(git).removeprefix("gitdir: ")
        git = (top / target).resolve()
    return git if git.is_dir() else None


def _recorded_blobs(index: Path) -> dict[str, str] | None:
    """Path -> blob id from git's index, versions 2 and 3 (git documentation, gitformat-index); None for others."""
    try:
        data = index.read_bytes()
        signature, version, count = struct.unpack_from(">4sII", data)
        if signature != b"DIRC" or version not in (2, 3):
            return None
        blobs = {}
        at = 12
        for _ in range(count):
            flags = struct.unpack_from(">H", data, at + 60)[0]
            name_at = at + (64 if version == 3 and flags & 0x4000 else 62)
            end = data.index(b"\0", name_at)
            blobs[data[name_at:end].decode("utf-8", "surrogateescape")] = data[at + 40 : at + 60].hex()
            at += (end - at + 8) // 8 * 8  # an entry ends with 1 to 8 zero bytes
        return blobs
    except (OSError, ValueError, struct.error):
        return None


def _blob(content: bytes) -> str:
    """git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _is_commit(text: str) -> bool:
    return len(text) == 40 and all(letter in "0123456789abcdef" for letter in text)


def _line(path: Path) -> str:
    return _text(path).strip()


def _text(path: Path) -> str:
    """What a small file of git says, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
