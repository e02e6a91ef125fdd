"""Matmuls whose operands or results are divided among ranks, each one launch per rank, on Hopper. The kernels are in
`weft.kernels.device.gathered` and `weft.kernels.device.scattered`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from weft import language as gl
from weft.distributed import Symmetric
from weft.kernels.device import gathered, scattered
from weft.kernels.distributed.operands import (
    HALVES,
    Flat,
    call_key,
    check_dtype,
    check_flags,
    check_shape,
    flat,
    launch,
    refuse_shape,
    repeated,
    symmetric,
)
from weft.kernels.memory import empty_like
from weft.nvidia.hopper import TensorDescriptor

HALVES_OF_TILE, CONSUMER_WARPS = 2, 4
"""The consumers of a program, and their warps."""
STRIP = 8, 256
"""Rows and columns that are sent at a time: 4 KiB."""
MOST_CHUNKS = 16
"""Chunks of a shard: each takes a flag of every program."""
OF_8 = "a multiple of 8"
"""Rows of 16-bit elements that begin at multiples of 16 bytes, as TMA needs."""


@dataclass(frozen=True, slots=True)
class GatherMatmulConfig:
    """How `all_gather_matmul` divides its work: the tile, of 128 rows or a multiple, the programs, which all have to fit on the
    GPU at once, the rows of tiles that are waited for together, the stages of the ring of operands, and the buffers of rows
    that are sent. Measured on one GPU only."""

    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    programs: int = 132
    chunk: int = 4
    stages: int = 3
    buffers: int = 4


def all_gather_matmul(
    a: Symmetric, b: Any, out: Any = None, *, config: GatherMatmulConfig | None = None, stream: Any = None
) -> Any:
    """`A @ B` with the rows of A sharded over the ranks, in one launch that multiplies chunks of rows as they arrive.

    `a` is `[world_size, m, K]`, and rank r has written `a[r]`, its rows; afterwards `a` holds all of A on every rank. `b` is
    `[K, N]`, of the same type (float16 or bfloat16). Returns `[world_size * m, N]` in that type, in `out` or a new tensor:
    every rank computes all rows. `m` is a multiple of the config's `block_m`, K and N are multiples of 8. Sums are in float32.
    Needs Hopper (`wgmma`). Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype,
    kernels-ranks-shape, kernels-ranks-flags.
    """
    key = call_key("all_gather_matmul", b, out, config) if out is not None else None
    if isinstance(cast("object", a), Symmetric) and repeated(a, key, stream):
        return out
    plan = config or GatherMatmulConfig()
    left, right = symmetric("all_gather_matmul", "a", a), flat("all_gather_matmul", "b", b)
    check_dtype("all_gather_matmul", left.dtype, HALVES)
    if len(left.shape) != 3 or left.shape[0] != a.world_size or left.shape[1] % plan.block_m or left.shape[2] % 8:
        wanted = a.world_size, f"a multiple of {plan.block_m}", OF_8
        refuse_shape("all_gather_matmul", "a", left, left.dtype, wanted)
    _, m, columns = left.shape
    _check_right("all_gather_matmul", right, left.dtype, columns)
    shape = (a.world_size * m, right.shape[1])
    if out is None:
        out = empty_like(b, shape, left.dtype)
    check_shape("all_gather_matmul", "out", flat("all_gather_matmul", "out", out), left.dtype, shape)
    if not m * columns * shape[1]:
        return out
    whole, tiles = a.tensor.reshape(shape[0], columns), m // plan.block_m
    blocks = (plan.block_m, plan.block_k), (plan.block_k, plan.block_n), (plan.block_m // HALVES_OF_TILE, plan.block_n)
    descriptors = [_descriptor(x, block, left.dtype) for x, block in zip((whole, b, out), blocks, strict=True)]
    strip = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=16, rank=2)
    descriptors.append(TensorDescriptor.from_tensor(whole, list(STRIP), strip))
    chunk = max(plan.chunk, -(-tiles // MOST_CHUNKS)) * plan.block_m
    # About as many pieces as programs: all of them send to one rank before they send to the next.
    piece = STRIP[0]
    while piece < plan.block_m and piece * plan.programs < m:
        piece *= 2
    chunks = -(-m // chunk)
    check_flags("all_gather_matmul", plan.programs, plan.programs * (chunks + 1))
    arguments = (a, *descriptors, m, chunks, chunk, piece, plan.programs, plan.stages, plan.buffers)
    launch(a, key, gathered.gather_matmul, plan.programs, arguments, {"num_warps": CONSUMER_WARPS}, stream)
    return out


@dataclass(frozen=True, slots=True)
class ReduceMatmulConfig:
    """How `matmul_reduce_scatter` and `matmul_all_reduce` divide their work: the tile, of 128 rows or a multiple, the programs,
    which all have to fit on the GPU at once, and the stages of the ring of operands. Measured on one GPU only."""

    block_m: int = 128
    block_n: int = 256
    block_k: int = 64
    programs: int = 132
    stages: int = 3


def work_elements(rows: int, columns: int, ranks: int, config: ReduceMatmulConfig | None = None) -> int:
    """The elements of `work` for `matmul_reduce_scatter` and `matmul_all_reduce` with a product of `rows` (of all ranks
    together) by `columns`."""
    plan = config or ReduceMatmulConfig()
    return ranks * _tiles(-(-rows // ranks), columns, plan) * plan.block_m * plan.block_n


def matmul_reduce_scatter(
    a: Any, b: Any, work: Symmetric, out: Any = None, *, config: ReduceMatmulConfig | None = None, stream: Any = None
) -> Any:
    """The rows of this rank in the sum over all ranks of `A @ B`, in one launch that sends tiles as they are multiplied.

    `a` is `[world_size * m, K]` and `b` `[K, N]`, ordinary tensors of float16 or bfloat16 that differ between ranks: each rank
    has its part of a longer K. Returns rows `[rank * m, rank * m + m)` of the sum, `[m, N]` in that type, in `out` or a new
    tensor. K and N are multiples of 8. `work` is a symmetric line of at least `work_elements(world_size * m, N, world_size)`
    elements of that type, whose contents are lost; one serves calls that follow each other in a stream. Products are added in
    float32; those of other ranks have been rounded to the type. The same inputs give the same bits. Needs Hopper (`wgmma`).
    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-shape,
    kernels-ranks-flags.
    """
    what, plan = "matmul_reduce_scatter", config or ReduceMatmulConfig()
    key = call_key(what, a, b, out, config) if out is not None else None
    if isinstance(cast("object", work), Symmetric) and repeated(work, key, stream):
        return out
    left, right, room = _factors(what, a, b, work)
    if left.shape[0] % work.world_size:
        refuse_shape(what, "a", left, left.dtype, (f"a multiple of {work.world_size}", OF_8))
    m, columns = left.shape[0] // work.world_size, right.shape[1]
    if out is None:
        out = empty_like(b, (m, columns), left.dtype)
    check_shape(what, "out", flat(what, "out", out), left.dtype, (m, columns))
    share = _tiles(m, columns, plan)
    _launch_sums(what, (a, b, out, None), left, room, work, share, m, plan, key, stream)
    return out


def matmul_all_reduce(
    a: Any, b: Any, work: Symmetric, out: Symmetric, *, config: ReduceMatmulConfig | None = None, stream: Any = None
) -> Any:
    """The sum over all ranks of `A @ B`, on every rank, in one launch that sends tiles as they are multiplied.

    `a` is `[M, K]` and `b` `[K, N]`, ordinary tensors of float16 or bfloat16 that differ between ranks: each rank has its part
    of a longer K. The sum is in `out`, symmetric, `[M, N]` of that type, of which the tensor is returned; all ranks get the
    same bits. Everything else as for `matmul_reduce_scatter`, with `work_elements(M, N, world_size)` elements of `work`.
    """
    what, plan = "matmul_all_reduce", config or ReduceMatmulConfig()
    key = call_key(what, a, b, out, config)
    if isinstance(cast("object", work), Symmetric) and repeated(work, key, stream):
        return out.tensor
    left, right, room = _factors(what, a, b, work)
    shape = left.shape[0], right.shape[1]
    check_shape(what, "out", symmetric(what, "out", out), left.dtype, shape)
    share = -(-_tiles(*shape, plan) // work.world_size)
    _launch_sums(what, (a, b, out.tensor, out), left, room, work, share, None, plan, key, stream)
    return out.tensor


def _tiles(rows: int, columns: int, plan: ReduceMatmulConfig) -> int:
    return -(-rows // plan.block_m) * -(-columns // plan.block_n)


def _factors(what: str, a: Any, b: Any, work: Any) -> tuple[Flat, Flat, Flat]:
    left, right, room = flat(what, "a", a), flat(what, "b", b), symmetric(what, "work", work)
    check_dtype(what, left.dtype, HALVES)
    if len(left.shape) != 2 or left.shape[1] % 8:
        refuse_shape(what, "a", left, left.dtype, ("M", OF_8))
    _check_right(what, right, left.dtype, left.shape[1])
    return left, right, room


def _check_right(what: str, right: Flat, dtype: str, rows: int) -> None:
    if right.dtype != dtype or len(right.shape) != 2 or right.shape[0] != rows or right.shape[1] % 8:
        refuse_shape(what, "b", right, dtype, (rows, OF_8))


def _launch_sums(
    what: str, tensors: tuple[Any, Any, Any, Symmetric | None], left: Flat, room: Flat, work: Symmetric, share: int,
    m: int | None, plan: ReduceMatmulConfig, key: Any, stream: Any,
) -> None:  # fmt: skip
    """Launch the matmul with sums over ranks; `m`: the rows of each rank, where these are scattered."""
    a, b, out, shared = tensors
    tile = plan.block_m * plan.block_n
    slots = work.world_size * share
    if room.dtype != left.dtype or room.size < slots * tile:
        refuse_shape(what, "work", room, left.dtype, (f"at least {slots * tile}",))
    columns = int(b.shape[1])
    if not share * left.shape[1]:
        return
    parts = work.tensor.reshape(-1)[: slots * tile].reshape(slots * plan.block_m, plan.block_n)
    half = plan.block_m // HALVES_OF_TILE, plan.block_n
    blocks = (plan.block_m, plan.block_k), (plan.block_k, plan.block_n), half, half
    descriptors = (_descriptor(x, block, left.dtype) for x, block in zip((a, b, parts, out), blocks, strict=True))
    programs = min(plan.programs, slots)
    check_flags(what, programs, 2 * HALVES_OF_TILE * programs)
    rows = -(-(left.shape[0] if m is None else m) // plan.block_m)
    sizes = m or 0, rows, -(-columns // plan.block_n), share, programs, plan.stages, m is not None
    arguments, options = (work, shared, *descriptors, *sizes), {"num_warps": CONSUMER_WARPS}
    launch(work, key, scattered.matmul_sums, programs, arguments, options, stream)


def _descriptor(x: Any, block: tuple[int, int], dtype: str) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), HALVES[dtype])
    return TensorDescriptor.from_tensor(x, list(block), layout)
