"""tcgen05 on tiles: MMAs, copies and commits, which one thread issues and agents execute in order
(`weft.sim.machine.agents.Pipe`).

Numerics: an instruction adds its exact products along k (256 bits of an operand) and the accumulator in float64, and rounds
once to the accumulator's type, to nearest even; integers wrap. This is not measured, because no Blackwell GPU was available:
the hardware may truncate the sum as Hopper does (`weft.sim.numbers.tensor_core`), and then differs by about one ulp for each
instruction along k. Block-scaled MMAs follow `weft.sim.numbers.scaled`.

If two blocks work as a pair (`.cta_group::2`), the first block issues everything. The MMA reads the columns of b from the
memory of both blocks, and for each block's rows that block's own a, accumulator and scales.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from weft.ir.core import Op, Value
from weft.ir.types import DType, SharedType, TensorType
from weft.layout.base import Unreadable
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.layout.tensor_cores.tcgen05_kinds import KINDS, Kind, Scaled, plain_kind, scaled_kind
from weft.layout.tensor_memory.layouts import LANES, TensorMemoryLayout
from weft.layout.tensor_memory.load_store import LANE, TensorSide
from weft.ops import tcgen05
from weft.sim.machine.data import Array, Data
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.tensor_order import Accumulators, accumulators
from weft.sim.memory import places
from weft.sim.memory.clocks import join
from weft.sim.memory.events import ELECTED
from weft.sim.memory.spaces import CELL, Handle
from weft.sim.memory.store import pieces
from weft.sim.numbers import scaled
from weft.sim.numbers.products import multiply_exactly
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import barrier_at, holds, peer
from weft.sim.rules.tcgen05.parts import Part, Started, flag, whole, working_blocks

SINK = "a matrix product"
COPIED = "a copy to tensor memory"
Compute = Callable[[Array, Array, Array | None, Sequence[Array]], Array]
"""The new accumulator of one block's share, from a, b, the old accumulator (None: overwrite), and the scales of a and b."""


# MMAs


@rule(tcgen05.mma)
def _mma(
    task: Task, op: Op, a: Handle, b: Handle, acc: Handle, use_acc: Data | None, pred: Data | None
) -> None:  # fmt: skip
    left, right, result = (_element(value) for value in op.operands[:3])

    def compute(x: Array, y: Array, before: Array | None, _: Sequence[Array]) -> Array:
        return multiply_exactly(x, y, before, left, right, result)

    _issue(task, op, (a, b, acc), (), use_acc, pred, compute)


@rule(tcgen05.mma_scaled)
def _mma_scaled(
    task: Task, op: Op, a: Handle, b: Handle, acc: Handle, a_scale: Handle, b_scale: Handle,
    use_acc: Data | None, pred: Data | None,
) -> None:  # fmt: skip
    left, right = op.attrs["a_type"], op.attrs["b_type"]
    step = KINDS[_kind(op)].k

    padded = _padded(places.type_of(op.operands[0]))

    def compute(x: Array, y: Array, before: Array | None, scales: Sequence[Array]) -> Array:
        x = scaled.packed(x) if padded else x
        a_scale, b_scale = map(scaled.scales, scales)
        factors = scaled.elements(x, left), scaled.elements(y, right, axis=0)
        return scaled.scaled_product(*factors, before, a_scale, b_scale, step)

    _issue(task, op, (a, b, acc), (a_scale, b_scale), use_acc, pred, compute)


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """One block's share of an MMA: its rows and columns of the accumulator (indices), and its own operands."""

    rows: Any
    columns: Any
    a: Part
    acc: Part
    scales: tuple[Part, ...]

    def run(self, b: Array, adds: bool, compute: Compute) -> None:
        """Compute and store this share."""
        before = self.acc.fetch()
        chosen = np.ix_(self.rows, self.columns) if self.acc.mine is not None else ...
        scales = [part.fetch()[at] for part, at in zip(self.scales, (self.rows, self.columns), strict=False)]
        before[chosen] = compute(
            self.a.fetch()[self.rows], b[:, self.columns], before[chosen] if adds else None, scales
        )  # fmt: skip
        self.acc.put(before)


def _issue(
    task: Task, op: Op, operands: tuple[Handle, Handle, Handle], scales: tuple[Handle, ...],
    use_acc: Data | None, pred: Data | None, compute: Compute,
) -> None:  # fmt: skip
    blocks = working_blocks(task, op, task.machine.two_ctas)
    if not blocks or not holds(task, op, pred):
        return
    adds = flag(task, op, use_acc, "use_acc")
    a, b, acc = operands
    shares = [
        _share(task, block, [_part(task, block, value, handle) for value, handle in zip(
            (op.operands[0], op.operands[2], *op.operands[3 : 3 + len(scales)]), (a, acc, *scales), strict=True
        )])
        for block in blocks
    ]  # fmt: skip
    columns = [_part(task, block, op.operands[1], b) for block in blocks]
    started = Started(task, op, _accumulators(task, op, shares[0]))
    for share, part in zip(shares, columns, strict=True):
        started.reads(share.a, SINK)
        started.reads(part, SINK)
        for scale in share.scales:
            started.reads(scale, SINK)
        if adds:
            started.demands(share.acc, SINK)
    for share in shares:
        started.writes(share.acc)

    def work() -> None:
        right = whole(columns)
        for share in shares:
            share.run(right, adds, compute)

    started.go_on(work)


