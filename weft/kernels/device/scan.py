"""Prefix sums in one pass: tiles are summed side by side, and one program adds up their sums for all others.

A program copies its next tiles to shared memory (cp.async, a ring of tiles), scans each as it arrives, and publishes its sum.
The first program waits for the sums of a round, a tile of each program, and answers each by the sum of all tiles before it in
its row. Meanwhile the programs scan their next tiles; when its answer has come, a program adds it to a tile's elements and
stores them. So each element is read once and written once, and the order of additions does not depend on time: float32 sums
are repeatable to the bit where as many programs run.

What a tile publishes and its answer are one 64-bit word, a mark and a value together: a relaxed access moves it as a whole,
and nothing else needs to be ordered. The mark is made of the tile's number, so a word is not taken for an earlier one of its
place. A program leaves its words zero for the next launch. All programs run at the same time (`launch_cooperative_grid`).

Measured on an H200 (2^28 float32, of a copy's rate; CUB 0.74):

- 0.93 in tiles of 32 KB of 1024 threads, 0.90 to 0.92 in tiles of 16 KB of 512, 0.76 in tiles of 8 KB; 0.93 without answers.
- With two tiles being copied and four that wait for their answers; if two wait 0.06 less, and with four being copied 0.08.
- Each warp reads the answer itself: if one does for all, at their barrier, 0.02 to 0.05 less.
- Policies of L2 cost 0.00 to 0.03 (evict_first for loads, or for stores).
- Decoupled look-back (Merrill and Garland 2016), where each program adds up what others have published, 0.88 at best: a poll
  takes 1.5 to 2.5 us, a program needs several for a tile, and the zeros of its words take a launch of their own.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.language.nvidia.ampere import async_copy

LANES = 32
QUAD = 4
"""Neighbouring elements of a thread: one access of 16 bytes."""


@gl.constexpr_function
def layout(groups: int, warps: int) -> gl.DistributedLinearLayout:
    """Each warp has consecutive elements: `groups` times 128, of which each lane has four neighbours."""
    span = QUAD * LANES
    registers = [[1], [2], *([span << i] for i in range((groups).bit_length() - 1))]
    lanes = [[QUAD << i] for i in range(5)]
    across = [[span * groups << i] for i in range(warps.bit_length() - 1)]
    return gl.DistributedLinearLayout(registers, lanes, across, [], [span * groups * warps])


@jit
def word(value, mark):
    """A mark and a value in one word."""
    return value.to(gl.uint32, bitcast=True).to(gl.int64) | (mark.to(gl.int64) << 32)


@jit
def marked(found, address, mark, kind: gl.constexpr):
    """The value of a word that has been read, or that is read again until it has this mark. Each thread has its own."""
    while (found >> 32).to(gl.int32) != mark:
        found = gl.load(address, sem="relaxed")
    return found.to(gl.uint32).to(kind, bitcast=True)


@jit
def summed(tile):
    """The mark of a tile's sum."""
    return 2 * tile + 2


@jit
def answered(tile):
    """The mark of the answer."""
    return 2 * tile + 3


