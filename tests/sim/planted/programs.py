"""Planted bugs between programs, which meet in global memory, and in the addresses and masks of their accesses."""

from __future__ import annotations

import numpy as np

import weft
from tests.sim.planted.bug import LINE, ROWS, SMEM, apart, given, plant, through_global, tile, wide
from weft import language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

N = 128
NUMBERS = np.arange(4 * N, dtype=np.int32)
ONE = np.zeros(1, np.int32)

# Reductions over programs


@weft.jit
def first_adds_up(total, x, partial, count, layout: gl.constexpr, FIXED: gl.constexpr):
    me, n = gl.program_id(0), gl.num_programs(0)
    at = gl.arange(0, 128, layout)
    gl.store(partial + me * 128 + at, gl.load(x + me * 128 + at))  # EARLIER, HERE
    # BUG: nothing says that the other programs have stored their parts when the last one adds up.
    if (gl.atomic_add(count, 1) if FIXED else me) == n - 1:
        sums = gl.zeros([128], gl.int32, layout)
        for i in range(n):
            sums += gl.load(partial + i * 128 + at)  # EARLIER, HERE
        gl.store(total + at, sums)


SUM = NUMBERS.reshape(4, N).sum(0, dtype=np.int32)
plant(
    first_adds_up, "hazard-global-race", grid=4,
    launch=given(np.full(N, -1, np.int32), SUM, NUMBERS, np.zeros(4 * N, np.int32), ONE, LINE),
)  # fmt: skip


