"""Collective operations on symmetric tensors, each one launch per rank: all-reduce, all-gather, reduce-scatter, and all-gather
with a matmul.

    from weft.kernels import distributed
    x = weft.Symmetric(symm_mem.empty(n, dtype=torch.bfloat16, device="cuda"))
    distributed.all_reduce(x)

Every rank of the group makes the same calls in the same order. Results are the same bits on all ranks. The programs of a launch
signal each other on flags from 0 on, as many as there are programs. The kernels are in
`weft.kernels.device.ranks` and `weft.kernels.device.gathered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

from weft import language as gl
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import gathered, ranks
from weft.kernels.memory import empty_like
from weft.nvidia.hopper import TensorDescriptor
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
DTYPES = {"float16": gl.float16, "bfloat16": gl.bfloat16}
HALVES = tuple(DTYPES)
"""The types of matrices that are multiplied."""
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


@dataclass(frozen=True, slots=True)
class GatherMatmulConfig:
    """How `all_gather_matmul` divides its work: the tile, the programs that copy and those that multiply, the
    chunks of a shard that are signalled one by one, and the stages of the ring of operands. None of it has been measured."""

    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    copiers: int = 12
    consumers: int = 120
    chunks: int = 8
    stages: int = 3


def all_gather_matmul(
    a: Symmetric, b: Any, out: Any = None, *, config: GatherMatmulConfig | None = None, stream: Any = None
) -> Any:
    """`A @ B` with the rows of A sharded over the ranks, in one launch that multiplies chunks of rows as they arrive.

    `a` is `[world_size, m, K]`, and rank r has written `a[r]`, its rows; afterwards `a` holds all of A on every rank. `b` is
    `[K, N]`, of the same type (float16 or bfloat16). Returns `[world_size * m, N]` in that type, in `out` or a new tensor:
    every rank computes all rows. `m` is a multiple of the config's `block_m`, K and N are multiples of 8. Sums are in float32.
    Needs Hopper (`wgmma`). Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype,
    kernels-ranks-shape.
    """
    plan = config or GatherMatmulConfig()
    left, right = _symmetric("all_gather_matmul", "a", a), _flat("all_gather_matmul", "b", b)
    if left.dtype not in HALVES:
        raise fail(errors.RANKS_DTYPE, what="all_gather_matmul", got=left.dtype, known=", ".join(HALVES))
    if len(left.shape) != 3 or left.shape[0] != a.world_size or left.shape[1] % plan.block_m or left.shape[2] % 8:
        rows, columns = f"a multiple of {plan.block_m}", "a multiple of 8"
        _refuse_shape("all_gather_matmul", "a", left, left.dtype, (a.world_size, rows, columns))
    _, m, columns = left.shape
    if right.dtype != left.dtype or len(right.shape) != 2 or right.shape[0] != columns or right.shape[1] % 8:
        _refuse_shape("all_gather_matmul", "b", right, left.dtype, (columns, "a multiple of 8"))
    shape = (a.world_size * m, right.shape[1])
    if out is None:
        out = empty_like(b, shape, left.dtype)
    made = _flat("all_gather_matmul", "out", out)
    if (made.dtype, made.shape) != (left.dtype, shape):
        _refuse_shape("all_gather_matmul", "out", made, left.dtype, shape)
    if not m * columns * shape[1]:
        return out
    tiles = m // plan.block_m
    chunk_rows = -(-tiles // plan.chunks) * plan.block_m
    dtype = DTYPES[left.dtype]
    blocks = (plan.block_m, plan.block_k), (plan.block_k, plan.block_n), (plan.block_m, plan.block_n)
    whole = a.tensor.reshape(shape[0], columns)
    descriptors = (
        TensorDescriptor.from_tensor(x, list(block), gl.NVMMASharedLayout.get_default_for(list(block), dtype))
        for x, block in zip((whole, b, out), blocks, strict=True)
    )
    gathered.gather_matmul[plan.copiers + plan.consumers](
        a, *descriptors, m, columns, chunk_rows, -(-m // chunk_rows), plan.copiers, plan.consumers, plan.stages, left.block,
        left.line, num_warps=WARPS, stream=stream,
    )  # fmt: skip
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


def _refuse_shape(what: str, name: str, got: _Flat, dtype: str, shape: Sequence[int | str]) -> None:
    wanted, given = f"{dtype} [{', '.join(map(str, shape))}]", f"{got.dtype} {list(got.shape)}"
    raise fail(errors.RANKS_SHAPE, what=what, name=name, got=given, wanted=wanted)
