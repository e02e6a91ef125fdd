"""The file of an entry of the disk cache.

    magic                5 bytes, the last of them the number of this format
    SHA-256              of all that follows
    length               of the header, 8 bytes, little-endian
    header               JSON: {"key": "<64 digits>", "metadata": {...}, "parts": [["cubin", 4096], ...]}
    parts                raw bytes, one after the other

The key stands in the file, so the file of another key is not mistaken for the one that is sought. Entries are data: nothing in
a file is unpickled or run as Python. Whatever a file says, `decode` gives the entry that was encoded or raises `Unusable`; what
the metadata of each kind of entry may be is checked by `weft.runtime.kept`.

The checksum finds damage, not forgery: who may write the folder can write a file with any code and its right checksum.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.runtime.files import Unusable, mapping, parse, record, sequence, text, whole

MAGIC = b"weft\x02"
MOST_BYTES = 1 << 28
"""Size of the largest file that is read, or written."""
_DIGEST_BYTES = 32
_LENGTH = struct.Struct("<Q")
_START = len(MAGIC) + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept under a key: `metadata` that JSON can express, and named bytes."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def encode(key: str, entry: Entry) -> bytes:
    """The bytes of the file of an entry."""
    sizes = [(name, len(data)) for name, data in entry.parts.items()]
    header = json.dumps({"key": key, "metadata": entry.metadata, "parts": sizes}, allow_nan=False).encode()
    body = b"".join((_LENGTH.pack(len(header)), header, *entry.parts.values()))
    return MAGIC + hashlib.sha256(body).digest() + body


def decode(key: str, data: bytes) -> Entry:
    """The entry of a key in the bytes of its file. Raises Unusable unless `encode` wrote them, for this key."""
    if not data.startswith(MAGIC):
        raise Unusable("it is no entry, or one of another version of weft")
    # A view, so that neither the checksum nor the header copies the code.
    body = memoryview(data)[_START:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : _START]:
        raise Unusable("its checksum is wrong")
    end = _LENGTH.size + (_LENGTH.unpack_from(body)[0] if len(body) >= _LENGTH.size else len(body))
    if end > len(body):
        raise Unusable("it ends inside its header")
    header = record(parse(bytes(body[_LENGTH.size : end])), "key", "metadata", "parts")
    if header["key"] != key:
        raise Unusable("it is the entry of another key")
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
        raise Unusable("its parts do not add up to its size")
    return parts
