"""tcgen05 in the lowered stage: decodes descriptors and addresses as the hardware does.

Instructions that accumulate to the same columns form a *chain*, ordered along k. Matrices are arrays (chains, rows, columns).
The numerics are those of `tiles`. Encodings and placements follow the PTX ISA, "tcgen05.mma" ("Instruction
descriptor", "Data Path Layout Organization", "Scale Factor A ID", "Scale Factor B ID") and "tcgen05.cp".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from weft.ir.core import Op
from weft.ir.types import BY_CODE, DType, float8e4nv, float32, uint8
from weft.layout.distributed.fragments import K_BITS
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_cores.tcgen05_copies import COPIES
from weft.layout.tensor_cores.tcgen05_kinds import ACCUMULATORS, KINDS, Kind, Multiplication
from weft.layout.tensor_memory.layouts import LANES, SCALE_ROWS, SCALES_PER_COLUMN
from weft.layout.tensor_memory.load_store import LANE
from weft.ops import tcgen05
from weft.sim.machine.data import Array, Data, arange, where
from weft.sim.machine.tasks import Block, Task
from weft.sim.machine.tensor_order import Accumulators, accumulators
from weft.sim.memory.events import ELECTED
from weft.sim.memory.matrix_operands import operand_place
from weft.sim.memory.places import Place, place_at
from weft.sim.memory.spaces import CELL, SHARED, TENSOR, Handle
from weft.sim.numbers import scaled
from weft.sim.numbers.products import multiply_exactly
from weft.sim.rule import rule
from weft.sim.rules.mbarrier import holds
from weft.sim.rules.shared import element_of
from weft.sim.rules.tcgen05.parts import Part, Started, flag, working_blocks
from weft.sim.rules.tcgen05.tiles import COPIED, SINK
from weft.sim.rules.tensor_memory import reservation

QUARTERS = tuple(range(0, LANES, SCALE_ROWS))
"""First lanes of the four copies of data that every warp holds (`.warpx4`)."""
Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Instructions:
    """The decoded descriptors of an MMA: types or formats of a and b, `m` rows (per block) by `n` columns. For each chain, the
    start of the accumulator; for each of its steps, the starts of a, b and the scales (columns, counted in bytes)."""

    row: Multiplication
    left: str
    right: str
    result: DType
    scale: DType
    m: int
    n: int
    fresh: tuple[bool, ...]
    acc: tuple[int, ...]
    a: Table
    b: Table
    a_scales: Table
    b_scales: Table


@lru_cache(maxsize=1024)
def _instructions(op: Op) -> _Instructions:
    kind: Kind = op.attrs["kind"]
    row, steps = KINDS[kind], op.attrs["steps"]
    chains: dict[int, list[tuple[int, ...]]] = {}
    for step in steps:
        chains.setdefault(step[0], []).append(step)
    bits = int(steps[0][4])
    names = {field: name for name, field in row.operands.items()}
    results = {field: name for name, field in ACCUMULATORS.items()}
    rows = (bits >> 27 & 3) << 7 if row.scales else (bits >> 24 & 31) << 4

    def table(position: int) -> Table:
        return tuple(tuple(step[position] for step in chain) for chain in chains.values())

    def scales(position: int, first: int) -> Table:
        return tuple(
            tuple(step[position] * SCALES_PER_COLUMN + (step[4] >> first & 3) for step in chain)
            for chain in chains.values()
        )

    return _Instructions(
        row, names[bits >> 7 & 7], names[bits >> 10 & 7],
        float32 if row.scales else BY_CODE[results[bits >> 4 & 3]],
        uint8 if bits >> 23 & 1 else float8e4nv,
        rows // 2 if op.attrs["two_ctas"] else rows, (bits >> 17 & 63) << 3,
        tuple(bool(chain[0][3]) for chain in chains.values()), tuple(chains),
        table(1), table(2), scales(5, 29), scales(6, 4),
    )  # fmt: skip


@rule(tcgen05.issue)
def _issue(
    task: Task, op: Op, a: Handle | Data, b: Handle, acc: Data, a_scale: Data | None, b_scale: Data | None,
    use_acc: Data | None, pred: Data | None,
) -> None:  # fmt: skip
    blocks = working_blocks(task, op, bool(op.attrs["two_ctas"]))
    if not blocks or not holds(task, op, pred):
        return
    adds, what = flag(task, op, use_acc, "use_acc"), _instructions(op)
    left, right = (_memory(what, name) for name in (what.left, what.right))
    at, n = _address(task, op, acc), what.n // len(blocks)
    started = Started(task, op, _accumulators(op, at))
    shares: list[tuple[Part, Part, list[Part], Part]] = []
    for block in blocks:
        x = (
            _described(task, block, a, left, op.attrs["left"], what.m, what.a, _padded(what, what.left))
            if isinstance(a, Handle)
            else _tensor(task, op, block, _left_place(what, _address(task, op, a), left), left)
        )
        y = _described(task, block, b, right, op.attrs["right"], n, what.b, _padded(what, what.right))
        scales = [
            _tensor(task, op, block, _scale_place(_address(task, op, place), table, rows, what.row.scales), what.scale)
            for place, table, rows in ((a_scale, what.a_scales, what.m), (b_scale, what.b_scales, what.n))
            if place is not None
        ]
        total = _tensor(task, op, block, _accumulator_place(what, at, len(blocks) > 1), what.result)
        shares.append((x, y, scales, total))
        started.reads(x, SINK)
        started.reads(y, SINK)
        for scale in scales:
            started.reads(scale, SINK)
        if adds:
            started.demands(total, SINK)
    for *_, total in shares:
        started.writes(total)

    def work() -> None:
        columns: Array = np.concatenate([y.fetch()[:, 0] for _, y, _, _ in shares], axis=1)
        zero = np.array([fresh and not adds for fresh in what.fresh])[:, None, None]
        for x, _, scales, total in shares:
            before = total.fetch()
            before = where(zero, before.dtype.type(0), before)
            values = x.fetch()
            if x.handle.memory.space is SHARED:
                values = values[:, 0]
            elif _padded(what, what.left):
                values = scaled.packed(values)
            total.put(_multiplied(what, values, columns, before, [part.fetch() for part in scales]))

    started.go_on(work)


def _multiplied(what: _Instructions, a: Array, b: Array, before: Array, scales: Sequence[Array]) -> Array:
    """The new accumulators of all chains; b is transposed (by columns)."""
    if not what.row.scales:
        types = BY_CODE[what.left], BY_CODE[what.right], what.result
        return multiply_exactly(a, np.swapaxes(b, -1, -2), before, *types)
    left, right = scaled.elements(a, what.left), scaled.elements(b, what.right)  # pyright: ignore[reportArgumentType]
    a_scale, b_scale = map(scaled.scales, scales)
    return scaled.scaled_product(left, np.swapaxes(right, -1, -2), before, a_scale, b_scale, what.row.k)


def _memory(what: _Instructions, name: str) -> DType:
    """The element type as which an operand's memory is read."""
    return uint8 if what.row.scales else BY_CODE[name]


