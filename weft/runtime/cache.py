"""A directory of compiled kernels, shared by any number of processes.

An entry is one file: a checksum, a JSON header and raw parts. It is written beside its place and renamed into it, so a
reader sees a whole file or none; one that is damaged all the same is deleted and counts as absent. Entries are data:
nothing in a file is unpickled or run as Python. When the directory outgrows its bound, the entries used longest ago go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft import settings

_MAGIC = b"weft\x01"
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<Q")
_SUFFIX = ".entry"
_STALE_SECONDS = 3600
"""Age at which a temporary file belongs to a process that died."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept under a key: JSON-able `metadata`, binary `blobs` (the cubin), `texts` (stages)."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    texts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache directory and the bytes it may hold. Keys are hexadecimal digests."""

    directory: Path
    max_bytes: int

    def get(self, key: str) -> Entry | None:
        """The entry of a key, or None. A damaged file is deleted."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        entry = decode(data)
        # Another process may delete a file at any moment; then there is nothing left to do.
        with contextlib.suppress(OSError):
            path.unlink() if entry is None else os.utime(path)
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Keep an entry. Where the directory cannot be written, warns and goes on: the kernel is compiled again next time."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, encode(entry))
        except OSError as error:
            warnings.warn(f"weft keeps no compiled kernels: {error}", RuntimeWarning, stacklevel=2)
            return
        self.trim()

    def trim(self) -> None:
        """Delete what other processes left half-written, then the entries used longest ago until the bound holds."""
        files = sorted(self._files(), key=lambda file: file.mtime)
        total = sum(file.size for file in files)
        now = time.time()
        for file in files:
            abandoned = file.path.suffix != _SUFFIX and now - file.mtime > _STALE_SECONDS
            if not abandoned and (total <= self.max_bytes or file is files[-1]):
                continue
            with contextlib.suppress(OSError):
                file.path.unlink()
            total -= file.size

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self._files())

    def clear(self) -> None:
        """Delete every entry."""
        for file in self._files():
            with contextlib.suppress(OSError):
                file.path.unlink()

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / (key[2:] + _SUFFIX)

    def _files(self) -> list[_File]:
        found: list[_File] = []
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append(_File(path, status.st_size, status.st_mtime))
        return found


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    mtime: float


def default() -> Cache | None:
    """The cache that the settings name, or None when they turn it off."""
    now = settings.current()
    return Cache(now.cache_dir, now.cache_size) if now.cache else None


def encode(entry: Entry) -> bytes:
    """The bytes of an entry's file: magic, checksum, length of the header, header, parts."""
    parts = [("blob", name, data) for name, data in entry.blobs.items()]
    parts += [("text", name, text.encode()) for name, text in entry.texts.items()]
    header = json.dumps({"metadata": entry.metadata, "parts": [(kind, name, len(data)) for kind, name, data in parts]})
    body = _LENGTH.pack(len(header.encode())) + header.encode() + b"".join(data for _, _, data in parts)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(data: bytes) -> Entry | None:
    """The entry of a file's bytes, or None when they are not what `encode` wrote."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    (length,) = _LENGTH.unpack_from(body)
    position = _LENGTH.size + length
    header = json.loads(body[_LENGTH.size : position])
    blobs: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    for kind, name, size in header["parts"]:
        part = body[position : position + size]
        position += size
        if kind == "blob":
            blobs[name] = part
        else:
            texts[name] = part.decode()
    return Entry(header["metadata"], blobs, texts)


def _write(path: Path, data: bytes) -> None:
    """Put a whole file in place, or none."""
    handle, name = tempfile.mkstemp(prefix=path.stem[:16], suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
