"""Collective operations between the ranks of a group, in kernels: sums and copies over symmetric tensors.

Program i of a rank and program i of every other rank work together, and signal each other on flag i; nothing orders them with
other programs. Sums add in the order of the ranks, so that every rank gets the same bits. How many programs there are, and
which kernel runs, is decided in `weft.kernels.distributed`.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.chain import in_turn


@jit
def tell(x: gl.symmetric, flag):
    """Signal program `flag` of every rank."""
    if x.world_size & (x.world_size - 1):
        for rank in gl.static_range(x.world_size):
            gl.signal(x, rank, flag)
    else:
        gl.signal(x, gl.arange(0, x.world_size, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), flag)


@jit
def hear(x: gl.symmetric, flag):
    """Wait for a signal of program `flag` of every rank."""
    if x.world_size & (x.world_size - 1):
        for rank in gl.static_range(x.world_size):
            gl.wait_signal(x, rank, flag)
    else:
        gl.wait_signal(x, gl.arange(0, x.world_size, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])), flag)


@jit
def meet(x: gl.symmetric, flag):
    """Program `flag` of every rank gets here before it goes on on any rank, and knows what the others did before."""
    tell(x, flag)
    hear(x, flag)


@jit
def signal_flags(x: gl.symmetric, rank, first, COUNT: gl.constexpr):
    """Signal COUNT flags from `first` on: a tile for each bit of COUNT."""
    for bit in gl.static_range(12):
        SIZE: gl.constexpr = 1 << bit
        if COUNT & SIZE:
            flags = gl.arange(0, SIZE, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
            gl.signal(x, rank, first + COUNT // (2 * SIZE) * (2 * SIZE) + flags)


@jit
def meeting(x: gl.symmetric):
    """A launch of its own: what a rank's stream was given before happens before what any rank's is given afterwards."""
    meet(x, 0)


@jit(do_not_specialize=["chunks"])
def expect_chunks(words: gl.symmetric, chunks, ROOM: gl.constexpr):
    """Before rows are gathered (`weft.kernels.device.arrivals`): of all ranks' `chunks` only those of this rank are there. No
    rank sends any before it has met this one."""
    at = gl.arange(0, ROOM, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    gl.store(words.local + at, (at // chunks == words.rank).to(gl.int32), at < chunks * words.world_size)
    meet(words, 0)


@jit
def added(parts, SUM: gl.constexpr):
    """The sum of tiles in their order, in type SUM."""
    total = parts[0].to(SUM)
    for k in gl.static_range(1, len(parts)):
        total += parts[k].to(SUM)
    return total


@jit
def sum_of_ranks(x: gl.symmetric, at, inside, SUM: gl.constexpr):
    """The sum over all ranks of these elements, in type SUM.

    All loads come first: with sums between them ptxas reused the registers of one rank's elements for another's, and six of
    eight loads waited for the one before (read in the machine code for sm_90a, CUDA 13.0)."""
    parts = ()
    for rank in gl.static_range(x.world_size):
        parts += (gl.load(x.peer(rank) + at, inside, 0),)
    return added(parts, SUM)


@jit
def one_shot(x: gl.symmetric, n, LINE: gl.constexpr, BLOCK: gl.constexpr, SUM: gl.constexpr, CHAINED: gl.constexpr):
    """x = the sum over all ranks, in place. A program reads its block of every rank, so all bytes travel to all ranks."""
    if CHAINED:
        in_turn()
    flag = gl.program_id(0)
    at = flag * BLOCK + gl.arange(0, BLOCK, LINE)
    meet(x, flag)
    total = sum_of_ranks(x, at, at < n, SUM)
    meet(x, flag)
    gl.store(x.local + at, total.to(x.dtype), at < n)


@jit
def numbers_of(bits, like: gl.constexpr, SUM: gl.constexpr):
    """The numbers of such bits, as a tuple of one or two tiles in type SUM."""
    if like.primitive_bitwidth == 32:
        return (bits.to(like, bitcast=True).to(SUM),)
    low, high = bits.to(gl.int16), (bits >> 16).to(gl.int16)
    return low.to(like, bitcast=True).to(SUM), high.to(like, bitcast=True).to(SUM)


@jit
def pushed(
    x: gl.symmetric, inbox: gl.symmetric, turns: gl.symmetric, n, ROOM: gl.constexpr, LINE: gl.constexpr,
    BLOCK: gl.constexpr, SUM: gl.constexpr, CHAINED: gl.constexpr,
):  # fmt: skip
    """x = the sum over all ranks, in place, with one way between ranks instead of two there and back: each rank stores its
    numbers in the inboxes of all ranks, 32 bits of them beside the number of the turn in one access of 64 bits, so that who
    sees the turn sees the numbers, and nothing else orders them.

    An inbox [2, world_size, ROOM] has room for two turns: no rank begins its turn t + 2 before it has the numbers of all
    others' turn t + 1, and these have ended turn t by then. `turns` counts those of each program, which has the same words in
    all turns: otherwise a word might be from another program's turn of the same number. `n` and ROOM count words of 32 bits."""
    if CHAINED:
        in_turn()
    program, at = gl.program_id(0), gl.arange(0, BLOCK, LINE)
    turn = gl.load(turns.local + program) + 1
    place = program * BLOCK + at
    inside = place < n
    word = gl.load(x.local.to(gl.pointer_type(gl.int32), bitcast=True) + place, inside, 0)
    # Elements beyond the end wait for the program's first word.
    place = gl.where(inside, place, program * BLOCK) + (turn & 1) * x.world_size * ROOM
    told = turn.to(gl.int64) << 32
    for rank in gl.static_range(x.world_size):
        sent = told | word.to(gl.int64) & 0xFFFFFFFF
        gl.atomic_store(inbox.peer(rank) + (x.rank * ROOM + place), sent, inside, sem="relaxed", scope="sys")
    for rank in gl.static_range(x.world_size):
        gl.wait_value(inbox, rank * ROOM + place, told, at_least=True, sem="relaxed")
    totals = ()
    for rank in gl.static_range(x.world_size):
        seen = gl.atomic_load(inbox.local + (rank * ROOM + place), sem="relaxed", scope="sys")
        parts = numbers_of(seen.to(gl.int32), x.dtype, SUM)
        if rank == 0:
            totals = parts
        else:
            sums = ()
            for k in gl.static_range(len(parts)):
                sums += (totals[k] + parts[k],)
            totals = sums
    stored = totals[0].to(x.dtype)
    if len(totals) == 2:
        low = stored.to(gl.int16, bitcast=True).to(gl.int32) & 0xFFFF
        stored = low | totals[1].to(x.dtype).to(gl.int16, bitcast=True).to(gl.int32) << 16
    else:
        stored = stored.to(gl.int32, bitcast=True)
    gl.store(x.local.to(gl.pointer_type(gl.int32), bitcast=True) + (program * BLOCK + at), stored, inside)
    gl.store(turns.local + program, turn)


