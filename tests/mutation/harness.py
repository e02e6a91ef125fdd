"""Mutants of a kernel's synchronisation, and what the simulator says to each.

A kernel is mutated after the passes that place barriers and fences, so that only the checker can notice. A mutant differs in
one operation: it is dropped, it changes places with the nearest operation before or after it that has an effect, or one of its
numbers is another. `mutants` lists them all, each with a spelling by which a table of verdicts names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Any
from unittest import mock

import numpy as np

from weft import compiler, sim, simulation
from weft.compiler import HostValue, Stages
from weft.errors import Hazard
from weft.ir.core import Func, Op, Region, Value
from weft.ir.types import ScalarType, int32
from weft.ops import arith, async_copy, cluster, mbarrier, mma, sync, tcgen05, tma
from weft.runtime.descriptor import HostMap

HARMLESS = "harmless"
WAYS: tuple[tuple[str, int], ...] = (("late", 0), ("early", 0), ("random", 1))
"""Schedules and seeds under which a mutant has to have the same verdict."""

SYNCHRONISES = {
    sync.barrier, sync.named_barrier, sync.fence_async,
    mbarrier.init, mbarrier.invalidate, mbarrier.expect, mbarrier.arrive, mbarrier.wait,
    async_copy.commit, async_copy.wait, async_copy.mbarrier_arrive, tma.store_wait, mma.warpgroup_wait,
    tcgen05.commit, tcgen05.fence, cluster.arrive, cluster.wait,
}  # fmt: skip
NUMBERS: dict[str, tuple[tuple[str, int], ...]] = {
    "mbarrier.init": (("count", 1),),
    "mbarrier.arrive": (("count", 1),),
    "mbarrier.expect": (("bytes", 16), ("bytes", -16)),
    "tma.store_wait": (("pendings", 1),),
    "async_copy.wait": (("pendings", 1),),
    "mma.warpgroup_wait": (("pendings", 1),),
}
"""By how much a number of an operation is changed."""


# A launch that can be repeated


@dataclass(frozen=True)
class Launch:
    """A simulated launch: its compilation, grid and arguments, what its arrays held before, and what they hold after."""

    stages: Stages
    grid: tuple[int, int, int]
    arguments: Mapping[str, HostValue]
    before: list[bytes]
    max_resident: int | None = None
    after: list[bytes] = field(default_factory=list[bytes])

    def run(self, func: Func, schedule: Any = "late", seed: int = 0) -> sim.Report:
        """Run a function of either stage in place of the kernel. Raises the hazard that it meets."""
        for array, kept in zip(arrays(self.arguments), self.before, strict=True):
            array[...] = np.frombuffer(kept, np.uint8)
        return sim.run(
            func, self.grid, compiler.given(func, self.arguments), target=self.stages.target, seed=seed,
            schedule=schedule, stdout=StringIO(), progress=False, max_resident=self.max_resident,
        )  # fmt: skip

    def verdict(self, func: Func, schedule: Any = "late", seed: int = 0) -> str:
        """The class of the hazard that the simulator finds, or `harmless`, where the numbers must be right too."""
        try:
            self.run(func, schedule, seed)
        except Hazard as hazard:
            return type(hazard).__name__
        return HARMLESS if self.result() == self.after else "wrong numbers, and no report"

    def result(self) -> list[bytes]:
        """What the arrays hold now."""
        return [array.tobytes() for array in arrays(self.arguments)]


def arrays(arguments: Mapping[str, HostValue]) -> list[Any]:
    """The memory of the arguments that a kernel may write."""
    buffers: list[Any] = [value.buffer if isinstance(value, HostMap) else value for value in arguments.values()]
    return [buffer.bytes() for buffer in buffers if getattr(buffer, "writable", False)]


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect the simulated launches of a block of code."""
    launches: list[Launch] = []
    simulate = compiler.simulate

    def record(compiled: Any, grid: tuple[int, int, int], arguments: Mapping[str, HostValue]) -> sim.Report:
        kept, resident = [array.tobytes() for array in arrays(arguments)], simulation.current().max_resident
        launch = Launch(compiled.front, grid, arguments, kept, resident)
        report = simulate(compiled, grid, arguments)
        launch.after.extend(launch.result())
        launches.append(launch)
        return report

    with mock.patch.object(compiler, "simulate", record):
        yield launches


# Mutants


@dataclass(frozen=True)
class Mutant:
    """A function with one fault. `place` names the operation, `change` what was done to it."""

    place: str
    change: str
    func: Func

    @property
    def key(self) -> tuple[str, str]:
        """Where a table has its verdict."""
        return self.place, self.change


def mutants(func: Func) -> list[Mutant]:
    """Every mutant of a function, in program order."""
    names = places(func)
    return [
        Mutant(names[op], change, Func(func.name, body, func.attrs, func.loc))
        for op, change, body in _of_region(func.body)
    ]


def places(func: Func) -> dict[Op, str]:
    """How tables name operations: kind and source line, numbered where several share both."""
    ops = [op for op in _walk(func.body) if op.kind in SYNCHRONISES]
    names = {op: f"{op.name} | {op.loc.source.strip() if op.loc else ''}" for op in ops}
    several, seen = Counter(names.values()), Counter[str]()
    out: dict[Op, str] = {}
    for op, name in names.items():
        seen[name] += 1
        out[op] = f"{name} | {seen[name]}" if several[name] > 1 else name
    return out


