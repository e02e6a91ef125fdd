"""The all-to-all of a mixture of experts: tokens to the ranks of their experts, and results back. The kernels are in
`weft.kernels.device.exchanged`."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft import language as gl
from weft.distributed import Symmetric
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device import exchanged
from weft.kernels.distributed.operands import (
    SUMS,
    WARPS,
    Flat,
    chained,
    check_dtype,
    check_flags,
    check_group,
    check_shape,
    flat,
    refuse_shape,
    symmetric,
)
from weft.kernels.memory import used_on
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.experts import CHUNK, sorted_by
from weft.runtime.dtypes import ITEMSIZE

SENT = {name: SUMS[name] for name in ("float16", "bfloat16", "float32")}
"""The types of rows that are added up with weights."""
PROGRAMS = 128
"""Programs of a launch, which all fit on any GPU at once, as their waits for other ranks demand."""
ACCESSES = 4
"""Accesses of a thread that are in flight together: a program of 256 threads has 16 KiB, all of them 2 MiB."""
MOST_SLOTS = 16
"""Experts of a token, each of which is a part of the unrolled kernel."""
MOST_EXPERTS = 4096


class Dispatched(NamedTuple):
    """What `dispatch` returns. `offsets` [experts of this rank + 1]: the rows of each own expert in `rows`; `places`, of the
    shape of `ids`: the row of each token and slot on the rank of its expert, -1 where it went nowhere; both int32."""

    offsets: Any
    places: Any


@prepared()
def dispatch(
    x: Any, ids: Any, experts: int, rows: Symmetric, counts: Symmetric, *, programs: int = PROGRAMS, stream: Any = None
) -> Dispatched:  # fmt: skip
    """Send each token to the ranks of its experts, by one launch behind `sort_experts`.

    `x` `[T, width]` are the tokens of this rank, of any element type; `ids` `[T, k]`, int32 or int64, the experts of each, as
    of `topk_gating`. Of `experts` experts, a multiple of the number of ranks, rank r has those from r * experts / world_size
    on. T may differ between ranks; width and k may not. `rows` `[capacity, width]`, symmetric, receives the tokens of the own
    experts, one expert after the other and within an expert by rank and position there; rows beyond the last one keep what they
    held. `counts` `[world_size, experts]`, symmetric int32, is room for how many tokens each rank has for each expert:
    another rank's next dispatch writes to it at any time.
    With `offsets` of the result, `rows` are the rows of a grouped product.

    Rows beyond `capacity` go nowhere, and their `places` are -1; so do numbers that are none of an expert, which the simulator
    and debug builds report. The result is the same each time. `programs`, alike on all ranks, is the size of the launch.

    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-shape, kernels-ranks-experts,
    kernels-ranks-flags, kernels-ranks-group.
    """
    what = "dispatch"
    given, numbers, slots = _tokens(what, x, ids)
    _check_experts(what, experts, rows)
    room, table = symmetric(what, "rows", rows), symmetric(what, "counts", counts)
    check_group(what, "counts", counts, "rows", rows)
    if room.dtype != given.dtype or len(room.shape) != 2 or room.shape[1] != given.shape[1]:
        refuse_shape(what, "rows", room, given.dtype, ("capacity", given.shape[1]))
    check_shape(what, "counts", table, "int32", (rows.world_size, experts))
    check_flags(what, programs, 2 * programs)
    each, chains = experts // rows.world_size, chained(rows)
    # Before the sort: `offsets` are written while its last launch runs, and may not lie where a temporary of it has been.
    found = Dispatched(empty_like(ids, (each + 1,), "int32"), empty_like(ids, numbers.shape, "int32"))
    ordered = sorted_by(ids, experts, stream)
    lines, columns, tile = _tile(given, ACCESSES)
    bins = max(1 << (experts - 1).bit_length(), WARPS * 32)
    line = gl.BlockedLayout([max(bins // (WARPS * 32), 1)], [32], [WARPS], [0])
    arguments = (
        x, ids, ordered.counts, ordered.offsets, ordered.places, rows, counts, found.offsets, found.places, given.shape[0],
        given.shape[1], experts, each, room.shape[0], slots, programs, lines, columns, tile, bins, line, CHUNK, chains,
    )  # fmt: skip
    launched(exchanged.dispatch, programs, arguments, {"num_warps": WARPS, "launch_pdl": chains}, stream)
    for temporary in ordered:
        used_on(temporary, stream)
    return found


@prepared("out")
def combine(
    rows: Symmetric, ids: Any, places: Any, weights: Any, experts: int, out: Any = None, *, programs: int = PROGRAMS,
    stream: Any = None,
) -> Any:  # fmt: skip
    """The sum of each token's experts' results with weights, `[T, width]`, in `out` or a new tensor.

    `rows` `[capacity, width]`, symmetric, float16, bfloat16 or float32: on each rank the results of its experts, in the rows of
    `dispatch`. `ids` and `places` as given to `dispatch` and returned by it, `weights` `[T, k]` of float32 or the type of the
    rows. Sums are float32, in the order of the slots; a token that went nowhere gets zeros. `programs` as for `dispatch`.

    Raises LaunchError: kernels-ranks-symmetric, kernels-ranks-array, kernels-ranks-dtype, kernels-ranks-shape,
    kernels-ranks-experts, kernels-ranks-flags.
    """
    what = "combine"
    room = symmetric(what, "rows", rows)
    check_dtype(what, room.dtype, SENT)
    if len(room.shape) != 2:
        refuse_shape(what, "rows", room, room.dtype, ("capacity", "width"))
    _check_experts(what, experts, rows)
    numbers = flat(what, "ids", ids)
    slots = _slots(what, numbers)
    check_shape(what, "places", flat(what, "places", places), "int32", numbers.shape)
    factors = flat(what, "weights", weights)
    if factors.shape != numbers.shape or factors.dtype not in ("float32", room.dtype):
        refuse_shape(what, "weights", factors, "float32", numbers.shape)
    shape = numbers.shape[0], room.shape[1]
    if out is None:
        out = empty_like(rows.tensor, shape, room.dtype)
    check_shape(what, "out", flat(what, "out", out), room.dtype, shape)
    check_flags(what, programs, programs)
    lines, columns, tile = _tile(room, max(ACCESSES // slots, 1))
    sizes = *shape, experts // rows.world_size, slots, programs, lines, columns, tile
    launched(exchanged.combine, programs, (rows, ids, places, weights, out, *sizes), {"num_warps": WARPS}, stream)
    return out


def _tokens(what: str, x: Any, ids: Any) -> tuple[Flat, Flat, int]:
    given, numbers = flat(what, "x", x), flat(what, "ids", ids)
    slots = _slots(what, numbers)
    if len(given.shape) != 2 or given.shape[0] != numbers.shape[0]:
        refuse_shape(what, "x", given, given.dtype, (numbers.shape[0], "width"))
    return given, numbers, slots


def _slots(what: str, numbers: Flat) -> int:
    """The number of experts of a token. Raises LaunchError (kernels-ranks-shape)."""
    if len(numbers.shape) != 2 or not 1 <= numbers.shape[1] <= MOST_SLOTS or numbers.dtype not in ("int32", "int64"):
        refuse_shape(what, "ids", numbers, "int32", ("T", f"1 to {MOST_SLOTS}"))
    return numbers.shape[1]


def _check_experts(what: str, experts: int, rows: Any) -> None:
    if isinstance(rows, Symmetric) and (experts % rows.world_size or not 1 <= experts <= MOST_EXPERTS):
        raise fail(errors.RANKS_EXPERTS, what=what, got=experts, ranks=rows.world_size, most=MOST_EXPERTS)


def _tile(rows: Flat, accesses: int) -> tuple[int, int, Any]:
    """Tokens and columns of a program's tile, and its layout, of `accesses` accesses per thread: several tokens if rows are
    short."""
    each = max(16 // ITEMSIZE[rows.dtype], 1)
    wide = 1 << max(rows.shape[1] - 1, 0).bit_length()
    columns = min(max(wide, each), accesses * WARPS * 32 * each)
    lanes = min(columns // each, 32)
    across = min(columns // (each * lanes), WARPS)
    lines = accesses * WARPS * 32 * each // columns
    return lines, columns, gl.BlockedLayout([1, each], [32 // lanes, lanes], [WARPS // across, across], [1, 0])
