"""Scalars of the lowered function: their facts, arithmetic that folds constants, and indices of the thread.

Values that depend on the thread only, such as its coordinates in a layout, are computed once, at the entry of the kernel or of
a partition, where they dominate all uses. A linear map over F2 of the thread's index is emitted as shifts, masks and additions
or XORs:

    (4, 8, 16, 0, 0, 1)    -->    (thread & 7) * 4 + (thread >> 5 & 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.analysis.facts.rules import RULES
from weft.analysis.facts.scalar import Scalar
from weft.analysis.facts.words import step_of, unknown, word_of
from weft.ir.build import OpenRegion
from weft.ir.core import Attrs, Func, OpDef, Region, Value
from weft.ir.rebuild import Operands, Rebuilder
from weft.ir.types import DType, ScalarType, int32, wrap
from weft.layout import WARP_SIZE
from weft.ops import arith, cluster, program
from weft.ops.regs import Table
from weft.passes.lower.frame import LANE_BITS, Frame
from weft.passes.lower.placement import bit_terms, splits, union


class Scalars(Rebuilder):
    """Emits scalars. `numbers` has the facts of integers and addresses, `constants` the values of constants."""

    __slots__ = ("_frame", "block_bits", "constants", "num_ctas", "numbers", "source", "tags")

    def __init__(self, func: Func) -> None:
        super().__init__(lambda out, op, operands: None, number=True)
        self.source = func
        self.numbers: dict[Value, Scalar] = {}
        self.constants: dict[Value, int | float | bool] = {}
        self.tags = 0
        self._frame = Frame(func.attrs.num_warps)
        self.num_ctas = func.attrs.num_ctas
        self.block_bits = self.num_ctas.bit_length() - 1

    def create(
        self, kind: OpDef, operands: Operands, attrs: Attrs, regions: tuple[Region, ...] = (), name: str = ""
    ) -> tuple[Value, ...]:
        """As `Rebuilder.create`; also records constants and the facts of scalar results."""
        results = super().create(kind, operands, attrs, regions, name)
        if kind in RULES and isinstance(results[0].type, ScalarType) and results[0] not in self.numbers:
            self._note(results[0])
            if kind is arith.constant:
                self.constants[results[0]] = attrs["value"]
        return results

    def _note(self, result: Value) -> None:
        """Record the facts of an integer if its operation is new; value numbering may have returned an older result."""
        word, ops = word_of(result.type.element), self._open[-1]
        if word is not None and ops and result in ops[-1].results:
            known = tuple([self.hull(value) for value in ops[-1].uses])
            self.numbers[result] = word.wrap(RULES[ops[-1].kind].hull(ops[-1], known, word))

    def hull(self, value: Value) -> Scalar:
        """The interval and congruence of a scalar of the lowered function."""
        found = self.numbers.get(value)
        return unknown(value.type).hull if found is None else found

    def divisor(self, value: Value) -> int:
        """The largest power of two known to divide a scalar; for a pointer, in elements."""
        return max(self.hull(value).divisor // step_of(value.type), 1)

    def tag(self) -> int:
        """A fresh number, so that value numbering does not merge scratch allocations."""
        self.tags += 1
        return self.tags

    # Where operations are emitted.

    @contextmanager
    def partition(self, num_warps: int) -> Iterator[OpenRegion]:
        """Open the region of a partition with `num_warps` warps and its own entry, until the `with` block ends."""
        around, numbers = self._frame, self._numbers
        self._frame, self._numbers = Frame(num_warps), [{}]
        try:
            with self.nested(()) as opened:
                yield opened
            opened.ops[:0] = self._frame.entry
        finally:
            self._frame, self._numbers = around, numbers

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Emit at the entry of the kernel or partition. Only values that are defined there may be used."""
        numbers, loc = self._numbers, self.loc
        self._open.append(self._frame.entry)
        self._numbers, self.loc = numbers[:1], self.source.loc
        try:
            yield
        finally:
            self._open.pop()
            self._numbers, self.loc = numbers, loc

    @contextmanager
    def nested(self, args: tuple[Value, ...]) -> Iterator[OpenRegion]:
        """Open a region with the given arguments; operations are emitted into it until the `with` block ends."""
        opened = OpenRegion(args)
        self._open.append(opened.ops)
        self._numbers.append({})
        try:
            yield opened
        finally:
            self._numbers.pop()
            self._open.pop()

    # Scalar arithmetic, with constant folding.

    def constant(self, value: int, element: DType) -> Value:
        """An integer scalar, defined at the entry."""
        known = self._frame.constants.get((value, element))
        if known is None:
            with self.at_entry():
                known = self.emit(arith.constant, value=value, type=ScalarType(element))
            self._frame.constants[value, element] = known
        return known

    def add(self, lhs: Value, rhs: Value) -> Value:
        """Sum of two scalars of one type."""
        return self._fold(arith.add, lhs, rhs, neutral=0)

    def mul(self, lhs: Value, rhs: Value) -> Value:
        """Product of two scalars of one type."""
        if 0 in (self.constants.get(lhs), self.constants.get(rhs)):
            return lhs if self.constants.get(lhs) == 0 else rhs
        return self._fold(arith.mul, lhs, rhs, neutral=1)

    def _fold(self, kind: OpDef, lhs: Value, rhs: Value, neutral: int) -> Value:
        a, b = self.constants.get(lhs), self.constants.get(rhs)
        if b == neutral:
            return lhs
        if a == neutral:
            return rhs
        if isinstance(a, int) and isinstance(b, int):
            element = lhs.type.element
            assert isinstance(element, DType)
            return self.constant(wrap(a + b if kind is arith.add else a * b, element), element)
        return self.emit(kind, lhs, rhs)

    def scaled(self, value: Value, factor: int) -> Value:
        """An integer scalar times a constant."""
        element = value.type.element
        assert isinstance(element, DType)
        return self.mul(value, self.constant(wrap(factor, element), element))

    def cast(self, value: Value, dtype: DType) -> Value:
        """A scalar cast to another type."""
        known = self.constants.get(value)
        if value.type.element == dtype:
            return value
        if isinstance(known, int) and dtype.is_int() and not dtype.is_bool():
            return self.constant(wrap(known, dtype), dtype)
        return self.emit(arith.cast, value, dtype=dtype)

    # Thread indices.

    @property
    def num_warps(self) -> int:
        """The number of warps that execute the code being lowered, the kernel's or a partition's."""
        return 1 << self._frame.thread_bits - LANE_BITS

    def thread(self) -> Value:
        """The thread's index in its block: the lane in the low 5 bits, the warp above."""
        return self.emit(program.thread_id, name="thread")

    def lane(self) -> Value:
        """The thread's index in its warp."""
        with self.at_entry():
            return self.emit(arith.and_, self.thread(), self.constant(WARP_SIZE - 1, int32), name="lane")

    def rank(self) -> Value:
        """The rank of the thread's block in its cluster."""
        return self.emit(cluster.rank, name="rank")

    def of_thread(self, lanes: Table, warps: Table, blocks: Table = ()) -> Value:
        """A linear map of the thread's index: the XOR of `lanes[i]` over the set bits i of its lane, of `warps[i]` over those
        of its warp, and of `blocks[i]` over those of its block's cluster rank. An int32, computed at the entry."""
        key = (lanes, warps, blocks)
        known = self._frame.threads.get(key)
        if known is None:
            with self.at_entry():
                known = self._frame.threads[key] = self._of_bits(
                    (*lanes, *(0,) * (LANE_BITS - len(lanes)), *warps), blocks
                )
            self._frame.maps[known] = key
        return known

    def map_of(self, value: Value) -> tuple[Table, Table, Table] | None:
        """The arguments of the `of_thread` call that returned a value, if one did."""
        return self._frame.maps.get(value)

    def of_warp(self, warps: Table) -> Value:
        """The sum of `warps[i]` over the set bits i of the warp's index, as a warp-uniform int32 that is computed at the entry.
        The images must be disjoint."""
        assert splits(*warps)
        with self.at_entry():
            return self._mapped(warps, lambda: self.emit(program.warp_id, name="warp"), self.num_warps.bit_length() - 1)

    def _of_bits(self, threads: Table, blocks: Table) -> Value:
        """The XOR of the images of the set bits of the thread's index and of its block's rank; disjoint images are added."""
        within = self._mapped(threads, self.thread, self._frame.thread_bits)
        if not any(blocks):
            return within
        across = self._mapped(blocks, self.rank, self.block_bits)
        return (
            self.add(within, across) if splits(union(threads), union(blocks)) else self.emit(arith.xor, within, across)
        )

    def _mapped(self, column: Table, number: Callable[[], Value], bits: int) -> Value:
        terms = bit_terms(column)
        disjoint = splits(*[image for _, _, _, image in terms])
        total: Value | None = None
        for first, count, factor, _ in terms:
            part = number()
            if first:
                part = self.emit(arith.shr, part, self.constant(first, int32))
            if first + count < bits:
                part = self.emit(arith.and_, part, self.constant((1 << count) - 1, int32))
            part = self.scaled(part, factor)
            total = part if total is None else self.emit(arith.add if disjoint else arith.xor, total, part)
        return self.constant(0, int32) if total is None else total

    def has_clear(self, lanes: int, warps: int) -> Value | None:
        """The predicate of threads whose lane and warp have no bit of these masks set; None if that is all threads."""
        key = (lanes, warps)
        if key not in self._frame.threads:
            with self.at_entry():
                self._frame.threads[key] = self._all_clear(lanes | warps << LANE_BITS)
        return self._frame.threads[key]

    def _all_clear(self, mask: int) -> Value | None:
        if not mask & (1 << self._frame.thread_bits) - 1:
            return None
        masked = self.emit(arith.and_, self.thread(), self.constant(mask, int32))
        return self.emit(arith.cmp, masked, self.constant(0, int32), predicate="eq")

    def first_thread(self) -> Value:
        """The predicate of the block's thread 0."""
        with self.at_entry():
            return self.emit(arith.cmp, self.thread(), self.constant(0, int32), predicate="eq")
