"""Inline PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.core import Effect, Value
from weft.ir.define import op
from weft.ir.types import DType, ScalarType, Type, with_element
from weft.ops.check import require, same_form

Simulated = Callable[..., Any] | None


@op("asm.elementwise")
def inline_asm(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], pack: int, sim: Simulated = None
) -> tuple[Type, ...]:
    """Run PTX text on each element (on `pack` consecutive elements of each operand at once); one result per entry of `dtypes`.

    Elements narrower than 32 bits are packed into 32-bit registers. Without values the results are scalars. `sim` is what the
    simulator calls instead."""
    return _results(values, dtypes, pack)


@op("asm.elementwise_volatile", effects=(Effect("write", "io"),))
def inline_asm_volatile(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], pack: int, sim: Simulated = None
) -> tuple[Type, ...]:
    """As `asm.elementwise`, for text with effects: it is neither dropped, merged nor moved."""
    return _results(values, dtypes, pack)


def _results(values: tuple[Value, ...], dtypes: tuple[DType, ...], pack: int) -> tuple[Type, ...]:
    if not values:
        require(pack == 1, "there are no elements to pack")
        return tuple(map(ScalarType, dtypes))
    same_form(*values)
    require(pack >= 1, "pack counts elements")
    return tuple(with_element(values[0].type, dtype) for dtype in dtypes)
