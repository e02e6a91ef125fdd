"""`rope`: rotary position embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.rotary import rotate
from weft.kernels.rows.calls import empty_like, launched, prepared
from weft.kernels.rows.operands import FLOATS, INTEGERS, Lines, lines_of, measured, merged, parameter, vector_of
from weft.kernels.rows.plan import ACCESS_BYTES, BACKWARD_REGISTERS, USUAL_WARPS, power_of_two
from weft.layout import WARP_SIZE

HELD = USUAL_WARPS * WARP_SIZE * 64
"""Elements of a program, 64 of each thread: the cosines and sines that it loads for them are fewer."""


@dataclass(frozen=True, slots=True)
class Heads:
    """An array as tokens of heads: counts, elements of a head, distances in elements, and as `Lines` for messages."""

    tokens: int
    heads: int
    width: int
    token_stride: int
    head_stride: int
    lines: Lines


@prepared("out")
def rope(
    x: Any, cos: Any, sin: Any, *, positions: Any = None, interleaved: bool = False, inverse: bool = False, out: Any = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """Rotate pairs of elements of each head by the angle of the token's position.

    x [..., S, H, D] holds H heads of D elements for each token; heads are contiguous, and tokens and heads may lie apart, as in
    a part of a projection of q, k and v together. cos and sin [P, R/2] have a row for each position; R may be less than D, and
    the elements behind the first R are copied. A pair is (x[i], x[R/2 + i]), or if `interleaved` (x[2 i], x[2 i + 1]), and
    becomes (a * cos - b * sin, a * sin + b * cos). The position of a token is its index along S, or as given by `positions`
    [..., S], integers. `inverse` rotates back: that is the gradient.

    x is float32, float16 or bfloat16, cos and sin any of these; it is computed in float32. Returns `out`, like x, which may be
    x. A position that cos has no row for is reported by the simulator and debug builds, and rotates by nothing.

    Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides, kernels-rows-shape, kernels-rows-devices,
    kernels-rows-parameter, kernels-out-needed, kernels-out-overlaps.
    """
    op = "rope"
    source = _heads(op, "x", x)
    table = _table(op, cos, sin, source)
    sequence = source.lines.shape[-3]
    if positions is not None:
        vector_of(op, "positions", positions, source.lines, source.tokens, INTEGERS)
    elif sequence > table.rows:
        raise parameter(
            op, "positions", None, f"positions below {table.rows}, the rows of cos: x has {sequence} tokens"
        )
    out, target, same = _output(op, x, out, source)
    if not (source.tokens and source.heads and source.width):
        return out
    pairs = table.cols
    unit = _unit(source, target, pairs)
    tokens, heads, wide, layout = _division(source, pairs, unit, interleaved)
    rest = source.width - 2 * pairs
    sizes = source.tokens, sequence, source.heads, table.rows, table.pitch, pairs, rest
    strides = source.token_stride, source.head_stride, target.token_stride, target.head_stride
    grid = -(-source.tokens // tokens), -(-source.heads // heads)
    sign, unrotated = -1.0 if inverse else 1.0, 0 if same else int(rest > 0)
    chosen = bool(interleaved), unit, gcd(table.pitch, ACCESS_BYTES), unrotated, (tokens, heads, wide), layout
    options: dict[str, Any] = {"num_warps": USUAL_WARPS, "maxnreg": BACKWARD_REGISTERS}
    launched(rotate, grid, (x, cos, sin, positions, out, *sizes, *strides, sign, *chosen), options, stream)
    return out


def _table(op: str, cos: Any, sin: Any, source: Heads) -> Lines:
    """The cosines, which lie as the sines do: [positions, pairs]. Raises LaunchError."""
    table, other = lines_of(op, "cos", cos), lines_of(op, "sin", sin)
    for each in (table, other):
        if len(each.shape) != 2 or each.shape != table.shape or each.pitch != table.pitch:
            raise _shape(op, each.name, each.shape, list(table.shape), source, "rows as far apart as those of cos")
        if each.device != source.lines.device:
            first = source.lines.place
            raise fail(errors.ROWS_DEVICES, op=op, name=each.name, other=each.place, x="x", first=first)
    if 2 * table.cols > source.width:
        raise _shape(op, "cos", table.shape, [table.rows, source.width // 2], source)
    return table


def _output(op: str, x: Any, out: Any, source: Heads) -> tuple[Any, Heads, bool]:
    """`out` or a new array, and whether it is x itself. Raises LaunchError, also if it overlaps x otherwise."""
    same = out is x
    if out is None:
        out = empty_like(x, source.lines.shape, source.lines.dtype)
    target = _heads(op, "out", out, (source.lines.dtype,))
    if target.lines.shape != source.lines.shape:
        raise _shape(op, "out", target.lines.shape, list(source.lines.shape), source)
    same = same or (target.lines.pointer, target.token_stride, target.head_stride) == (
        source.lines.pointer, source.token_stride, source.head_stride
    )  # fmt: skip
    (low, high), (first, end) = target.lines.span, source.lines.span
    if low < end and first < high and not same:
        raise fail(errors.OUT_OVERLAPS, name="x")
    return out, target, same


def _division(source: Heads, pairs: int, unit: int, interleaved: bool) -> tuple[int, int, int, gl.BlockedLayout]:
    """Tokens and heads of a program, the width of its tile, and the layout, for accesses of `unit` elements."""
    # Both elements of a pair lie in one thread.
    each = max(unit, 2) if interleaved else unit
    wide = max(power_of_two(2 * pairs if interleaved else pairs), each)
    across = min(wide // each, WARP_SIZE)
    held = HELD if interleaved else HELD // 2
    heads = min(power_of_two(source.heads), max(held // wide, 1))
    tokens = min(max(held // (wide * heads), 1), power_of_two(source.tokens))
    lanes = WARP_SIZE // across
    down = min(lanes, heads)
    # A thread has heads of one token, as far as possible, so that it loads cosines and sines once.
    warps_of_heads = min(max(USUAL_WARPS // tokens, 1), max(heads // down, 1))
    layout = gl.BlockedLayout(
        [1, 1, each], [lanes // down, down, across], [USUAL_WARPS // warps_of_heads, warps_of_heads, 1], [2, 1, 0]
    )
    return tokens, heads, wide, layout


def _unit(source: Heads, target: Heads, pairs: int) -> int:
    """Elements of an access."""
    unit = ACCESS_BYTES // source.lines.itemsize
    for each in (source, target):
        strides = (each.token_stride if each.tokens > 1 else 0) | (each.head_stride if each.heads > 1 else 0)
        numbers = (strides | pairs) * each.lines.itemsize | each.lines.pointer
        while unit > 1 and numbers % (unit * each.lines.itemsize):
            unit //= 2
    return unit


def _heads(op: str, name: str, value: Any, dtypes: tuple[str, ...] = FLOATS) -> Heads:
    """An array [..., S, H, D]. Raises LaunchError: as `lines_of`."""
    fewer = "an array of fewer than three dimensions, [..., S, H, D]"
    found, shape, strides = measured(op, name, value, dtypes, 3, fewer)
    tokens, step = merged(op, name, found.dtype, shape, strides, 2)
    reach = (tokens - 1) * step + (shape[-2] - 1) * strides[-2] + shape[-1]
    # For messages and overlaps one row that reaches from the first element to the last.
    lines = Lines(name, found.dtype, shape, 1, reach if tokens * shape[-2] else 0, 0, found.pointer, found.device)
    return Heads(tokens, shape[-2], shape[-1], step, strides[-2], lines)


def _shape(op: str, name: str, got: Any, want: Any, x: Heads, also: str = "") -> Exception:
    want = f"{want}, with {also}" if also else want
    return fail(errors.ROWS_SHAPE, op=op, name=name, got=list(got), want=want, x="x", of=list(x.lines.shape))
