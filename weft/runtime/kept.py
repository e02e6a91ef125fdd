"""The kinds of entries in the disk cache: for each, a function that makes an entry and one that reads it.

Readers validate every field and raise `Unusable`, so that their results need no further check.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import cast

from weft.runtime.compiled import Binary
from weft.runtime.entry import Entry
from weft.runtime.files import UnusableFile, record, sequence, text, whole

_NUMBERS = {
    "n_regs": 1 << 16,
    "n_spills": 1 << 31,
    "dynamic_shared": 1 << 31,
    "static_shared": 1 << 31,
    "worker_warps": 1 << 10,
    "workspace": 1 << 48,
    "waits": 1,
    "nvshmem": 1,
}
"""The integer fields of a Binary, each with a limit far above that of any GPU; a larger value means damage."""

EncodedRead = list[str]
"""A read of `weft.runtime.manifest` as `[owner, path, fingerprint]`."""


def of_binary(binary: Binary) -> Entry:
    """The entry of a compiled kernel."""
    return Entry(
        {**{name: getattr(binary, name) for name in _NUMBERS}, "unused": list(binary.unused)}, {"cubin": binary.cubin}
    )


def binary(entry: Entry) -> Binary:
    """The compiled kernel of an entry. Raises Unusable."""
    fields = record(entry.metadata, *_NUMBERS, "unused")
    numbers = {name: whole(fields[name], most) for name, most in _NUMBERS.items()}
    unused = tuple([text(name) for name in sequence(fields["unused"])])
    if set(entry.parts) != {"cubin"}:
        raise UnusableFile("it holds no code")
    return Binary(entry.parts["cubin"], **numbers, unused=unused)


def of_variants(variants: Sequence[Sequence[EncodedRead]]) -> Entry:
    """The entry of a manifest: the reads of each variant of a kernel."""
    return Entry({"variants": variants})


def variants(entry: Entry) -> list[list[EncodedRead]]:
    """The variants of a manifest. Raises Unusable."""
    fields = record(entry.metadata, "variants")
    return [_reads(variant) for variant in sequence(fields["variants"])]


def _reads(variant: object) -> list[EncodedRead]:
    # One check for all of them: a matmul kernel has many reads, and this is on the path of its first launch.
    reads = cast("list[list[object]]", sequence(variant))
    if set(map(type, reads)) - {list} or set(map(len, reads)) - {3}:
        raise UnusableFile("a read in it is no list of three")
    flat = [*chain.from_iterable(reads)]
    if set(map(type, flat)) - {str}:
        raise UnusableFile("a read in it is not of texts")
    text("".join(cast("list[str]", flat)))
    return cast("list[EncodedRead]", reads)
