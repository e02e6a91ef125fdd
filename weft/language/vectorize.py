"""`vectorize`: a function for every vector of a range, and for the single elements that remain.

@weft.jit
def add(i, out, a, b, simd_width: gl.constexpr):
    out.store[simd_width](i, a.load[simd_width](i) + b.load[simd_width](i))

gl.vectorize(add, n, 4, out, a, b)          # i = 0, 4, 8, ...; the last n % 4 one by one
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import ScalarType, int32
from weft.language import arith
from weft.language.context import active, current
from weft.language.creation import check_int
from weft.language.marks import anywhere, jit_of
from weft.language.runtime_value import name_of
from weft.language.scalars import int32_scalar
from weft.language.tensor import tensor
from weft.ops import control


@anywhere
def vectorize(function: Any, size: Any, simd_width: int, *arguments: Any) -> None:
    """Call `function(i, *arguments, simd_width=...)` for i = 0, w, 2 w, ... below `size`, where w is `simd_width`; and for the
    last `size % w` numbers with a width of 1.

    In a kernel the function is a `@weft.jit` function and `size` may be a run-time value; on the host it is a Python function.
    Raises language-vectorize.
    """
    width = check_int("vectorize", simd_width)
    call = _callable(function)
    if width < 1 or call is None:
        raise fail(errors.VECTORIZE, function=name_of(function), width=width)
    if isinstance(size, int) and not active():
        _on_host(call, size, width, arguments)
        return
    whole = arith.sub(size, arith.mod(size, width)) if isinstance(size, tensor) else size - size % width
    _loop(call, 0, whole, width, arguments)
    if isinstance(size, tensor) or size % width:
        _loop(call, whole, size, 1, arguments)


def _callable(function: Any) -> Callable[..., Any] | None:
    if not active():
        return function if callable(function) and jit_of(function) is None else None
    if jit_of(function) is None:
        return None
    return lambda *given, **named: current().inline(function, list(given), named)


def _on_host(call: Callable[..., Any], size: int, width: int, arguments: tuple[Any, ...]) -> None:
    whole = size - size % width
    for i in range(0, whole, width):
        call(i, *arguments, simd_width=width)
    for i in range(whole, size):
        call(i, *arguments, simd_width=1)


def _loop(call: Callable[..., Any], start: Any, end: Any, step: int, arguments: tuple[Any, ...]) -> None:
    builder = current().builder
    bounds = [int32_scalar("vectorize", bound).handle for bound in (start, end, step)]
    with builder.region([ScalarType(int32)]) as body:
        call(tensor(body.args[0]), *arguments, simd_width=step)
        builder.emit(control.yield_)
    builder.emit(control.for_, *bounds, descending=False, regions=(body.done,))
