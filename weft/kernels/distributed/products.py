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

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernel import Repeated
from weft.kernels.config import MatmulConfig
from weft.kernels.device import ranks
from weft.kernels.device.epilogue import add_extras
from weft.kernels.distributed.operands import (
    HALVES,
    Flat,
    Launch,
    call_key,
    check_dtype,
    check_group,
    check_shape,
    flat,
    group_name,
    meeting,
    refuse_shape,
    remember,
    remembered,
    symmetric,
)
from weft.kernels.distributed.rooms import room_of
from weft.kernels.memory import empty_like
from weft.kernels.multiply import matmul, product_of
from weft.kernels.product import Product
from weft.plain import whole as whole_number
from weft.runtime.dtypes import ITEMSIZE

OF_8 = "a multiple of 8"
"""Rows of 16-bit elements that begin at multiples of 16 bytes, as TMA needs."""
CHUNK_BYTES = 16 << 20
"""About as many bytes are sent before their receiver is told: a copy engine takes 46 us for them between two H200."""
MOST_CHUNKS = 16
"""Chunks of the rows of a rank."""
ROWS = 128
"""Chunks are multiples of so many rows, as tiles are."""
PART_BYTES = 16 << 20
"""An all-reduce sends its rows in parts of about so many bytes."""
MOST_PARTS = 4
"""It has so many parts at most. More parts are products of fewer tiles: with
2, 4 and 8 parts of 4096 x 8192 an all-reduce took 965, 939 and 1,151 us on two H200."""