def _padded(what: _Instructions, name: str) -> bool:
    """True if an operand of e2m1 is padded: 8 bytes in each 16 of shared memory, 4 bits in each byte of tensor memory."""
    return name == "e2m1" and what.row is KINDS["mxf8f6f4"]


def _address(task: Task, op: Op, value: Data | None) -> int:
    assert value is not None
    task.demand(op, value, "an address")
    return int(task.uniform(op, value, "an address of tensor memory").array)


def _described(
    task: Task, block: Block, handle: Handle, element: DType, operand: Operand, outer: int, offsets: Table, padded: bool
) -> Part:
    """An operand in shared memory, as (chains, 1, outer, k)."""
    place = _described_place(
        operand,
        outer,
        K_BITS // element.bits,
        element.itemsize,
        offsets,
        handle.base,
        block.store(SHARED).granule,
        padded,
    )
    return Part(task, block, handle, place, element)


@lru_cache(maxsize=1024)
def _described_place(
    operand: Operand, outer: int, k: int, itemsize: int, offsets: Table, base: int, granule: int, padded: bool
) -> Place:
    place = operand_place(operand, outer, k, itemsize, offsets, 1, base, granule, padded)
    return replace(place, area=replace(place.area, threads=ELECTED))


# Tensor memory


def _tensor(task: Task, op: Op, block: Block, place: Place, element: DType) -> Part:
    """A place in the columns that a block has allocated."""
    memory = block.store(TENSOR).reserved if block is not task.block else None
    return Part(task, block, Handle(memory or reservation(task, op), 0), place, element)