@jit
def place(pointer, number, tiles, length, pitch, TILE: gl.constexpr, MANY: gl.constexpr):
    """Where tile `number` of all is in one row, or in `MANY` of them: its address, and the elements from there to the end of
    the row."""
    tile = number
    if MANY:
        pointer += (number // tiles).to(gl.int64) * pitch
        tile = number % tiles
    first = tile.to(gl.int64) * TILE
    return pointer + first, length - first


@jit
def fetch(
    memory, src, number, total, tiles, length, pitch, spread: gl.constexpr, TILE: gl.constexpr, MANY: gl.constexpr
):  # fmt: skip
    """Start to copy tile `number` of all; elements beyond the end of the row are 0, and all of a tile that there is not."""
    source, left = place(src, number, tiles, length, pitch, TILE, MANY)
    if MANY:
        left = gl.where(number < total, left, 0)
    at = gl.arange(0, TILE, spread)
    if left >= TILE:
        async_copy.async_load(memory, source + at)
    else:
        async_copy.async_load(memory, source + at, mask=at < gl.maximum(left, 0).to(gl.int32))
    async_copy.commit_group()


@jit
def scanned(held, sums, slot, kind: gl.constexpr, GROUPS: gl.constexpr):
    """Prefix sums of each warp's elements, in place; the sum of all of them goes to `sums`."""
    lane = gl.lane_id()
    for group in gl.static_range(GROUPS):
        for i in gl.static_range(1, QUAD):
            held[QUAD * group + i] = held[QUAD * group + i - 1][0] + held[QUAD * group + i][0]
    total = gl.to_tensor(0).to(kind)
    for group in gl.static_range(GROUPS):
        upto = gl.warp_prefix_sum(held[QUAD * group + QUAD - 1][0])
        below = total + gl.where(lane > 0, gl.shuffle_up(upto, 1), 0)
        for i in gl.static_range(QUAD):
            held[QUAD * group + i] = held[QUAD * group + i][0] + below
        total += gl.shuffle_idx(upto, LANES - 1)
    if lane == 0:
        sums[slot, gl.warp_id()] = total


@jit
def prefix(value, reach, UNIT: gl.constexpr, MANY: gl.constexpr):
    """Prefix sums over the lanes of a warp. With `MANY` rows a lane adds those of its row: `reach` is how far that reaches
    back, in tiles, of which a lane is `UNIT`."""
    lane = gl.lane_id()
    for i in gl.static_range(5):
        DISTANCE: gl.constexpr = 1 << i
        takes = lane >= DISTANCE
        if MANY:
            takes = takes & (reach >= DISTANCE * UNIT)
        value += gl.where(takes, gl.shuffle_up(value, DISTANCE), 0)
    return value


@jit
def answer(words, tiles, total, kind: gl.constexpr, WARPS: gl.constexpr, DEPTH: gl.constexpr, MANY: gl.constexpr):
    """Answer the sum of each tile by that of all tiles before it in its row. In a round each thread has one program's tile.

    The words of the next round are read before this one is added up: a read takes longer than the addition."""
    SHARED: gl.constexpr = gl.AddressSpace.SHARED
    sums = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(2, WARPS), address_space=SHARED)
    reaches = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(2, WARPS), address_space=SHARED)
    lane, warp, thread = gl.lane_id(), gl.warp_id(), gl.thread_idx.x
    programs = gl.num_programs(0) - 1
    mine = gl.minimum(thread, programs - 1)
    carry = gl.to_tensor(0).to(kind)
    begin, slot, turn = gl.to_tensor(0), gl.to_tensor(0), gl.to_tensor(0)
    found = gl.load(words + mine, sem="relaxed")
    while begin < total:
        number = begin + mine
        own = words + slot * programs + mine
        given = (thread < programs) & (number < total)
        value = gl.to_tensor(0).to(kind)
        if given:
            value = marked(found, own, summed(number), kind)
        slot = gl.where(slot == DEPTH - 1, 0, slot + 1)
        found = gl.load(words + slot * programs + mine, sem="relaxed")
        # How many tiles before this one are in its row. Threads without a tile continue the last one's.
        reach = number % tiles + (thread - mine) if MANY else number
        upto = prefix(value, reach, 1, MANY)
        if lane == LANES - 1:
            sums[turn, warp] = upto
            reaches[turn, warp] = reach
        gl.barrier()
        # The same over the warps: a lane has a warp, whose last tile reaches back to earlier warps, or rounds.
        far = reaches[turn, lane % WARPS][0]
        over = prefix(gl.where(lane < WARPS, sums[turn, lane % WARPS][0], 0), far, LANES, MANY)
        over += gl.where(far > LANES * lane + LANES - 1, carry, 0) if MANY else carry
        before = gl.where(warp > 0, gl.shuffle_idx(over, gl.maximum(warp - 1, 0)), carry)
        carry = gl.shuffle_idx(over, WARPS - 1)
        result = gl.where(lane > 0, gl.shuffle_up(upto, 1), 0)
        if MANY:
            result = gl.where(reach > 0, result, 0) + gl.where(reach > lane, before, 0)
        else:
            result += before
        if given:
            gl.store(own, word(result, answered(number)), sem="relaxed")
        begin += programs
        turn ^= 1