@weft.jit
def adds_in_place(total, x, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    part = gl.load(x + gl.program_id(0) * 128 + at)
    if FIXED:
        gl.atomic_add(total + at, part)
    else:
        # BUG: between this load and this store other programs add to the total.
        gl.store(total + at, gl.load(total + at) + part)  # EARLIER, HERE


plant(adds_in_place, "hazard-global-race", grid=4, launch=given(np.zeros(N, np.int32), SUM, NUMBERS, LINE))


@weft.jit
def each_takes_a_turn(total, x, turn, layout: gl.constexpr, FIXED: gl.constexpr):
    me = gl.program_id(0)
    at = gl.arange(0, 128, layout)
    part = gl.load(x + me * 128 + at)
    while gl.load(turn, sem="acquire") != me:
        pass
    if not FIXED:
        # BUG: the turn is handed on before the total is updated.
        gl.store(turn, me + 1, sem="release")
    gl.store(total + at, gl.load(total + at) + part)  # EARLIER, HERE
    if FIXED:
        gl.store(turn, me + 1, sem="release")


plant(each_takes_a_turn, "hazard-global-race", grid=4, launch=given(np.zeros(N, np.int32), SUM, NUMBERS, ONE, LINE))

# Flags


@weft.jit
def look_back(out, x, sums, states, layout: gl.constexpr, FIXED: gl.constexpr):
    """A prefix sum over programs: each waits for the sum up to the one before it."""
    me = gl.program_id(0)
    at = gl.arange(0, 128, layout)
    values = gl.load(x + me * 128 + at)
    before = 0
    if me > 0:
        while gl.load(states + me - 1, sem="acquire") != 2:
            pass
        before = gl.load(sums + me - 1)  # HERE
    gl.store(sums + me, gl.sum(values, 0))
    if not FIXED:
        # BUG: state 2 says that the sum is that up to this program, but so far it is that of its own numbers.
        gl.store(states + me, 2, sem="release")
    gl.store(sums + me, before + gl.sum(values, 0))  # EARLIER, HERE
    if FIXED:
        gl.store(states + me, 2, sem="release")
    gl.store(out + me * 128 + at, before + gl.cumsum(values, 0))


plant(
    look_back, "hazard-global-race", grid=4,
    launch=given(
        np.full(4 * N, -1, np.int32), np.cumsum(NUMBERS, dtype=np.int32), NUMBERS, np.zeros(4, np.int32),
        np.zeros(4, np.int32), LINE,
    ),
)  # fmt: skip


@weft.jit
def waits_for_itself(out, flags, layout: gl.constexpr, FIXED: gl.constexpr):
    me, n = gl.program_id(0), gl.num_programs(0)
    at = gl.arange(0, 128, layout)
    gl.store(out + me * 128 + at, at + me)
    # BUG: the last program waits for one that does not exist.
    if me + (1 if FIXED else 0) < n:
        while gl.load(flags + me + 1, sem="acquire") == 0:  # HERE
            pass
    gl.atomic_xchg(flags + me, 1, sem="release")


plant(
    waits_for_itself, "hazard-deadlock", grid=3,
    launch=given(np.full((3, N), -1, np.int32), np.arange(3)[:, None] + np.arange(N), np.zeros(4, np.int32), LINE),
)  # fmt: skip


@weft.jit
def meets_twice(out, data, count, layout: gl.constexpr, FIXED: gl.constexpr):
    me, n = gl.program_id(0), gl.num_programs(0)
    at = gl.arange(0, 128, layout)
    value = at + me
    for turn in gl.static_range(3):
        gl.store(data + turn % 2 * n * 128 + me * 128 + at, value)  # EARLIER, HERE
        gl.atomic_add(count, 1)
        # BUG: the count is not reset, so that after the first round no program waits.
        while gl.load(count, sem="acquire") < (n * (turn + 1) if FIXED else n):
            pass
        value += gl.load(data + turn % 2 * n * 128 + (me + 1) % n * 128 + at)  # EARLIER, HERE
    gl.store(out + me * 128 + at, value)


def met() -> np.ndarray:
    value = np.arange(3)[:, None] + np.arange(N)
    for _ in range(3):
        value = value + np.roll(value, -1, 0)
    return value.astype(np.int32)


plant(
    meets_twice, "hazard-global-race", grid=3,
    launch=given(np.full((3, N), -1, np.int32), met(), np.zeros((2, 3, N), np.int32), ONE, LINE),
)  # fmt: skip


@weft.jit
def stored_by_tma(out, x, desc, data, flag, layout: gl.constexpr, FIXED: gl.constexpr):
    if gl.program_id(0) == 0:
        values = gl.load(x + tile(0, layout))
        if FIXED:
            gl.store(data + tile(0, layout), values)
        else:
            buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
            buffer.store(values)
            tma.async_copy_shared_to_global(desc, [0, 0], buffer)  # EARLIER
            # BUG: this waits until the store has read shared memory, not until global memory has what it wrote.
            tma.store_wait(pendings=0)
        gl.store(flag, 1, sem="release")
    else:
        while gl.load(flag, sem="acquire") == 0:
            pass
        gl.store(out + tile(0, layout), gl.load(data + tile(0, layout)))  # HERE


plant(stored_by_tma, "hazard-global-stored", grid=2, launch=lambda: through_global(ONE.copy(), ROWS)())


@weft.jit
def loaded_by_tma(out, x, desc, data, layout: gl.constexpr, FIXED: gl.constexpr):
    gl.store(data + tile(0, layout), gl.load(x + tile(0, layout)))  # EARLIER
    if FIXED:
        gl.store(out + tile(0, layout), gl.load(data + tile(0, layout)))
    else:
        buffer = gl.allocate_shared_memory(desc.dtype, desc.block_shape, desc.layout)
        bar = mbarrier.allocate_mbarrier()
        mbarrier.init(bar, count=1)
        gl.barrier()
        fence_async_shared()
        mbarrier.expect(bar, desc.block_type.nbytes)
        # BUG: the fence is one of shared memory; global memory that threads wrote is not handed to TMA.
        tma.async_load(desc, [0, 0], bar, buffer)  # HERE
        mbarrier.wait(bar, 0)
        gl.store(out + tile(0, layout), buffer.load(layout))


plant(loaded_by_tma, "hazard-global-fence", launch=through_global(ROWS))

# Work that programs share


@weft.jit
def counts_by_hand(out, counter, tiles, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if FIXED:
        mine = gl.atomic_add(counter, 1)
    else:
        # BUG: two programs may load the same number before one of them stores the next.
        mine = gl.load(counter)  # EARLIER, HERE
        gl.store(counter, mine + 1)  # EARLIER, HERE
    while mine < tiles:
        gl.store(out + mine * 128 + at, at + mine)
        if FIXED:
            mine = gl.atomic_add(counter, 1)
        else:
            mine = gl.load(counter)  # EARLIER, HERE
            gl.store(counter, mine + 1)  # EARLIER, HERE


COUNTED = np.arange(5)[:, None] + np.arange(N)
plant(
    counts_by_hand, "hazard-global-race", "hazard-global-thread-race", grid=2,
    launch=given(np.full((5, N), -1, np.int32), COUNTED, ONE, 5, LINE),
)  # fmt: skip


@weft.jit
def resets_the_counter(out, counter, left, tiles, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    mine = gl.atomic_add(counter, 1)  # EARLIER, HERE
    while mine < tiles:
        gl.store(out + mine * 128 + at, at + mine)
        mine = gl.atomic_add(counter, 1)  # EARLIER, HERE
    # BUG: the first one that finds no tile left resets the counter, but the others have yet to look.
    if (gl.atomic_add(left, 1) == gl.num_programs(0) - 1) if FIXED else mine == tiles:
        gl.store(counter, 0)  # EARLIER, HERE


plant(
    resets_the_counter, "hazard-global-race", grid=3,
    launch=given(np.full((5, N), -1, np.int32), COUNTED, ONE, ONE, 5, LINE),
)  # fmt: skip


@weft.jit
def halo_of_the_neighbour(x, old, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    # BUG: the elements beside this program's part are its neighbours', which write them in this launch.
    src = old if FIXED else x
    left = gl.load(src + at - 1, mask=at > 0, other=0)  # EARLIER, HERE
    right = gl.load(src + at + 1, mask=at < 511, other=0)  # EARLIER, HERE
    gl.barrier()
    gl.store(x + at, left + right)  # EARLIER, HERE


PADDED = np.pad(NUMBERS, 1)
plant(
    halo_of_the_neighbour, "hazard-global-race", grid=4, launch=given(NUMBERS, PADDED[:-2] + PADDED[2:], NUMBERS, LINE)
)


@weft.jit
def sizes_overlap(out, layout: gl.constexpr, FIXED: gl.constexpr):
    # BUG: a tile has 128 elements, the programs' parts begin at multiples of 100.
    at = gl.program_id(0) * (128 if FIXED else 100) + gl.arange(0, 128, layout)
    gl.store(out + at, gl.program_id(0))  # EARLIER, HERE


plant(sizes_overlap, "hazard-global-race", grid=4, launch=given(np.full(4 * N, -1, np.int32), NUMBERS // N, LINE))


@weft.jit
def weights_by_bin(bins, keys, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    key = gl.load(keys + at)
    if FIXED:
        gl.atomic_add(bins + key, at)
    else:
        # BUG: several elements of the tile have the same key, and one of their sums stays.
        gl.store(bins + key, gl.load(bins + key) + at)  # EARLIER, HERE


KEYS = (np.arange(N) * 5 % 16).astype(np.int32)
plant(
    weights_by_bin, "hazard-global-store-race", "hazard-global-thread-race",
    launch=given(np.zeros(16, np.int32), np.bincount(KEYS, np.arange(N)).astype(np.int32), KEYS, LINE),
)  # fmt: skip

# Masks and addresses


@weft.jit
def one_too_many(out, x, n, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    # BUG: the last index is n - 1.
    inside = at < n if FIXED else at <= n
    gl.store(out + at, gl.load(x + at, mask=inside, other=0) + 1, mask=at < n)  # HERE


plant(
    one_too_many,
    "hazard-out-of-bounds",
    grid=2,
    launch=given(np.zeros(200, np.int32), np.arange(200) + 1, NUMBERS[:200], 200, LINE),
)


@weft.jit
def before_the_first(out, x, n, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    # BUG: the mask is about the element, but the load is of the one before it.
    inside = (at >= 1 if FIXED else at >= 0) & (at <= n)
    left = gl.load(x + at - 1, mask=inside, other=0)  # HERE
    gl.store(out + at, left, mask=at < n)


plant(
    before_the_first, "hazard-out-of-bounds", grid=2,
    launch=given(np.full(200, -1, np.int32), np.pad(NUMBERS[:199], (1, 0)), NUMBERS[:200], 200, LINE),
)  # fmt: skip


@weft.jit
def rows_for_columns(out, x, rows, columns, layout: gl.constexpr, FIXED: gl.constexpr):
    i = gl.arange(0, 16, gl.SliceLayout(1, layout))[:, None]
    j = gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    # BUG: the two limits have changed places.
    inside = (i < rows) & (j < columns) if FIXED else (i < columns) & (j < rows)
    at = i * columns + j
    gl.store(out + at, gl.load(x + at, mask=inside, other=0.0), mask=inside)  # HERE


MATRIX = np.arange(9 * 20, dtype=np.float32).reshape(9, 20)
plant(
    rows_for_columns,
    "hazard-out-of-bounds",
    launch=given(np.full((9, 20), np.nan, np.float32), MATRIX, MATRIX, 9, 20, ROWS),
)


@weft.jit
def wide_numbers(out, blocks, n, layout: gl.constexpr, FIXED: gl.constexpr):
    block = gl.load(blocks + gl.program_id(0))
    # BUG: numbers of blocks up to 2 ** 26 times 64 elements need more than 32 bits.
    start = block.to(gl.int64) * 64 if FIXED else block * 64  # HERE
    at = start + gl.arange(0, 64, layout)
    gl.store(out + at, gl.program_id(0), mask=at < n)  # EARLIER


plant(
    wide_numbers, "hazard-wrapped-offset", grid=3,
    launch=given(
        np.full(128, -1, np.int32), np.arange(128) // 64, np.array([0, 1, 1 << 26], np.int32), 128,
        gl.BlockedLayout([1], [32], [2], [0]),
    ),
    num_warps=2,
)  # fmt: skip


@weft.jit
def masked_off_and_added(out, x, n, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout)
    if FIXED:
        values = gl.load(x + at, mask=at < n, other=0)
    else:
        # BUG: the elements that are masked off have no value, and the sum takes all.
        values = gl.load(x + at, mask=at < n)  # EARLIER
    gl.store(out, gl.sum(values, 0))  # HERE


plant(
    masked_off_and_added,
    "hazard-undefined",
    launch=given(np.zeros(1, np.int32), [np.arange(100).sum()], NUMBERS[:100], 100, LINE),
)


@weft.jit
def steps_promised_contiguous(out, x, stride, layout: gl.constexpr, FIXED: gl.constexpr):
    at = gl.arange(0, 128, layout) * stride
    if not FIXED:
        # BUG: the elements are neighbours only if the stride is one.
        at = gl.max_contiguous(at, 4)  # HERE
    gl.store(out + gl.arange(0, 128, layout), gl.load(x + at))


# One element a thread has no use for the promise, so that lowered IR has dropped it.
plant(
    steps_promised_contiguous, "hazard-hint", lowered=False,
    launch=given(np.zeros(N, np.int32), np.arange(N) * 2, NUMBERS, 2, LINE),
)  # fmt: skip


@weft.jit
def more_rows_than_there_are(out, x, rows, smem: gl.constexpr, layout: gl.constexpr, FIXED: gl.constexpr):
    # BUG: the rows are rounded up to whole tiles, so that TMA no longer leaves out those beyond the end.
    known = rows if FIXED else gl.cdiv(rows, 16) * 16
    desc = tma.make_tensor_descriptor(x, [known, 32], [32, 1], [16, 32], smem)
    buffer = gl.allocate_shared_memory(gl.float32, [16, 32], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, desc.block_type.nbytes)
    tma.async_load(desc, [0, 0], bar, buffer)  # HERE
    mbarrier.wait(bar, 0)
    gl.store(out + tile(0, layout), buffer.load(layout))


TEN = apart(wide(1))[0, :10]
plant(
    more_rows_than_there_are, "hazard-tensor-range",
    launch=given(np.full((16, 32), np.nan, np.float32), np.pad(TEN, ((0, 6), (0, 0))), TEN, 10, SMEM, ROWS),
)  # fmt: skip


@weft.jit
def descriptor_of_the_next_group(out, x, groups, smem: gl.constexpr, layout: gl.constexpr, FIXED: gl.constexpr):
    buffers = gl.allocate_shared_memory(gl.float32, [2, 16, 32], smem)
    bars = mbarrier.allocate_mbarrier(batch=2)
    for slot in gl.static_range(2):
        mbarrier.init(bars.index(slot), count=1)
    for group in range(groups + 1):
        if FIXED and group > 0:
            mbarrier.wait(bars.index((group + 1) % 2), (group - 1) // 2 & 1)
        if group < groups:
            # BUG: the load of the last group still reads the descriptor in whose place this line makes the next.
            desc = tma.make_tensor_descriptor(x + group * 512, [16, 32], [32, 1], [16, 32], smem)  # HERE
            mbarrier.expect(bars.index(group % 2), desc.block_type.nbytes)
            tma.async_load(desc, [0, 0], bars.index(group % 2), buffers.index(group % 2))  # EARLIER
        if group > 0:
            mbarrier.wait(bars.index((group + 1) % 2), (group - 1) // 2 & 1)
            gl.store(out + tile(group - 1, layout), buffers.index((group + 1) % 2).load(layout))


GROUPS = apart(wide(3))
plant(
    descriptor_of_the_next_group, "hazard-descriptor-in-use",
    launch=given(np.full((3, 16, 32), np.nan, np.float32), GROUPS, GROUPS, 3, SMEM, ROWS),
)  # fmt: skip