@jit
def two_shot(
    x: gl.symmetric, first, n, share, LINE: gl.constexpr, BLOCK: gl.constexpr, SUM: gl.constexpr, CHAINED: gl.constexpr
):
    """n elements of x, from `first` on, = the sum over all ranks, in place. Each rank adds up its share of them, and stores it
    on every rank."""
    if CHAINED:
        in_turn()
    flag = gl.program_id(0)
    meet(x, flag)
    for block in range(flag, gl.cdiv(share, BLOCK), gl.num_programs(0)):
        own = block * BLOCK + gl.arange(0, BLOCK, LINE)
        at = x.rank * share + own
        inside = (own < share) & (at < n)
        total = sum_of_ranks(x, first + at, inside, SUM).to(x.dtype)
        for rank in gl.static_range(x.world_size):
            gl.store(x.peer(rank) + (first + at), total, inside)
    meet(x, flag)


@jit
def pushed_shares(
    x: gl.symmetric, room: gl.symmetric, first, n, share, LINE: gl.constexpr, BLOCK: gl.constexpr, STEP: gl.constexpr,
    SUM: gl.constexpr, CHAINED: gl.constexpr,
):  # fmt: skip
    """n elements of x, from `first` on, = the sum over all ranks, in place, as by `two_shot`, with stores alone, which links
    carry faster than loads: each rank stores the others' shares in their rooms, [world_size - 1, share] elements, adds up its
    own, and stores the sums on every rank.

    A program stores STEP blocks, and adds up the STEP blocks before them, whose signals are in flight meanwhile. Its last
    `meet` ends the use of the rooms, too: the next launch stores in them at once."""
    if CHAINED:
        in_turn()
    flag = gl.program_id(0)
    each = gl.num_programs(0) * STEP * BLOCK
    steps = gl.cdiv(share, each)
    slots = room.local.to(gl.pointer_type(x.dtype), bitcast=True)
    for step in range(steps + 1):
        if step < steps:
            for k in gl.static_range(STEP):
                at = step * each + (k * gl.num_programs(0) + flag) * BLOCK + gl.arange(0, BLOCK, LINE)
                for rank in gl.static_range(x.world_size):
                    inside = (at < share) & (rank * share + at < n)
                    if rank != x.rank:
                        slot = x.rank - (x.rank > rank).to(gl.int32)
                        there = room.peer(rank).to(gl.pointer_type(x.dtype), bitcast=True) + slot * share
                        gl.store(there + at, gl.load(x.local + first + rank * share + at, inside), inside)
            tell(x, flag)
        if step > 0:
            hear(x, flag)
            for k in gl.static_range(STEP):
                at = (step - 1) * each + (k * gl.num_programs(0) + flag) * BLOCK + gl.arange(0, BLOCK, LINE)
                inside = (at < share) & (x.rank * share + at < n)
                own = x.local + first + x.rank * share
                parts = ()
                for rank in gl.static_range(x.world_size):
                    slot = rank - (rank > x.rank).to(gl.int32)
                    parts += (gl.load(gl.where(rank == x.rank, own, slots + slot * share) + at, inside, 0),)
                total = added(parts, SUM).to(x.dtype)
                for rank in gl.static_range(x.world_size):
                    gl.store(x.peer(rank) + first + x.rank * share + at, total, inside)
    meet(x, flag)


