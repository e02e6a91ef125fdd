"""Split a warp-specialised kernel into one program for each partition.

    %m = shared.alloc                               %m = shared.alloc
    %n = ...                                        control.partitions
    control.warp_specialize                           region 0: %n = ...; sync.block; a; sync.block; b
      {a} {c}                                  -->    region 1: %n = ...; sync.block; c; sync.block
    b

Workers recompute the scalars and handles that they use from the code before. A scalar that cannot be recomputed, because it was
loaded or is the result of a loop, is passed by the default partition through shared memory. Allocations that workers use are
moved before the partitions. Workers execute the cluster barriers too, as `barrier.cluster` waits for all threads of the
cluster. Named barriers get their hardware indices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat

from weft.analysis.handles import is_alloc
from weft.errors import fail
from weft.errors import partitions as errors
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement
from weft.ir.types import DType, ScalarType, TileType, uint8, uint64
from weft.layout import BlockedLayout, SwizzledSharedLayout
from weft.ops import arith, cluster, control, hints, shared, sync, tensor_memory, tile
from weft.passes.tile.partition_plan import Plan, Role, first_barrier, plan_partitions, specialisations
from weft.targets import Target

SLOT_BYTES = 16
"""The bytes of shared memory for one scalar, with the alignment of allocations."""


def split_partitions(func: Func, target: Target) -> Func:
    """The function as one `control.partitions`, with "total_warps", and with "registers" at launch if registers are requested.

    Without warp specialization only named barriers change. Raises the errors of `plan_partitions` and `first_barrier`, and
    CompilationError (partitions-worker-handle).
    """
    plan = plan_partitions(func, target)
    renumber = _Renumber(first_barrier(func, target, plan))
    if plan is None:
        if not any(op.kind is sync.named_barrier for op in walk(func.body)):
            return func
        out = Rebuilder(renumber)
        return func.with_body(out.copy_region(func.body))
    return _Split(func, plan, renumber).run()


@dataclass(frozen=True, slots=True)
class _Renumber:
    """A rewrite rule that gives named barriers their hardware indices."""

    first: int

    def __call__(self, out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind is not sync.named_barrier:
            return None
        out.emit(op.kind, **{**op.attrs, "number": op.attrs["number"] + self.first})
        return ()


class _Split:
    """The state of the split.

    - `made`: the operation that defines each value of the default partition.
    - `stands_for`: the value that each result of a `warp_specialize` is in the default partition.
    - `common`: the operations that all partitions execute.
    - `buffers`: the allocations that workers use, in order of discovery.
    - `slots`: the scalars that are passed through shared memory, in order of discovery; `memory` has their allocations.
    - `outside`: the values that all partitions see: parameters and buffers."""

    def __init__(self, func: Func, plan: Plan, renumber: _Renumber) -> None:
        self.func = func
        self.plan = plan
        self.renumber = renumber
        self.turns = specialisations(func)
        self.common = [op for op in func.body.ops if op in self.turns or op.kind in (cluster.arrive, cluster.wait)]
        self.stands_for: dict[Value, Value] = {}
        self.made: dict[Value, Op] = {}
        for op in func.body.ops:
            for inner in op.regions[0].ops if op.kind is control.warp_specialize else (op,):
                self.made.update(dict.fromkeys(inner.results, inner))
            if op.kind is control.warp_specialize:
                self.stands_for.update(zip(op.results, op.regions[0].terminator.uses, strict=True))
        self.buffers: dict[Op, None] = {}
        self.slots: dict[Value, None] = {}
        self.needed = [self._needed(turn) for turn in range(len(self.turns))]
        self.outside: dict[Value, Value] = dict(zip(func.params, func.params, strict=True))
        self.memory: dict[Value, Value] = {}

    def run(self) -> Func:
        """The split function."""
        roles = (*self.plan.roles, *self.plan.padding)
        default, *others = roles
        out = Rebuilder(self.renumber)
        for op in self.buffers:
            out.copy_op(op)
        self.outside.update(out.env)
        out.loc = self.turns[0].loc
        shared_bytes = self._allocate_slots(out)
        parts = [self._default(default), *map(self._worker, others)]
        out.emit(
            control.partitions, regions=tuple(parts), first_warps=tuple([role.first_warp for role in roles]),
            num_warps=tuple([role.num_warps for role in roles]), num_regs=tuple([role.registers for role in roles]),
        )  # fmt: skip
        out.loc = self.func.body.terminator.loc
        out.emit(control.return_)
        attrs = replace(
            self.func.attrs, total_warps=self.plan.total_warps, registers=self.plan.start_registers,
            shared_bytes=shared_bytes if self.slots else self.func.attrs.shared_bytes,
        )  # fmt: skip
        return out.func(self.func.name, self.func.params, attrs, self.func.loc)

    def _allocate_slots(self, out: Rebuilder) -> int:
        """Allocate shared memory for the slots, past the author's; returns its end."""
        tag = max((op.attrs["tag"] for op in walk(self.func.body) if op.kind is shared.alloc), default=0)
        end = -(-self.func.attrs.shared_bytes // SLOT_BYTES) * SLOT_BYTES
        for number, value in enumerate(self.slots, start=1):
            self.memory[value] = out.emit(
                shared.alloc, element=_stored(value), shape=(1,), layout=SwizzledSharedLayout(1, 1, 1, [0]),
                tag=tag + number, offset=end, name=value.name,
            )  # fmt: skip
            end += SLOT_BYTES
        return end

    def _default(self, role: Role) -> Region:
        out = self._copier()
        with out.region() as region:
            turns = iter(self.needed)
            for op in self.func.body.ops[:-1]:
                if op.kind is not control.warp_specialize:
                    self._copy(out, op)
                    continue
                out.loc = op.loc
                for value in next(turns):
                    self._leave(out, value, role)
                out.emit(sync.block_barrier)
                for inner in op.regions[0].ops[:-1]:
                    self._copy(out, inner)
                for result in op.results:
                    out.env[result] = out.env[self._original(result)]
                out.loc = op.loc
                out.emit(sync.block_barrier)
            out.emit(control.yield_)
        return region.done

    def _copier(self) -> Rebuilder:
        out = Rebuilder(self.renumber)
        out.env.update(self.outside)
        return out

    def _copy(self, out: Rebuilder, op: Op) -> None:
        if op not in self.buffers:
            out.copy_op(op)

    def _worker(self, role: Role) -> Region:
        """The role's regions in turn. Padding has none and only executes the barriers."""
        out = self._copier()
        regions = chain(role.regions, repeat(None))
        with out.region() as region:
            for op in self.common:
                out.loc = op.loc
                if op.kind is not control.warp_specialize:
                    out.copy_op(op)
                    continue
                mine = next(regions)
                out.emit(sync.block_barrier)
                if mine is not None:
                    for value in _free(mine):
                        self._fetch(out, value, role)
                    for inner in mine.ops[:-1]:
                        out.copy_op(inner)
                out.loc = op.loc
                out.emit(sync.block_barrier)
            out.emit(control.yield_)
        return region.done

    # Values that workers use

    def _needed(self, turn: int) -> list[Value]:
        """The scalars that the default partition stores before a `warp_specialize`, for the workers of it."""
        before = len(self.slots)
        for role in self.plan.roles[1:]:
            region = role.regions[turn]
            for value in _free(region) if region is not None else ():
                self._find(self._original(value))
        return list(self.slots)[before:]

    def _original(self, value: Value) -> Value:
        while value in self.stands_for:
            value = self.stands_for[value]
        return value

    def _find(self, value: Value) -> None:
        """Record the buffers and slots that a worker needs for a value."""
        if value in self.slots or value not in self.made:
            return
        op = self.made[value]
        if is_alloc(op) or op.kind is tensor_memory.alloc:
            self.buffers[op] = None
        elif _is_cloned(op):
            for operand in op.uses:
                self._find(self._original(operand))
        elif isinstance(value.type, ScalarType):
            self.slots[value] = None
        else:
            name = repr(value.name) if value.name else "memory"
            raise fail(errors.WORKER_HANDLE, loc=op.loc, value=name)

    def _fetch(self, out: Rebuilder, value: Value, role: Role) -> None:
        """Make a value available in a worker: recompute it, or load it from its slot."""
        original = self._original(value)
        if original not in out.env:
            if original in self.slots:
                out.env[original] = self._load(out, original, role)
            else:
                op = self.made[original]
                for operand in op.uses:
                    self._fetch(out, operand, role)
                out.copy_op(op)
        out.env[value] = out.env[original]

    def _leave(self, out: Rebuilder, value: Value, role: Role) -> None:
        kept, left = _stored(value), out.env[value]
        if kept != value.type.element:
            left = (
                out.emit(arith.cast, left, dtype=kept)
                if _is_bool(value)
                else out.emit(arith.bitcast, left, element=kept)
            )
        whole = out.emit(tile.splat, left, shape=(1,), layout=_line(role.num_warps))
        out.emit(shared.store, self.memory[value], whole)

    def _load(self, out: Rebuilder, value: Value, role: Role) -> Value:
        element = value.type.element
        whole = out.emit(shared.load, self.memory[value], layout=_line(role.num_warps))
        loaded: Value = out.emit(tile.extract, whole, name=value.name)
        if _stored(value) == element:
            return loaded
        if _is_bool(value):
            return out.emit(arith.cast, loaded, dtype=element, name=value.name)
        return out.emit(arith.bitcast, loaded, element=element, name=value.name)


def _is_bool(value: Value) -> bool:
    element = value.type.element
    return isinstance(element, DType) and element.is_bool()


def _stored(value: Value) -> DType:
    """The element type of a scalar in memory: bools are stored as uint8, pointers as uint64."""
    element = value.type.element
    if not isinstance(element, DType):
        return uint64
    return uint8 if element.is_bool() else element


def _line(num_warps: int) -> BlockedLayout:
    return BlockedLayout([1], [32], [num_warps], [0])


def _is_cloned(op: Op) -> bool:
    """Whether workers recompute an operation: it is pure, block-uniform, and has no tiles."""
    tiles = any(isinstance(value.type, TileType) for value in (*op.uses, *op.results))
    return op.kind.pure and not tiles and op.kind.scope == "block" and op.kind is not hints.uniform


def _free(region: Region) -> Iterator[Value]:
    """The values from outside that a region uses, in order of first use."""
    made: set[Value] = set()
    found: dict[Value, None] = {}
    for values, used in _uses(region):
        made.update(values)
        found.update(dict.fromkeys(used))
    return (value for value in found if value not in made)


def _uses(region: Region) -> Iterator[tuple[Iterable[Value], Iterable[Value]]]:
    yield region.args, ()
    for op in walk(region):
        yield (*op.results, *(arg for inner in op.regions for arg in inner.args)), op.uses