def _walk(region: Region) -> Iterator[Op]:
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from _walk(inner)


def _of_region(region: Region) -> Iterator[tuple[Op, str, Region]]:
    """The region with one fault each, and where and what that is."""
    for at, op in enumerate(region.ops):
        if op.kind in SYNCHRONISES:
            for change, ops in _of_op(list(region.ops), at):
                yield op, change, Region(region.args, tuple(ops))
        for number, inner in enumerate(op.regions):
            for found, change, changed in _of_region(inner):
                regions = (*op.regions[:number], changed, *op.regions[number + 1 :])
                outer = Op(op.kind, op.operands, op.attrs, op.results, regions, op.loc)
                yield found, change, Region(region.args, (*region.ops[:at], outer, *region.ops[at + 1 :]))


def _of_op(ops: list[Op], at: int) -> Iterator[tuple[str, list[Op]]]:
    """The changes of one operation, and the operations of its region with each."""
    op = ops[at]
    before, after = ops[:at], ops[at + 1 :]
    # What a wait for products hands on goes on as it was before.
    given = dict(zip(op.results, op.uses, strict=True)) if op.results else {}
    yield "drop", before + [_with(other, given) for other in after]
    earlier = next((i for i in reversed(range(at)) if _acts(ops[i])), None)
    # Two neighbours that both synchronise change places once: as the earlier one moves.
    if earlier is not None and ops[earlier].kind not in SYNCHRONISES:
        between = before[earlier + 1 :]
        own = _computing(op, between)
        rest = [other for other in between if other not in own]
        # A wait for products does not change places with the product that it is handed.
        if not any(value in ops[earlier].results for one in (*own, op) for value in one.uses):
            yield f"before {ops[earlier].name}", [*before[:earlier], *own, op, ops[earlier], *rest, *after]
    later = next((i for i in range(at + 1, len(ops)) if _acts(ops[i])), None)
    if later is not None and not any(_reads(other, op.results) for other in ops[at + 1 : later + 1]):
        yield f"after {ops[later].name}", [*before, *ops[at + 1 : later + 1], op, *ops[later + 1 :]]
    for name, more in NUMBERS.get(op.name, ()):
        changed = Op(op.kind, op.operands, {**op.attrs, name: op.attrs[name] + more}, op.results, (), op.loc)
        yield f"{name} {more:+d}", [*before, changed, *after]
    if op.kind is mbarrier.wait:
        yield "other phase", [*before, *_other_phase(op), *after]


def _with(op: Op, given: Mapping[Value, Value]) -> Op:
    """The operation with other values in place of some."""
    if not given:
        return op
    operands = tuple(None if value is None else given.get(value, value) for value in op.operands)
    regions = tuple(Region(inner.args, tuple(_with(one, given) for one in inner.ops)) for inner in op.regions)
    return Op(op.kind, operands, op.attrs, op.results, regions, op.loc)


def _reads(op: Op, values: Sequence[Value]) -> bool:
    """Whether an operation, or one inside it, needs any of these."""
    return any(value in values for value in op.uses) or any(
        _reads(one, values) for inner in op.regions for one in inner.ops
    )


def _acts(op: Op) -> bool:
    """Whether an operation has an effect, or one inside it has."""
    return bool(op.effects) or any(_acts(inner) for region in op.regions for inner in region.ops)


def _computing(op: Op, between: Sequence[Op]) -> list[Op]:
    """The operations among those before it that an operation's operands need."""
    needed = {value for value in op.operands if value is not None}
    own: list[Op] = []
    for other in reversed(between):
        if needed & set(other.results):
            own.insert(0, other)
            needed.update(value for value in other.operands if value is not None)
    return own


def _other_phase(op: Op) -> list[Op]:
    bar, phase, *rest = op.operands
    one, other = Value(ScalarType(int32)), Value(ScalarType(int32))
    return [
        Op(arith.constant, (), {"value": 1, "type": one.type}, (one,), (), op.loc),
        Op(arith.xor, (phase, one), {}, (other,), (), op.loc),
        Op(op.kind, (bar, other, *rest), op.attrs, op.results, (), op.loc),
    ]


# Tables of verdicts


@dataclass(frozen=True)
class Row:
    """A verdict written by hand, and why. Of several classes the order of execution decides which is met first."""

    verdicts: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return " or ".join(self.verdicts)


Table = dict[tuple[str, str], Row]


def read_table(text: str) -> Table:
    """Rows by place and change. A place stands at the left margin, its changes below it as `change: verdict, since reason`.

    Raises ValueError for a line of another form, and for a place or change that is there twice.
    """
    table: Table = {}
    place = ""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith("  "):
            place = line.strip()
            continue
        change, colon, rest = line.strip().partition(": ")
        verdict, comma, reason = rest.partition(", since ")
        if not (place and colon and comma and reason) or (place, change) in table:
            raise ValueError(f"no row, or one that is there twice: {line}")
        table[place, change] = Row(tuple(verdict.split(" or ")), reason)
    return table


def skeleton(found: Sequence[Mutant]) -> str:
    """The text of a table for mutants, without verdicts and reasons."""
    lines: list[str] = []
    place = ""
    for mutant in found:
        if mutant.place != place:
            lines += ["", mutant.place]
            place = mutant.place
        lines.append(f"  {mutant.change}: , since ")
    return "\n".join(lines)
