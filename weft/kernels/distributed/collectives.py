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
SHARES = 16
"""The share of each rank in a two-shot sum is a multiple of this many elements, so that kernels know all shares to be aligned.
So is the length of a tensor that is reduced by multicast."""
METHODS = get_args(ReduceMethod)
REGISTERS = 128
"""Most registers of a thread of the sums. By itself ptxas takes 32, and waits for the elements of one rank before it
loads those of the next (seen with CUDA 13.0 for sm_90a)."""


def all_reduce(x: Symmetric, *, method: ReduceMethod | None = None, stream: Any = None) -> Any:
    """Add up `x` over all ranks, in place; returns its tensor.

    `method`: "one_shot" reads the whole tensor of every rank; "pushed" stores it to every rank, twice as many bytes, and saves
    two ways between ranks (up to 256 KiB of elements of 16 or 32 bits, whose bytes and address are multiples of 4; the first
    call on a group makes symmetric memory for them, and is not captured in a graph); "two_shot" adds up one share on each
    rank and stores it on all, and moves each byte twice. None chooses by size. Elements are float16, bfloat16 (added in
    float32), float32, float64, int32 or int64, added in the order of the ranks, so that every rank gets the same bits.

    "one_shot_multicast" and "two_shot_multicast" let the switch add up (NVLink multicast), where the group has multicast
    addresses and the number of elements is a multiple of 16. The order of the sums is the hardware's; in two shots all ranks
    get the same bits, in one shot that is not promised. Compiled and simulated, not run on GPUs.

    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-method,
    kernels-ranks-multicast.
    """
    key = "all_reduce", repr(method)
    found: Launch | None = remembered(x, key)
    if found is not None:
        found.on(stream)
        return x.tensor
    line = summed("all_reduce", "x", x)
    most = line.block * MOST_PROGRAMS
    in_one = method in ("one_shot", "one_shot_multicast")
    pushes = _pushes(x, line)
    wrong = (in_one and line.size > most) or (method == "pushed" and not pushes)
    if method is not None and (not one_of(method, *METHODS) or wrong):
        limit = f" (up to {most} elements of this type)"
        got = f"{line.size} elements of {line.dtype}"
        raise fail(errors.RANKS_METHOD, what="all_reduce", got=repr(method), size=got, limit=limit)
    multicast = method in ("one_shot_multicast", "two_shot_multicast")
    if multicast and (not x.has_multicast or line.size % SHARES):
        why = f"there are {line.size} elements" if x.has_multicast else "its group has no multicast addresses"
        raise fail(errors.RANKS_MULTICAST, what="all_reduce", got=repr(method), why=why, multiple=SHARES)
    if not line.size:
        return x.tensor
    added = () if multicast else (SUMS[line.dtype],)
    options: dict[str, Any] = {"num_warps": WARPS} | ({} if multicast else {"maxnreg": REGISTERS})
    small = line.size <= most and line.size * ITEMSIZE[line.dtype] <= ONE_SHOT_BYTES
    if method == "pushed" or (method is None and pushes and (has_room(x, *_rooms(x)[0]) or not capturing(x))):
        words = line.size * ITEMSIZE[line.dtype] // 4
        inbox, turns = (room_of(x, *each, zeroed=True) for each in _rooms(x))
        layout = gl.BlockedLayout([PUSHED_BLOCK // (32 * WARPS)], [32], [WARPS], [0])
        kernel, options = cast("Any", ranks.pushed), {"num_warps": WARPS}
        grid = -(-words // PUSHED_BLOCK)
        arguments = x, inbox, turns, words, PUSHED_WORDS, layout, PUSHED_BLOCK, SUMS[line.dtype]
    elif in_one or (method is None and small):
        kernel = cast("Any", ranks.one_shot_multicast if multicast else ranks.one_shot)
        grid, arguments = -(-line.size // line.block), (x, line.size, line.line, line.block, *added)
    else:
        share = -(-line.size // (x.world_size * SHARES)) * SHARES
        block = line.wide(share, x.world_size)
        kernel = cast("Any", ranks.two_shot_multicast if multicast else ranks.two_shot)
        grid, arguments = min(-(-share // block), MOST_PROGRAMS), (x, line.size, share, line.line, block, *added)
    remember(x, key, Launch(kernel, grid, arguments, **options)).on(stream)
    return x.tensor


def _pushes(x: Symmetric, line: Flat) -> bool:
    """Whether a sum can be pushed: as words of 32 bits, for which there is room."""
    nbytes, found = line.size * ITEMSIZE[line.dtype], array(x.tensor)
    aligned = found is not None and found.pointer % 4 == nbytes % 4 == 0
    return line.dtype in PUSHED and aligned and nbytes <= 4 * PUSHED_WORDS


def _rooms(x: Symmetric) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """The rooms that all pushed sums of a group have in common: inboxes, and the count of each program's turns. A program has
    the same words in all of them, so that its count tells their turn, whatever other programs have had."""
    inbox = "inbox", (2, x.world_size, PUSHED_WORDS), "int64"
    return inbox, ("turns", (PUSHED_WORDS // PUSHED_BLOCK,), "int32")


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
