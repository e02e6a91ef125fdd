"""A block's shared memory: its bytes, which allocation wrote each granule last, and which elements are undefined.

An allocation that is executed begins a *lifetime*: whatever its bytes held before counts as never written. Memory of the author
and of the compiler is the same; `offset` says where an allocation lies, and without one each `tag` gets bytes of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.errors import Loc
from weft.ir.core import Op
from weft.sim.data import Array, Mark, arange, marked
from weft.sim.shadow import Shadow

NEVER_WRITTEN = "the shared memory it was read from was never written"
ALIGNMENT = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Lifetime:
    """An allocation that was executed: its number (from 1), its bytes, and what reports call it ('' for the compiler's own).

    `leading` are the extents of an array of tiles or barriers, one every `stage` bytes."""

    number: int
    start: int
    size: int
    name: str
    op: Op
    leading: tuple[int, ...] = ()
    stage: int = 0

    def part(self, byte: int) -> str:
        """What reports call the part that holds a byte of shared memory: `buffers[1]`, or the name alone where there is one."""
        name = self.name or "the compiler's scratch memory"
        number = (byte - self.start) // self.stage if self.stage else -1
        if not 0 <= number < prod(self.leading):
            return name
        return f"{name}[{', '.join(map(str, map(int, np.unravel_index(number, self.leading))))}]"


@dataclass(frozen=True, slots=True)
class Handle:
    """What a handle points to: an allocation, the byte at which the view's tile starts, and the logical start of the view
    within the tile, as the element offset that is XORed into its elements'."""

    memory: Lifetime
    base: int
    start: int = 0


class SharedMemory:
    """Bytes in granules of `granule` bytes each."""

    __slots__ = (
        "_causes",
        "_full",
        "_lifetimes",
        "_placed",
        "_undefined",
        "_words",
        "data",
        "granule",
        "owner",
        "shadow",
    )

    def __init__(self, size: int, granule: int, shadow: Shadow | None) -> None:
        self.granule = granule
        if shadow is not None:
            shadow.granule = granule
        self.data = np.zeros(0, np.uint8)
        self.owner = np.zeros(0, np.int32)
        self.shadow = shadow
        self._lifetimes = 0
        # Lifetimes all of whose granules were found written; memory as elements of a type.
        self._full: set[Lifetime] = set()
        self._words: dict[np.dtype[Any], Array] = {}
        self._placed: dict[Any, int] = {}
        self._undefined: Array | None = None
        self._causes: tuple[str, Loc | None] = (NEVER_WRITTEN, None)
        self._reserve(size)

    def _reserve(self, size: int) -> None:
        size = -(-size // ALIGNMENT) * ALIGNMENT
        if size <= self.data.size:
            return
        self.data = np.append(self.data, np.zeros(size - self.data.size, np.uint8))
        self._words.clear()
        granules = size // self.granule
        self.owner = np.append(self.owner, np.zeros(granules - self.owner.size, np.int32))
        if self._undefined is not None:
            self._undefined = np.append(self._undefined, np.zeros(granules - self._undefined.size, bool))
        if self.shadow is not None:
            self.shadow.resize(granules)

    def allocate(self, op: Op, size: int, name: str, leading: tuple[int, ...] = (), stage: int = 0) -> Handle:
        """Begin a lifetime of `size` bytes, at the operation's `offset`; `leading` and `stage` as in `Lifetime`."""
        start = int(op.attrs["offset"])
        if start < 0:
            tag = op.attrs["tag"], op.result.type
            if tag not in self._placed:
                self._placed[tag] = self.data.size
                self._reserve(self.data.size + size)
            start = self._placed[tag]
        self._reserve(start + size)
        self._lifetimes += 1
        return Handle(Lifetime(self._lifetimes, start, size, name, op, leading, stage), start)

    # Elements are numbered from a handle's base, in elements of their type.

    def view(self, handle: Handle, dtype: np.dtype[Any], low: int, high: int) -> Array:
        """Elements `low` to `high` of a handle, which lie in memory."""
        first = handle.base + low * dtype.itemsize
        return self.data[first : handle.base + high * dtype.itemsize].view(dtype)

    def words(self, dtype: np.dtype[Any]) -> Array:
        """All of memory as elements of a type."""
        if dtype not in self._words:
            self._words[dtype] = self.data.view(dtype)
        return self._words[dtype]

    def is_full(self, memory: Lifetime) -> bool:
        """Whether all of an allocation is known to be written in this lifetime, which makes looking at elements needless."""
        if memory not in self._full:
            first, last = memory.start // self.granule, (memory.start + memory.size) // self.granule
            if (self.owner[first:last] != memory.number).any():
                return False
            self._full.add(memory)
        return True

    def granules(self, handle: Handle, elements: Array, itemsize: int) -> Array:
        """The granules of elements, a last axis of `itemsize // granule` where that is more than one."""
        each = itemsize // self.granule
        first = handle.base // self.granule + elements * each
        return first if each == 1 else first[..., None] + arange(each)

    def unwritten(self, handle: Handle, where: slice | Array) -> bool:
        """Whether some of these granules were never written in the handle's lifetime."""
        return bool((self.owner[where] != handle.memory.number).any())

    @property
    def holds_undefined(self) -> bool:
        """Whether an undefined element was ever stored."""
        return self._undefined is not None

    def never_written(self, handle: Handle, granules: Array, split: bool) -> Array:
        """For each element whether any of its granules (along the last axis if `split`) was never written in this lifetime."""
        fresh = self.owner[granules] != handle.memory.number
        return fresh.any(axis=-1) if split else fresh

    def written(self, handle: Handle, where: slice | Array) -> None:
        """These granules have values now."""
        memory = handle.memory
        self.owner[where] = memory.number
        if len(self._full) > (memory in self._full):
            self._full = {other for other in self._full if other is memory or not _overlap(other, memory)}
        if self._undefined is not None:
            self._undefined[where] = False

    def mark(self, granules: Array, mark: Mark, undefined: Array) -> None:
        """These elements' granules hold undefined elements (`undefined` has an element's shape)."""
        if self._undefined is None:
            self._undefined = np.zeros(self.owner.size, bool)
        self._undefined[granules] = undefined if granules.ndim == undefined.ndim else undefined[..., None]
        self._causes = mark.cause, mark.loc

    def undefined(self, granules: Array, split: bool) -> Mark | None:
        """The undefined elements among those read."""
        if self._undefined is None:
            return None
        found = self._undefined[granules]
        return marked(found.any(axis=-1) if split else found, *self._causes)


def _overlap(first: Lifetime, second: Lifetime) -> bool:
    """Whether two allocations have bytes in common."""
    return first.start < second.start + second.size and second.start < first.start + first.size