def all_gather_matmul(
    a: Symmetric, b: Any, out: Any = None, *, chunk: int | None = None, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """`A @ B` with the rows of A sharded over the ranks: a product that multiplies chunks of rows as they arrive.

    `a` is `[world_size, m, K]`, and rank r has written `a[r]`, its rows; afterwards `a` holds all of A on every rank. `b` is
    `[K, N]`, of the same type (float16 or bfloat16). Returns `[world_size * m, N]` in that type, in `out` or a new tensor:
    every rank computes all rows, its own first. K and N are multiples of 8, and N is 0 on all ranks or on none. Sums are in
    float32. Copy engines send the rows, `chunk` of them at a time (alike on all ranks; by default about 16 MiB), and take no
    multiprocessor from the product. `config` is that of `weft.kernels.matmul`, of a variant with a producer. Needs Hopper
    (`wgmma`). Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-shape,
    kernels-ranks-config, and those of `matmul`.
    """
    what = "all_gather_matmul"
    key = None if out is None else call_key(what, b, out, chunk, config)
    found: _Gathering | None = remembered(a, key)
    if found is not None:
        return found.multiply(b, out, stream)
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
    rows = _chunk_rows(m, depth * ITEMSIZE[left.dtype]) if chunk is None else chunk
    if whole_number(rows) is None or not -(-m // MOST_CHUNKS) <= rows:
        raise fail(errors.RANKS_CHUNK, what=what, got=repr(chunk), rows=m, most=MOST_CHUNKS, least=-(-m // MOST_CHUNKS))
    product = product_of(whole, b, out, config, _cannot_gather)
    if config is None or not product.config.group:
        product = replace(product, config=replace(product.config, group=_bands(product, m)))
    # Each rank counts the words of the others by its own chunks.
    with a.group.agree(f"chunk of {what}", str(rows)) or nullcontext():
        gathering = _Gathering.of(a, whole, product, rows)
    return remember(a, key, gathering).multiply(b, out, stream)


@dataclass(frozen=True, slots=True)
class _Gathering:
    """A product of rows that are gathered: what begins it, and sends the own rows with a word for each chunk."""

    a: Symmetric
    whole: Any
    begin: Launch
    sends: Sequence[Callable[[], None]]
    product: Product
    gathered: tuple[Symmetric, int, int]
    repeated: Repeated

    @staticmethod
    def of(a: Symmetric, whole: Any, product: Product, rows: int) -> _Gathering:
        """The product of all rows, `whole`, of which so many are gathered at a time."""
        m, own = int(a.tensor.shape[1]), a.tensor[a.rank]
        words = room_of(a, "arrivals", (a.world_size * MOST_CHUNKS,), "int32")
        room = 1 << (a.world_size * MOST_CHUNKS - 1).bit_length()
        parts = [own[first : first + rows] for first in range(0, m, rows)]
        sends: list[Callable[[], None]] = []
        for hop in range(1, a.world_size):
            # The rank behind this one needs these rows first.
            receiver = (a.rank - hop) % a.world_size
            for number, part in enumerate(parts, a.rank * len(parts)):
                sends.append(a.group.copying(part, receiver, part))
                sends.append(words.group.writing(words.tensor, receiver, number, 1))
        begin = Launch(ranks.expect_chunks, 1, (words, len(parts), room), num_warps=1)
        # The launches differ in a, b and the output.
        repeated = Repeated(product.kernel, range(3))
        return _Gathering(a, whole, begin, sends, product, (words, m, rows), repeated)

    def multiply(self, b: Any, out: Any, stream: Any) -> Any:
        """Multiply, while the rows of all ranks are sent."""
        self.begin.on(stream)
        self.a.group.beside(stream, lambda: self._launch(b, out, stream), self._send)
        return out

    def _launch(self, b: Any, out: Any, stream: Any) -> None:
        product, run = self.product, self.repeated.ready()
        operands = (b, self.whole) if product.config.swap else (self.whole, b)
        if run is None:
            arguments = (*product.arguments(*operands, out, None), self.gathered, product.config.swap)
            self.repeated.launch(product.grid, *arguments, **product.options, stream=stream)
        else:
            run(stream, *(of(x) for of, x in zip(product.parts, (*operands, out), strict=True)))

    def _send(self) -> None:
        for send in self.sends:
            send()


def _cannot_gather(config: MatmulConfig) -> str | None:
    """What of a configuration does not allow to wait for rows, if anything: its producer loads them by TMA, tile by tile."""
    if config.variant not in ("cooperative", "ping_pong"):
        return f"variant={config.variant!r}"
    several = [name for name in ("cluster", "shares", "splits") if getattr(config, name) != 1]
    return f"{several[0]}={getattr(config, several[0])}" if several else "pack=True" if config.pack else None


def _bands(product: Product, m: int) -> int:
    """The rows of tiles that are walked together, column by column: a band with rows of two ranks would wait for those of the
    other one. About as many as are best, such that equal bands are the rows of a rank; all of them where columns are
    gathered."""
    if product.config.swap:
        return -(-product.out.shape[0] // product.rows)
    each, best = -(-m // product.rows), product.plan.group
    bands = -(-each // best)
    even = next((count for count in range(bands, min(2 * bands, each) + 1) if each % count == 0), bands)
    return -(-each // even)


def _chunk_rows(m: int, row_bytes: int) -> int:
    chunks = max(min(m * row_bytes // CHUNK_BYTES, MOST_CHUNKS), 1)
    return -(-m // (chunks * ROWS)) * ROWS


def work_elements(rows: int, columns: int, ranks: int) -> int:
    """The elements of `work` for `matmul_reduce_scatter` and `matmul_all_reduce` with a product of `rows` (of all ranks
    together) by `columns`."""
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
    key = None if out is None else call_key(what, a, b, out, config)
    found: _Sums | None = remembered(work, key)
    if found is not None:
        return found.scatter(a, b, out, stream)
    left, right, room = _factors(what, a, b, work)
    if left.shape[0] % work.world_size:
        refuse_shape(what, "a", left, left.dtype, (f"a multiple of {work.world_size}", OF_8))
    m, columns = left.shape[0] // work.world_size, right.shape[1]
    if out is None:
        out = empty_like(b, (m, columns), left.dtype)
    check_shape(what, "out", flat(what, "out", out), left.dtype, (m, columns))
    if work.world_size == 1 or not m * columns:
        return matmul(a, b, out, config=config, stream=stream)
    return remember(work, key, _Sums.of(what, a, b, work, room, m, config)).scatter(a, b, out, stream)


def matmul_all_reduce(
    a: Any, b: Any, work: Symmetric, out: Symmetric, *, config: MatmulConfig | dict[str, Any] | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """The sum over all ranks of `A @ B`, on every rank, whose tiles are sent as they are multiplied.

    `a` is `[M, K]` and `b` `[K, N]`, ordinary tensors of float16 or bfloat16 that differ between ranks: each rank has its part
    of a longer K. The sum is in `out`, symmetric, `[M, N]` of that type, of which the tensor is returned; all ranks get the
    same bits. Everything else as for `matmul_reduce_scatter`, with `work_elements(M, N, world_size)` elements of `work`. Also
    raises kernels-ranks-group, of `work` and `out`.
    """
    what = "matmul_all_reduce"
    key = call_key(what, a, b, config)
    found: _Sums | None = remembered(work, key)
    if (
        found is not None
        and isinstance(cast("object", out), Symmetric)
        and out.tensor.shape == (a.shape[0], b.shape[1])
        and out.tensor.dtype == work.tensor.dtype
        and group_name(out) == group_name(work)
    ):
        return found.reduce(a, b, out, stream)
    left, right, room = _factors(what, a, b, work)
    shape, count = (left.shape[0], right.shape[1]), work.world_size
    check_shape(what, "out", symmetric(what, "out", out), left.dtype, shape)
    check_group(what, "out", out, "work", work)
    if count == 1 or not shape[0] * shape[1]:
        return matmul(a, b, out.tensor, config=config, stream=stream)
    return remember(work, key, _Sums.of(what, a, b, work, room, _share(shape[0], count), config)).reduce(
        a, b, out, stream
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """A product whose rows are divided among the ranks, `share` for each but the last ones, to be added up by their ranks.

    `targets`: for each hop to another rank its first row, the row behind its last one, the place of their product there, and
    the configuration; `slots` is what comes from the ranks that are so many hops behind this one."""

    work: Symmetric
    share: int
    targets: Sequence[tuple[int, int, Any, Any]]
    slots: Sequence[Any]
    meeting: Launch
    config: Any

    @staticmethod
    def of(what: str, a: Any, b: Any, work: Symmetric, room: Flat, share: int, config: Any) -> _Sums:
        """The sums for arrays like these. Raises LaunchError (kernels-ranks-shape)."""
        count, rank, (rows, columns) = work.world_size, work.rank, (int(a.shape[0]), int(b.shape[1]))
        size, dtype = (count - 1) * share * columns, flat(what, "b", b).dtype
        if room.dtype != dtype or room.size < size:
            refuse_shape(what, "work", room, dtype, (f"at least {size}",))
        line = work.tensor.reshape(-1)[:size].reshape(count - 1, share, columns)
        targets: list[tuple[int, int, Any, Any]] = []
        for hop in range(1, count):
            owner = (rank + hop) % count
            first, end = _rows_of(owner, share, rows)
            if first < end:
                target = work.group.part(line[hop - 1, : end - first], owner)
                chosen = config or product_of(a[first:end], b, target, None, _takes_turns).config
                targets.append((first, end, target, chosen))
        first, end = _rows_of(rank, share, rows)
        slots = [line[hop, : end - first] for hop in range(count - 1)]
        return _Sums(work, share, targets, slots, meeting(work), config)

    def scatter(self, a: Any, b: Any, out: Any, stream: Any) -> Any:
        """The own rows of the sum."""
        self._send(a, b, stream)
        first = self.work.rank * self.share
        self._add(a[first : first + self.share], b, out, self.slots, stream)
        return out

    def reduce(self, a: Any, b: Any, out: Symmetric, stream: Any) -> Any:
        """All rows of the sum. Each piece of the own ones is copied to all other ranks while the next one is computed."""
        self._send(a, b, stream)
        start, last = _rows_of(self.work.rank, self.share, int(a.shape[0]))
        pieces = _pieces(last - start, out.tensor[0].nbytes)

        def add(piece: tuple[int, int] | None) -> None:
            if piece is None:
                return
            first, end = piece
            rows = slice(start + first, start + end)
            self._add(a[rows], b, out.tensor[rows], [slot[first:end] for slot in self.slots], stream)

        def copy(first: int, end: int) -> None:
            part = out.tensor[start + first : start + end]
            for hop in range(1, out.world_size):
                out.group.copying(part, (out.rank + hop) % out.world_size, part)()

        for before, piece in zip([None, *pieces], [*pieces, None], strict=True):
            if before is None:
                add(piece)
            else:
                out.group.beside(stream, partial(add, piece), partial(copy, *before))
        self.meeting.on(stream)
        return out.tensor

    def _send(self, a: Any, b: Any, stream: Any) -> None:
        """Multiply the rows of all other ranks, into their memory, and know what they have multiplied for this one."""
        # What the launch before has received has been read on all ranks.
        self.meeting.on(stream)
        for first, end, target, config in self.targets:
            matmul(a[first:end], b, target, config=config, stream=stream)
        self.meeting.on(stream)

    def _add(self, rows: Any, b: Any, out: Any, slots: Sequence[Any], stream: Any) -> None:
        """The product of own rows plus what has come from other ranks."""
        first, *others = slots
        more: dict[str, Any] = {"epilogue": add_extras, "extras": tuple(others)} if others else {}
        matmul(rows, b, out, residual=first, config=self.config, stream=stream, **more)


def _rows_of(rank: int, share: int, rows: int) -> tuple[int, int]:
    """The first row of a rank, and the row behind its last one."""
    return min(rank * share, rows), min((rank + 1) * share, rows)


def _takes_turns(config: MatmulConfig) -> str | None:
    """Why a configuration does not suit an output in another rank's memory, if it does not. Where consumers take turns, the
    stores of one hold up the loads of the other: 4096 x 8192 x 4096 took 447 us by ping-pong and 402 by cooperative consumers
    on two H200, where the own memory took 370 and 357."""
    return "consumers that take turns" if config.variant == "ping_pong" else None


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
