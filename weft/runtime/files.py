"""Files in folders that other users may have modified: validated on reading, written atomically.

`read` opens only a regular file of a trusted owner, follows no symbolic link, does not block on a FIFO and reads no more than a
limit. `write` renames a finished file into place, so that a reader sees a complete file or none. `parse` and the functions
after it validate contents: each returns a value of the type that it is named after or raises `UnusableFile`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import stat
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn, cast


def _flags(*names: str) -> int:
    """The union of flags of `os.open`; flags that the system does not have count as zero."""
    return reduce(int.__or__, (getattr(os, name, 0) for name in names))


_READ = _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_CREATE = _flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")
_ABSENT = (errno.ENOENT, errno.ESTALE)
"""Errors of a missing file. ESTALE: another machine removed it from a network file system while it was being opened."""
HAS_OWNERS = hasattr(os, "geteuid")
"""False on Windows, where owner and mode of a file do not determine who may write it."""


class UnusableFile(Exception):
    """The contents of a file or folder are not weft's, or not safe to use; the text gives the reason."""


def read(path: str, most: int) -> tuple[bytes, os.stat_result] | None:
    """The bytes of a file and its status, or None without a file. Raises Unusable for anything but a regular, trusted file."""
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise UnusableFile(f"it cannot be opened ({error.strerror})") from None
    try:
        status = os.fstat(handle)
        _check_file(status, most)
        return _all_of(handle, status.st_size), status
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise UnusableFile(f"it cannot be read ({error.strerror})") from None
    finally:
        os.close(handle)


def write(path: Path, data: bytes) -> os.stat_result:
    """Write a file atomically. Returns its status from the file system. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, _CREATE, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            status = os.fstat(handle)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return status


def why_untrusted(status: os.stat_result) -> str | None:
    """Why other users may have written a file or a folder, as a clause about "it"; None when only this user and root can."""
    if not HAS_OWNERS:
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    return (
        "other users can write to it, which `chmod go-w` ends"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        else None
    )


def _check_file(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFile("it is no plain file")
    reason = why_untrusted(status)
    if reason is not None:
        raise UnusableFile(reason)
    if status.st_size > most:
        raise UnusableFile(f"its {status.st_size} bytes are more than weft ever writes")


def _all_of(handle: int, size: int) -> bytes:
    data = os.read(handle, size)
    if len(data) == size:
        return data
    parts = [data]
    # A signal or a network file system may return a short read. An empty read is the end of the file.
    while parts[-1]:
        parts.append(os.read(handle, size))
        if sum(map(len, parts)) > size:
            raise UnusableFile("it grows while it is read")
    return b"".join(parts)


# Validation of contents


def parse(data: bytes | str) -> object:
    """The value of a JSON text. Raises Unusable for other texts, including JSON nested too deeply for the parser."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnusableFile(f"its text is not JSON that weft writes ({_first_line(error)})") from None


def record(value: object, *names: str) -> dict[str, Any]:
    """An object with exactly the fields `names`."""
    fields = mapping(value)
    if fields.keys() != set(names):
        missing, more = sorted(set(names) - fields.keys()), sorted(fields.keys() - set(names))
        raise UnusableFile(f"it has no field {missing[0]}" if missing else f"it has a field {more[0]!a}")
    return fields


def mapping(value: object) -> dict[str, Any]:
    """A JSON object; its values are of any type."""
    if not isinstance(value, dict):
        _refuse(value, "no object of fields")
    return cast("dict[str, Any]", value)


def sequence(value: object, length: int | None = None) -> list[object]:
    """A JSON array, of `length` items if given; its items are of any type."""
    if not isinstance(value, list):
        _refuse(value, "no list")
    found = cast("list[object]", value)
    if length is not None and len(found) != length:
        raise UnusableFile(f"a list in it has {len(found)} items, not {length}")
    return found


def text(value: object) -> str:
    """A string that can be encoded: one without unpaired surrogates."""
    if not isinstance(value, str):
        _refuse(value, "no text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(value, "no Unicode text")
    return value


def whole(value: object, most: int) -> int:
    """An integer from 0 to `most`. A bool is refused."""
    if type(value) is not int or not 0 <= value <= most:
        _refuse(value, f"no whole number up to {most}")
    return value


def number(value: object) -> float:
    """A finite number. A bool is refused."""
    # Only integers that a double represents exactly: `float` raises OverflowError for very large ones.
    if type(value) is int and abs(value) <= 1 << 53:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        _refuse(value, "no finite number")
    return value


def _refuse(value: object, what: str) -> NoReturn:
    # Lists and objects are not shown: `repr` of deeply nested ones raises RecursionError.
    kind = type(value).__name__
    shown = f"a {kind}" if kind in ("list", "dict") else ascii(value)
    raise UnusableFile(f"{shown if len(shown) <= 40 else shown[:37] + '...'} in it is {what}")


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
