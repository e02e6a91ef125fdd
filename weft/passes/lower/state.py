"""The state of one lowering: forms of tiles, facts about scalars, and where code goes.

Values that depend on the thread only (its coordinates in a layout) are computed once, at the entry of the kernel or of each
of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from weft.analysis.accumulators import accumulators, alone, left_in_flight
from weft.analysis.facts import ValueFacts, congruence, facts
from weft.analysis.facts.congruence import exactly, multiple_of, power_of_two_part
from weft.analysis.facts.rules import RULES
from weft.analysis.facts.scalar import Scalar
from weft.analysis.facts.words import step_of, unknown, word_of
from weft.analysis.scopes import scopes
from weft.ir.build import OpenRegion
from weft.ir.core import Func, Op, OpDef, Region, Scope, Value, walk
from weft.ir.rebuild import Rebuilder
from weft.ir.types import DescriptorType, DType, Pointer, RegsType, ScalarType, TileType, int32, int64, wrap
from weft.layout import WARP_SIZE, LinearLayout
from weft.ops import arith, cluster, memory, mma, program, regs, tma
from weft.passes.lower.forms import Affine, Array, Both, Compare, Form, Splat, Table
from weft.passes.lower.frame import LANE_BITS, Frame
from weft.passes.lower.numbers import mapped
from weft.passes.lower.placement import free_threads, register_table, splits, thread_columns, union
from weft.passes.lower.roots import Roots
from weft.passes.lower.views import Views
from weft.targets import Target

if TYPE_CHECKING:
    from weft.passes.lower.handles import Handle
    from weft.passes.lower.vectors import Width

LowerRule = Callable[["Lowering", Op], None]


class Lowering(Rebuilder):
    """Rewrites tile operations one by one; scalars map to scalars (`env`), tiles to forms (`forms`)."""

    __slots__ = (
        "_facts", "_frame", "_gathers", "_scopes", "accumulators", "alone", "block_bits", "constants", "default",
        "forms", "handles", "left_in_flight", "num_ctas", "numbers", "roots", "rules", "source", "tags",
        "target", "tensor_memory", "two_ctas", "used", "views", "widths", "workspace",
    )  # fmt: skip

    def __init__(self, func: Func, target: Target, rules: dict[OpDef, LowerRule], default: LowerRule) -> None:
        super().__init__(lambda out, op, operands: None, number=True)
        self.source = func
        self.target = target
        self.rules = rules
        self.default = default
        self.forms: dict[Value, Form] = {}
        self.handles: dict[Value, Handle] = {}
        self.tensor_memory: Value | None = None
        self.numbers: dict[Value, Scalar] = {}
        self.constants: dict[Value, int | float | bool] = {}
        self.tags = 0
        self.workspace = 0
        self.widths: list[Width] | None = None
        ops = list(walk(func.body))
        self.used = {value for op in ops for value in op.uses}
        self.accumulators = accumulators(func)
        self.alone = alone(func)
        self.left_in_flight = left_in_flight(func) if self.accumulators else set[Value]()
        self.roots = Roots(func, self.accumulators)
        self.views = Views(func)
        self._facts: dict[bool, ValueFacts] = {}
        self._scopes: dict[Value, Scope] = {}
        self._gathers: dict[Value, tuple[Value, Table]] = {}
        self._frame = Frame(func.attrs.num_warps)
        self.num_ctas = func.attrs.num_ctas
        self.block_bits = self.num_ctas.bit_length() - 1
        self.two_ctas = func.attrs.two_ctas

    # Driving.

    def run(self) -> Func:
        """The lowered function."""
        args = tuple(Value(arg.type, arg.name) for arg in self.source.body.args)
        for arg, given in zip(args, self.source.attrs.params, strict=True):
            self.numbers[arg] = unknown(arg.type, multiple_of(given.divisible)).hull
        with self.at_entry():
            for arg, given in zip(args, self.source.params, strict=True):
                if isinstance(arg.type, DescriptorType) and given in self.used:
                    self.emit(tma.prefetch, arg)
        body = self.copy_region(self.source.body, args)
        body = Region(body.args, (*self._frame.entry, *body.ops))
        return self.source.with_body(body, stage="lowered", workspace_bytes=self.workspace)

    def copy_op(self, op: Op) -> None:
        """Lower one operation by its rule, keep it if no tile is involved, else treat it as elementwise."""
        self.loc = op.loc
        rule = self.rules.get(op.kind)
        if rule is not None:
            rule(self, op)
        elif any(isinstance(v.type, TileType) for v in (*op.uses, *op.results)):
            self.default(self, op)
        else:
            super().copy_op(op)
        for result in op.results:
            if result in self.accumulators and not isinstance(form := self.forms[result], Array):
                self.forms[result] = Array(self.emit(mma.begin, self.array(form), name=result.name))

    def emit(
        self, kind: OpDef, /, *operands: Value | None, regions: tuple[Region, ...] = (), name: str = "", **attrs: Any
    ) -> Any:
        """As `Rebuilder.emit`, noting constants and what is known of scalar results."""
        result = super().emit(kind, *operands, regions=regions, name=name, **attrs)
        if kind in RULES and isinstance(result.type, ScalarType) and result not in self.numbers:
            self._note(result)
            if kind is arith.constant:
                self.constants[result] = attrs["value"]
        return result

    def _note(self, result: Value) -> None:
        """Note what is known of an integer that was just computed; of one that was there already it is noted."""
        word, ops = word_of(result.type.element), self._open[-1]
        if word is not None and ops and result in ops[-1].results:
            known = tuple([self.hull(value) for value in ops[-1].uses])
            self.numbers[result] = word.wrap(RULES[ops[-1].kind].hull(ops[-1], known, word))

    def hull(self, value: Value) -> Scalar:
        """What is known of a scalar of the lowered function."""
        found = self.numbers.get(value)
        return unknown(value.type).hull if found is None else found

    def divisor(self, value: Value) -> int:
        """The power of two known to divide a scalar; of a pointer, in elements."""
        return max(self.hull(value).divisor // step_of(value.type), 1)

    def base_of(self, tile: Value, form: Affine) -> Scalar:
        """What facts about a tile of the source say of the base of its form: of its first register, less the constants."""
        assert isinstance(tile.type, TileType) and tile.type.linear is not None
        known = self.facts(addresses=isinstance(tile.type.element, Pointer))[tile]
        # Wherever a thread lies, the index of its first register is a multiple of this along each axis.
        runs = [power_of_two_part(sum(map(union, thread_columns(tile.type.linear, d)))) for d in range(len(known.axes))]
        rest = max([known.hull.rest, *(known.at(d, run) for d, run in enumerate(runs))], key=lambda rest: rest.modulus)
        rest = congruence.sub(rest, exactly(form.const[0] * known.step))
        for stride, table in form.strides:
            rest = congruence.sub(rest, congruence.mul(self.hull(stride).rest, exactly(table[0] * known.step)))
        return unknown(form.base.type, rest).hull

    def facts(self, addresses: bool = False) -> ValueFacts:
        """Facts about the source's values (`addresses`: those that pointers are judged by), found when first asked for."""
        if addresses not in self._facts:
            self._facts[addresses] = facts(self.source, addresses)
        return self._facts[addresses]

    @property
    def scopes(self) -> dict[Value, Scope]:
        """Who shares each scalar of the source, found when it is first asked for."""
        if not self._scopes:
            self._scopes = scopes(self.source)
        return self._scopes

    def tag(self) -> int:
        """A fresh number, which keeps scratch allocations apart."""
        self.tags += 1
        return self.tags

    @contextmanager
    def partition(self, num_warps: int) -> Iterator[OpenRegion]:
        """Open the region of a partition of so many warps, which has an entry of its own, until the block ends."""
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
        """Emit at the entry of the kernel or partition; only values of the entry may be used."""
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
        """Open a region of fresh arguments; operations go into it until the block ends."""
        opened = OpenRegion(args)
        self._open.append(opened.ops)
        self._numbers.append({})
        try:
            yield opened
        finally:
            self._numbers.pop()
            self._open.pop()

    def emit_all(
        self, kind: OpDef, /, *operands: Value | None, regions: tuple[Region, ...] = (), **attrs: Any
    ) -> tuple[Value, ...]:
        """As `emit`, with the results always as a tuple."""
        made = self.emit(kind, *operands, regions=regions, **attrs)
        if made is None:
            return ()
        return (made,) if isinstance(made, Value) else made

    # Old values to new ones.

    def scalar(self, value: Value | None) -> Value:
        """The new value of a scalar."""
        assert value is not None
        return self.env[value]

    def form(self, value: Value | None) -> Form:
        """The form of a tile."""
        assert value is not None
        return self.forms[value]

    def define(self, op: Op, *forms: Form) -> None:
        """Record the forms of an operation's results."""
        for result, form in zip(op.results, forms, strict=True):
            if isinstance(form, Array) and result.name and not form.value.name:
                form.value.name = result.name
            self.forms[result] = form

    def start(self, handle: Value) -> Table:
        """Where a view begins within its tile."""
        return self.views.known[handle].start

    # Scalar arithmetic, folded.

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
        """A scalar as another type."""
        known = self.constants.get(value)
        if value.type.element == dtype:
            return value
        if isinstance(known, int) and dtype.is_int() and not dtype.is_bool():
            return self.constant(wrap(known, dtype), dtype)
        return self.emit(arith.cast, value, dtype=dtype)

    # Where a thread is.

    @property
    def num_warps(self) -> int:
        """Warps that run what is being lowered: the kernel's, or a partition's."""
        return 1 << self._frame.thread_bits - LANE_BITS

    def thread(self) -> Value:
        """The thread's index in its block: its lane in the low bits, its warp above."""
        return self.emit(program.thread_id, name="thread")

    def lane(self) -> Value:
        """The thread's index in its warp."""
        with self.at_entry():
            return self.emit(arith.and_, self.thread(), self.constant(WARP_SIZE - 1, int32), name="lane")

    def rank(self) -> Value:
        """The number of the thread's block in its cluster."""
        return self.emit(cluster.rank, name="rank")

    def of_thread(self, lanes: Table, warps: Table, blocks: Table = ()) -> Value:
        """The linear map of a thread's number: the exclusive or of `lanes[i]` over the set bits i of its lane, of `warps[i]`
        over those of its warp, and of `blocks[i]` over those of its block's number. An int32, computed at the entry."""
        key = (lanes, warps, blocks)
        known = self._frame.threads.get(key)
        if known is None:
            with self.at_entry():
                known = self._frame.threads[key] = mapped(
                    self, (*lanes, *(0,) * (LANE_BITS - len(lanes)), *warps), self._frame.thread_bits, blocks
                )
            self._frame.maps[known] = key
        return known

    def map_of(self, value: Value) -> tuple[Table, Table, Table] | None:
        """What `of_thread` made a value of, if it did."""
        return self._frame.maps.get(value)

    def has_clear(self, lanes: int, warps: int) -> Value | None:
        """The predicate of threads whose lane and warp have no bit of these masks set; None when that is all threads."""
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

    def coordinate(self, linear: LinearLayout, dim: int, start: int = 0) -> Form:
        """The form of a tile's own coordinate along `dim`, plus `start`."""
        table = register_table(linear, dim)
        columns = thread_columns(linear, dim)
        base = self.of_thread(*columns)
        if splits(*map(union, columns), union(table)):
            return Affine(base, tuple([start + entry for entry in table]))
        exclusive: Value = self.emit(regs.xor, base, offsets=table)
        if not start:
            return Array(exclusive)
        shift = self.emit(regs.splat, self.constant(start, int32), count=len(table))
        return Array(self.emit(arith.add, exclusive, shift))

    def owns(self, linear: LinearLayout) -> Value | None:
        """The predicate that picks one thread of a block for each element of a tile that the block holds, or None when every
        thread owns its elements."""
        return self.has_clear(*free_threads(linear))

    def first_thread(self) -> Value:
        """The predicate of the block's thread 0."""
        with self.at_entry():
            return self.emit(arith.cmp, self.thread(), self.constant(0, int32), predicate="eq")

    # Forms to register arrays.

    def array(self, form: Form) -> Value:
        """All registers of a form, as a register array."""
        if isinstance(form, Array):
            return form.value
        if isinstance(form, Splat):
            return self.emit(regs.splat, form.value, count=form.count)
        if isinstance(form, Compare):
            return self.emit(arith.cmp, self.array(form.lhs), self.array(form.rhs), predicate=form.predicate)
        if isinstance(form, Both):
            return self.emit(arith.and_, self.array(form.lhs), self.array(form.rhs))
        if form.exact is not None:
            return form.exact(tuple(range(form.count)))
        if form.uniform:
            return self.emit(regs.splat, form.base, count=form.count)
        if not isinstance(form.base.type.element, Pointer):
            return self._affine(form.base, form)
        base = self.emit(regs.splat, form.base, count=form.count)
        return self.emit(memory.addptr, base, self._affine(self.constant(0, int64), form))

    def _affine(self, base: Value, form: Affine) -> Value:
        strides = tuple(stride for stride, _ in form.strides)
        return self.emit(regs.affine, base, *strides, offsets=(form.const, *(table for _, table in form.strides)))

    def picked(self, form: Form, registers: Table) -> Form:
        """Only some registers of a form, in the given order; what is not computed yet is computed for these only."""
        if registers == tuple(range(self.count(form))):
            return form
        if isinstance(form, Splat):
            return Splat(form.value, len(registers))
        if isinstance(form, Affine):
            return form.gathered(registers)
        if isinstance(form, Compare):
            return form.gathered(registers)
        if isinstance(form, Both):
            lhs, rhs = self.picked(form.lhs, registers), self.picked(form.rhs, registers)
            assert not isinstance(lhs, Affine) and not isinstance(rhs, Affine)
            return Both(lhs, rhs, len(registers))
        return Array(self.gather(self.array(form), registers))

    def gather(self, value: Value, table: Table) -> Value:
        """Registers of an array by a table; a gather of a gather is one, and taking all in order is none."""
        source, before = self._gathers.get(value, (value, None))
        if before is not None:
            table = tuple([before[r] for r in table])
        assert isinstance(source.type, RegsType)
        if table == tuple(range(source.type.count)):
            return source
        made: Value = self.emit(regs.gather, source, table=table)
        self._gathers[made] = (source, table)
        return made

    def count(self, form: Form) -> int:
        """Registers of a form."""
        if not isinstance(form, Array):
            return form.count
        assert isinstance(form.value.type, RegsType)
        return form.value.type.count

    def as_affine(self, form: Form) -> Affine | None:
        """An integer or pointer form as base and constants, if it is one."""
        if isinstance(form, Affine):
            return form
        if isinstance(form, Splat):
            return Affine(form.value, (0,) * form.count)
        return None
