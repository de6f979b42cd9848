"""Where compiled code is kept between runs, and how a change of a source makes it anew.

numba notices a change of the file that holds a compiled entry point, but not of a function in
another file that it calls. So the cache folder carries a hash of every compiled source.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

DIGEST_CHARACTERS = 16
PREFIX = "compiled-"
STALE_DAYS = 30


def source_digest(sources: Iterable[Path], constants: Mapping[str, object]) -> str:
    """A short hash of source files, wherever they lie, and of constants from other files."""
    digest = hashlib.sha256(repr(sorted(constants.items())).encode())
    for path in sorted(sources, key=lambda p: p.name):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:DIGEST_CHARACTERS]


def user_cache_root() -> Path:
    """The folder for caches that the platform gives each user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def constants_of(functions: Iterable[Callable[..., object]]) -> dict[str, int]:
    """The whole numbers that functions read from their modules, by module and name.

    They become part of the machine code, wherever the module has them from.
    """
    found = {}
    for function in functions:
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, int):
                found[f"{function.__module__}.{name}"] = int(value)
    return found


def cache_folder(
    sources: Iterable[Path], constants: Mapping[str, object], root: Path | None = None
) -> Path | None:
    """A writable folder for the machine code of these sources, created if need be.

    Args:
        sources: every file with functions or types that are compiled.
        constants: numbers that the functions use, by name.
        root: folder under which to keep it; by default the user's cache folder, or where that
            cannot be written, the system's folder for temporary files.

    Returns:
        The folder, or None where nothing can be written: code is then compiled in each process.
    """
    name = f"{PREFIX}{source_digest(sources, constants)}"
    for base in _roots(root):
        folder = base / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                os.utime(folder)
        except OSError:
            continue
        # The files are loaded as code: never from a folder that somebody else could have made.
        if not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid():
            return folder
    return None


def drop_stale(folder: Path) -> None:
    """Remove the folders beside this one that no run has used for `STALE_DAYS` days.

    Every change of a compiled source makes a folder of its own; a run marks the one it uses.
    """
    oldest = time.time() - STALE_DAYS * 86400
    for other in folder.parent.glob(f"{PREFIX}*"):
        if other != folder and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)


@contextmanager
def numba_cache_in(folder: Path) -> Iterator[None]:
    """Make functions that are decorated inside the block keep their machine code in a folder.

    numba reads the setting when it decorates; it is put back at the end, so that other users of
    numba in the process see no change.
    """
    config: Any = import_module("numba.core.config")
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _roots(root: Path | None) -> tuple[Path, ...]:
    if root is not None:
        return (root,)
    # Two users must not meet in one temporary folder: neither could write the other's files.
    tag = str(os.getuid()) if hasattr(os, "getuid") else "user"
    temporary = Path(tempfile.gettempdir()) / f"npusim-{tag}"
    try:
        return (user_cache_root() / "npusim", temporary)
    except RuntimeError:  # no home folder
        return (temporary,)
