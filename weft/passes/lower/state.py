"""The state of one lowering: the forms of tiles and the origins of handles, and how a form becomes a register array."""

from __future__ import annotations

from collections.abc import Callable

from weft.analysis.accumulators import accumulators, alone, left_in_flight
from weft.analysis.apart import apart
from weft.analysis.facts import ValueFacts, congruence, facts
from weft.analysis.facts.congruence import exactly, multiple_of, power_of_two_part
from weft.analysis.facts.scalar import Scalar
from weft.analysis.facts.words import unknown
from weft.analysis.scopes import scopes
from weft.ir.core import Func, Op, OpDef, Region, Scope, Value, walk
from weft.ir.types import DescriptorType, Pointer, RegsType, TileType, int32, int64
from weft.layout import LinearLayout
from weft.ops import arith, memory, mma, regs, tma
from weft.ops.regs import Table
from weft.passes.lower.forms import Affine, Array, Both, Compare, Form, Origin, Splat
from weft.passes.lower.placement import free_threads, register_table, splits, thread_columns, union
from weft.passes.lower.roots import Roots
from weft.passes.lower.scalars import Scalars
from weft.passes.lower.views import Views
from weft.passes.lower.widths import Width
from weft.targets import Target

LowerRule = Callable[["Lowering", Op], None]


class Lowering(Scalars):
    """Rewrites tile operations one by one. Scalars map to scalars (`env`), tiles to forms (`forms`)."""

    __slots__ = (
        "_facts", "_gathers", "_scopes", "accumulators", "acts_alone", "alone", "apart", "default", "forms", "handles",
        "left_in_flight", "roots", "rules", "target", "tensor_memory", "two_ctas", "used", "views", "widths", "workspace",
    )  # fmt: skip

    def __init__(self, func: Func, target: Target, rules: dict[OpDef, LowerRule], default: LowerRule) -> None:
        super().__init__(func)
        self.target = target
        self.rules = rules
        self.default = default
        self.forms: dict[Value, Form] = {}
        self.handles: dict[Value, Origin] = {}
        self.tensor_memory: Value | None = None
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
        self.two_ctas = func.attrs.two_ctas
        self.apart = apart(func)
        # Whether each block of a cluster executes the operation at hand for itself.
        self.acts_alone = False

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
        self.acts_alone = op in self.apart.each
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

    # Forms to register arrays.

    def array(self, form: Form) -> Value:
        """All registers of a form, as a register array."""
        if isinstance(form, Array):
            return form.value
        if isinstance(form, Splat):
            return self.emit(regs.splat, form.value, count=form.count)
        if isinstance(form, Compare):
            one = form.shared
            return self.emit(arith.cmp, self.array(one.lhs), self.array(one.rhs), predicate=one.predicate)
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
