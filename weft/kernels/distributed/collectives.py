"""All-reduce, all-gather and reduce-scatter, one launch per rank; the kernels are in `weft.kernels.device.ranks`."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from weft import language as gl
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import ranks
from weft.kernels.distributed.operands import (
    MOST_PROGRAMS,
    SUMS,
    WARPS,
    Flat,
    Launch,
    chained,
    check_shape,
    flat,
    refuse_shape,
    remember,
    remembered,
    summed,
    symmetric,
)
from weft.kernels.distributed.rooms import capturing, has_room, room_of
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.plain import one_of
from weft.runtime.arguments import array
from weft.runtime.dtypes import ITEMSIZE

Method = Literal["one_shot", "two_shot"]
ReduceMethod = Literal[Method, "pushed", "one_shot_multicast", "two_shot_multicast"]
PUSHED_WORDS = 1 << 16
"""Words of 32 bits for which a rank has room in another's inbox: 1 MiB with both turns and the numbers of turns."""
PUSHED_BLOCK = 512
"""Words of a program, in all turns: two accesses of 8 bytes of each of 256 threads. The 128 programs of the largest sum fit on
any GPU at once."""
PUSHED = ("float16", "bfloat16", "float32", "int32")
ONE_SHOT_BYTES = 1 << 18
"""Tensors of at most this many bytes are reduced in one shot: PyTorch's operators change over at this size, too."""
STORED = 1 << 26
"""One launch pushes at most so many bytes of a tensor by stores, which bounds the rooms."""
LEAST_ROOM = 1 << 20
"""Bytes of the smallest room for shares."""
STORED_STEP = 8
"""Blocks that a program stores before it signals."""
STORED_PROGRAMS = 128
"""Programs that store large shares to peers: 64 of them reach 350 GB/s each way between two H200, 128 reach 358 (loads: 327).
Up to 4 blocks of a program, 64 meet sooner."""
LOADED = 1 << 30
"""Elements of a tensor that are added up by one launch of loads, whose offsets have 32 bits."""
SHARES = 16
"""The share of each rank in a two-shot sum is a multiple of this many elements, so that kernels know all shares to be aligned.
So is the length of a tensor that is reduced by multicast."""
METHODS = get_args(ReduceMethod)
REGISTERS = 128
"""Most registers of a thread of the sums. By itself ptxas takes 32, and waits for the elements of one rank before it
loads those of the next (seen with CUDA 13.0 for sm_90a)."""


def all_reduce(x: Symmetric, *, method: ReduceMethod | None = None, stream: Any = None) -> Any:
    """Add up `x` over all ranks, in place; returns its tensor.

    `method`: "one_shot" reads the whole tensor of every rank; in "two_shot" each rank reads one share of all ranks, adds it up
    and stores it on all. "pushed" only stores, which saves latencies and which links carry faster: up to 256 KiB of elements
    of 16 or 32 bits, whose bytes and address are multiples of 4, in one shot, anything else in two. It has symmetric memory
    of its own on every rank: world_size MiB for one shot, and for two the tensor's bytes as a power of two from 1 to 64 MiB,
    unless a larger sum has made more. The first call on a group that needs it makes it, and is not captured in a graph. None
    chooses by size, and where a graph is captured by what memory there is. Elements are float16, bfloat16 (added in
    float32), float32, float64, int32 or int64, added in the order of the ranks, so that every rank gets the same bits.

    "one_shot_multicast" and "two_shot_multicast" let the switch add up (NVLink multicast), where the group has multicast
    addresses and the number of elements is a multiple of 16. The order of the sums is the hardware's; in two shots all ranks
    get the same bits, in one shot that is not promised. Compiled and simulated, not run on GPUs.

    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-method,
    kernels-ranks-multicast, kernels-ranks-capture.
    """
    key = "all_reduce", repr(method)
    found: list[Launch] | None = remembered(x, key)
    if found is None:
        found = _sums(x, method)
        # What a graph captures may have been chosen for want of room.
        remember(x, None if capturing(x) else key, found)
    for launch in found:
        launch.on(stream)
    return x.tensor


