"""`count_experts` and `sort_experts`: how many tokens each expert has, and in which order they are together."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.experts import LANES, add_chunks, count_chunks, place_chunks
from weft.kernels.machines import target_of
from weft.kernels.memory import fill_zero, used_on
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.operands import INTEGERS, Lines, parameter, vector_of
from weft.kernels.rows.plan import power_of_two
from weft.plain import whole
from weft.runtime.arguments import array, extents

CHUNK, WARPS = 1024, 4
"""Elements and warps of a program."""
MOST = 4096
"""Most experts: their counts lie in the registers of a program."""
ADDED = 64
"""Chunks that a program adds up at a time."""


class Sorted(NamedTuple):
    """What `sort_experts` returns."""

    order: Any
    places: Any
    counts: Any
    offsets: Any


@prepared()
def count_experts(ids: Any, experts: int, *, stream: Any = None) -> Any:
    """How often each of the numbers 0 ... experts - 1 is in `ids`: an int32 array [experts].

    ids is a contiguous int32 or int64 array of any shape and array type, below 2^31 elements, and there are at most 4,096
    experts. Numbers that are none of these are reported by the simulator and debug builds, and are not counted. No atomics are
    used. Host arrays are simulated.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-parameter,
    kernels-out-needed.
    """
    source = _ids("count_experts", ids, experts)
    counts = empty_like(ids, (experts,), "int32")
    if not source.cols:
        fill_zero(counts)
        return counts
    partial = _counted(ids, source, experts, stream)
    _added(partial, None, counts, source, experts, stream)
    used_on(partial, stream)
    return counts


@prepared()
def sort_experts(ids: Any, experts: int, *, stream: Any = None) -> Sorted:
    """The order of the elements of `ids` by number, stable: of equal numbers those at lower positions come first.

    Returns `order`, the positions of elements in the new order (ids.ravel()[order] is sorted), `places`, where each element
    has gone (its inverse), `counts` as of `count_experts`, and `offsets` [experts + 1], where each number begins; all int32.
    With the indices of `topk_gating`, order // k are the tokens of the rows of a grouped product. Three launches, or one up to
    1,024 elements, and no atomics: the result is the same each time. Otherwise as `count_experts`; elements whose number is
    none of an expert have no place, and leave theirs undefined.
    """
    return sorted_by(ids, experts, stream)


def sorted_by(ids: Any, experts: int, stream: Any) -> Sorted:
    """`sort_experts`, as a part of a call that is prepared as a whole."""
    source = _ids("sort_experts", ids, experts)
    order, places = (empty_like(ids, (source.cols,), "int32") for _ in range(2))
    counts, offsets = empty_like(ids, (experts,), "int32"), empty_like(ids, (experts + 1,), "int32")
    # Of no elements, one empty chunk stores counts and offsets of 0: a launch is what a prepared call repeats.
    chunks, before, temporaries = max(_chunks(source), 1), None, []
    if chunks > 1:
        partial, before = _counted(ids, source, experts, stream), empty_like(ids, (chunks, experts), "int32")
        _added(partial, before, counts, source, experts, stream)
        temporaries = [partial, before]
    chained = target_of(source.device).has_programmatic_launch
    arguments = ids, before, counts, offsets, order, places, source.cols, experts, CHUNK, _bins(experts), chained
    launched(place_chunks, chunks, arguments, {"num_warps": WARPS}, stream)
    for temporary in temporaries:
        used_on(temporary, stream)
    return Sorted(order, places, counts, offsets)


def _counted(ids: Any, source: Lines, experts: int, stream: Any) -> Any:
    partial = empty_like(ids, (_chunks(source), experts), "int32")
    sizes = source.cols, experts, CHUNK, _bins(experts)
    launched(count_chunks, _chunks(source), (ids, partial, *sizes), {"num_warps": WARPS}, stream)
    return partial


def _added(partial: Any, before: Any, counts: Any, source: Lines, experts: int, stream: Any) -> None:
    layout = gl.BlockedLayout([ADDED // WARPS, 1], [1, LANES], [WARPS, 1], [1, 0])
    sizes = _chunks(source), experts, ADDED, layout
    launched(add_chunks, -(-experts // LANES), (partial, before, counts, *sizes), {"num_warps": WARPS}, stream)


def _chunks(source: Lines) -> int:
    return -(-source.cols // CHUNK)


def _bins(experts: int) -> int:
    return max(power_of_two(experts), WARPS * LANES)


def _ids(op: str, ids: Any, experts: Any) -> Lines:
    if whole(experts) is None or not 1 <= experts <= MOST:
        raise parameter(op, "experts", experts, f"an int from 1 to {MOST}")
    found, measured = array(ids), extents(ids)
    if found is None or measured is None:
        raise fail(errors.ROWS_ARRAY, op=op, name="ids", got=f"a {type(ids).__name__}")
    count = prod(int(n) for n in measured[0])
    x = Lines("ids", found.dtype, (count,), 1, count, count, found.pointer, found.device)
    if count >= 1 << 31:
        raise parameter(op, "ids", f"{count} elements", "fewer than 2^31 elements")
    vector_of(op, "ids", ids, x, count, INTEGERS)
    return x