@jit
def work(
    dst, src, words, length, tiles, total, dst_pitch, src_pitch, first, step,
    GROUPS: gl.constexpr, WARPS: gl.constexpr, AHEAD: gl.constexpr, BEHIND: gl.constexpr,
    MANY: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Scan every `step`-th tile from number `first` on. Each thread copies, scans and stores its own elements, so the warps
    wait for one another only once for a tile, for their sums."""
    kind: gl.constexpr = src.dtype.element_ty
    TILE: gl.constexpr = QUAD * LANES * GROUPS * WARPS
    DEPTH: gl.constexpr = AHEAD + 1 + BEHIND
    SHARED: gl.constexpr = gl.AddressSpace.SHARED
    spread: gl.constexpr = layout(GROUPS, WARPS)
    lane, warp = gl.lane_id(), gl.warp_id()
    sums = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(DEPTH, WARPS), address_space=SHARED)
    ring = gl.allocate_shared_memory(kind, [DEPTH, TILE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    at = gl.arange(0, TILE, spread)
    for slot in gl.static_range(AHEAD):
        fetch(ring.index(slot), src, first + slot * step, total, tiles, length, src_pitch, spread, TILE, MANY)
    number, slot = first, gl.to_tensor(0)
    while number - BEHIND * step < total:
        into = slot + AHEAD
        into = gl.where(into >= DEPTH, into - DEPTH, into)
        fetch(ring.index(into), src, number + AHEAD * step, total, tiles, length, src_pitch, spread, TILE, MANY)
        async_copy.wait_group(AHEAD)
        held = gl.fragment(ring.index(slot).load(spread))
        scanned(held, sums, slot, kind, GROUPS)
        ring.index(slot).store(gl.from_fragment(held, [TILE], spread))
        gl.barrier()
        if not ALONE and warp == 0 and number < total:
            total_of_tile = gl.warp_sum(gl.where(lane < WARPS, sums[slot, lane % WARPS][0], 0))
            if lane == 0:
                gl.store(words + slot * step + first, word(total_of_tile, summed(number)), sem="relaxed")
        # The tile that was scanned BEHIND steps ago is the oldest in the ring.
        past, out = number - BEHIND * step, gl.where(into == DEPTH - 1, 0, into + 1)
        if past >= 0 and past < total:
            # What is added to the warp's elements: the sums of the warps before it, and the answer, in a lane of its own.
            start = gl.where(lane < warp, sums[out, lane % WARPS][0], 0)
            if not ALONE and lane == WARPS - 1:
                own = words + out * step + first
                start = marked(gl.load(own, sem="relaxed"), own, answered(past), kind)
            start = gl.warp_sum(start)
            target, left = place(dst, past, tiles, length, dst_pitch, TILE, MANY)
            held = gl.fragment(ring.index(out).load(spread))
            for i in gl.static_range(QUAD * GROUPS):
                held[i] = held[i][0] + start
            done = gl.from_fragment(held, [TILE], spread)
            if left >= TILE:
                gl.store(target + at, done)
            else:
                gl.store(target + at, done, mask=at < left.to(gl.int32))
        number += step
        slot = gl.where(slot == DEPTH - 1, 0, slot + 1)
    async_copy.wait_group(0)
    if not ALONE:
        gl.barrier()
        if gl.thread_idx.x < DEPTH:
            gl.store(words + gl.thread_idx.x * step + first, gl.to_tensor(0).to(gl.int64), sem="relaxed")


@jit
def scan(
    dst, src, words, length, tiles, total, dst_pitch, src_pitch,
    GROUPS: gl.constexpr, WARPS: gl.constexpr, AHEAD: gl.constexpr, BEHIND: gl.constexpr,
    MANY: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Prefix sums along rows of `length` elements, `tiles` tiles each and `total` in all; a row begins a pitch after the one
    before it. ALONE: a row has one tile.

    `words` are zero, `AHEAD + 1 + BEHIND` for each program but the first: a program has as many tiles in shared memory."""
    if ALONE:
        work(
            dst, src, words, length, tiles, total, dst_pitch, src_pitch, gl.program_id(0), gl.num_programs(0),
            GROUPS, WARPS, AHEAD, BEHIND, MANY, ALONE,
        )  # fmt: skip
    elif gl.program_id(0) == 0:
        answer(words, tiles, total, src.dtype.element_ty, WARPS, AHEAD + 1 + BEHIND, MANY)
    else:
        work(
            dst, src, words, length, tiles, total, dst_pitch, src_pitch, gl.program_id(0) - 1, gl.num_programs(0) - 1,
            GROUPS, WARPS, AHEAD, BEHIND, MANY, ALONE,
        )  # fmt: skip
