"""Checked accesses to global memory, for tile IR and for lowered IR.

Only active elements are accessed and checked. The check covers all addresses at once; only when it fails does the error path
look for the first bad element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, reduce
from math import prod
from typing import Any

import numpy as np

from weft.analysis.steering import reads_strongly
from weft.errors import UserError, hazard
from weft.ir.core import Op
from weft.ir.types import DType, TileType
from weft.ops.check import pointer_of
from weft.ops.memory import Atomic
from weft.sim.machine import wraps
from weft.sim.machine.data import Array, Data, Mark, arange, undefined_in, where, where_marked
from weft.sim.machine.hardware import owners_of, readers_of
from weft.sim.machine.tasks import Task
from weft.sim.memory.heap import BadAddress, GlobalPlace, Heap, HeapAccess, ReadOnlyStorage
from weft.sim.memory.races import Races
from weft.sim.memory.tracks import THREADS, Touch, Way
from weft.sim.numbers import arithmetic as numbers
from weft.sim.numbers.arithmetic import bits_of, numpy_dtype

MASKED_OFF = "the load that gives it is masked off and has no `other`"
MASKED_ATOMIC = "the atomic that gives it is masked off"


class Request:
    """An operation's accesses of `vec` elements each: the active addresses, and the mask `where` of the active accesses (None:
    all).

    `operand`: the number of the pointer operand."""

    __slots__ = ("access", "all", "element", "op", "pointer", "shape", "task", "where")

    def __init__(self, task: Task, op: Op, ptr: Data, mask: Data | None, vec: int = 1, operand: int = 0) -> None:
        own = None if mask is None else mask.array
        task.demand(op, mask, "a mask")
        task.demand(op, ptr, "an address", own)
        self.task = task
        self.op = op
        self.pointer = op.operands[operand]
        self.element = pointee(op, operand)
        self.all = ptr.array
        # In a cluster each block reads the elements that it holds. A write happens once: the first block that holds an
        # element does it.
        self.where = task.under(own) if task.machine.blocks == 1 else self._part(own)
        if self.where is not None:
            self.all, self.where = np.broadcast_arrays(self.all, self.where)
            if np.all(self.where):
                self.where = None
        self.shape = np.shape(self.all)
        chosen = self.all if self.where is None else self.all[self.where]
        self.access = HeapAccess(chosen, self.element.itemsize, vec)
        active = task.under(own)
        wraps.check(task, op, ptr, hazard.WRAPPED, self.shape, active)
        if mask is not None:
            wraps.check(task, op, mask, hazard.WRAPPED_MASK, self.shape, active)

    def _part(self, mask: Array | None) -> Array | None:
        """Mask of the active elements that the task's block accesses."""
        # Every block of the cluster executes thread-level and lowered operations itself.
        of_tiles = self.op.kind.stage == "tile"
        once = of_tiles and any(effect.kind == "write" and effect.space == "global" for effect in self.op.effects)
        return self.task.own(self.op, self.pointer, mask) if once else self.task.held(self.pointer, mask)

    def of_ranks(self) -> list[Request]:
        """The same accesses on each rank, of multicast addresses."""
        if not np.size(self.access.addresses):
            return []
        try:
            distances = self.heap.ranks_of(np.asarray(self.access.addresses))
        except BadAddress:
            found = self.heap.segment_at(int(np.ravel(self.access.addresses)[0]))
            name = "memory" if found is None else found.buffer.name
            raise self.task.fail(hazard.MULTIMEM_ADDRESS, self.op, name=name) from None
        return [self._moved(np.int64(distance)) for distance in distances]

    def _moved(self, distance: np.int64) -> Request:
        moved = copy(self)
        moved.all = self.all + distance
        moved.access = HeapAccess(self.access.addresses + distance, self.access.itemsize, self.access.vec)
        return moved

    @property
    def heap(self) -> Heap:
        """Global memory."""
        return self.task.machine.heap

    def values(self, data: Data) -> Array:
        """The active elements of an operand that has one element per access (or `vec`, along a last axis)."""
        shape = self.shape + ((self.access.vec,) if self.access.vec > 1 else ())
        array = np.broadcast_to(data.array, shape)
        return array if self.where is None else array[self.where]

    def demand(self, data: Data, sink: str) -> None:
        """Check that a value has no undefined elements where accesses are active. Raises UndefinedValue."""
        if data.undefined is None:
            return
        where = self.where[..., None] if self.where is not None and self.access.vec > 1 else self.where
        bad = where_marked(data.undefined, np.shape(data.array), where)
        if bad is not None:
            self.task.refuse(self.op, data.undefined, sink, bad)

    def touches(self, places: list[GlobalPlace], way: Way) -> list[Touch]:
        """The accesses in the race detector's form."""
        threads, notes = self._threads(way)
        each = self.task.names.by_threads(self.op)
        return [
            Touch(
                self.task, self.op, way, p, self.element.itemsize, _part(threads, p.which), _part(notes, p.which), each=each
            )
            for p in places
        ]  # fmt: skip

    def _threads(self, way: Way) -> tuple[Array | int, Array | int]:
        """The thread of each active access: as checked against earlier accesses, and as recorded for later checks."""
        value = self.pointer
        assert value is not None
        if isinstance(value.type, TileType) and value.type.linear is not None and self.shape == value.type.shape:
            rank = self.task.rank
            notes = owners_of(value.type.linear, rank).reshape(self.shape)
            threads = readers_of(value.type.linear, THREADS, rank).reshape(self.shape) if way == "read" else notes
        elif len(self.shape) > 1 and self.shape[0] == self.task.threads:
            threads = notes = thread_numbers(self.shape)
        else:
            return (THREADS if way == "read" else 0), 0
        return (threads, notes) if self.where is None else (threads[self.where], notes[self.where])

    def fault(self, verb: str) -> UserError:
        """The error for the first bad address."""
        flat = np.ravel(self.all)
        active = np.ones(flat.shape, bool) if self.where is None else np.ravel(self.where)
        width = self.access.width
        inside = np.zeros(flat.shape, bool)
        for segment in self.heap.segments.values():
            inside |= (flat >= segment.low) & (flat + width <= segment.high)
        outside = active & ~inside
        for segment in self.heap.segments.values():
            if segment.buffer.multicast and np.any(active & (flat >= segment.low) & (flat < segment.high)):
                return self.task.fail(hazard.MULTICAST_ADDRESS, self.op, access=verb, name=segment.buffer.name)
        if np.any(outside):
            return self._outside(verb, flat, outside, int(active.sum()))
        first = int(np.argmax(active & (flat & (width - 1) != 0)))
        segment = self.heap.segment_at(int(flat[first]))
        assert segment is not None
        byte = int(flat[first]) - segment.pointer
        return self.task.fail(
            hazard.MISALIGNED, self.op, access=verb, bytes=width, name=segment.buffer.name, byte=byte,
            past=int(flat[first]) % width, where=self._who(first), instead=self._aligned(segment.pointer, width),
        )  # fmt: skip

    def _aligned(self, start: int, width: int) -> str:
        """The fix for a misaligned access of `width` bytes to an array that starts at address `start`."""
        if start % width:
            return f"pass an array whose start is aligned to {width} bytes, or access narrower elements"
        count = width // self.element.itemsize
        return f"access vectors at indices that are multiples of {count}, as in {count} * i, or access narrower ones"

    def _outside(self, verb: str, flat: Array, outside: Array, total: int) -> UserError:
        first = int(np.argmax(outside))
        address, size = int(flat[first]), self.element.itemsize
        segment = self.heap.segment_at(address)
        if segment is None:
            return self.task.fail(hazard.NO_BUFFER, self.op, access=verb, address=address)
        low = -((segment.pointer - segment.low) // size)
        extent = (segment.high - segment.pointer) // size
        index = (address - segment.pointer) // size
        place = f"{int(outside.sum())} of the {total} elements accessed here are outside, the first at "
        bound = f"at or above {low}" if index < low else f"below {extent}"
        where = self.task.where(self.shape, first)
        of = " of the tile" if where.startswith("index") else ""
        share = f"; {place}{where}{of}{self._through()}" if self.shape else ""
        return self.task.fail(
            hazard.OUT_OF_BOUNDS, self.op, access=verb, name=segment.buffer.name, index=index,
            extent=f"elements {low} to {extent - 1}" if low < extent else "no elements", share=share + segment.buffer.form,
            mask=self._guard(bound, extent) if low < extent else "mask the access, or skip the launch",
            instead=_INSTEAD if segment.start <= address and address + size <= segment.end else "",
        )  # fmt: skip

    def _guard(self, bound: str, extent: int) -> str:
        """The fix for an index outside of an array."""
        if self.task.names.launched_by_threads and bound.startswith("below"):
            return f"let only threads with indices below {extent} execute the line, as in if i < {extent}:"
        return f"mask the access so that indices stay {bound}"

    def _who(self, flat: int) -> str:
        """The name of the faulting thread, in a kernel that is launched by threads."""
        named = self.op.kind.stage == "both" and len(self.shape) == 2
        return f" ({self.task.where(self.shape, flat)}{self._through()})" if named else ""

    def _through(self) -> str:
        return "" if self.op.kind.stage == "tile" else self.task.names.view(self.op)


_INSTEAD = (
    "; or, where the kernel shall reach the rest of the memory that this array is a view of, launch under "
    "weft.simulate(bounds='storage')"
)


@lru_cache(maxsize=256)
def thread_numbers(shape: tuple[int, ...]) -> Array:
    """The thread of each element of an array (threads, registers), or (threads, accesses, elements of each)."""
    return np.repeat(arange(shape[0]), prod(shape[1:])).reshape(shape)


def _part(whole: Any, which: Array | None) -> Any:
    """The entries for some of the accesses (None: all) of an array with one entry per access, or of a common number."""
    return whole if which is None or whole is None or isinstance(whole, int) else whole[which]


def pointee(op: Op, operand: int = 0) -> DType:
    """The type of the elements that an operand points to."""
    value = op.operands[operand]
    assert value is not None
    return pointer_of(value).element_ty


def from_bits(bits: Array, element: DType) -> Array:
    """Bits from memory as values; a bool is True for any bits but 0."""
    return bits != 0 if element.is_bool() else bits.view(numpy_dtype(element))


def load(request: Request, other: Data | None) -> Data:
    """Load the active elements. Inactive ones get `other` (of the same shape), or are undefined."""
    combine: str | None = request.op.attrs.get("multimem")
    if not combine:
        values = _read(request)
    elif parts := [_read(each) for each in request.of_ranks()]:
        values = _combined(combine, parts)
    else:
        values = np.zeros(0, numpy_dtype(request.element))
    if request.where is None:
        return Data(values)
    return scattered(request, values, other, MASKED_OFF)


def _combined(kind: str, parts: Sequence[Array]) -> Array:
    """What a multimem load makes of the ranks' elements: in their order, narrow floats in float32, rounded once."""
    function = COMBINE[kind]
    if kind == "add" and parts[0].dtype.kind not in "iu":
        return numbers.through32(lambda *each: reduce(np.add, each), *parts)
    return reduce(function, parts)


def _read(request: Request) -> Array:
    """The active elements."""
    task = request.task
    task.reads += 1
    task.last_read = request.access
    try:
        places = request.heap.places(request.access)
    except BadAddress:
        raise request.fault("reads") from None
    races = task.machine.races
    if races is not None:
        strong = reads_strongly(request.op)
        touches = request.touches(places, "strong read" if strong else "read")
        if strong:
            _synchronise(request, races, touches)
        else:
            for touch in touches:
                races.touch(touch)
    return from_bits(request.heap.read(request.access, places), request.element)


def scattered(request: Request, values: Array, other: Data | None, cause: str) -> Data:
    """Active values in an array of all accesses. Inactive elements get `other`, or are undefined because of `cause`."""
    where = request.where
    assert where is not None
    shape = where.shape + values.shape[1:]
    out = np.zeros(shape, values.dtype) if other is None else np.array(np.broadcast_to(other.array, shape))
    out[where] = values
    off = ~where[..., None] if len(shape) > where.ndim else ~where
    if other is None:
        part = request.task.part(request.pointer)
        return Data(out[()], Mark(off if part is None else off & part, cause, request.op.loc))
    undefined = other.undefined
    return Data(out[()], undefined and Mark(off & undefined.mask, undefined.cause, undefined.loc))


def store(request: Request, value: Data) -> None:
    """Write the active elements of `value`."""
    request.demand(value, "a store")
    for each in request.of_ranks() if request.op.attrs.get("multimem") else (request,):
        _write(each, value)


def _write(request: Request, value: Data) -> None:
    bits = bits_of(request.values(value))
    try:
        places = request.heap.places(request.access)
    except BadAddress:
        raise request.fault("writes") from None
    races = request.task.machine.races
    strong = bool(request.op.attrs["order"])
    if races is not None:
        touches = request.touches(places, "strong write" if strong else "write")
        if strong:
            _synchronise(request, races, touches)
        else:
            for touch in touches:
                races.touch(touch, _part(bits, touch.place.which))
    try:
        request.heap.write(request.access, bits, places)
    except ReadOnlyStorage as error:
        raise request.task.fail(hazard.READ_ONLY, request.op, name=error.segment.buffer.name) from None
    if races is not None and not strong:
        for place in places:
            races.stored(request.task, request.op, place, request.element.itemsize, _part(bits, place.which))


Change = Callable[[Array, Array], Array]
COMBINE: dict[str, Change] = {
    "add": lambda old, value: numbers.through32(np.add, old, value) if old.dtype.kind not in "iu" else old + value,
    "max": numbers.maximum,
    "min": numbers.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, value: value,
}
"""The new value of an atomic, from the old value and its operand."""


def atomic(request: Request, kind: Atomic, value: Data) -> Data:
    """Atomically combine values into memory, element after element. Returns the old values."""
    request.demand(value, "an atomic")
    new, combine = np.ravel(request.values(value)), COMBINE[kind]
    dtype = new.dtype
    old = value
    for each in request.of_ranks() if request.op.attrs.get("multimem") else (request,):
        old = _update(each, lambda old, which: bits_of(combine(old.view(dtype), new[which])))
    return old


def compare_and_swap(request: Request, compare: Data, value: Data) -> Data:
    """Atomic compare-and-swap, element after element; bits are compared. Returns the old values."""
    for operand in (compare, value):
        request.demand(operand, "an atomic")
    expected, new = (np.ravel(bits_of(request.values(operand))) for operand in (compare, value))
    return _update(request, lambda old, which: where(old == expected[which], new[which], old))


def _update(request: Request, change: Change) -> Data:
    task = request.task
    task.reads += 1
    task.last_read = request.access
    races = task.machine.races
    if races is not None:
        try:
            touches = request.touches(request.heap.places(request.access), "atomic")
        except BadAddress:
            raise request.fault("updates") from None
        _synchronise(request, races, touches)
    try:
        old = from_bits(request.heap.update(request.access, change), request.element)
    except BadAddress:
        raise request.fault("updates") from None
    except ReadOnlyStorage as error:
        raise task.fail(hazard.READ_ONLY, request.op, name=error.segment.buffer.name) from None
    return Data(old) if request.where is None else scattered(request, old, None, MASKED_ATOMIC)


def awaited(request: Request, expected: Data) -> tuple[Array, Array]:
    """The bits that a poll waits for at each active address, and whether memory holds them now."""
    task = request.task
    request.demand(expected, "an awaited value")
    task.reads += 1
    task.last_read = request.access
    try:
        found = request.heap.read(request.access)
    except BadAddress:
        raise request.fault("reads") from None
    wanted = np.asarray(bits_of(request.values(expected)))
    if not request.op.attrs["at_least"]:
        return wanted, np.asarray(found == wanted)
    ahead: Array = np.asarray(found - wanted)
    return wanted, ahead.view(f"i{request.element.itemsize}") >= 0


def poll_ended(request: Request, met: Array, expected: Data) -> Data:
    """The result of a poll that has seen the expected value where `met`; it acquires there."""
    hit = met
    if request.where is not None:
        hit = np.zeros(request.shape, np.bool_)
        hit[request.where] = met
    races = request.task.machine.races
    if races is not None and met.any():
        seen = Request(request.task, request.op, Data(request.all), Data(hit))
        counts = seen.values(expected) if request.op.attrs["signal"] else None
        _synchronise(seen, races, seen.touches(seen.heap.places(seen.access), "strong read"), counts)
    return Data(hit[()])


def _synchronise(request: Request, races: Races, touches: list[Touch], counts: Array | None = None) -> None:
    """Release and acquire of an atomic or a strong load or store, and the race check of its accesses. `counts`: how many
    signals each access waits for."""
    op, task = request.op, request.task
    order, strong_read = op.attrs["order"], reads_strongly(op)
    acquires, releases = order in ("acquire", "acq_rel"), order in ("release", "acq_rel")
    # Lowering surrounds such an operation with barriers. Tile IR does not contain them yet, so their order is applied here.
    settles = op.kind.stage == "tile" and task.machine.func.attrs.sync != "none"
    if settles and releases:
        task.settled = task.clock.position
    for touch in touches:
        place = touch.place.segment, _part(request.access.addresses, touch.place.which)
        if strong_read:
            races.published.strong_read(touch, place[1], acquires, _part(counts, touch.place.which))
        races.touch(touch)
        if releases:
            races.release(touch, place[1], replaces=not strong_read)
        else:
            if not strong_read:
                races.published.overwrites(task, place)
            if touch.way != "strong read":
                races.fenced_write(touch, place[1], replaces=not strong_read)
    if settles and acquires:
        task.settled = task.clock.position


def moved_by(ptr: Data, offset: Data, itemsize: int) -> Data:
    """`ptr + offset` in elements; the marks of both operands carry over."""
    distance = np.multiply(offset.array, np.int64(itemsize), dtype=np.int64, casting="unsafe")
    both = (ptr, offset)
    return Data(ptr.array + distance, undefined_in(both), wraps.wrapped_in(both))


def offset_of(constants: Array, strides: Sequence[Data], factors: Sequence[Array]) -> Data:
    """`constants + sum(stride * factor)` in 64 bits; the marks of the strides carry over."""
    total = constants
    for stride, factor in zip(strides, factors, strict=True):
        total = total + stride.array.astype(np.int64) * factor
    return Data(total, undefined_in(strides), wraps.wrapped_in(strides))