@jit
def one_shot_multicast(x: gl.symmetric, n, LINE: gl.constexpr, BLOCK: gl.constexpr):
    """As `one_shot`, where the switch adds up: each element travels to each rank once."""
    flag = gl.program_id(0)
    at = flag * BLOCK + gl.arange(0, BLOCK, LINE)
    meet(x, flag)
    total = gl.multimem_ld_reduce(x.multicast + at, at < n)
    meet(x, flag)
    gl.store(x.local + at, total, at < n)


@jit
def two_shot_multicast(x: gl.symmetric, first, n, share, LINE: gl.constexpr, BLOCK: gl.constexpr):
    """As `two_shot`, where the switch adds up, and copies what a rank stores to all ranks."""
    flag = gl.program_id(0)
    meet(x, flag)
    for block in range(flag, gl.cdiv(share, BLOCK), gl.num_programs(0)):
        own = block * BLOCK + gl.arange(0, BLOCK, LINE)
        at = x.rank * share + own
        inside = (own < share) & (at < n)
        all_ranks = x.multicast + (first + at)
        gl.multimem_st(all_ranks, gl.multimem_ld_reduce(all_ranks, inside), inside)
    meet(x, flag)


@jit
def gather(x, out: gl.symmetric, n, LINE: gl.constexpr, BLOCK: gl.constexpr):
    """out[rank] = x of each rank, on every rank: each stores its own x everywhere."""
    flag = gl.program_id(0)
    meet(out, flag)
    for block in range(flag, gl.cdiv(n, BLOCK), gl.num_programs(0)):
        at = block * BLOCK + gl.arange(0, BLOCK, LINE)
        value = gl.load(x + at, at < n)
        for rank in gl.static_range(out.world_size):
            gl.store(out.peer(rank) + out.rank.to(gl.int64) * n + at, value, at < n)
    meet(out, flag)


@jit
def scatter_sums(x: gl.symmetric, out, n, LINE: gl.constexpr, BLOCK: gl.constexpr, SUM: gl.constexpr):
    """out = the sum over all ranks of x[rank], the own part."""
    flag = gl.program_id(0)
    meet(x, flag)
    for block in range(flag, gl.cdiv(n, BLOCK), gl.num_programs(0)):
        at = block * BLOCK + gl.arange(0, BLOCK, LINE)
        total = sum_of_ranks(x, x.rank.to(gl.int64) * n + at, at < n, SUM)
        gl.store(out + at, total.to(x.dtype), at < n)
    meet(x, flag)


@jit
def normalised(total, residual, weight, out, row, at, inside, d, eps, STORED: gl.constexpr):
    """Store h = total + residual to `residual`, and h / sqrt(mean of squares + eps) * weight to a row of `out`."""
    h = total
    if residual is not None:
        h += gl.load(residual + row * d + at, inside, 0).to(gl.float32)
        stored = h.to(STORED)
        gl.store(residual + row * d + at, stored, inside)
        # What is normalised is what a reader of the residual sees.
        h = stored.to(gl.float32)
    y = h * gl.rsqrt(gl.sum(h * h) / d.to(gl.float32) + eps)
    if weight is not None:
        y *= gl.load(weight + at, inside, 0).to(gl.float32)
    gl.store(out + row * d + at, y.to(STORED), inside)


@jit
def one_shot_norm(x: gl.symmetric, residual, weight, out, rows, d, eps, LINE: gl.constexpr, BLOCK: gl.constexpr):
    """RMSNorm of the sum of x over all ranks and a residual; every rank reads and normalises all rows."""
    flag, at = gl.program_id(0), gl.arange(0, BLOCK, LINE)
    meet(x, flag)
    for row in range(flag, rows, gl.num_programs(0)):
        total = sum_of_ranks(x, row * d + at, at < d, gl.float32)
        normalised(total, residual, weight, out, row, at, at < d, d, eps, x.dtype)
    meet(x, flag)


@jit
def two_shot_norm(x: gl.symmetric, residual, weight, out, rows, d, eps, LINE: gl.constexpr, BLOCK: gl.constexpr):
    """RMSNorm of the sum of x over all ranks and a residual. Of each run of world_size rows, every rank adds up one and stores
    it on all ranks, in x; then each normalises the run's rows."""
    flag, at = gl.program_id(0), gl.arange(0, BLOCK, LINE)
    runs = gl.cdiv(rows, x.world_size)
    meet(x, flag)
    for run in range(flag, runs, gl.num_programs(0)):
        row = run * x.world_size + x.rank
        inside = (at < d) & (row < rows)
        total = sum_of_ranks(x, row * d + at, inside, gl.float32).to(x.dtype)
        for rank in gl.static_range(x.world_size):
            gl.store(x.peer(rank) + (row * d + at), total, inside)
    meet(x, flag)
    for run in range(flag, runs, gl.num_programs(0)):
        for row in range(run * x.world_size, min(run * x.world_size + x.world_size, rows)):
            total = gl.load(x.local + (row * d + at), at < d, 0).to(gl.float32)
            normalised(total, residual, weight, out, row, at, at < d, d, eps, x.dtype)
