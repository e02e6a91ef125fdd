"""Collective operations on symmetric tensors: all-reduce, all-gather and reduce-scatter, each one launch per rank.

    from weft.kernels import distributed
    x = weft.Symmetric(symm_mem.empty(n, dtype=torch.bfloat16, device="cuda"))
    distributed.all_reduce(x)

Every rank of the group makes the same calls in the same order. Results are the same bits on all ranks. The programs of a launch
signal each other on flags from 0 on, as many as there are programs. The kernels are in `weft.kernels.device.ranks`.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, NamedTuple

from weft import language as gl
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import ranks
from weft.kernels.memory import empty_like
from weft.plain import one_of
from weft.runtime.arguments import array, extents
from weft.runtime.dlpack import contiguous
from weft.runtime.dtypes import ITEMSIZE

Method = Literal["one_shot", "two_shot"]
SUMS = {
    "float16": gl.float32, "bfloat16": gl.float32, "float32": gl.float32, "float64": gl.float64, "int32": gl.int32,
    "int64": gl.int64,
}  # fmt: skip
"""The types that sums take, with the type they are computed in."""
WARPS = 8
ACCESS = 16
"""Bytes that a thread moves at a time."""
ONE_SHOT_BYTES = 1 << 18
"""Tensors of at most this many bytes are reduced in one shot: PyTorch's operators change over at this size, too."""
SHARES = 16
"""The share of a rank in a two-shot sum is a multiple of so many elements: all shares are aligned, and kernels know it."""
REGISTERS = 128
"""Most registers of a thread of the one-shot sum. By itself ptxas takes 32, and waits for the elements of one rank before it
loads those of the next (seen with CUDA 13.0 for sm_90a)."""
MOST_PROGRAMS = 64
"""Programs of a launch. All of them fit on any GPU at once, as the waits for other ranks demand."""


class _Flat(NamedTuple):
    """An operand as a line of elements."""

    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def block(self) -> int:
        """Elements of a program's block: one access of each thread."""
        return WARPS * 32 * self.each

    @property
    def each(self) -> int:
        """Elements of one access."""
        return max(ACCESS // ITEMSIZE[self.dtype], 1)

    @property
    def line(self) -> Any:
        """The layout of a block."""
        return gl.BlockedLayout([self.each], [32], [WARPS], [0])


def all_reduce(x: Symmetric, *, method: Method | None = None, stream: Any = None) -> Any:
    """Add up `x` over all ranks, in place; returns its tensor.

    `method`: "one_shot" reads the whole tensor of every rank, and suits small ones; "two_shot" adds up one share on each rank
    and stores it on all, and moves each byte twice. None chooses by size: one shot up to 256 KiB. Elements are float16,
    bfloat16 (added in float32), float32, float64, int32 or int64, added in the order of the ranks, so that every rank gets the
    same bits. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-method.
    """
    flat = _summed("all_reduce", "x", x)
    most = flat.block * MOST_PROGRAMS
    if method is not None and (
        not one_of(method, "one_shot", "two_shot") or (method == "one_shot" and flat.size > most)
    ):
        raise fail(errors.RANKS_METHOD, got=repr(method), size=flat.size, most=most)
    small = flat.size <= most and flat.size * ITEMSIZE[flat.dtype] <= ONE_SHOT_BYTES
    options: dict[str, Any] = {"num_warps": WARPS, "stream": stream}
    if flat.size and (method == "one_shot" or (method is None and small)):
        programs = -(-flat.size // flat.block)
        ranks.one_shot[programs](x, flat.size, flat.line, flat.block, SUMS[flat.dtype], maxnreg=REGISTERS, **options)
    elif flat.size:
        share = -(-flat.size // (x.world_size * SHARES)) * SHARES
        grid = min(-(-share // flat.block), MOST_PROGRAMS)
        ranks.two_shot[grid](x, flat.size, share, flat.line, flat.block, SUMS[flat.dtype], **options)
    return x.tensor


def all_gather(x: Any, out: Symmetric, *, stream: Any = None) -> Any:
    """Gather `x` of every rank in `out`, of shape `[world_size, *x.shape]`, on every rank; returns its tensor.

    `x` is an ordinary tensor of any element type. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array,
    kernels-ranks-shape."""
    given, made = _flat("all_gather", "x", x), _symmetric("all_gather", "out", out)
    if made.dtype != given.dtype or made.shape != (out.world_size, *given.shape):
        _refuse_shape("all_gather", "out", made, given.dtype, (out.world_size, *given.shape))
    if given.size:
        grid = min(-(-given.size // given.block), MOST_PROGRAMS)
        ranks.gather[grid](x, out, given.size, given.line, given.block, num_warps=WARPS, stream=stream)
    return out.tensor


def reduce_scatter(x: Symmetric, out: Any = None, *, stream: Any = None) -> Any:
    """The sum over all ranks of `x[rank]`, where `x` is `[world_size, ...]`; in `out`, by default a new tensor.

    Element types and order as for `all_reduce`. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array,
    kernels-ranks-dtype, kernels-ranks-shape."""
    given = _summed("reduce_scatter", "x", x)
    if not given.shape or given.shape[0] != x.world_size:
        _refuse_shape("reduce_scatter", "x", given, given.dtype, (x.world_size, *given.shape[1:]))
    part = given.shape[1:]
    if out is None:
        out = empty_like(x.tensor, part, given.dtype)
    made = _flat("reduce_scatter", "out", out)
    if (made.dtype, made.shape) != (given.dtype, part):
        _refuse_shape("reduce_scatter", "out", made, given.dtype, part)
    if made.size:
        grid = min(-(-made.size // made.block), MOST_PROGRAMS)
        options: dict[str, Any] = {"num_warps": WARPS, "stream": stream}
        ranks.scatter_sums[grid](x, out, made.size, made.line, made.block, SUMS[made.dtype], **options)
    return out


def _symmetric(what: str, name: str, x: Any) -> _Flat:
    """Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array."""
    if not isinstance(x, Symmetric):
        raise fail(errors.RANKS_SYMMETRIC, what=what, name=name, got=f"a {type(x).__name__}")
    return _flat(what, name, x.tensor)


def _summed(what: str, name: str, x: Any) -> _Flat:
    """Raises also kernels-ranks-dtype."""
    flat = _symmetric(what, name, x)
    if flat.dtype not in SUMS:
        raise fail(errors.RANKS_DTYPE, what=what, got=flat.dtype, known=", ".join(SUMS))
    return flat


def _flat(what: str, name: str, x: Any) -> _Flat:
    found, form = array(x), extents(x)
    if found is None or form is None:
        raise fail(errors.RANKS_ARRAY, what=what, name=name, got=f"a {type(x).__name__}")
    shape, strides = form
    if any(size > 1 and one != other for size, one, other in zip(shape, strides, contiguous(shape), strict=True)):
        raise fail(errors.RANKS_ARRAY, what=what, name=name, got=f"an array of shape {shape} and strides {strides}")
    return _Flat(found.dtype, tuple(shape), prod(shape))


def _refuse_shape(what: str, name: str, got: _Flat, dtype: str, shape: tuple[int, ...]) -> None:
    wanted, given = f"{dtype} {list(shape)}", f"{got.dtype} {list(got.shape)}"
    raise fail(errors.RANKS_SHAPE, what=what, name=name, got=given, wanted=wanted)
