"""What each handle to shared memory may point to: bytes of allocations.

    %a = shared.alloc {shape=(3, 64)}         a: bytes 0 to 768
    %b = shared.index %a, 1                   a: bytes 256 to 512
    %c = shared.index %a, %i                  a: bytes 0 to 768, start unknown

Works on tile IR, with the author's handles, and on lowered IR, with arrays and views of them. A handle that control
flow joins may point to what any of its sources does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod

from weft.analysis.flow import Values
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import SharedArrayType, SharedType, Type
from weft.layout.shared.sizes import alignment, allocation_bytes, stage_bytes
from weft.ops import arith, scratch, shared, thread


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes `first` to `end` of an allocation. `exact`: the handle starts at `first`, and not somewhere between.

    `own`: it starts where one of the allocation's own tiles does. (Of tensor memory columns: `weft.analysis.tensor_handles`.)
    """

    alloc: Op
    first: int
    end: int
    exact: bool = True
    own: bool = True


Places = frozenset[Place]
NOWHERE: Places = frozenset()


def handles(func: Func) -> dict[Value, Places]:
    """The places of every handle of a function, of either stage."""
    return Tracer((SharedType, SharedArrayType), _RULES).found(func)


def is_alloc(op: Op) -> bool:
    """Whether an operation allocates shared memory."""
    return op.kind in (shared.alloc, shared.array, scratch.alloc)


def bytes_of(alloc: Op) -> int:
    """Bytes that an allocation takes, padding between and behind its stages included."""
    step = alignment_of(alloc)
    return -(-_type_bytes(alloc.result) // step) * step


def alignment_of(alloc: Op) -> int:
    """Bytes that an allocation's offset is a multiple of."""
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
    """`size` bytes from an offset of a place on; anywhere in it where the offset is not known, or points outside."""
    if offset is None or not place.exact or not 0 <= offset < place.end - place.first:
        return replace(place, exact=False)
    start = place.first + offset
    return replace(place, first=start, end=min(start + size, place.end))


def _onward(place: Place, offset: int | None, size: int) -> Place:
    """`size` bytes from an offset on, which may reach beyond the place but not beyond its allocation."""
    place = replace(place, own=False)
    whole = replace(place, end=bytes_of(place.alloc))
    if offset is None and size <= place.end - place.first:
        whole = place
    return part(whole, offset, size)


class Tracer(Values[Places, None]):
    """Follows handles. `types` are those of the handles that are followed, `rules` what operations do to them; what has no rule
    may hand on any handle that it takes."""

    def __init__(self, types: tuple[type[Type], ...], rules: Mapping[OpDef, Rule]) -> None:
        super().__init__()
        self.types = types
        self.rules = rules
        self.constants: dict[Value, int] = {}

    def found(self, func: Func) -> dict[Value, Places]:
        """The places of every handle of a function."""
        self.run(func.body, None)
        return self.known

    def visit(self, op: Op, context: None) -> None:
        """By the operation's rule."""
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
        """All places of either way."""
        return old | new

    def of(self, value: Value) -> Places:
        """The places of a handle; none for what is no handle."""
        return self.known.get(value, NOWHERE)

    def set(self, op: Op, handle: Value, part: Callable[[Place], Place]) -> None:
        """Let a result point to parts of what a handle points to."""
        self.known[op.result] = frozenset(map(part, self.of(handle)))


Rule = Callable[[Tracer, Op], None]


def _alloc(found: Tracer, op: Op) -> None:
    """All bytes of the allocation."""
    found.known[op.result] = frozenset([Place(op, 0, bytes_of(op))])


def same(found: Tracer, op: Op) -> None:
    """Another way to see the same memory."""
    (handle,) = op.uses
    found.known[op.result] = found.of(handle)


def _index(found: Tracer, op: Op) -> None:
    """One of the parts along the first dimension."""
    handle, index = op.uses
    _stages(found, op, handle, found.constants.get(index))


def _slice(found: Tracer, op: Op) -> None:
    """Parts of the first dimension are bytes next to each other; those of a tile lie anywhere within it."""
    (handle,) = op.uses
    t = handle.type
    assert isinstance(t, SharedType)
    if op.attrs["dim"] == 0 and len(t.shape) > t.layout.rank:
        _stages(found, op, handle, op.attrs["start"])
    else:
        same(found, op)


def _stages(found: Tracer, op: Op, handle: Value, number: int | None) -> None:
    """The result's bytes, at that many steps of the first dimension."""
    t = handle.type
    assert isinstance(t, SharedType)
    leading = len(t.shape) - t.layout.rank
    step = prod(t.shape[1:leading]) * stage_bytes(t.layout, t.alloc_shape, t.element.bits)
    offset = None if number is None else number * step
    found.set(op, handle, lambda place: part(place, offset, _type_bytes(op.result)))


def _reinterpret(found: Tracer, op: Op) -> None:
    """From the handle on; the start of a part of a tile is not known."""
    (handle,) = op.uses
    t = handle.type
    assert isinstance(t, SharedType)
    whole = t.shape[len(t.shape) - t.layout.rank :] == t.alloc_shape
    found.set(op, handle, lambda place: _onward(place, 0 if whole else None, _type_bytes(op.result)))


def _view(found: Tracer, op: Op) -> None:
    """Part of an array."""
    memory, offset = op.uses
    found.set(op, memory, lambda place: _onward(place, found.constants.get(offset), _type_bytes(op.result)))


_RULES: dict[OpDef, Rule] = {
    shared.alloc: _alloc,
    shared.array: _alloc,
    scratch.alloc: _alloc,
    shared.index: _index,
    shared.slice: _slice,
    shared.permute: same,
    shared.reshape: same,
    shared.reinterpret: _reinterpret,
    shared.view: _view,
    thread.shared_of: same,
}
