"""`elementwise`: a `@weft.jit` function for every vector of a shape, one thread each.

@weft.jit
def add(indices, out, a, b, simd_width: gl.constexpr):
    out.store[simd_width](indices, a.load[simd_width](indices) + b.load[simd_width](indices))

weft.elementwise(add, a.shape, out, a, b, simd_width=4)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

from weft import language as gl
from weft.errors import fail
from weft.errors import launch as errors
from weft.kernel import JITFunction, jit
from weft.plain import whole

BLOCK = 256
MOST = 8
"""Arguments of a function; a kernel has a fixed number of parameters."""


@jit
def each_vector(
    function: gl.constexpr, RANK: gl.constexpr, COUNT: gl.constexpr, WIDTH: gl.constexpr, CONSTANTS: gl.constexpr,
    rows: int, columns: int, vectors: int, start: int,
    a: Any = None, b: Any = None, c: Any = None, d: Any = None, e: Any = None, f: Any = None, g: Any = None, h: Any = None,
) -> None:  # fmt: skip
    """The kernel: thread i calls `function` for vector i. `CONSTANTS` has a tuple for each argument,
    of the value of one that is a constant. The last axis has `vectors` vectors from `start` on, the one before
    `columns` elements, and the one before that `rows`."""
    at = gl.global_idx.x
    if at < rows * columns * vectors:
        last, above = start + at % vectors * WIDTH, at // vectors
        indices = (above // columns, above % columns, last)[3 - RANK :]
        given = (a, b, c, d, e, f, g, h)
        each = [CONSTANTS[k][0] if CONSTANTS[k] else given[k] for k in gl.static_range(COUNT)]
        function(indices, *each, simd_width=WIDTH)


def elementwise(
    function: JITFunction[..., Any], shape: int | Sequence[int], *arguments: Any, simd_width: int = 1
) -> None:
    """Call `function(indices, *arguments, simd_width=...)` in a thread for every vector of `simd_width` elements along the last
    axis of a shape, and with a width of 1 for those that remain at its end.

    `function` is a `@weft.jit` function, `shape` has one to three sizes, and the arguments, up to eight, are those of a launch:
    they decide whether it runs on a GPU or in the simulator. Those of parameters annotated `gl.constexpr` are constants.

    Raises LaunchError: elementwise-function, elementwise-shape.
    """
    sizes = [whole(size) for size in (shape if isinstance(shape, Sequence) else (shape,))]
    width = whole(simd_width)
    known = [size for size in sizes if size is not None and size >= 0]
    if not isinstance(cast("object", function), JITFunction) or len(arguments) > MOST:
        raise fail(errors.ELEMENTWISE, got=type(function).__name__, count=len(arguments), most=MOST)
    if width is None or width < 1 or len(known) != len(sizes) or not 1 <= len(known) <= 3:
        raise fail(errors.ELEMENTWISE_SHAPE, shape=shape, width=simd_width)
    names = [parameter.constexpr for parameter in function.params][1 : 1 + len(arguments)]
    constants = tuple((x,) if constant else () for x, constant in zip(arguments, names, strict=False))
    constants += ((),) * (len(arguments) - len(constants))
    run_time = [None if constant else x for x, constant in zip(arguments, constants, strict=True)]
    *outer, last = known
    rows, columns = (1, 1, *outer)[-2:]
    main = last // width
    for count, start, step in ((main, 0, width), (last - main * width, main * width, 1)):
        total = prod((rows, columns, count))
        if total:
            grid = gl.cdiv(total, BLOCK)
            each_vector[grid](
                function,
                len(known),
                len(arguments),
                step,
                constants,
                rows,
                columns,
                count,
                start,
                *run_time,
                block=BLOCK,
            )
