"""The disk cache: a folder of compiled kernels, shared by any number of processes.

An entry is one file, see `weft.runtime.entry`. A look-up returns a valid entry or none, whatever the folder contains: a file
that is damaged, swapped, of another version or of another user costs one warning per process and is replaced once the kernel is
compiled again. `weft.runtime.folder` decides whether the folder belongs to weft, and which files in it may be deleted. When the
entries exceed their limit, the least recently used ones are deleted.

A file's modification time is the time of its last use. Clocks may be set back, so times are only compared with each other: the
entry just written counts as the newest whatever its time, and times in the future are moved to the present in their order.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from weft import settings
from weft.runtime import files, folder
from weft.runtime.entry import MOST_BYTES, Entry, decode, encode
from weft.runtime.files import UnusableFile

T = TypeVar("T")

_KEY = re.compile(r"[0-9a-f]{64}")
_PLACE = re.compile(r"[0-9a-f]{2}")
_NAME = re.compile(r"[0-9a-f]{62}\.entry(?P<unfinished>\.[0-9a-f]{16}\.tmp)?")
_SECOND = 10**9
_ABANDONED = 3600 * _SECOND
"""Age in nanoseconds at which a temporary file belongs to a process that died."""
_SLACK = 60 * _SECOND
"""Clocks of machines that share a folder may differ by this much. A time further ahead lies in the future."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache folder and the bytes it may hold. Keys are hexadecimal SHA-256 digests."""

    directory: Path
    max_bytes: int

    def get(self, key: str, read: Callable[[Entry], T]) -> T | None:
        """The result of `read` for the entry of a key; None without an entry, or when `read` raises Unusable."""
        path = self._path(key)
        try:
            if not folder.usable(self.directory):
                return None
        except UnusableFile as reason:
            self._keeps_nothing(reason)
            return None
        try:
            file = files.read(path, MOST_BYTES)
            found = None if file is None else read(decode(key, file[0]))
        except UnusableFile as reason:
            text = f"weft ignores {path}: {reason}; the kernel is compiled again, and other such files are not reported"
            folder.warn_once(self.directory, "entry", text)
            return None
        if file is not None and file[1].st_mtime_ns <= time.time_ns():
            # Another process may delete the file at any moment, and a folder may be read-only.
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def put(self, key: str, entry: Entry) -> None:
        """Store an entry. A failure only warns, since the kernel can be compiled again next time."""
        path, data = self._path(key), encode(key, entry)
        try:
            folder.claim(self.directory)
            folder.below(self.directory, key[:2])
            written = files.write(Path(path), data)
            self._trim(path, written.st_mtime_ns)
        except (OSError, UnusableFile) as reason:
            self._keeps_nothing(reason)

    def trim(self) -> None:
        """Delete abandoned temporary files, then the least recently used entries until the limit holds."""
        with contextlib.suppress(UnusableFile):
            self._trim(None, time.time_ns())

    def size(self) -> int:
        """Bytes of all entries."""
        return sum(file.size for file in self._files() if file.finished)

    def clear(self) -> None:
        """Delete every entry. Does nothing in a folder that is not weft's."""
        with contextlib.suppress(UnusableFile):
            if folder.owned(self.directory):
                for file in self._files():
                    if file.finished:
                        _delete(file.path)

    def _path(self, key: str) -> str:
        """The path of an entry. A string, because constructing a `Path` takes longer than opening the file."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!a} is no key of the cache: those have 64 hexadecimal digits")
        return f"{self.directory}/{key[:2]}/{key[2:]}.entry"

    def _trim(self, newest: str | None, now: int) -> None:
        """`now` is by the file system's clock, since another machine's clock may be ahead of ours."""
        if not folder.owned(self.directory):
            return
        found = sorted(self._files(), key=lambda file: (file.path == newest, file.time, file.path))
        for file in found:
            if not file.finished and now - file.time > _ABANDONED:
                _delete(file.path)
        entries = [file for file in found if file.finished]
        _bring_back([file for file in entries if file.time > now + _SLACK], now)
        total = sum(file.size for file in entries)
        for file in entries[:-1]:
            if total <= self.max_bytes:
                break
            _delete(file.path)
            total -= file.size

    def _files(self) -> list[_File]:
        places = folder.folders(self.directory, _PLACE)
        inside = (found for place in places for found in folder.plain_files(place, _NAME))
        return [_File(path, match["unfinished"] is None, of.st_size, of.st_mtime_ns) for path, match, of in inside]

    def _keeps_nothing(self, reason: Exception) -> None:
        folder.warn_once(self.directory, "folder", f"weft keeps no compiled kernels: {reason}")


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    finished: bool
    size: int
    time: int


def default() -> Cache | None:
    """The cache that the settings name, or None when they turn it off."""
    now = settings.current()
    return Cache(now.cache_dir, now.cache_size) if now.cache else None


def _bring_back(late: list[_File], now: int) -> None:
    """Set times in the future to times up to now, in the same order. They arise when the clock was set back."""
    for age, file in zip(range(len(late), 0, -1), late, strict=True):
        with contextlib.suppress(OSError):
            os.utime(file.path, ns=(now - age, now - age))


def _delete(path: str) -> None:
    # Another process may have deleted it.
    with contextlib.suppress(OSError):
        Path(path).unlink()
