"""The k largest or smallest elements of rows, one warp a row (or part of a row), at the speed of reading them.

A warp keeps the best elements in a list and compares what it reads with the worst of them. A chunk without a better element
costs a load and a maximum per element; of the others the better elements are appended to a buffer in shared memory. When
enough have come together, list and buffer are sorted and the threshold rises, so the buffer fills ever more slowly: a row of
n random elements has about k * ln(n / k) of them. The first threshold comes from the first chunk, divided into groups: k of
their maxima are at least as large as the k-th of them.

Elements are compared and sorted by 64-bit keys: upper half, the value as an integer of the same order, lower half, the
position from the end, so that of equal values the first is the best."""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.selection_plan import Selection

LOWEST = -(1 << 63)
LAST = (1 << 31) - 1
MERGE_WARPS = 4
"""Warps of a program that merges the parts of a row."""


@jit
def wide(x):
    """The type in which elements are compared: float32 or int32."""
    return x.to(gl.float32) if x.dtype.is_floating() else x.to(gl.int32)


@jit
def keys_of(x, position, plan: gl.constexpr):
    """Keys of compared elements at these positions of their row."""
    if x.dtype == gl.float32:
        # NaN counts as the largest number; adding 0 makes -0 equal to +0.
        bits = (x + 0.0).to(gl.int32, bitcast=True)
        number = gl.where(x == x, bits ^ ((bits >> 31) & LAST), LAST)
    else:
        number = x
    number = number if plan.largest else ~number
    return (number.to(gl.int64) << 32) | (LAST - position).to(gl.int64)


@jit
def value_of(key, plan: gl.constexpr):
    """The compared element of a key."""
    number = (key >> 32).to(gl.int32)
    number = number if plan.largest else ~number
    if plan.floating:
        return (number ^ ((number >> 31) & LAST)).to(gl.float32, bitcast=True)
    return number


@jit
def position_of(key):
    """The position of a key's element."""
    return LAST - (key & 0xFFFFFFFF)


@jit
def extreme(x, axis: gl.constexpr, plan: gl.constexpr):
    """The best element along an axis. NaN is the largest number: a maximum keeps it, a minimum passes over it."""
    if not plan.largest:
        return gl.min(x, axis)
    if plan.floating:
        return gl.reduce(x, axis, either_nan)
    return gl.max(x, axis)


@jit
def either_nan(a, b):
    """The larger of two numbers, NaN if one is."""
    return gl.maximum(a, b, propagate_nan=gl.PropagateNan.ALL)


@jit
def beats(x, threshold, plan: gl.constexpr):
    """Whether an element may be better than the threshold. NaN on either side may be: the keys decide."""
    return ~(x <= threshold) if plan.largest else ~(x >= threshold)


@jit
def ties(x, threshold, plan: gl.constexpr):
    """Whether an element may be as good as the threshold."""
    return ~(x < threshold) if plan.largest else ~(x > threshold)


