"""Prefix sums in one pass, by decoupled look-back (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
Look-back", NVIDIA 2016).

A program sums its tile, publishes the sum, and looks back: it adds up what the tiles before it have published, up to the
nearest one that has published the prefix sum to its end. Then it publishes its own, and adds the prefix to its elements. So
each element is read once and written once.

What a tile publishes is one 64-bit word, state and value together: a relaxed access moves it as a whole, and nothing else needs
to be ordered. The number of a tile is a ticket from an atomic counter, so that all tiles before it belong to programs that have
started. The order of additions depends on how far a program has to look back: sums of integers are exact, but sums of floats
are not repeatable to the bit.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit

PART, WHOLE = 1, 2
"""States of a tile: its own sum is known, or the prefix sum up to its end. 0: nothing yet."""
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
def clear(words, count, BLOCK: gl.constexpr):
    """Set the words of a scan to 0: no ticket is taken, and no tile has published anything."""
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0]))
    gl.store(words + at, 0, mask=at < count)


@jit
def word(value, state: gl.constexpr):
    """State and value in one word."""
    high: gl.constexpr = state << 32
    return value.to(gl.uint32, bitcast=True).to(gl.int64) | high


@jit
def looked_back(words, tile, kind: gl.constexpr):
    """The sum of all tiles of a row before number `tile`, whose words end before `words`. One warp looks at 32 tiles at a
    time."""
    lane = gl.lane_id()
    before = gl.to_tensor(0).to(kind)
    last = tile - 1
    going = tile > 0
    while going:
        here = last - lane
        # Before the first tile of the row there is nothing to add.
        found = gl.load(words + (gl.maximum(here, 0) - tile), sem="relaxed")
        state = gl.where(here >= 0, (found >> 32).to(gl.int32), WHOLE)
        value = gl.where(here >= 0, found.to(gl.uint32).to(kind, bitcast=True), 0)
        # The nearest tile with no sum of its own alone: even if it has published a prefix sum, odd if nothing yet.
        nearest = gl.where(state == PART, 2 * LANES, 2 * lane + (state == 0).to(gl.int32))
        nearest = gl.uniform(gl.warp_min(nearest), "warp")
        if nearest % 2 == 0:
            before += gl.warp_sum(gl.where(2 * lane <= nearest, value, 0))
            last -= LANES
            going = nearest == 2 * LANES
    return before


@jit
def scan(dst, src, words, length, tiles, dst_pitch, src_pitch, GROUPS: gl.constexpr, WARPS: gl.constexpr):
    """Prefix sums along rows of `length` elements, `tiles` tiles each; a row begins a pitch after the one before it.

    `words` are 0: the first counts tickets, and each of the others is what one tile publishes."""
    kind: gl.constexpr = src.dtype.element_ty
    TILE: gl.constexpr = QUAD * LANES * GROUPS * WARPS
    spread: gl.constexpr = layout(GROUPS, WARPS)
    lane, warp = gl.lane_id(), gl.warp_id()
    SHARED: gl.constexpr = gl.AddressSpace.SHARED
    number = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(1), address_space=SHARED)
    sums = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(WARPS), address_space=SHARED)
    starts = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(WARPS), address_space=SHARED)
    if gl.thread_idx.x == 0:
        number[0] = gl.atomic_add(words, 1, sem="relaxed").to(gl.int32)
    gl.barrier()
    ticket = gl.uniform(number[0])
    row, tile = ticket // tiles, ticket % tiles
    own = words + 1 + ticket
    first = tile.to(gl.int64) * TILE
    source, target = src + row.to(gl.int64) * src_pitch + first, dst + row.to(gl.int64) * dst_pitch + first
    left = length - first
    at = gl.arange(0, TILE, spread)
    if left >= TILE:
        x = gl.load(source + at)
    else:
        x = gl.load(source + at, mask=at < left.to(gl.int32), other=0)
    held = gl.fragment(x)
    for group in gl.static_range(GROUPS):
        for i in gl.static_range(1, QUAD):
            held[QUAD * group + i] = held[QUAD * group + i - 1][0] + held[QUAD * group + i][0]
    # The sum of a warp's elements before each of a thread's groups.
    total = gl.to_tensor(0).to(kind)
    below = ()
    for group in gl.static_range(GROUPS):
        upto = gl.warp_prefix_sum(held[QUAD * group + QUAD - 1][0])
        below = (*below, total + gl.where(lane > 0, gl.shuffle_up(upto, 1), 0))
        total += gl.shuffle_idx(upto, LANES - 1)
    if lane == 0:
        sums[warp] = total
    gl.barrier()
    if warp == 0:
        upto = gl.warp_prefix_sum(gl.where(lane < WARPS, sums[lane % WARPS][0], 0))
        whole = gl.shuffle_idx(upto, LANES - 1)
        if lane == 0:
            if tile == 0:
                gl.store(own, word(whole, WHOLE), sem="relaxed")
            else:
                gl.store(own, word(whole, PART), sem="relaxed")
        before = looked_back(own, tile, kind)
        if lane == 0 and tile > 0:
            gl.store(own, word(before + whole, WHOLE), sem="relaxed")
        start = before + gl.where(lane > 0, gl.shuffle_up(upto, 1), 0)
        if lane < WARPS:
            starts[lane] = start
    gl.barrier()
    start = starts[warp][0]
    for group in gl.static_range(GROUPS):
        for i in gl.static_range(QUAD):
            held[QUAD * group + i] = held[QUAD * group + i][0] + (start + below[group])
    y = gl.from_fragment(held, [TILE], spread)
    if left >= TILE:
        gl.store(target + at, y)
    else:
        gl.store(target + at, y, mask=at < left.to(gl.int32))
