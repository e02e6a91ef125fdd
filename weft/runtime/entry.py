"""The file of an entry of the disk cache.

    magic                5 bytes, the last of which is the format's version
    SHA-256              of everything that follows
    length               of the header, 8 bytes, little-endian
    header               JSON: {"key": "<64 digits>", "metadata": {...}, "parts": [["cubin", 4096], ...]}
    parts                raw bytes, one after the other

The file contains its key, so a renamed file of another key is detected. Entries are data: nothing in a file is unpickled or run
as Python. For any bytes, `decode` returns the entry that was encoded or raises `Unusable`. `weft.runtime.kept` checks the
metadata of each kind of entry.

The checksum detects damage, not forgery: whoever can write to the folder can write a file with any code and a valid checksum.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.runtime.files import UnusableFile, mapping, parse, record, sequence, text, whole

MAGIC = b"weft\x02"
MOST_BYTES = 1 << 28
"""Size of the largest file that is read, or written."""
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<Q")
_START = len(MAGIC) + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of a key: JSON `metadata`, and named byte strings."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def encode(key: str, entry: Entry) -> bytes:
    """The file contents of an entry."""
    sizes = [(name, len(data)) for name, data in entry.parts.items()]
    header = json.dumps({"key": key, "metadata": entry.metadata, "parts": sizes}, allow_nan=False).encode()
    body = b"".join((_LENGTH.pack(len(header)), header, *entry.parts.values()))
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(key: str, data: bytes) -> Entry:
    """The entry of a key from its file contents. Raises Unusable unless `encode` wrote them for this key."""
    if not data.startswith(MAGIC):
        raise UnusableFile("it is no entry, or one of another version of weft")
    # A memoryview, so that neither the checksum nor the header copies the cubin.
    body = memoryview(data)[_START:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : _START]:
        raise UnusableFile("its checksum is wrong")
    end = _LENGTH.size + (_LENGTH.unpack_from(body)[0] if len(body) >= _LENGTH.size else len(body))
    if end > len(body):
        raise UnusableFile("it ends inside its header")
    header = record(parse(bytes(body[_LENGTH.size : end])), "key", "metadata", "parts")
    if header["key"] != key:
        raise UnusableFile("it is the entry of another key")
    return Entry(mapping(header["metadata"]), _parts(header["parts"], body[end:]))


def _parts(sizes: object, data: memoryview) -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    position = 0
    for item in sequence(sizes):
        name, size = sequence(item, 2)
        end = position + whole(size, len(data) - position)
        parts[text(name)] = bytes(data[position:end])
        position = end
    if position != len(data):
        raise UnusableFile("its parts do not add up to its size")
    return parts
