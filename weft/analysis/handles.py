"""Points-to analysis of handles to shared memory: the bytes of which allocation each handle may refer to.

    %a = shared.alloc {shape=(3, 64)}         %a: bytes 0 to 768 of %a
    %b = shared.index %a, 1                   %b: bytes 256 to 512 of %a
    %c = shared.index %a, %i                  %c: bytes 0 to 768 of %a, start unknown

The analysis works on tile IR, with the author's handles, and on lowered IR, with arrays and views of them. A phi of handles
may refer to the bytes of any of its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from weft.analysis.flow import Values
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import SharedArrayType, SharedType, Type
from weft.layout.shared.sizes import alignment, allocation_bytes, stage_bytes
from weft.ops import arith, shared, thread


@dataclass(frozen=True, slots=True)
class Place:
    """A byte range that a handle may refer to: bytes `first` to `end` of an allocation. In tensor memory these are columns
    (`weft.analysis.tensor_handles`).

    `exact`: the handle starts at `first`; otherwise it starts anywhere in the range. `own`: the handle starts where a tile of
    the allocation starts.
    """

    alloc: Op
    first: int
    end: int
    exact: bool = True
    own: bool = True


Places = frozenset[Place]
NOWHERE: Places = frozenset()


def handles(func: Func) -> dict[Value, Places]:
    """The byte ranges of every handle of a function, in tile IR or lowered IR."""
    return {} if func.body.kinds.isdisjoint(ALLOCS) else Tracer((SharedType, SharedArrayType), _RULES).found(func)


ALLOCS = (shared.alloc, shared.array, shared.scratch)
"""Operations that allocate shared memory."""


def is_alloc(op: Op) -> bool:
    """Whether an operation allocates shared memory."""
    return op.kind in ALLOCS


def bytes_of(alloc: Op) -> int:
    """The size of an allocation in bytes, with the padding between and after its stages."""
    step = alignment_of(alloc)
    return -(-_type_bytes(alloc.result) // step) * step


def alignment_of(alloc: Op) -> int:
    """The alignment of an allocation in bytes."""
    t = alloc.result.type
    return alignment(t.layout) if isinstance(t, SharedType) else alloc.attrs["align"]


def _type_bytes(handle: Value) -> int:
    t = handle.type
    if isinstance(t, SharedArrayType):
        return t.count * t.element.itemsize
    assert isinstance(t, SharedType)
    leading = len(t.shape) - t.layout.rank
    return allocation_bytes(t.layout, (*t.shape[:leading], *t.alloc_shape), t.element.bits)


def part(place: Place, offset: int | None, size: int) -> Place:
    """`size` bytes from an offset within a range. If the offset is unknown or outside, the result is the range, not exact."""
    if offset is None or not place.exact or not 0 <= offset < place.end - place.first:
        return replace(place, exact=False)
    start = place.first + offset
    return replace(place, first=start, end=min(start + size, place.end))


def _onward(place: Place, offset: int | None, size: int) -> Place:
    """`size` bytes from an offset on. They may extend past the range, but not past its allocation."""
    place = replace(place, own=False)
    whole = replace(place, end=bytes_of(place.alloc))
    if offset is None and size <= place.end - place.first:
        whole = place
    return part(whole, offset, size)


class Tracer(Values[Places, None]):
    """The forward analysis. `types` are the types of the handles that are tracked, `rules` the transfer functions. A result of
    an operation without a rule may refer to the bytes of any operand."""

    def __init__(self, types: tuple[type[Type], ...], rules: Mapping[OpDef, Rule]) -> None:
        super().__init__()
        self.types = types
        self.rules = rules
        self.constants: dict[Value, int] = {}

    def found(self, func: Func) -> dict[Value, Places]:
        """The byte ranges of every handle of a function."""
        self.run(func.body, None)
        return self.known

    def visit(self, op: Op, context: None) -> None:
        """Apply the operation's rule."""
        if op.kind is arith.constant:
            self.constants[op.result] = op.attrs["value"]
        rule = self.rules.get(op.kind)
        if rule is not None:
            rule(self, op)
            return
        for result in op.results:
            if isinstance(result.type, self.types):
                self.known[result] = NOWHERE.union(*map(self.of, op.uses))

    def join(self, value: Value, old: Places, new: Places, number: int) -> Places:
        """The union."""
        return old | new

    def of(self, value: Value) -> Places:
        """The byte ranges of a handle; empty for any other value."""
        return self.known.get(value, NOWHERE)

    def set(self, op: Op, handle: Value, part: Callable[[Place], Place]) -> None:
        """Let the result refer to a part of each range that a handle refers to."""
        self.known[op.result] = frozenset(map(part, self.of(handle)))


Rule = Callable[[Tracer, Op], None]


def _alloc(found: Tracer, op: Op) -> None:
    """The handle refers to all bytes of its allocation."""
    found.known[op.result] = frozenset([Place(op, 0, bytes_of(op))])


def same(found: Tracer, op: Op) -> None:
    """The result refers to the same bytes with another type."""
    (handle,) = op.uses
    found.known[op.result] = found.of(handle)


def _index(found: Tracer, op: Op) -> None:
    """One stage of a multi-stage buffer: an index along the first dimension."""
    handle, index = op.uses
    _stages(found, op, handle, found.constants.get(index))


def _slice(found: Tracer, op: Op) -> None:
    """A range of stages is contiguous. The elements of a slice of a tile may lie anywhere in the tile's bytes."""
    (handle,) = op.uses
    t = handle.type
    assert isinstance(t, SharedType)
    if op.attrs["dim"] == 0 and len(t.shape) > t.layout.rank:
        _stages(found, op, handle, op.attrs["start"])
    else:
        same(found, op)


def _stages(found: Tracer, op: Op, handle: Value, number: int | None) -> None:
    """The result's bytes, starting at stage `number` of the first dimension; None is unknown."""
    t = handle.type
    assert isinstance(t, SharedType)
    leading = len(t.shape) - t.layout.rank
    step = prod(t.shape[1:leading]) * stage_bytes(t.layout, t.alloc_shape, t.element.bits)
    offset = None if number is None else number * step
    found.set(op, handle, lambda place: part(place, offset, _type_bytes(op.result)))


def _reinterpret(found: Tracer, op: Op) -> None:
    """The result starts at the handle's first byte. For a slice of a tile that byte is unknown."""
    (handle,) = op.uses
    t = handle.type
    assert isinstance(t, SharedType)
    whole = t.shape[len(t.shape) - t.layout.rank :] == t.alloc_shape
    found.set(op, handle, lambda place: _onward(place, 0 if whole else None, _type_bytes(op.result)))


def _view(found: Tracer, op: Op) -> None:
    """A view at a byte offset of an array."""
    memory, offset = op.uses
    found.set(op, memory, lambda place: _onward(place, found.constants.get(offset), _type_bytes(op.result)))


_RULES: dict[OpDef, Rule] = {
    shared.alloc: _alloc,
    shared.array: _alloc,
    shared.scratch: _alloc,
    shared.index: _index,
    shared.slice: _slice,
    shared.permute: same,
    shared.reshape: same,
    shared.reinterpret: _reinterpret,
    shared.view: _view,
    thread.shared_of: same,
}
