"""The toolchain that turns source into a cubin (Python, weft, NVRTC) as one digest.

For an installed weft the digest covers the wheel's `RECORD`, which lists a hash of every file; for an archive its bytes; for a
source tree the size, times and inode of every file, so that an edit counts even if it keeps size and modification time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from weft.runtime import nvrtc

_PACKAGE = Path(__file__).parent.parent


@cache
def toolchain() -> str:
    """The digest, computed once per process."""
    python = (sys.version, sys.implementation.cache_tag, sys.flags.optimize)
    parts = (repr(python), nvrtc.version(), identity(_PACKAGE, getattr(__spec__, "loader", None)))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def identity(package: Path, loader: Any = None) -> str:
    """A digest that identifies the version of a package's files; `loader` is the loader that imported it."""
    archive = getattr(loader, "archive", None)
    if archive is not None:
        return f"archive {hashlib.sha256(Path(archive).read_bytes()).hexdigest()}"
    record = _record(package)
    return f"tree {_stamps(package)}" if record is None else f"wheel {hashlib.sha256(record).hexdigest()}"


def _record(package: Path) -> bytes | None:
    """The `RECORD` of the wheel that the package was installed from; None for a source tree."""
    first = f"{package.name}/__init__.py,".encode()
    for path in sorted(package.parent.glob(f"{package.name}-*.dist-info/RECORD")):
        found = path.read_bytes()
        if first in found:
            return found
    return None


def _stamps(package: Path) -> str:
    lines = sorted(_stamp(package, entry) for entry in _files(package))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry


def _stamp(package: Path, entry: os.DirEntry[str]) -> str:
    status = entry.stat()
    times = f"{status.st_mtime_ns}:{status.st_ctime_ns}"
    return f"{entry.path.removeprefix(str(package))}:{status.st_size}:{times}:{status.st_ino}"
