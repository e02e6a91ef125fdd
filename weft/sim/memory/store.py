"""Storage of a block's shared and tensor memory: bytes, the allocation that wrote each granule last, and undefined elements.

An allocation lies at the offset that the compiler assigned; before offsets are assigned, each `tag` gets separate bytes. A
shadow (`weft.sim.memory.shadow`) holds the last accesses of each granule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import Loc
from weft.ir.core import Op
from weft.sim.machine.data import Array, Mark, arange, marked
from weft.sim.memory.shadow import Shadow
from weft.sim.memory.spaces import Allocation, Handle, Space


def pieces(base: int, elements: Array, itemsize: int, size: int) -> Array:
    """The pieces of `size` bytes that elements occupy, numbered from byte 0; with a last axis if an element has several.

    `elements` are numbered from byte `base`."""
    if itemsize < size:
        return (base + elements * itemsize) // size
    each = itemsize // size
    first = base // size + elements * each
    return first if each == 1 else first[..., None] + arange(each)


class Store:
    """One block's memory of a space. `reserved`: the columns of tensor memory that `tcgen05.alloc` has given the kernel
    (lowered stage). `born_written`: new allocations count as written, so that no read of them is reported."""

    __slots__ = (
        "_causes", "_full", "_lifetimes", "_placed", "_top", "_undefined", "_unit", "_words", "born_written", "data", "granule",
        "owner", "reserved", "shadow", "space",
    )  # fmt: skip

    def __init__(
        self, space: Space, size: int, granule: int, shadow: Shadow | None, born_written: bool = False
    ) -> None:
        self.space = space
        self.born_written = born_written
        self.granule = space.granule or granule
        self._unit = space.unit or self.granule
        if shadow is not None:
            shadow.granule = self.granule
        self.data = np.zeros(0, np.uint8)
        self.owner = np.zeros(0, np.int32)
        self.shadow = shadow
        self.reserved: Allocation | None = None
        self._lifetimes = 0
        # Lifetimes that were found completely written, and cached views of the bytes as elements of a type.
        self._full: set[Allocation] = set()
        self._words: dict[np.dtype[Any], Array] = {}
        # Offsets of allocations that the compiler has not placed, and the first free byte.
        self._placed: dict[Any, int] = {}
        self._top = self._aligned(size)
        self._undefined: Array | None = None
        self._causes: tuple[str, Loc | None] = (space.never_written, None)
        self._reserve(space.limit or size)

    def _aligned(self, size: int) -> int:
        return -(-size // self.space.alignment) * self.space.alignment

    def _reserve(self, size: int) -> None:
        size = self._aligned(min(size, self.space.limit or size))
        if size <= self.data.size:
            return
        self.data = np.append(self.data, np.zeros(size - self.data.size, np.uint8))
        self._words.clear()
        granules = size // self.granule
        self.owner = np.append(self.owner, np.zeros(granules - self.owner.size, np.int32))
        if self._undefined is not None:
            self._undefined = np.append(self._undefined, np.zeros(size // self._unit - self._undefined.size, bool))
        if self.shadow is not None:
            self.shadow.resize(granules)

    def allocate(
        self, op: Op, start: int, size: int, name: str, leading: tuple[int, ...] = (), stage: int = 0
    ) -> Handle:
        """Begin a lifetime of `size` bytes at byte `start` (-1: the compiler has assigned no offset). `leading` and `stage` as
        in `Allocation`. The bytes keep their contents, which count as never written."""
        if start < 0:
            tag = op.attrs["tag"], op.result.type
            start = self._placed.setdefault(tag, self._top)
        self._top = max(self._top, self._aligned(start + size))
        self._reserve(start + size)
        self._lifetimes += 1
        memory = Allocation(self._lifetimes, start, size, name, op, leading, stage, self.space)
        if self.born_written:
            self.written(memory, slice(start // self.granule, -(-(start + size) // self.granule)))
        return Handle(memory, start)

    def view(self, handle: Handle, dtype: np.dtype[Any], low: int, high: int) -> Array:
        """Elements `low` to `high` (exclusive) of a type, numbered from the handle's base; they must lie in memory."""
        first = handle.base + low * dtype.itemsize
        return self.data[first : handle.base + high * dtype.itemsize].view(dtype)

    def words(self, dtype: np.dtype[Any]) -> Array:
        """The whole memory as elements of a type."""
        if dtype not in self._words:
            self._words[dtype] = self.data.view(dtype)
        return self._words[dtype]

    def is_full(self, memory: Allocation) -> bool:
        """True if all granules of an allocation were written in this lifetime, so that elements need no check of their own."""
        if memory not in self._full:
            first, last = memory.start // self.granule, (memory.start + memory.size) // self.granule
            if (self.owner[first:last] != memory.number).any():
                return False
            self._full.add(memory)
        return True

    def unwritten(self, memory: Allocation, granules: slice | Array) -> bool:
        """True if any of these granules was never written in an allocation's lifetime."""
        return bool((self.owner[granules] != memory.number).any())

    def never_written(self, memory: Allocation, base: int, elements: Array, itemsize: int) -> Array:
        """Mask of the elements, numbered from byte `base`, with a byte that was never written in an allocation's lifetime."""
        fresh = self.owner[pieces(base, elements, itemsize, self.granule)] != memory.number
        return fresh.any(axis=-1) if itemsize > self.granule else fresh

    def written(self, memory: Allocation, granules: slice | Array) -> None:
        """Mark these granules as written by an allocation."""
        self.owner[granules] = memory.number
        if len(self._full) > (memory in self._full):
            self._full = {other for other in self._full if other is memory or not _overlap(other, memory)}
        if self._undefined is not None:
            self._undefined.reshape(-1, self.granule // self._unit)[granules] = False

    @property
    def holds_undefined(self) -> bool:
        """True if an undefined element was ever stored."""
        return self._undefined is not None

    def mark(self, base: int, elements: Array, itemsize: int, mark: Mark, undefined: Array) -> None:
        """Set or clear the undefined flag of elements that are numbered from byte `base`, according to `undefined`."""
        if self._undefined is None:
            self._undefined = np.zeros(self.data.size // self._unit, bool)
        units = pieces(base, elements, itemsize, self._unit)
        self._undefined[units] = undefined if itemsize == self._unit else undefined[..., None]
        self._causes = mark.cause, mark.loc

    def undefined(self, base: int, elements: Array, itemsize: int) -> Mark | None:
        """A mark on the undefined ones among elements that are numbered from byte `base`."""
        if self._undefined is None:
            return None
        found = self._undefined[pieces(base, elements, itemsize, self._unit)]
        return marked(found.any(axis=-1) if itemsize > self._unit else found, *self._causes)


def _overlap(first: Allocation, second: Allocation) -> bool:
    """True if two allocations share bytes."""
    return first.start < second.start + second.size and second.start < first.start + first.size