@jit
def first_threshold(x, plan: gl.constexpr):
    """A lower bound of the k-th best element of a chunk: the k-th of its groups' best ones."""
    best = extreme(gl.reshape(x, [plan.chunk // plan.groups, plan.groups]), 0, plan)
    return nth(gl.topk(best, plan.size, descending=plan.largest), plan.k - 1)


@jit
def nth(x, n: gl.constexpr):
    """Element n of a tile, as a scalar."""
    at = gl.set_auto_layout(gl.arange(0, x.shape[0], gl.AutoLayout()), x.layout)
    return gl.sum(gl.where(at == n, x, 0))


@jit
def along(position, column_stride, plan: gl.constexpr):
    """The offset of a position in its row; vectors are of neighbouring elements."""
    return position if plan.unit > 1 else position.to(gl.int64) * column_stride


@jit
def store_best(best, values, indices, keys, row, plan: gl.constexpr):
    """Store the k best keys of a row as values and positions, or, for a part of a row, all of them as they are."""
    at = gl.set_auto_layout(gl.arange(0, plan.size, gl.AutoLayout()), best.layout)
    if plan.parts > 1:
        gl.store(keys + (row.to(gl.int64) * plan.parts + gl.program_id(1)) * plan.size + at, best)
    else:
        place = row.to(gl.int64) * plan.k + at
        gl.store(values + place, value_of(best, plan).to(plan.dtype), mask=at < plan.k)
        gl.store(indices + place, position_of(best), mask=at < plan.k)


@jit
def select_short(
    x, values, indices, keys, columns, row_stride, column_stride, plan: gl.constexpr[Selection]
) -> None:  # fmt: skip
    """Rows of at most one chunk, each sorted as a whole."""
    row = gl.program_id(0)
    at = gl.arange(0, plan.chunk, gl.BlockedLayout([plan.chunk // 32], [32], [1], [0]))
    inside = at < columns
    start = x + row.to(gl.int64) * row_stride
    element = wide(gl.load(start + along(at, column_stride, plan), mask=inside, other=0))
    best = gl.topk(gl.where(inside, keys_of(element, at, plan), LOWEST), plan.size)
    store_best(best, values, indices, keys, row, plan)


@jit
def merged(buffer, held, plan: gl.constexpr):
    """Sort the list and the keys behind it, `held` in all, and put the best ones to the front. Returns the new threshold."""
    listed: gl.constexpr = list_layout(plan)
    start = gl.to_tensor(plan.size)
    if plan.sorted == 2 * plan.size:
        # The better ones of pairs from opposite ends of two sorted lists are the best of both, and rise and fall.
        best = buffer.slice(0, plan.size).load(listed)
        while start < held:
            line = start + gl.arange(0, plan.size, listed)
            keys = gl.sort(gl.where(line < held, buffer.gather(line, 0), LOWEST))
            best = gl.bitonic_merge(gl.maximum(best, keys), descending=True)
            start += plan.size
        buffer.slice(0, plan.size).store(best)
        return value_of(nth(best, plan.k - 1), plan)
    while start < held:
        # The list lies in front of the keys that it meets, and ends up in front of the next ones.
        line = start - plan.size + gl.arange(0, plan.sorted, gl.BlockedLayout([1], [32], [1], [0]))
        best = gl.topk(gl.where(line < held, buffer.gather(line, 0), LOWEST), plan.size)
        at = gl.set_auto_layout(gl.arange(0, plan.size, gl.AutoLayout()), best.layout)
        start += plan.sorted - plan.size
        buffer.scatter(best, gl.where(start < held, start - plan.size, 0) + at, 0)
    return value_of(nth(buffer.slice(0, plan.size).load(listed), plan.k - 1), plan)


@gl.constexpr_function
def list_layout(plan):
    """The layout of the list of the best keys."""
    return gl.BlockedLayout([max(1, plan.size // 32)], [32], [1], [0])


@jit
def kept(buffer, held, threshold, candidate, position, chosen, plan: gl.constexpr):
    """Append the chosen elements to the buffer, and sort it if enough have come together. Returns the buffer's length and the
    threshold."""
    rank = gl.cumsum(chosen.to(gl.int32), 0)
    # What is not chosen goes to the last place, which nothing reads.
    buffer.scatter(keys_of(candidate, position, plan), gl.where(chosen, held + rank - 1, plan.capacity - 1), 0)
    held += gl.sum(chosen.to(gl.int32))
    if held >= plan.sorted:
        threshold = merged(buffer, held, plan)
        held = gl.to_tensor(plan.size)
    return held, threshold


@jit
def select(
    x, values, indices, keys, columns, row_stride, column_stride, offset, plan: gl.constexpr[Selection]
) -> None:  # fmt: skip
    """Rows, or parts of rows, of at least one chunk; see the module. `offset` is the address of the first element, in elements,
    modulo `plan.unit`."""
    row = gl.program_id(0)
    start = x + row.to(gl.int64) * row_stride
    buffer = gl.allocate_shared_memory(gl.int64, [plan.capacity], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    buffer.store(gl.full([plan.capacity], LOWEST, gl.int64, gl.BlockedLayout([1], [32], [1], [0])))
    head, width = 0, columns
    if plan.ragged:
        # From here on a row is what lies between its first and last aligned addresses; the elements before and behind follow.
        head = ((-offset - row.to(gl.int64) * row_stride) & (plan.unit - 1)).to(gl.int32)
        width = gl.multiple_of((columns - head) // plan.unit * plan.unit, plan.unit)
    elif plan.unit > 1:
        width = gl.multiple_of(width, plan.unit)
    if plan.unit > 1:
        start = gl.multiple_of(start + head, plan.unit * x.dtype.element_ty.itemsize)
    span = gl.cdiv(gl.cdiv(width, plan.parts), plan.chunk) * plan.chunk
    first = gl.program_id(1) * span if plan.parts > 1 else 0
    end = min(first + span, width)
    chunk = gl.arange(0, plan.chunk, gl.BlockedLayout([plan.unit], [32], [1], [0]))
    piece = gl.arange(0, plan.piece, gl.BlockedLayout([plan.piece // 32], [32], [1], [0]))
    # A short last part of a row looks at elements before it too: the bound then holds for all parts together.
    threshold = first_threshold(
        wide(gl.load(start + along(min(first, end - plan.chunk) + chunk, column_stride, plan))), plan
    )
    held = gl.to_tensor(plan.size)
    pieces: gl.constexpr = plan.grid[0][0]
    for at in range(first, end, plan.chunk):
        # The last chunk is read from the end of the row; what is before `at` has been seen.
        begin = min(at, end - plan.chunk)
        element = wide(gl.load(start + along(begin + chunk, column_stride, plan)))
        better = beats(extreme(gl.reshape(element, plan.grid[0]), plan.grid[1], plan), threshold, plan)
        number = gl.set_auto_layout(gl.arange(0, pieces, gl.AutoLayout()), gl.SliceLayout(1, better.layout))
        hits = gl.reduce_or(gl.where(better, 1 << number[:, None], 0))
        opening = at == first
        hits = gl.where(opening, (1 << pieces) - 1, hits)
        while hits != 0:
            place = begin + gl.popcount((hits & -hits) - 1) * plan.piece + piece
            hits &= hits - 1
            candidate = wide(gl.load(start + along(place, column_stride, plan)))
            chosen = beats(candidate, threshold, plan) | (opening & ties(candidate, threshold, plan))
            chosen &= place >= at
            held, threshold = kept(buffer, held, threshold, candidate, head + place, chosen, plan)
    if plan.ragged and first == 0:
        lane = gl.arange(0, 32, gl.BlockedLayout([1], [32], [1], [0]))
        place = gl.where(lane < head, lane - head, width + lane - head)
        inside = lane < columns - width
        candidate = wide(gl.load(start + place, mask=inside, other=0))
        # Those before all others win ties, those behind lose them.
        chosen = beats(candidate, threshold, plan) | ((place < 0) & ties(candidate, threshold, plan))
        held, threshold = kept(buffer, held, threshold, candidate, head + place, inside & chosen, plan)
    merged(buffer, held, plan)
    store_best(buffer.slice(0, plan.size).load(list_layout(plan)), values, indices, keys, row, plan)


@jit
def merge(keys, values, indices, plan: gl.constexpr[Selection]) -> None:
    """The best of all parts of a row; `plan.chunk` is their number of keys, rounded up."""
    row = gl.program_id(0)
    count: gl.constexpr = plan.keys
    at = gl.arange(0, plan.chunk, gl.BlockedLayout([max(1, plan.chunk // 128)], [32], [MERGE_WARPS], [0]))
    key = gl.load(keys + row.to(gl.int64) * count + at, mask=at < count, other=LOWEST)
    store_best(gl.topk(key, plan.size), values, indices, keys, row, plan)