def _accumulators(task: Task, op: Op, share: _Share) -> Accumulators:
    """The accumulators of the MMA's instructions; the accumulator's layout determines how the tile is split."""
    layout, place = places.type_of(op.operands[2]).layout, share.acc.place
    assert isinstance(layout, TensorMemoryLayout)
    elements = place.elements[share.rows][:, share.columns] + place.low
    m, n = layout.block[0], min(layout.block[1], elements.shape[1])
    cells = pieces(share.acc.handle.base, elements[::m, ::n].ravel(), share.acc.element.itemsize, CELL)
    columns, lanes = np.divmod(cells, LANES)
    return accumulators(_kind(op), m, n, task.machine.two_ctas, (lanes * LANE | columns).tolist())


@lru_cache(maxsize=1024)
def _kind(op: Op) -> Kind:
    """The kind of the MMA's instructions."""
    a, b, acc = (_element(value).code for value in op.operands[:3])
    if op.kind is tcgen05.mma:
        found = plain_kind(a, b, acc)
    else:
        left, right, a_scale, b_scale = (_side(op.operands[position]) for position in (0, 1, 3, 4))
        assert isinstance(right, SharedSide)
        assert isinstance(a_scale, TensorSide)
        assert isinstance(b_scale, TensorSide)
        scaled = Scaled(op.attrs["a_type"], op.attrs["b_type"], a_scale, b_scale, _element(op.operands[3]).code)
        found = scaled_kind(left, right, (a, b, acc), scaled)
    assert not isinstance(found, Unreadable)
    return found


def _side(value: Value | None) -> SharedSide | TensorSide:
    """The whole tile of an operand, in the planner's form; the kind does not depend on where in the tile a view begins."""
    t = value.type if value is not None else None
    assert isinstance(t, SharedType | TensorType)
    if isinstance(t, TensorType):
        return TensorSide(t.layout, t.alloc_shape, t.shape, (0, 0))
    return SharedSide(t.layout, t.alloc_shape, t.shape, (0,) * len(t.alloc_shape))


def _share(task: Task, block: Block, parts: Sequence[Part]) -> _Share:
    a, acc, *scales = parts
    mine = acc.mine
    rows, columns = (slice(None), slice(None)) if mine is None else (mine.any(axis=1), mine.any(axis=0))
    return _Share(rows, columns, a, acc, tuple(scales))


def _part(task: Task, block: Block, value: Value | None, handle: Handle) -> Part:
    type = places.type_of(value)
    if _padded(type):
        type, handle = _unpadded(type, handle)
    return Part(
        task, block, handle, places.place_of(task, type, handle, ELECTED, reading=True, block=block), type.element
    )


def _padded(t: SharedType | TensorType) -> bool:
    """Whether an operand is e2m1 in tensor memory, one element in each byte."""
    return isinstance(t.layout, TensorMemoryLayout) and t.layout.fp4_padded


def _unpadded(t: SharedType | TensorType, handle: Handle) -> tuple[TensorType, Handle]:
    """The bytes of such an operand, of which there are twice as many columns."""
    assert isinstance(t.layout, TensorMemoryLayout)
    (rows, columns), (height, width) = t.shape, t.alloc_shape
    row, column = handle.start or (0, 0)
    bytes_of = TensorType(t.element, (rows, 2 * columns), t.layout.unpadded, (height, 2 * width))
    return bytes_of, replace(handle, start=(row, 2 * column))


def _element(value: Value | None) -> DType:
    assert value is not None and isinstance(value.type, SharedType | TensorType)
    return value.type.element


# Copies


@rule(tcgen05.copy)
def _copy(task: Task, op: Op, src: Handle, dst: Handle) -> None:
    moves = [
        (_part(task, block, op.operands[0], src), _part(task, block, op.operands[1], dst))
        for block in working_blocks(task, op, task.machine.two_ctas)
    ]
    if not moves:
        return
    started = Started(task, op, None)
    for source, place in moves:
        started.reads(source, COPIED)
        started.writes(place)

    def work() -> None:
        for source, place in moves:
            place.put(source.fetch())

    started.go_on(work)


# Commits and fences


@rule(tcgen05.commit)
def _commit(task: Task, op: Op, bar: Handle, pred: Data | None) -> None:
    """In a pair, the first block commits. A commit implies `tcgen05.fence::before_thread_sync` (PTX ISA, "tcgen05.commit"), so
    it also seals the issue of earlier operations."""
    if (task.machine.two_ctas and task.rank & 1) or not holds(task, op, pred):
        return
    pipe, clock = task.block.cluster.pipes[task.slot], task.clock
    count = pipe.count
    join(clock.sealed, {pipe.issued: count})
    for block in _receivers(task, op):
        barrier = barrier_at(task, op, bar, ELECTED, block)
        agent = task.block.agents.start(op, lambda: pipe.run(count))
        barrier.arrive_behind(op, clock, {pipe.component: count}, agent)


def _receivers(task: Task, op: Op) -> list[Block]:
    """The blocks on whose mbarriers a commit arrives. Raises BlockExited."""
    masks: tuple[int, ...] = op.attrs["receivers"] or (0,)
    chosen = [r for r in range(task.machine.blocks) if any((r ^ task.rank) & ~mask == 0 for mask in masks)]
    return [peer(task, op, rank) for rank in chosen]


@rule(tcgen05.fence)
def _fence(task: Task, op: Op) -> None:
    pipe = task.block.cluster.pipes[task.slot]
    useful = task.clock.seal({pipe.issued: pipe.count}) if op.attrs["before"] else task.clock.order()
    task.machine.ordered(op, useful)
