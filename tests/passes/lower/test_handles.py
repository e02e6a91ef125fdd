"""Handles to tensor memory when lowered: addresses, through control flow and into partitions."""

from __future__ import annotations

import pytest

from tests.passes.lower.tensors import (
    LANE,
    WIDE,
    addresses,
    load,
    lowered,
    number,
    only,
    part,
    tensor,
    tensor_kernel,
    warps,
)
from tests.support import ops_of
from weft.errors import CompilationError
from weft.ir.core import walk
from weft.ir.types import ScalarType, TensorType, float16, float32, int1, int32
from weft.layout import TensorMemoryLayout
from weft.ops import arith, control, tensor_memory

# Handles


def test_an_allocation_is_an_address():
    k = tensor_kernel()
    load(k, tensor(k))
    load(k, tensor(k, column=64))
    assert addresses(lowered(k)) == [0, 64]


def test_several_tiles_with_a_number_known_at_run_time():
    """A double-buffered accumulator: choosing one of the tiles is one multiplication."""
    k = tensor_kernel()
    i = k.number_in(1)
    accs = tensor(k, (2, 128, 64))
    load(k, k.emit(tensor_memory.index, accs, i))
    func = lowered(k)
    assert addresses(func, {func.params[0]: 1}) == [64]
    assert addresses(func, {func.params[0]: 0}) == [0]
    assert [op.kind for op in walk(func.body) if func.params[0] in op.uses] == [arith.mul]


def test_parts_of_arrays_of_tiles():
    """Rows of tiles follow each other; halves take half of the columns."""
    k = tensor_kernel(columns=256)
    accs = tensor(k, (2, 3, 128, 64), layout=TensorMemoryLayout([128, 64], col_stride=1), element=float16, column=32)
    row = k.emit(tensor_memory.index, accs, k.number(1))
    rest = k.emit(tensor_memory.slice, row, start=1, length=2, dim=0)
    load(k, k.emit(tensor_memory.index, rest, k.number(1)))
    assert addresses(lowered(k)) == [32 + (3 + 1 + 1) * 32]


def test_a_slice_of_columns_begins_further_on():
    k = tensor_kernel()
    part = k.emit(tensor_memory.slice, tensor(k, column=64), start=32, length=16, dim=1)
    part = k.emit(tensor_memory.slice, part, start=8, length=8, dim=1)
    load(k, part)
    func = lowered(k)
    assert addresses(func) == [64 + 32 + 8]
    assert only(func, tensor_memory.load_regs).attrs["repeat"] == 8


def test_reinterpreted_columns():
    """A part of scores in float32 as the halves that a second product reads."""
    k = tensor_kernel()
    part = k.emit(tensor_memory.slice, tensor(k), start=32, length=32, dim=1)
    halves = k.emit(tensor_memory.reinterpret, part, element=float16, shape=(2, 128, 16), layout=WIDE_HALVES)
    load(k, k.emit(tensor_memory.index, halves, k.number(1)))
    assert addresses(lowered(k)) == [32 + 8]


WIDE_HALVES = TensorMemoryLayout([128, 16], col_stride=1)


@pytest.mark.parametrize("what", ["rows", "half a column"])
def test_reinterpreting_what_begins_elsewhere(what):
    k = tensor_kernel()
    if what == "rows":
        part = k.emit(tensor_memory.slice, tensor(k), start=64, length=64, dim=0)
    else:
        acc = tensor(k, (128, 16), layout=WIDE_HALVES, element=float16)
        part = k.emit(tensor_memory.slice, acc, start=1, length=1, dim=1)
    k.emit(tensor_memory.reinterpret, part, element=float32, shape=(128, 64), layout=WIDE)
    with pytest.raises(CompilationError) as caught:
        lowered(k)
    assert caught.value.code == "tmem-reinterpret" and caught.value.loc is not None


# Handles through control flow


def loop(k, inits, body, trips=4):
    with k.region([ScalarType(int32), *(v.type for v in inits)]) as region:
        k.emit(control.yield_, *body(*region.args))
    bounds = k.number(0), k.number(trips), k.number(1)
    made = k.emit(control.for_, *bounds, *inits, regions=(region.done,), descending=False)
    return made if isinstance(made, tuple) else (made,)


def branch(k, condition, then, orelse):
    regions = []
    for make in (then, orelse):
        with k.region() as region:
            k.emit(control.yield_, *make())
        regions.append(region.done)
    return k.emit(control.if_, condition, regions=tuple(regions))


def test_a_loop_carries_addresses():
    """Two accumulators change places."""
    k = tensor_kernel()
    first, second = tensor(k), tensor(k, column=64)

    def body(i, a, b):
        load(k, a)
        return b, a

    after = loop(k, (first, second), body)
    load(k, after[0])
    func = lowered(k)
    op = only(func, control.for_)
    assert [v.type for v in op.operands[3:]] == [ScalarType(int32)] * 2
    _, a, b = op.regions[0].args
    assert tuple(op.regions[0].terminator.uses) == (b, a)
    inside, outside = ops_of(func, tensor_memory.load_regs)
    assert number(func, inside.operands[0], {**warps(func, 2), a: 64}) == 64 + 64 * LANE
    assert number(func, outside.operands[0], {**warps(func, 0), op.results[0]: 64}) == 64


