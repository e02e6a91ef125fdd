"""Prefix sums in one pass, by decoupled look-back (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled
Look-back", NVIDIA 2016).

A program sums a tile, publishes the sum, and looks back: it adds up what the tiles before it have published, up to the
nearest one that has published the prefix sum to its end. Then it publishes its own, and adds the prefix to its elements. So
each element is read once and written once.

Programs are persistent: while one looks back for a tile, it has published the sum of its next one, and the loads of the one
after that are in flight. This reaches 0.88 of a copy's rate on an H200 (2^28 float32), and CUB 0.73. What was measured besides:

- Without the look-back, 0.97. A poll takes 1.5 to 2.5 us. So a program looks back late, when it has published its next tile and
  almost all that it needs is there, and at 32 words at a time (128: 0.83). Waiting between polls changes nothing.
- A warp of its own that looks back at once, so that the others need not wait: 0.61 with tiles copied by cp.async, 0.69 by TMA.
  It finds less, and polls more; 0.67 if it waits 2.5 us before it looks.
- Every n-th tile for each of n programs. With tickets from a counter, of which a program holds three, 0.80, and 0.42 with the
  warp of its own: a program that catches up while others wait takes tickets that follow one another, and then everybody waits
  for its tiles, one after the other. So programs with several tiles have to run at the same time (`launch_cooperative_grid`).

What a tile publishes is one 64-bit word, state and value together: a relaxed access moves it as a whole, and nothing else needs
to be ordered. Programs of one tile each take their numbers from an atomic counter, so that they wait only for programs that
have started; with such numbers in a cooperative launch the figure is 0.82 to 0.84. The order of additions depends on how far a
program has to look back: sums of integers are exact, but sums of floats are not repeatable to the bit.
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
    """Set the words of a scan to 0: no program has a number, and no tile has published anything."""
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [LANES], [gl.num_warps()], [0]))
    gl.store(words + at, 0, mask=at < count)


@jit
def word(value, state: gl.constexpr):
    """State and value in one word."""
    high: gl.constexpr = state << 32
    return value.to(gl.uint32, bitcast=True).to(gl.int64) | high


@jit
def looked_back(words, tile, kind: gl.constexpr, LOOK: gl.constexpr):
    """The sum of all tiles of a row before number `tile`, whose words end before `words`. One warp looks at `LOOK` times 32
    tiles at a time."""
    lane = gl.lane_id()
    before = gl.to_tensor(0).to(kind)
    last = tile - 1
    going = tile > 0
    FAR: gl.constexpr = 2 * LANES * LOOK
    while going:
        found = ()
        for part in gl.static_range(LOOK):
            here = last - (part * LANES + lane)
            found = (*found, gl.load(words + (gl.maximum(here, 0) - tile), sem="relaxed"))
        # The nearest tile with no sum of its own alone: even if it has published a prefix sum, odd if nothing yet.
        nearest = gl.to_tensor(FAR)
        for part in gl.static_range(LOOK):
            at = part * LANES + lane
            # Before the first tile of the row there is nothing to add.
            state = gl.where(at <= last, (found[part] >> 32).to(gl.int32), WHOLE)
            nearest = gl.minimum(nearest, gl.where(state == PART, FAR, 2 * at + (state == 0).to(gl.int32)))
        nearest = gl.uniform(gl.warp_min(nearest), "warp")
        if nearest % 2 == 0:
            some = gl.to_tensor(0).to(kind)
            for part in gl.static_range(LOOK):
                at = part * LANES + lane
                value = found[part].to(gl.uint32).to(kind, bitcast=True)
                some += gl.where((at <= last) & (2 * at <= nearest), value, 0)
            before += gl.warp_sum(some)
            last -= LANES * LOOK
            going = nearest == FAR
    return before


@jit
def place(pointer, number, tiles, length, pitch, TILE: gl.constexpr, MANY: gl.constexpr):
    """Where tile `number` of all is in one row, or in `MANY` of them: its address, the elements from there to the end of the
    row, and its number in the row."""
    tile = number
    if MANY:
        pointer += (number // tiles).to(gl.int64) * pitch
        tile = number % tiles
    first = tile.to(gl.int64) * TILE
    return pointer + first, length - first, tile


@jit
def loaded(src, number, total, tiles, length, pitch, spread: gl.constexpr, TILE: gl.constexpr, MANY: gl.constexpr):
    """Tile `number` of all; elements beyond the end of the row are 0, and so are all of a tile that there is not."""
    source, left, _ = place(src, number, tiles, length, pitch, TILE, MANY)
    if MANY:
        left = gl.where(number < total, left, 0)
    at = gl.arange(0, TILE, spread)
    if left >= TILE:
        x = gl.load(source + at)
    else:
        x = gl.load(source + at, mask=at < gl.maximum(left, 0).to(gl.int32), other=0)
    return x


@jit
def scanned(held, sums, kind: gl.constexpr, GROUPS: gl.constexpr):
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
        sums[gl.warp_id()] = total


@jit
def scan(
    dst, src, words, length, tiles, total, dst_pitch, src_pitch,
    GROUPS: gl.constexpr, WARPS: gl.constexpr, LOOK: gl.constexpr, MANY: gl.constexpr, TOGETHER: gl.constexpr,
):  # fmt: skip
    """Prefix sums along rows of `length` elements, `tiles` tiles each and `total` in all; a row begins a pitch after the one
    before it.

    `words` are 0: the first counts programs, and each of the others is what one tile publishes. TOGETHER: all programs run at
    the same time."""
    kind: gl.constexpr = src.dtype.element_ty
    TILE: gl.constexpr = QUAD * LANES * GROUPS * WARPS
    spread: gl.constexpr = layout(GROUPS, WARPS)
    SHARED: gl.constexpr = gl.AddressSpace.SHARED
    lane, warp = gl.lane_id(), gl.warp_id()
    sums = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(WARPS), address_space=SHARED)
    starts = gl.LayoutTensor.stack_allocation(kind, gl.Layout.row_major(WARPS), address_space=SHARED)
    if TOGETHER:
        number = gl.program_id(0)
    else:
        ticket = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(1), address_space=SHARED)
        if gl.thread_idx.x == 0:
            ticket[0] = gl.atomic_add(words, 1, sem="relaxed").to(gl.int32)
        gl.barrier()
        number = gl.uniform(ticket[0])
    # The tile that is stored next (none yet), the one that is summed next, and the one that is loaded next.
    current = gl.to_tensor(-1)
    coming, step = number, gl.num_programs(0)
    y = loaded(src, coming, total, tiles, length, src_pitch, spread, TILE, MANY)
    x = gl.from_fragment(gl.fragment(y), [TILE], spread)
    upto_x, sum_x = gl.to_tensor(0).to(kind), gl.to_tensor(0).to(kind)
    at = gl.arange(0, TILE, spread)
    going = coming < total
    while going:
        held = gl.fragment(y)
        scanned(held, sums, kind, GROUPS)
        gl.barrier()
        upto, whole = upto_x, sum_x
        if warp == 0:
            upto = gl.warp_prefix_sum(gl.where(lane < WARPS, sums[lane % WARPS][0], 0))
            whole = gl.shuffle_idx(upto, LANES - 1)
            if lane == 0 and coming < total:
                gl.store(words + 1 + coming, word(whole, PART), sem="relaxed")
            if current >= 0:
                own = words + 1 + current
                tile = current % tiles if MANY else current
                before = looked_back(own, tile, kind, LOOK)
                if lane == 0:
                    gl.store(own, word(before + sum_x, WHOLE), sem="relaxed")
                start = before + gl.where(lane > 0, gl.shuffle_up(upto_x, 1), 0)
                if lane < WARPS:
                    starts[lane] = start
        # Behind the look-back in the text: the first warp's loads of words do not queue behind these.
        later = loaded(src, coming + step, total, tiles, length, src_pitch, spread, TILE, MANY)
        gl.barrier()
        if current >= 0:
            target, left, _ = place(dst, current, tiles, length, dst_pitch, TILE, MANY)
            start = starts[warp][0]
            done = gl.fragment(x)
            for i in gl.static_range(QUAD * GROUPS):
                done[i] = done[i][0] + start
            out = gl.from_fragment(done, [TILE], spread)
            if left >= TILE:
                gl.store(target + at, out)
            else:
                gl.store(target + at, out, mask=at < left.to(gl.int32))
        x, y = gl.from_fragment(held, [TILE], spread), later
        upto_x, sum_x = upto, whole
        current, coming = coming, coming + step
        going = current < total
