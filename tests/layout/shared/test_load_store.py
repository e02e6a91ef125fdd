"""Access plans, executed thread by thread and compared with what the two layouts say."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.layout.strategies import powers, shared_layouts, shared_tiles, tiles
from weft.errors import LayoutError
from weft.layout import (
    BlockedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SwizzledSharedLayout,
    bank_conflicts,
    plan_access,
)
from weft.layout.cost import element_bytes
from weft.layout.shared.sizes import tile_bytes

LANES = 32
laws = settings(deadline=None, max_examples=examples(150))


def addresses(shared, tile_shape):
    """Element by address, in elements."""
    linear = shared.to_linear(tile_shape)
    pad = shared.pad if isinstance(shared, PaddedSharedLayout) else int
    return {pad(offset): linear(offset=offset) for offset in range(linear.in_size("offset"))}


def threads(access):
    """(warp, lane) of all threads, and whether each takes part in a store."""
    for warp in range(1 << len(access.warp_bases)):
        for lane in range(LANES):
            yield warp, lane, not (lane & access.lane_mask or warp & access.warp_mask)


def places(access, lane, warp):
    """Per access the address of its first element, told in both ways that the plan offers."""
    thread = access.thread_offset(lane, warp)
    whole = [access.address(thread ^ offset) for offset in access.offsets]
    assert [access.address(thread ^ xor) + add for xor, add in access.parts] == whole
    return whole


def moved(access, size, lane, warp):
    """(address, register) pairs of one thread; vectors are aligned."""
    for address, registers in zip(places(access, lane, warp), access.registers, strict=True):
        assert len(registers) == access.vec
        assert address % access.vec == 0
        assert access.vec * size <= 16
        yield from zip(range(address, address + access.vec), registers, strict=True)


def matrix_moved(plan, size, warp):
    """(lane, address, register) triples of one warp, as the instructions spread rows over lanes."""
    rows, word = plan.rows, 4 // size
    assert rows.vec * size == 16
    assert plan.matrices * 8 + rows.lane_mask == LANES
    by_lane = [places(rows, lane, warp) for lane in range(LANES)]
    for index, registers in enumerate(rows.registers):
        assert len(registers) == plan.matrices * word
        for matrix in range(plan.matrices):
            for lane in range(LANES):
                for half in range(word):
                    row, column = (lane // 4, lane % 4 * word + half)
                    if plan.transposed:
                        row, column = (lane % 4 * 2 + half, lane // 4)
                    start = by_lane[matrix * 8 + row][index]
                    assert start * size % 16 == 0
                    yield lane, start + column, registers[matrix * word + half]


def check(distributed, shared, tile_shape, view_shape, start, bits):
    """The load brings every register its element, the store writes every element of the view once; both plans returned."""
    size = element_bytes(bits)
    elements = addresses(shared, tile_shape)
    linear = distributed.to_linear(view_shape)
    view = {tuple(s + c for s, c in zip(start, linear.coordinates(e), strict=True)) for e in span(linear)}
    arguments = (linear, shared, tuple(tile_shape), tuple(view_shape), tuple(start), bits)
    load, store = plan_access(*arguments), plan_access(*arguments, store=True)

    def held(register, lane, warp):
        return tuple(s + c for s, c in zip(start, linear(register=register, lane=lane, warp=warp), strict=True))

    for warp, lane, _ in threads(load.access):
        loaded = {register: elements[address] for address, register in moved(load.access, size, lane, warp)}
        got = [loaded[r] for r in load.result]
        assert got == [held(r, lane, warp) for r in range(linear.in_size("register"))]
    written = Counter()
    for warp, lane, owns in threads(store.access):
        for address, register in moved(store.access, size, lane, warp) if owns else ():
            assert elements[address] == held(register, lane, warp)
            written[elements[address]] += 1
    assert written == dict.fromkeys(view, 1)
    for plan in (load, store):
        check_matrix(plan, elements, held, size)
    if store.matrix:
        owners = [w for w in range(1 << len(store.access.warp_bases)) if not w & store.matrix.rows.warp_mask]
        count = Counter(elements[address] for w in owners for _, address, _ in matrix_moved(store.matrix, size, w))
        assert count == dict.fromkeys(view, 1)
    return load, store


def check_matrix(plan, elements, held, size):
    """Matrix instructions move what vectors move."""
    if plan.matrix is None:
        return
    for warp in range(1 << len(plan.access.warp_bases)):
        registers = defaultdict(set)
        for lane, address, register in matrix_moved(plan.matrix, size, warp):
            assert elements[address] == held(register, lane, warp)
            registers[lane].add(register)
        assert all(found == set(plan.result) for found in registers.values())


def span(linear):
    found = {0}
    for column in linear.flat_columns:
        found |= {element ^ column for element in found}
    return found


@given(tiles(), st.data())
@laws
def test_any_tile_meets_any_shared_layout(case, data):
    distributed, shape = case
    grown = [size * data.draw(powers(2)) for size in shape]
    start = [data.draw(st.integers(0, big // size - 1)) * size for big, size in zip(grown, shape, strict=True)]
    bits = data.draw(st.sampled_from([8, 16, 32, 64]))
    shared = data.draw(shared_layouts(grown, bits))
    assume(tile_bytes(shared, grown, bits) <= 1 << 16)
    check(distributed, shared, grown, shape, start, bits)


@given(shared_tiles(), st.booleans(), st.randoms(use_true_random=False))
@laws
def test_what_lies_as_matrices_do_is_moved_by_matrices(case, transposed, rng):
    """A tile distributed so that its offsets are those of matrices, whatever the shared layout."""
    shared, shape, bits = case
    size = element_bytes(bits)
    linear = shared.to_linear(shape)
    columns = linear.bases("offset")
    row = 16 // size
    inner = (4 // size).bit_length() - 1 if size < 8 else 0
    chunks = columns[row.bit_length() - 1 :]
    pads = shared.pads_of(shape)
    assume(size == 2 if transposed else size < 8)
    assume(len(chunks) >= 3)
    assume(all(value % row == 0 for pair in pads for value in pair))
    rest = rng.sample(chunks, len(chunks))
    if transposed:
        registers, lanes, rest = [rest[0]], [*rest[1:3], *columns[:3]], rest[3:]
    else:
        registers, lanes, rest = list(columns[:inner]), [*columns[inner : inner + 2], *rest[:3]], rest[3:]
    warps = rng.randint(0, min(2, len(rest)))
    # Registers that begin inside of a word, and in another order.
    mixed = [*registers, *rest[warps:]]
    rng.shuffle(mixed)
    distributed = DistributedLinearLayout(mixed, lanes, rest[:warps], [], shape)
    load, store = check(distributed, shared, shape, shape, [0] * len(shape), bits)
    matrices = 1 << len(rest) - warps
    for plan in (load, store):
        # One matrix of whole words costs what a vector access does; what padding costs depends on the rows.
        if plan.matrix or (not pads and (transposed or (matrices > 1 and plan.access.vec * size == 4))):
            assert plan.matrix is not None
            assert plan.matrix.transposed == transposed
            assert len(plan.matrix.rows.offsets) == max(1, matrices // 4)


MMA = NVMMADistributedLayout([2, 0], [2, 2], [16, 8])
WGMMA = NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
ROWS = NVMMASharedLayout(128, 16)


@pytest.mark.parametrize(
    ("distributed", "shared", "bits", "transposed", "count"),
    [
        (DotOperandLayout(0, MMA, 2), ROWS, 16, False, 8),
        (DotOperandLayout(0, MMA, 2), NVMMASharedLayout(128, 16, transposed=True), 16, True, 8),
        (DotOperandLayout(1, MMA, 2), ROWS, 16, True, 8),
        (DotOperandLayout(1, MMA, 2), NVMMASharedLayout(128, 16, transposed=True), 16, False, 8),
        (DotOperandLayout(0, MMA, 4), NVMMASharedLayout(64, 8), 8, False, 4),
        (DotOperandLayout(0, MMA, 1), NVMMASharedLayout(128, 32), 32, False, 16),
        (WGMMA, ROWS, 16, False, 4),
        (MMA, NVMMASharedLayout(128, 16, transposed=True), 16, True, 4),
        (MMA, PaddedSharedLayout.with_identity_for([[64, 8]], [64, 64], [1, 0]), 16, False, 4),
    ],
)
def test_matrices_of_tensor_cores(distributed, shared, bits, transposed, count):
    load, store = check(distributed, shared, [64, 64], [64, 64], [0, 0], bits)
    for plan in (load, store):
        assert plan.matrix is not None
        assert (plan.matrix.matrices, plan.matrix.transposed) == (4, transposed)
        assert len(plan.matrix.rows.offsets) == count
        assert plan.matrix.rows.conflicts(bits) == 0


@pytest.mark.parametrize(
    ("shared", "bits"),
    [
        (NVMMASharedLayout(128, 64), 64),
        (NVMMASharedLayout(64, 8, transposed=True), 8),
        (SwizzledSharedLayout(4, 1, 4, [1, 0]), 16),
        (PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0]), 16),
        (SharedLinearLayout(ROWS.to_linear([64, 64]).bases("offset"), alignment=8), 16),
    ],
)
def test_no_matrices_where_rows_are_not_whole(shared, bits):
    load, store = check(MMA, shared, [64, 64], [64, 64], [0, 0], bits)
    assert load.matrix is None
    assert store.matrix is None


def test_wide_vectors_need_no_matrices():
    layout = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    load, store = check(layout, ROWS, [64, 64], [64, 64], [0, 0], 16)
    assert (load.access.vec, len(load.access.offsets)) == (8, 4)
    assert (load.matrix, store.matrix) == (None, None)


@pytest.mark.parametrize(("bits", "vec"), [(8, 8), (16, 8), (32, 4), (64, 2)])
def test_vectors_are_as_wide_as_registers_and_16_bytes_allow(bits, vec):
    layout = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    load, store = check(layout, SwizzledSharedLayout(1, 1, 1, [1, 0]), [64, 64], [64, 64], [0, 0], bits)
    assert load.access.vec == store.access.vec == vec
    assert len(load.access.offsets) == 32 // vec


def test_vectors_are_no_wider_than_the_alignment():
    layout = BlockedLayout([8], [32], [1], [0])
    aligned = SharedLinearLayout([[1 << bit] for bit in range(8)], alignment=8)
    assert check(layout, aligned, [256], [256], [0], 16)[0].access.vec == 4


def test_padding_keeps_vectors_as_wide_as_it_is():
    layout = BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for padding, vec in ((8, 8), (4, 4), (1, 1)):
        padded = PaddedSharedLayout.with_identity_for([[64, padding]], [64, 64], [1, 0])
        load, _ = check(layout, padded, [64, 64], [64, 64], [0, 0], 16)
        assert load.access.vec == vec
        assert {xor for xor, _ in load.access.parts} == {0}


def test_threads_that_hold_nothing_of_their_own_do_not_store():
    _, store = check(BlockedLayout([1], [32], [4], [0]), SwizzledSharedLayout(1, 1, 1, [0]), [16], [16], [0], 32)
    assert (store.access.lane_mask, store.access.warp_mask) == (0b10000, 0b11)


def test_a_block_does_not_reach_into_the_memory_of_another():
    halves = BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0], cga_layout=[[1, 0]]).to_linear([64, 64])
    whole = BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0], cga_layout=[[0, 0]]).to_linear([64, 64])
    split = NVMMASharedLayout(128, 16, cga_layout=[[1, 0]])
    assert plan_access(halves, split, (64, 64), (64, 64), (0, 0), 16).access.vec == 1
    for distributed, shared in ((whole, split), (halves, ROWS)):
        with pytest.raises(LayoutError, match="between the blocks of a cluster"):
            plan_access(distributed, shared, (64, 64), (64, 64), (0, 0), 16)


def test_a_tile_of_another_shape_is_refused():
    with pytest.raises(LayoutError, match=r"shape \[32, 64\]"):
        plan_access(MMA.to_linear([64, 64]), ROWS, (64, 64), (32, 64), (0, 0), 16)


# Bank conflicts


def counted(distributed, shape, shared, bits):
    """The most words beyond one that some bank gives to the lanes that are served together, by enumeration."""
    size = element_bytes(bits)
    access = plan_access(
        distributed.to_linear(shape), shared, tuple(shape), tuple(shape), (0,) * len(shape), bits
    ).access
    group = {16: 8, 8: 16}.get(access.vec * size, 32)
    worst = 0
    for warp in range(1 << len(access.warp_bases)):
        by_lane = [places(access, lane, warp) for lane in range(LANES)]
        for index in range(len(access.offsets)):
            for first in range(0, LANES, group):
                words = set()
                for lane in range(first, first + group):
                    byte = by_lane[lane][index] * size
                    words |= {b // 4 for b in range(byte, byte + access.vec * size)}
                worst = max(worst, *Counter(word % 32 for word in words).values())
    return worst - 1


@given(tiles(), st.data())
@laws
def test_bank_conflicts_are_what_addresses_say(case, data):
    distributed, shape = case
    bits = data.draw(st.sampled_from([8, 16, 32, 64]))
    shared = data.draw(shared_layouts(shape, bits))
    assert bank_conflicts(distributed, shape, shared, bits) == counted(distributed, shape, shared, bits)


PLAIN = SwizzledSharedLayout(1, 1, 1, [1, 0])
BY_ROW = BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0])
BY_COLUMN = BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
COLUMN_VECTORS = BlockedLayout([1, 8], [32, 1], [1, 1], [1, 0])


@pytest.mark.parametrize(
    ("distributed", "shape", "shared", "bits", "expected"),
    [
        (BY_ROW, [128, 128], PLAIN, 32, 0),
        (BY_COLUMN, [32, 128], PLAIN, 32, 31),
        (BY_COLUMN, [32, 128], PLAIN, 16, 31),
        (BY_COLUMN, [32, 128], SwizzledSharedLayout(1, 1, 32, [1, 0]), 32, 0),
        (BY_COLUMN, [32, 128], PaddedSharedLayout.with_identity_for([[128, 1]], [32, 128], [1, 0]), 32, 0),
        (BY_COLUMN, [32, 128], PaddedSharedLayout.with_identity_for([[128, 4]], [32, 128], [1, 0]), 32, 3),
        # Quarter warps of 16 bytes a lane: eight rows meet in the same four banks.
        (COLUMN_VECTORS, [64, 64], PLAIN, 16, 7),
        (COLUMN_VECTORS, [64, 64], NVMMASharedLayout(0, 16), 16, 7),
        (COLUMN_VECTORS, [64, 64], NVMMASharedLayout(128, 16), 16, 0),
        (BlockedLayout([1], [32], [4], [0]), [1], SwizzledSharedLayout(1, 1, 1, [0]), 32, 0),
    ],
)
def test_bank_conflicts_per_wavefront(distributed, shape, shared, bits, expected):
    assert bank_conflicts(distributed, shape, shared, bits) == expected


def test_bank_conflicts_of_a_part_are_those_of_its_place_in_the_tile():
    assert bank_conflicts(COLUMN_VECTORS, [64, 8], PLAIN, 16) == 0
    assert bank_conflicts(COLUMN_VECTORS, [64, 8], PLAIN, 16, tile_shape=[64, 64]) == 7