def test_parts_that_a_loop_carries_are_told_by_their_address():
    """A loop that goes on to the next columns: where a part begins is no constant then."""
    k = tensor_kernel()
    acc = tensor(k)

    def body(i, piece):
        load(k, piece)
        return (part(k, acc, 32),)

    loop(k, (part(k, acc, 0),), body)
    func = lowered(k)
    op = only(func, control.for_)
    (_, piece) = op.regions[0].args
    assert number(func, op.operands[3], {}) == 0
    assert number(func, op.regions[0].terminator.operands[0], {}) == 32
    assert addresses(func, {piece: 32}) == [32]


def test_parts_that_stay_the_same_keep_their_start():
    k = tensor_kernel()
    acc = tensor(k, column=64)

    def body(i, piece):
        load(k, piece)
        return (part(k, acc, 32),)

    loop(k, (part(k, acc, 32),), body)
    func = lowered(k)
    op = only(func, control.for_)
    assert number(func, op.operands[3], {}) == 64, "the address of the tile"
    assert addresses(func, {op.regions[0].args[1]: 64}) == [96]


def test_a_while_carries_addresses():
    k = tensor_kernel()
    acc = tensor(k)
    types = [TensorType(float32, (128, 32), WIDE, (128, 64)), ScalarType(int32)]
    with k.region(types) as before:
        k.emit(control.condition, k.cmp("lt", before.args[1], k.number(4)), *before.args)
    with k.region(types) as after:
        load(k, after.args[0])
        k.emit(control.yield_, part(k, acc, 32), k.add(after.args[1], k.number(1)))
    piece, _ = k.emit(control.while_, part(k, acc, 0), k.number(0), regions=(before.done, after.done))
    load(k, piece)
    func = lowered(k)
    op = only(func, control.while_)
    assert [v.type for v in op.results] == [ScalarType(int32)] * 2
    assert [number(func, v, {}) for v in (op.operands[0], op.regions[1].terminator.operands[0])] == [0, 32]
    assert addresses(func, {op.regions[1].args[0]: 32, op.results[0]: 0}) == [32, 0]


def test_a_branch_hands_on_addresses():
    k = tensor_kernel()
    first, second = tensor(k, (2, 128, 64)), tensor(k, column=64)
    i = k.number_in(0)
    chosen = branch(
        k, k.number_in(True, int1), lambda: (k.emit(tensor_memory.index, first, i),), lambda: (second,),
    )  # fmt: skip
    load(k, chosen)
    func = lowered(k)
    op = only(func, control.if_)
    assert op.result.type == ScalarType(int32)
    handed = [number(func, region.terminator.operands[0], {func.params[0]: 3}) for region in op.regions]
    assert handed == [192, 64]
    assert addresses(func, {op.result: 7}) == [7]


def test_rows_that_differ_do_not_come_together():
    """A warp reaches the same lanes whatever the address says."""
    k = tensor_kernel()
    acc = tensor(k)
    upper, lower = (k.emit(tensor_memory.slice, acc, start=at, length=64, dim=0) for at in (0, 64))
    branch(k, k.number_in(True, int1), lambda: (upper,), lambda: (lower,))
    with pytest.raises(CompilationError) as caught:
        lowered(k)
    assert caught.value.code == "lower-handles"


def test_halves_of_a_column_do_not_come_together():
    k = tensor_kernel()
    acc = tensor(k, (128, 16), layout=WIDE_HALVES, element=float16)
    pieces = [part(k, acc, at, 1) for at in (0, 1)]
    branch(k, k.number_in(True, int1), lambda: pieces[:1], lambda: pieces[1:])
    with pytest.raises(CompilationError) as caught:
        lowered(k)
    assert caught.value.code == "lower-handles"


# Partitions


def specialised(k, *bodies, num_warps=4):
    regions = []
    for body in bodies:
        with k.region() as region:
            body()
            k.emit(control.yield_)
        regions.append(region.done)
    warps = (num_warps,) * (len(bodies) - 1)
    k.emit(control.warp_specialize, regions=tuple(regions), num_warps=warps, num_regs=())


def test_partitions_have_handles_of_what_is_allocated_before():
    """All columns are taken before the partitions and given back behind them; each forms the addresses that it needs."""
    k = tensor_kernel()
    accs = tensor(k, (2, 128, 64))
    last = k.emit(tensor_memory.index, accs, k.number_in(1))
    specialised(k, lambda: load(k, last), lambda: load(k, part(k, last, 32), num_warps=8), num_warps=8)
    func = lowered(k)
    op = only(func, control.partitions)
    assert [each.kind for each in func.body.ops[-3:]] == [control.partitions, tensor_memory.release, control.return_]
    assert op not in func.body.ops[:2] and func.body.ops[1].kind is tensor_memory.reserve
    assert addresses(func, {func.params[0]: 1}) == [64, 96]
    for region, warps_ in zip(op.regions, (4, 8), strict=False):
        (inside,) = (each for each in walk(region) if each.kind is tensor_memory.load_regs)
        known = {**warps(func, 3), func.params[0]: 0}
        first = number(func, inside.operands[0], {**known, **warps(func, 0)})
        assert number(func, inside.operands[0], known) - first == 96 * LANE
        assert inside.result.type.count * warps_ * 32 == 128 * (64 if warps_ == 4 else 32)
