"""All-reduce, all-gather and reduce-scatter, one launch per rank; the kernels are in `weft.kernels.device.ranks`."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import ranks
from weft.kernels.distributed.operands import (
    MOST_PROGRAMS,
    SUMS,
    WARPS,
    check_shape,
    flat,
    launch,
    refuse_shape,
    repeated,
    summed,
    symmetric,
)
from weft.kernels.memory import empty_like
from weft.plain import one_of
from weft.runtime.dtypes import ITEMSIZE

Method = Literal["one_shot", "two_shot"]
ReduceMethod = Literal[Method, "one_shot_multicast", "two_shot_multicast"]
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

    `method`: "one_shot" reads the whole tensor of every rank, and suits small ones; "two_shot" adds up one share on each rank
    and stores it on all, and moves each byte twice. None chooses by size: one shot up to 256 KiB. Elements are float16,
    bfloat16 (added in float32), float32, float64, int32 or int64, added in the order of the ranks, so that every rank gets the
    same bits.

    "one_shot_multicast" and "two_shot_multicast" let the switch add up (NVLink multicast), where the group has multicast
    addresses and the number of elements is a multiple of 16. The order of the sums is the hardware's; in two shots all ranks
    get the same bits, in one shot that is not promised. Compiled and simulated, not run on GPUs.

    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-method,
    kernels-ranks-multicast.
    """
    key = "all_reduce", repr(method)
    if isinstance(cast("object", x), Symmetric) and repeated(x, key, stream):
        return x.tensor
    line = summed("all_reduce", "x", x)
    most = line.block * MOST_PROGRAMS
    in_one = method in ("one_shot", "one_shot_multicast")
    if method is not None and (not one_of(method, *METHODS) or (in_one and line.size > most)):
        limit = f" (up to {most} elements of this type)"
        raise fail(errors.RANKS_METHOD, what="all_reduce", got=repr(method), size=line.size, limit=limit)
    multicast = method in ("one_shot_multicast", "two_shot_multicast")
    if multicast and (not x.has_multicast or line.size % SHARES):
        why = f"there are {line.size} elements" if x.has_multicast else "its group has no multicast addresses"
        raise fail(errors.RANKS_MULTICAST, what="all_reduce", got=repr(method), why=why, multiple=SHARES)
    if not line.size:
        return x.tensor
    added = () if multicast else (SUMS[line.dtype],)
    options: dict[str, Any] = {"num_warps": WARPS} | ({} if multicast else {"maxnreg": REGISTERS})
    small = line.size <= most and line.size * ITEMSIZE[line.dtype] <= ONE_SHOT_BYTES
    if in_one or (method is None and small):
        kernel = cast("Any", ranks.one_shot_multicast if multicast else ranks.one_shot)
        grid, arguments = -(-line.size // line.block), (x, line.size, line.line, line.block, *added)
    else:
        share = -(-line.size // (x.world_size * SHARES)) * SHARES
        block = line.wide(share, x.world_size)
        kernel = cast("Any", ranks.two_shot_multicast if multicast else ranks.two_shot)
        grid, arguments = min(-(-share // block), MOST_PROGRAMS), (x, line.size, share, line.line, block, *added)
    launch(x, key, kernel, grid, arguments, options, stream)
    return x.tensor


def all_gather(x: Any, out: Symmetric, *, stream: Any = None) -> Any:
    """Gather `x` of every rank in `out`, of shape `[world_size, *x.shape]`, on every rank; returns its tensor.

    `x` is an ordinary tensor of any element type. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array,
    kernels-ranks-shape."""
    given, made = flat("all_gather", "x", x), symmetric("all_gather", "out", out)
    check_shape("all_gather", "out", made, given.dtype, (out.world_size, *given.shape))
    if given.size:
        block = given.wide(given.size, 1)
        grid = min(-(-given.size // block), MOST_PROGRAMS)
        ranks.gather[grid](x, out, given.size, given.line, block, num_warps=WARPS, stream=stream)
    return out.tensor


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
        options: dict[str, Any] = {"num_warps": WARPS, "maxnreg": REGISTERS, "stream": stream}
        ranks.scatter_sums[grid](x, out, made.size, made.line, block, SUMS[made.dtype], **options)
    return out
