"""Common checks of MMA operands: element types, shapes, and fragments in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import fail
from weft.errors import tensor_cores as errors
from weft.ir.types import DType, bfloat16, float8e4nv, float8e5, float16, float32, int8, int32, tile_type, uint8
from weft.language.broadcast import TileForm, fit
from weft.language.runtime_value import RuntimeValue, name_of
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import check_ready, tensor
from weft.layout import DotOperandLayout, NVMMADistributedLayout

REGISTER_BITS = 32
SIDES = ("a", "b")

_FP8 = (float8e4nv, float8e5)
_BYTES = (int8, uint8)
PRODUCTS: dict[tuple[DType, DType], tuple[DType, ...]] = {
    (float16, float16): (float32, float16),
    (bfloat16, bfloat16): (float32,),
    (float32, float32): (float32,),
    **{(one, other): (float32, float16) for one in _FP8 for other in _FP8},
    **{(one, other): (int32,) for one in _BYTES for other in _BYTES},
}
"""Operand types of tensor cores, and their accumulator types (PTX ISA, wgmma.mma_async and mma)."""
OPERANDS = tuple(dict.fromkeys(left for left, _ in PRODUCTS))

_WANTED: dict[type[RuntimeValue], str] = {
    tensor: "a tile in registers",
    shared_memory_descriptor: "a buffer in shared memory",
}
_INSTEAD: dict[type[RuntimeValue], str] = {
    tensor: "load it with smem.load(gl.DotOperandLayout(operand_index, acc.layout, k_width))",
    shared_memory_descriptor: "store it with gl.allocate_shared_memory(dtype, shape, layout, value)",
}


def check_types(what: str, a: DType, b: DType, acc: Any) -> None:
    """Checks the element types of both operands and the accumulator. Raises mma-types, mma-accumulator-type."""
    allowed = PRODUCTS.get((a, b))
    if allowed is None:
        raise fail(errors.MMA_TYPES, what=what, left=a.name, right=b.name, known=_known())
    if acc.dtype not in allowed:
        names = " or ".join(dtype.name for dtype in allowed)
        raise fail(errors.MMA_ACCUMULATOR_TYPE, what=what, left=a.name, right=b.name, got=name_of(acc), allowed=names)


def check_precision(what: str, dtype: DType, precision: Any) -> None:
    """Checks `input_precision`: float32 operands are multiplied as tf32 only, all other types exactly. Raises
    mma-precision."""
    if precision in (None, "tf32") or (dtype is not float32 and precision in ("ieee", "tf32x3")):
        return
    fix = "leave it out: tensor cores multiply float32 as tf32"
    if precision == "ieee":
        fix += "; gl.dot_fma(a, b, acc) is exact"
    if precision == "tf32x3":
        fix += "; add the products of what tf32 rounds off as further products, or use gl.dot_fma(a, b, acc)"
    raise fail(errors.MMA_PRECISION, what=what, got=repr(precision), dtype=dtype.name, fix=fix)


def check_shapes(what: str, a: Any, b: Any, acc: Any, each: tuple[int, int] = (1, 1)) -> None:
    """Checks [M, K] times [K, N] into [M, N], where one element of a and b holds `each` elements along K. Raises
    mma-shapes."""
    left, right, sums = tuple(a.shape), tuple(b.shape), tuple(acc.shape)
    flat = next((x for x in (a, b, acc) if len(x.shape) != 2), None)
    problem = ""
    if flat is not None:
        problem = f"{name_of(flat)} is no matrix"
    elif left[1] * each[0] != right[0] * each[1]:
        packed = ["", " (two in each byte)"]
        columns, rows = (f"{size * n}" for size, n in ((left[1], each[0]), (right[0], each[1])))
        problem = f"a has {columns} columns{packed[each[0] > 1]}, b {rows} rows{packed[each[1] > 1]}"
    elif left[0] != sums[0]:
        problem = f"a has {left[0]} rows, the accumulator {sums[0]}"
    elif right[1] != sums[1]:
        problem = f"b has {right[1]} columns, the accumulator {sums[1]}"
    if problem:
        raise fail(errors.MMA_SHAPES, what=what, left=name_of(a), right=name_of(b), acc=name_of(acc), problem=problem)


def accumulator_layout(
    what: str, acc: Any, versions: Sequence[tuple[int, int]], example: str
) -> NVMMADistributedLayout:
    """The layout of an accumulator tile. Raises mma-accumulator, mma-accumulator-layout."""
    if not isinstance(acc, tensor) or acc.is_scalar:
        raise fail(errors.MMA_ACCUMULATOR, what=what, got=name_of(acc))
    layout = acc.layout
    if not isinstance(layout, NVMMADistributedLayout) or tuple(layout.version) not in versions:
        raise fail(
            errors.MMA_ACCUMULATOR_LAYOUT,
            what=what,
            got=name_of(acc),
            layout=layout,
            version=list(versions[0]),
            example=example,
        )
    return layout


def common_width(a: tensor, b: tensor) -> int:
    """The `k_width` of two operands in registers: that of their `DotOperandLayout`s, or that of the instructions.

    A wider one than the instructions' changes the order in which elements along k are multiplied; both operands must have it.
    """
    assert isinstance(a.element, DType)
    own = REGISTER_BITS // a.element.bits
    widths = {x.layout.k_width for x in (a, b) if x.tile.resolved and isinstance(x.layout, DotOperandLayout)}
    return next(iter(widths)) if len(widths) == 1 and min(widths) > own else own


def fragments(
    what: str, number: int, x: tensor, parent: NVMMADistributedLayout, fix: str, k_width: int | None = None
) -> tensor:
    """A tile as register operand `number`; a tile in `AutoLayout` gets the required layout.

    Raises mma-operand-layout, mma-in-flight."""
    assert isinstance(x.element, DType)
    check_ready((x,))
    layout = DotOperandLayout(number, parent, k_width or REGISTER_BITS // x.element.bits)
    shape = tuple(x.shape)
    if not x.tile.resolved:
        return fit(x, TileForm(shape, layout))
    if x.tile.linear != tile_type(x.element, shape, layout).linear:
        raise fail(
            errors.MMA_OPERAND_LAYOUT,
            side=SIDES[number],
            what=what,
            got=name_of(x),
            layout=x.layout,
            parent=parent,
            want=layout,
            fix=f"convert it: gl.convert_layout({x.handle.name or SIDES[number]}, {layout!r}){fix}",
        )
    return x


def element_of(what: str, number: int, x: Any, *kinds: type[RuntimeValue]) -> DType:
    """The element type of an operand, a tile or a buffer as `kinds` says. Raises mma-operand."""
    if isinstance(x, kinds) and isinstance(x, (tensor, shared_memory_descriptor)):
        dtype = x.dtype
        if x.rank and isinstance(dtype, DType):
            return dtype
    want = " or ".join(_WANTED[kind] for kind in kinds)
    fix = "; ".join(_INSTEAD[kind] for kind in kinds)
    raise fail(errors.MMA_OPERAND, side=SIDES[number], what=what, got=name_of(x), want=want, fix=fix)


def _known() -> str:
    same = [a.name for a, _ in PRODUCTS if a.bits > 8]
    fp8, small = (" and ".join(dtype.name for dtype in group) for group in (_FP8, _BYTES))
    return f"pairs of {', '.join(same)}, pairs among {fp8}, and pairs among {small}"