def _sums(x: Symmetric, method: ReduceMethod | None) -> list[Launch]:
    """The launches that add up a tensor. Raises the errors of `all_reduce`."""
    line = summed("all_reduce", "x", x)
    most = line.block * MOST_PROGRAMS
    in_one = method in ("one_shot", "one_shot_multicast")
    if method is not None and (not one_of(method, *METHODS) or (in_one and line.size > most)):
        limit = f" (up to {most} elements of this type)"
        got = f"{line.size} elements of {line.dtype}"
        raise fail(errors.RANKS_METHOD, what="all_reduce", got=repr(method), size=got, limit=limit)
    multicast = method in ("one_shot_multicast", "two_shot_multicast")
    if multicast and (not x.has_multicast or line.size % SHARES):
        why = f"there are {line.size} elements" if x.has_multicast else "its group has no multicast addresses"
        raise fail(errors.RANKS_MULTICAST, what="all_reduce", got=repr(method), why=why, multiple=SHARES)
    if not line.size:
        return []
    words = _has_words(x, line)
    if method is None:
        small = line.size * ITEMSIZE[line.dtype] <= ONE_SHOT_BYTES
        known = all(has_room(x, *each) for each in _word_rooms(x)) if words else _shares_room(x, line) is not None
        pushes = (words or not small) and (known or not capturing(x))
        method = "pushed" if pushes else "one_shot" if small else "two_shot"
    if method == "pushed":
        return [_by_words(x, line)] if words else _by_stores(x, line)
    chains = chained(x) and not multicast
    options: dict[str, Any] = {"num_warps": WARPS, "launch_pdl": chains} | ({} if multicast else {"maxnreg": REGISTERS})
    added = () if multicast else (SUMS[line.dtype], chains)
    if in_one or method == "one_shot":
        kernel = cast("Any", ranks.one_shot_multicast if multicast else ranks.one_shot)
        return [Launch(kernel, -(-line.size // line.block), (x, line.size, line.line, line.block, *added), **options)]
    kernel = cast("Any", ranks.two_shot_multicast if multicast else ranks.two_shot)
    launches: list[Launch] = []
    for first, size, share in _pieces(x, line, LOADED):
        block = line.wide(share, x.world_size)
        grid = min(-(-share // block), MOST_PROGRAMS)
        launches.append(Launch(kernel, grid, (x, first, size, share, line.line, block, *added), **options))
    return launches


def _pieces(x: Symmetric, line: Flat, most: int) -> list[tuple[int, int, int]]:
    """The first element, the number of elements and the share of a rank, for each launch of at most `most` elements."""
    starts = range(0, line.size, most)
    sizes = [min(most, line.size - first) for first in starts]
    return [
        (first, size, -(-size // (x.world_size * SHARES)) * SHARES) for first, size in zip(starts, sizes, strict=True)
    ]


def _has_words(x: Symmetric, line: Flat) -> bool:
    """Whether a sum can be pushed as words of 32 bits, for which there is room."""
    nbytes, found = line.size * ITEMSIZE[line.dtype], array(x.tensor)
    aligned = found is not None and found.pointer % 4 == nbytes % 4 == 0
    return line.dtype in PUSHED and aligned and nbytes <= 4 * PUSHED_WORDS


def _word_rooms(x: Symmetric) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """The rooms that all sums by words of a group have in common: inboxes, and the count of each program's turns. A program has
    the same words in all of them, so that its count tells their turn, whatever other programs have had."""
    inbox = "inbox", (2, x.world_size, PUSHED_WORDS), "int64"
    return inbox, ("turns", (PUSHED_WORDS // PUSHED_BLOCK,), "int32")


def _by_words(x: Symmetric, line: Flat) -> Launch:
    words = line.size * ITEMSIZE[line.dtype] // 4
    inbox, turns = (room_of(x, *each, zeroed=True) for each in _word_rooms(x))
    layout = gl.BlockedLayout([PUSHED_BLOCK // (32 * WARPS)], [32], [WARPS], [0])
    chains = chained(x)
    arguments = x, inbox, turns, words, PUSHED_WORDS, layout, PUSHED_BLOCK, SUMS[line.dtype], chains
    return Launch(ranks.pushed, -(-words // PUSHED_BLOCK), arguments, num_warps=WARPS, launch_pdl=chains)


def _stored_pieces(x: Symmetric, line: Flat) -> tuple[list[tuple[int, int, int]], int]:
    """The pieces of a sum by stores, and the bytes of room that the largest one takes, as a power of two."""
    pieces = _pieces(x, line, STORED // ITEMSIZE[line.dtype])
    needed = (x.world_size - 1) * pieces[0][2] * ITEMSIZE[line.dtype]
    return pieces, max(1 << (needed - 1).bit_length(), LEAST_ROOM)


def _shares_room(x: Symmetric, line: Flat) -> tuple[str, tuple[int, ...], str] | None:
    """The smallest room that is there and large enough for a sum by stores."""
    size = _stored_pieces(x, line)[1]
    while size <= 2 * max(STORED, LEAST_ROOM):
        room = _room_of_bytes(size)
        if has_room(x, *room):
            return room
        size *= 2
    return None


def _room_of_bytes(size: int) -> tuple[str, tuple[int, ...], str]:
    return "shares", (size // 8,), "int64"


def _by_stores(x: Symmetric, line: Flat) -> list[Launch]:
    pieces, size = _stored_pieces(x, line)
    room = room_of(x, *(_shares_room(x, line) or _room_of_bytes(size)))
    launches, chains = list[Launch](), chained(x)
    for first, count, share in pieces:
        block = line.wide(share, 1)
        grid = min(-(-share // block), STORED_PROGRAMS if share > 4 * MOST_PROGRAMS * block else MOST_PROGRAMS)
        step = min(-(-share // (grid * block)), STORED_STEP)
        arguments = x, room, first, count, share, line.line, block, step, SUMS[line.dtype], chains
        options: dict[str, Any] = {"num_warps": WARPS, "maxnreg": REGISTERS, "launch_pdl": chains}
        launches.append(Launch(ranks.pushed_shares, grid, arguments, **options))
    return launches


@prepared()
def all_gather(x: Any, out: Symmetric, *, stream: Any = None) -> Any:
    """Gather `x` of every rank in `out`, of shape `[world_size, *x.shape]`, on every rank; returns its tensor.

    `x` is an ordinary tensor of any element type. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array,
    kernels-ranks-shape."""
    given, made = flat("all_gather", "x", x), symmetric("all_gather", "out", out)
    check_shape("all_gather", "out", made, given.dtype, (out.world_size, *given.shape))
    if given.size:
        block = given.wide(given.size, 1)
        grid = min(-(-given.size // block), MOST_PROGRAMS)
        arguments = x, out, given.size, given.line, block
        launched(ranks.gather, grid, arguments, {"num_warps": WARPS}, stream)
    return out.tensor


@prepared("out")
def reduce_scatter(x: Symmetric, out: Any = None, *, stream: Any = None) -> Any:
    """The sum over all ranks of `x[rank]`, where `x` is `[world_size, ...]`; in `out`, by default a new tensor.

    Element types and order as for `all_reduce`. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array,
    kernels-ranks-dtype, kernels-ranks-shape."""
    given = summed("reduce_scatter", "x", x)
    if not given.shape or given.shape[0] != x.world_size:
        refuse_shape("reduce_scatter", "x", given, given.dtype, (x.world_size, *given.shape[1:]))
    part = given.shape[1:]
    if out is None:
        out = empty_like(x.tensor, part, given.dtype)
    made = flat("reduce_scatter", "out", out)
    check_shape("reduce_scatter", "out", made, given.dtype, part)
    if made.size:
        block = made.wide(made.size, x.world_size)
        grid = min(-(-made.size // block), MOST_PROGRAMS)
        arguments = x, out, made.size, made.line, block, SUMS[made.dtype]
        launched(ranks.scatter_sums, grid, arguments, {"num_warps": WARPS, "maxnreg": REGISTERS}, stream)
    return out
