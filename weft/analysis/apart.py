"""Where the blocks of a cluster part: scalars, copies of tiles, and conditions that differ between the blocks of one program.

    %r = cluster.rank                       differs
    %b = arith.cmp eq %r, 1                 differs
    control.if %b { memory.store %p, %x }   each block that reaches the store executes it
    memory.store %p, %x                     the first block executes it for all

In a kernel for tiles all blocks of a cluster execute one text on the same scalars, and what they would repeat, such as a store
of a scalar, one of them does for all. The rank of a block, and what inline PTX reads of the machine, differs between blocks.
Under a condition that differs, or with an operand that does, each block acts for itself, on what it holds. A tile of which no
element is in several blocks does not differ: each element has one value.

Memory carries differences too: a buffer of which each block has a copy differs after blocks have written it for themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.analysis.flow import PARALLEL, STRUCTURED, Edge, Values, decided_at, decides
from weft.analysis.handles import Places, handles
from weft.errors import Loc
from weft.ir.core import Func, Op, Value
from weft.ir.types import SharedType, TileType, Type
from weft.layout.cluster import receivers
from weft.ops import asm, cluster, control

_READS = re.compile(
    r"%(?:cluster_)?ctaid\b|%cluster_ctarank\b|%smid\b|%warpid\b|%clock|%globaltimer|%pm\d|\bgetctarank\b|\bld\b|\batom\b"
    r"|\btest_wait\b|\btry_wait\b"
)
"""What in PTX text can give the blocks of a cluster different values: special registers, and memory."""


@dataclass(frozen=True, slots=True)
class Apart:
    """`under`: each operation under a condition that differs between the blocks of a cluster, with the line of the outermost
    one. `each`: the operations that each block executes for itself: these, and those with an operand that differs."""

    under: dict[Op, Loc | None]
    each: frozenset[Op]


TOGETHER = Apart({}, frozenset())


def apart(func: Func) -> Apart:
    """Where the blocks part in tile IR; nowhere without a cluster, nor in thread-level kernels, where none acts for others."""
    attrs, kinds = func.attrs, func.body.kinds
    if attrs.num_ctas == 1 or attrs.block is not None or kinds.isdisjoint(_SOURCES):
        return TOGETHER
    found = _Analysis(func)
    found.settle(func.body, None)
    return Apart({op: around.loc for op, around in found.under.items()}, frozenset(found.each))


_SOURCES = (cluster.rank, asm.inline_asm, asm.inline_asm_volatile, asm.block, asm.block_volatile, asm.block_memory)


@dataclass(frozen=True, slots=True)
class _Condition:
    loc: Loc | None


class _Analysis(Values[bool, _Condition | None]):
    """The forward analysis: whether a value differs between blocks, and the outermost condition around code that does."""

    def __init__(self, func: Func) -> None:
        super().__init__()
        self.under: dict[Op, _Condition] = {}
        self.each: set[Op] = set()
        self._blocks = func.attrs.num_ctas
        self._places: dict[Value, Places] = handles(func)
        self._written: set[Op] = set()
        self.known.update(dict.fromkeys(func.params, False))

    def visit(self, op: Op, context: _Condition | None) -> None:
        """The results differ if an operand does, or if the blocks execute for themselves what gives them."""
        self._note(op, context)
        written = {effect.operand for effect in op.effects if effect.kind == "write" and effect.space == "shared"}
        targets = [value for name, value in _named(op) if name in written]
        differs = any(self.known.get(value, False) for value in op.uses if value not in targets)
        itself = differs or context is not None
        if itself:
            self.each.add(op)
            for value in targets:
                self._write(value)
        if op.effects and context is not None:
            differs = True
        differs = differs or (op.kind in _SOURCES and _reads(op)) or op in self._written
        for result in op.results:
            self.known[result] = differs and self._may(result.type)

    def join(self, value: Value, old: bool, new: bool, number: int) -> bool:
        """Either."""
        return old or new

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> bool | None:
        """What leaves a region differs if the condition does."""
        inside = self.known.get(value, False)
        return inside or (edge.source is not None and self._decided(op) and self._may(target.type))

    def begin(self, op: Op, context: _Condition | None) -> None:
        """A loop counter differs if its bounds do; an elementwise function is one of the operation."""
        for region in op.regions:
            if op.kind is control.for_:
                self.known[region.args[0]] = self._decided(op)
            elif op.kind not in STRUCTURED:
                self.known.update(dict.fromkeys(region.args, False))

    def through(self, op: Op, context: _Condition | None) -> None:
        """Also record the control flow around an operation with regions."""
        self._note(op, context)
        super().through(op, context)

    def within(self, op: Op, number: int, context: _Condition | None) -> _Condition | None:
        """Inside a branch or loop that the blocks take differently."""
        if context is not None or op.kind in PARALLEL or not self._decided(op):
            return context
        return _Condition(decided_at(op))

    def end(self, op: Op, context: _Condition | None) -> None:
        """The result of an elementwise function, as that of any operation."""
        if op.kind not in STRUCTURED:
            self.visit(op, context)

    def _note(self, op: Op, context: _Condition | None) -> None:
        if context is not None:
            self.under[op] = context

    def _decided(self, op: Op) -> bool:
        return any(self.known.get(value, False) for value in decides(op))

    def _may(self, type: Type) -> bool:
        """Whether blocks can have different values of a type: each holds the elements."""
        if isinstance(type, TileType):
            return type.linear is None or receivers(type.linear, self._blocks) != 0
        if isinstance(type, SharedType):
            return receivers(type.layout.to_linear(type.alloc_shape), self._blocks) != 0
        return True

    def _write(self, handle: Value) -> None:
        """Blocks write a buffer for themselves."""
        for place in self._places.get(handle, ()):
            if place.alloc not in self._written:
                self._written.add(place.alloc)
                self.version += 1


def _named(op: Op) -> list[tuple[str, Value]]:
    return [(name, value) for name, value in zip(op.kind.operands, op.operands, strict=False) if value is not None]


def _reads(op: Op) -> bool:
    return op.kind is cluster.rank or _READS.search(op.attrs["asm"]) is not None