def _place(lane: Array, byte: Array, itemsize: int, copies: tuple[int, ...] = (0,)) -> Place:
    """The place of elements at lanes and bytes of the columns."""
    lane, byte = np.broadcast_arrays(lane, byte)
    each = CELL // itemsize
    elements = (byte // CELL * LANES + lane) * each + byte % CELL // itemsize
    return place_at(0, elements, itemsize, CELL, ELECTED, copies=tuple(lanes * each for lanes in copies))


def _apart(row: Array) -> Array:
    """The lanes of 64 rows, 16 of them in every 32 lanes."""
    return row % 16 + row // 16 * 32


@lru_cache(maxsize=1024)
def _accumulators(op: Op, address: int) -> Accumulators:
    """The accumulators of an MMA's instructions, from an address."""
    what = _instructions(op)
    starts = [address + start for start in what.acc]
    return accumulators(op.attrs["kind"], what.m, what.n, bool(op.attrs["two_ctas"]), starts)


@lru_cache(maxsize=1024)
def _accumulator_place(what: _Instructions, address: int, pair: bool) -> Place:
    """Accumulators, as (chains, m, n), one element per cell. With 64 rows, each group of 16 rows begins at a multiple of 32
    lanes; in a pair of blocks, the right half of the columns is in the lanes behind them (PTX ISA, tcgen05, "Data Path
    Layout Organization")."""
    starts = address + np.array(what.acc)[:, None, None]
    row, column = arange(what.m)[:, None], arange(what.n)[None, :]
    if what.m == LANES:
        lane = row + 0 * column
    elif pair:
        lane, column = row + what.m * (column >= what.n // 2), column % (what.n // 2)
    else:
        lane = _apart(row)
    return _place(starts // LANE + lane, (starts % LANE + column) * CELL, what.result.itemsize)


@lru_cache(maxsize=1024)
def _left_place(what: _Instructions, address: int, element: DType) -> Place:
    """Operand a in tensor memory, as (chains, m, steps * k); the elements of a row are contiguous."""
    starts = address + np.array(what.a)[:, None, :, None]
    inside = arange(K_BITS // element.bits) * element.itemsize
    row = arange(what.m)[:, None, None]
    lane = starts // LANE + (row if what.m == LANES else _apart(row))
    byte = starts % LANE * CELL + inside
    lane, byte = np.broadcast_arrays(lane, byte)
    shape = (len(what.a), what.m, -1)
    return _place(lane.reshape(shape), byte.reshape(shape), element.itemsize)


@lru_cache(maxsize=1024)
def _scale_place(address: int, table: Table, rows: int, each: int) -> Place:
    """Scales, as (chains, rows, steps * each): each 32 rows share a column of four bytes per lane."""
    starts = np.array(table)[:, None, :, None] + arange(each)
    row = arange(rows)[:, None, None]
    byte = (address % LANE + row // SCALE_ROWS) * CELL + starts
    lane, byte = np.broadcast_arrays(address // LANE + row % SCALE_ROWS, byte)
    shape = (len(table), rows, -1)
    return _place(lane.reshape(shape), byte.reshape(shape), 1, QUARTERS)


# Copies


@rule(tcgen05.copy_shared)
def _copy_shared(task: Task, op: Op, src: Handle, dst: Data) -> None:
    blocks = working_blocks(task, op, bool(op.attrs["two_ctas"]))
    if not blocks:
        return
    element, address = element_of(op.operands[0]), _address(task, op, dst)
    lanes, bits = next((lanes, bits) for lanes, bits, shape in COPIES if shape == op.attrs["shape"])
    sources, targets = zip(*op.attrs["steps"], strict=True)
    place = _target_place(address, targets, lanes, bits, element.itemsize)
    moves = [(_source(task, block, src, element, op, lanes, bits, sources), block) for block in blocks]
    started = Started(task, op, None)
    parts: list[tuple[Part, Part]] = []
    for source, block in moves:
        target = _tensor(task, op, block, place, element)
        started.reads(source, COPIED)
        started.writes(target)
        parts.append((source, target))

    def work() -> None:
        for source, target in parts:
            target.put(source.fetch()[:, 0])

    started.go_on(work)


def _source(
    task: Task, block: Block, src: Handle, element: DType, op: Op, lanes: int, bits: int, starts: tuple[int, ...]
) -> Part:
    """The sources of copy instructions, as (instructions, 1, lanes, elements)."""
    offsets = tuple((start,) for start in starts)
    place = _described_place(
        op.attrs["operand"],
        lanes,
        bits // element.bits,
        element.itemsize,
        offsets,
        src.base,
        block.store(SHARED).granule,
        False,
    )
    return Part(task, block, src, place, element)


@lru_cache(maxsize=1024)
def _target_place(address: int, targets: tuple[int, ...], lanes: int, bits: int, itemsize: int) -> Place:
    """The destinations of copy instructions, as (instructions, lanes, elements)."""
    starts = address + np.array(targets)[:, None, None]
    byte = starts % LANE * CELL + arange(bits // 8 // itemsize) * itemsize
    copies = QUARTERS if lanes == SCALE_ROWS else (0,)
    return _place(starts // LANE + arange(lanes)[:, None], byte, itemsize, copies)
