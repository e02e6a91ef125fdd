"""The state of one lowering: the forms of tiles, facts about scalars, and the insertion point.

Values that depend on the thread only, such as its coordinates in a layout, are computed once, at the entry of the kernel or of
a partition, where they dominate all uses.
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
    """Rewrites tile operations one by one. Scalars map to scalars (`env`), tiles to forms (`forms`)."""

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
        ops = walk(func.body)
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
                # Fetches the cache line of the tensor map ahead of the first TMA instruction (PTX ISA, prefetch.tensormap).
                if isinstance(arg.type, DescriptorType) and given in self.used:
                    self.emit(tma.prefetch, arg)
        body = self.copy_region(self.source.body, args)
        body = Region(body.args, (*self._frame.entry, *body.ops))
        return self.source.with_body(body, stage="lowered", workspace_bytes=self.workspace)

    def copy_op(self, op: Op) -> None:
        """Lower one operation by its rule. Without a rule, an operation on tiles is elementwise, and any other is copied."""
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
        """As `Rebuilder.emit`; also records constants and the facts of scalar results."""
        result = super().emit(kind, *operands, regions=regions, name=name, **attrs)
        if kind in RULES and isinstance(result.type, ScalarType) and result not in self.numbers:
            self._note(result)
            if kind is arith.constant:
                self.constants[result] = attrs["value"]
        return result

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

    def base_of(self, tile: Value, form: Affine) -> Scalar:
        """The facts of an affine form's base, from those of the tile: the base is the first register minus its constants."""
        assert isinstance(tile.type, TileType) and tile.type.linear is not None
        known = self.facts(addresses=isinstance(tile.type.element, Pointer))[tile]
        # In every thread the index of the first register along each axis is a multiple of this.
        runs = [power_of_two_part(sum(map(union, thread_columns(tile.type.linear, d)))) for d in range(len(known.axes))]
        rest = max([known.hull.rest, *(known.at(d, run) for d, run in enumerate(runs))], key=lambda rest: rest.modulus)
        rest = congruence.sub(rest, exactly(form.const[0] * known.step))
        for stride, table in form.strides:
            rest = congruence.sub(rest, congruence.mul(self.hull(stride).rest, exactly(table[0] * known.step)))
        return unknown(form.base.type, rest).hull

    def facts(self, addresses: bool = False) -> ValueFacts:
        """The facts of the source's values, created on first use. `addresses`: see `weft.analysis.facts`."""
        if addresses not in self._facts:
            self._facts[addresses] = facts(self.source, addresses)
        return self._facts[addresses]

    @property
    def scopes(self) -> dict[Value, Scope]:
        """The scope of each scalar of the source, computed on first use."""
        if not self._scopes:
            self._scopes = scopes(self.source)
        return self._scopes

    def tag(self) -> int:
        """A fresh number, so that value numbering does not merge scratch allocations."""
        self.tags += 1
        return self.tags

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

    def emit_all(
        self, kind: OpDef, /, *operands: Value | None, regions: tuple[Region, ...] = (), **attrs: Any
    ) -> tuple[Value, ...]:
        """As `emit`, with the results always as a tuple."""
        made = self.emit(kind, *operands, regions=regions, **attrs)
        if made is None:
            return ()
        return (made,) if isinstance(made, Value) else made

    # Lowered values of the source's values.

    def scalar(self, value: Value | None) -> Value:
        """The lowered value of a scalar."""
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
        """The coordinates in its tile at which a view begins."""
        return self.views.known[handle].start

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
                known = self._frame.threads[key] = mapped(
                    self, (*lanes, *(0,) * (LANE_BITS - len(lanes)), *warps), self._frame.thread_bits, blocks
                )
            self._frame.maps[known] = key
        return known

    def map_of(self, value: Value) -> tuple[Table, Table, Table] | None:
        """The arguments of the `of_thread` call that returned a value, if one did."""
        return self._frame.maps.get(value)

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

    def coordinate(self, linear: LinearLayout, dim: int, start: int = 0) -> Form:
        """The form of the coordinates along `dim` of a tile's elements, plus `start`."""
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
        """The predicate that selects one thread of a block for each element of a tile that the block holds; None if every
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
        """Some registers of a form, in the given order. Deferred comparisons are computed for these only."""
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
        """Select registers of an array by a table. Gathers of gathers are composed, and the identity emits nothing."""
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
        """The number of registers of a form."""
        if not isinstance(form, Array):
            return form.count
        assert isinstance(form.value.type, RegsType)
        return form.value.type.count

    def as_affine(self, form: Form) -> Affine | None:
        """An integer or pointer form as an affine form, if it is one."""
        if isinstance(form, Affine):
            return form
        if isinstance(form, Splat):
            return Affine(form.value, (0,) * form.count)
        return None
