"""Matmuls whose operands or results are divided among ranks. All of them are products of `weft.kernels.matmul`, whose
operands or outputs are in other ranks' memory.

* `all_gather_matmul` is one product of all rows: copy engines bring the rows of the other ranks meanwhile, and the producer
  waits for each chunk of them (`weft.kernels.device.arrivals`).
* `matmul_reduce_scatter` has a product for each other rank, whose epilogue stores its tiles there as they are finished, and
  last the product of the own rows, whose epilogue adds what has come from the others.
* `matmul_all_reduce` goes on: copy engines send what is finished of the own rows to all ranks, while the next ones are
  multiplied.

Between products, ranks meet in launches of one program (`weft.kernels.device.ranks.meeting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from weft import language as gl
from weft.distributed import Symmetric
from weft.kernel import jit
from weft.kernels.config import MatmulConfig
from weft.kernels.device import ranks
from weft.kernels.device.arrivals import Gathered
from weft.kernels.distributed.operands import (
    HALVES,
    Flat,
    call_key,
    check_dtype,
    check_shape,
    flat,
    launch,
    meet,
    refuse_shape,
    symmetric,
)
from weft.kernels.distributed.rooms import room_of
from weft.kernels.memory import empty_like
from weft.kernels.multiply import matmul, product_of
from weft.kernels.product import Product
from weft.runtime.dtypes import ITEMSIZE

OF_8 = "a multiple of 8"
"""Rows of 16-bit elements that begin at multiples of 16 bytes, as TMA needs."""
CHUNK_BYTES = 8 << 20
"""About as many bytes are sent before their receiver is told: a copy engine takes 23 us for them between two H200, and 3 us to
begin another copy."""
MOST_CHUNKS = 16
"""Chunks of the rows of a rank."""
ROWS = 128
"""Chunks are multiples of so many rows, as tiles are."""
PART_BYTES = 16 << 20
MOST_PARTS = 4
"""An all-reduce sends its rows in so many parts at most, of about so many bytes. More parts are products of fewer tiles: with
2, 4 and 8 parts of 4096 x 8192 an all-reduce took 965, 939 and 1,151 us on two H200."""


def all_gather_matmul(
    a: Symmetric, b: Any, out: Any = None, *, chunk: int | None = None, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """`A @ B` with the rows of A sharded over the ranks, in one launch that multiplies chunks of rows as they arrive.

    `a` is `[world_size, m, K]`, and rank r has written `a[r]`, its rows; afterwards `a` holds all of A on every rank. `b` is
    `[K, N]`, of the same type (float16 or bfloat16). Returns `[world_size * m, N]` in that type, in `out` or a new tensor:
    every rank computes all rows, its own first. K and N are multiples of 8. Sums are in float32. Copy engines send the rows,
    `chunk` of them at a time (by default about 8 MiB), and take no multiprocessor from the product. `config` is that of
    `weft.kernels.matmul`, of a variant with a producer. Needs Hopper (`wgmma`). Raises LaunchError: kernels-ranks-symmetric,
    kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-shape, kernels-ranks-config, and those of `matmul`.
    """
    what = "all_gather_matmul"
    left, right = symmetric(what, "a", a), flat(what, "b", b)
    check_dtype(what, left.dtype, HALVES)
    if len(left.shape) != 3 or left.shape[0] != a.world_size or left.shape[2] % 8:
        refuse_shape(what, "a", left, left.dtype, (a.world_size, "m", OF_8))
    _, m, depth = left.shape
    _check_right(what, right, left.dtype, depth)
    shape = (a.world_size * m, right.shape[1])
    if out is None:
        out = empty_like(b, shape, left.dtype)
    check_shape(what, "out", flat(what, "out", out), left.dtype, shape)
    whole = a.tensor.reshape(shape[0], depth)
    if a.world_size == 1 or not m * depth * shape[1]:
        return matmul(whole, b, out, config=config, stream=stream)
    product = product_of(whole, b, out, config, _gathers)
    rows = _chunk_rows(m, depth * ITEMSIZE[left.dtype]) if chunk is None else chunk
    chunks = -(-m // rows)
    words = room_of(a, "arrivals", (a.world_size * MOST_CHUNKS,), "int32")
    _begin(words, chunks, stream)
    own = a.tensor[a.rank]
    with a.group.aside(stream):
        for hop in range(1, a.world_size):
            # The rank behind this one needs these rows first.
            receiver = (a.rank - hop) % a.world_size
            for number in range(chunks):
                part = own[number * rows : (number + 1) * rows]
                a.group.copy(part, receiver, part)
                words.group.write_value(words.tensor, receiver, a.rank * chunks + number, 1)
    _launch_gathered(a, product, (whole, b, out), (words, m, rows), stream)
    a.group.rejoin(stream)
    return out


def _gathers(config: MatmulConfig) -> bool:
    """Whether a configuration can wait for rows of a: its producer loads them by TMA, tile by tile."""
    specialised = config.variant in ("cooperative", "ping_pong") and config.cluster == config.shares == 1
    return specialised and config.splits == 1 and not config.swap and not config.pack


def _chunk_rows(m: int, row_bytes: int) -> int:
    chunks = max(min(m * row_bytes // CHUNK_BYTES, MOST_CHUNKS), 1)
    return -(-m // (chunks * ROWS)) * ROWS


def _begin(words: Symmetric, chunks: int, stream: Any) -> None:
    """Set the words of all chunks back, but for the own ones, and meet: all ranks have done so, and have read what the launch
    before gathered."""
    room = 1 << (words.world_size * MOST_CHUNKS - 1).bit_length()
    key = "begin", chunks
    launch(words, key, ranks.expect_chunks, 1, (words, chunks, room), {"num_warps": 1}, stream)


def _launch_gathered(
    a: Symmetric, product: Product, arrays: tuple[Any, Any, Any], gathered: Gathered, stream: Any
) -> None:
    """Launch the product of rows that arrive."""
    arguments = (*product.arguments(*arrays, None), gathered)
    key = call_key("gathered", product.config, *arrays)
    launch(a, key, product.kernel, product.grid, arguments, product.options, stream)


def work_elements(rows: int, columns: int, ranks: int) -> int:
    """The elements of `work` for `matmul_reduce_scatter` and `matmul_all_reduce` with a product of so many rows, of all ranks
    together, and columns."""
    return max(ranks - 1, 1) * _share(rows, ranks) * columns


def _share(rows: int, ranks: int) -> int:
    """The rows of a sum that a rank adds up."""
    each = -(-rows // ranks)
    return -(-each // ROWS) * ROWS if each > ROWS else each


def matmul_reduce_scatter(
    a: Any, b: Any, work: Symmetric, out: Any = None, *, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """The rows of this rank in the sum over all ranks of `A @ B`, whose tiles are sent as they are multiplied.

    `a` is `[world_size * m, K]` and `b` `[K, N]`, ordinary tensors of float16 or bfloat16 that differ between ranks: each rank
    has its part of a longer K. Returns rows `[rank * m, rank * m + m)` of the sum, `[m, N]` in that type, in `out` or a new
    tensor. K and N are multiples of 8. `work` is a symmetric line of at least `work_elements(world_size * m, N, world_size)`
    elements of that type, whose contents are lost; one serves calls that follow each other in a stream. Products are added in
    float32; those of other ranks have been rounded to the type. The same inputs give the same bits. `config` is that of
    `weft.kernels.matmul`. Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype,
    kernels-ranks-shape, and those of `matmul`.
    """
    what = "matmul_reduce_scatter"
    left, right, room = _factors(what, a, b, work)
    if left.shape[0] % work.world_size:
        refuse_shape(what, "a", left, left.dtype, (f"a multiple of {work.world_size}", OF_8))
    m, columns = left.shape[0] // work.world_size, right.shape[1]
    if out is None:
        out = empty_like(b, (m, columns), left.dtype)
    check_shape(what, "out", flat(what, "out", out), left.dtype, (m, columns))
    if work.world_size == 1 or not m * columns:
        return matmul(a, b, out, config=config, stream=stream)
    parts = [a[rank * m : rank * m + m] for rank in range(work.world_size)]
    slots = _send(what, parts, b, work, room, config, stream)
    _add(parts[work.rank], b, out, slots, config, stream)
    return out


def matmul_all_reduce(
    a: Any, b: Any, work: Symmetric, out: Symmetric, *, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """The sum over all ranks of `A @ B`, on every rank, whose tiles are sent as they are multiplied.

    `a` is `[M, K]` and `b` `[K, N]`, ordinary tensors of float16 or bfloat16 that differ between ranks: each rank has its part
    of a longer K. The sum is in `out`, symmetric, `[M, N]` of that type, of which the tensor is returned; all ranks get the
    same bits. Everything else as for `matmul_reduce_scatter`, with `work_elements(M, N, world_size)` elements of `work`.
    """
    what, count = "matmul_all_reduce", work.world_size if isinstance(cast("object", work), Symmetric) else 1
    left, right, room = _factors(what, a, b, work)
    shape = left.shape[0], right.shape[1]
    check_shape(what, "out", symmetric(what, "out", out), left.dtype, shape)
    if count == 1 or not shape[0] * shape[1]:
        return matmul(a, b, out.tensor, config=config, stream=stream)
    share = _share(shape[0], count)
    parts = [a[rank * share : rank * share + share] for rank in range(count)]
    slots = _send(what, parts, b, work, room, config, stream)
    first, own = work.rank * share, parts[work.rank]
    for start, end in _pieces(int(own.shape[0]), shape[1] * ITEMSIZE[left.dtype]):
        target = out.tensor[first + start : first + end]
        _add(own[start:end], b, target, [slot[start:end] for slot in slots], config, stream)
        with out.group.aside(stream):
            for hop in range(1, count):
                out.group.copy(target, (out.rank + hop) % count, target)
    out.group.rejoin(stream)
    meet(work, what, stream)
    return out.tensor


def _send(what: str, parts: Sequence[Any], b: Any, work: Symmetric, room: Flat, config: Any, stream: Any) -> list[Any]:
    """Multiply the rows of all other ranks, and store each product to its rank. Returns what has come for this one: a matrix of
    its rows from each other rank, in the order of the hops to them."""
    count, columns = work.world_size, int(b.shape[1])
    high = int(parts[0].shape[0])
    if room.dtype != flat(what, "b", b).dtype or room.size < (count - 1) * high * columns:
        refuse_shape(what, "work", room, flat(what, "b", b).dtype, (f"at least {(count - 1) * high * columns}",))
    line = work.tensor.reshape(-1)[: (count - 1) * high * columns].reshape(count - 1, high, columns)
    # What the launch before has received has been read on all ranks.
    meet(work, what, stream)
    for hop in range(1, count):
        owner = (work.rank + hop) % count
        rows = parts[owner]
        if rows.shape[0]:
            matmul(rows, b, work.group.part(line[hop - 1, : rows.shape[0]], owner), config=config, stream=stream)
    meet(work, what, stream)
    own = int(parts[work.rank].shape[0])
    return [line[hop, :own] for hop in range(count - 1)]


def _add(rows: Any, b: Any, out: Any, slots: Sequence[Any], config: Any, stream: Any) -> None:
    """The product of own rows plus what has come from other ranks."""
    first, *others = slots
    more = {"epilogue": add_all, "extras": tuple(others)} if others else {}
    matmul(rows, b, out, residual=first, config=config, stream=stream, **more)


@jit
def add_all(x, rows, columns, extras):
    """The epilogue of a sum of more than two ranks."""
    for k in gl.static_range(len(extras)):
        x += extras[k]
    return x


def _pieces(rows: int, row_bytes: int) -> list[tuple[int, int]]:
    """The first row of each piece that is sent by itself, and the row behind its last one."""
    count = max(min(rows * row_bytes // PART_BYTES, MOST_PARTS), 1)
    each = max(-(-rows // (count * ROWS)), 1) * ROWS
    return [(start, min(start + each, rows)) for start in range(0, rows, each)]


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
