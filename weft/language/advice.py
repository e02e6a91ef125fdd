"""Suggested fixes in error messages, where they depend on the operations that produced a value."""

from __future__ import annotations

import ast
from typing import Any

from weft.ir.build import Builder
from weft.ir.core import Value
from weft.ir.types import DType
from weft.language.context import current
from weft.language.tensor import tensor
from weft.layout import DistributedLayout
from weft.ops import arith, memory, regs, thread

CONVERT = "convert it with .to(gl.int32)"
QUOTIENT = "write // in place of /: it divides integers into an integer, which / never does"
RUN_TIME_ASSERT = "write gl.device_assert(condition), which checks at run time"
_DEPTH = 8
"""The search for a division follows operands up to this depth."""


def integer_instead(x: Any) -> str:
    """How to write an integer in place of `x`."""
    if isinstance(x, float) and x.is_integer():
        return f"write {int(x)}, or // in place of / where a division made it"
    if isinstance(x, tensor) and _is_quotient(current().builder, x.handle, _DEPTH):
        return QUOTIENT
    if isinstance(x, tensor) and not x.is_scalar:
        return CONVERT if _is_float(x.handle) else "reduce the tile to a scalar first, as gl.max(x) does"
    return CONVERT


def constant_instead(x: Any) -> str:
    """How to write a compile-time integer in place of `x`."""
    if isinstance(x, tensor):
        return "pass a Python number, or annotate the parameter that it comes from as gl.constexpr"
    return (
        integer_instead(x) if isinstance(x, float) else "pass a Python integer, as a number or a gl.constexpr parameter"
    )


def author_name(x: object) -> str:
    """The author's name of a value, or `x`."""
    return (x.handle.name if isinstance(x, tensor) else "") or "x"


def in_warps(what: str, x: object) -> str:
    """A clause that names the warp reduction that corresponds to the tile reduction `what`."""
    if what not in _IN_WARPS or not isinstance(x, tensor):
        return ""
    return f"; over the threads of a warp write gl.{_IN_WARPS[what]}({author_name(x)})"


_IN_WARPS = {"sum": "warp_sum", "max": "warp_max", "min": "warp_min", "cumsum": "warp_prefix_sum"}


def shared_array(dtype: object = None, count: object = "size") -> str:
    """Source text that allocates a shared array, which threads index element by element."""
    element = f"gl.{dtype.name}" if isinstance(dtype, DType) else "dtype"
    return f"gl.LayoutTensor.stack_allocation({element}, gl.Layout({count}), address_space=gl.AddressSpace.SHARED)"


def one_element(view: str, *indices: str) -> str:
    """Source text of a one-element view.

    >>> one_element("bins", "i")
    'bins.tile[1](i)'
    """
    return f"{view}.tile[{', '.join('1' for _ in indices)}]({', '.join(indices)})"


def address_instead(what: str, x: object) -> str:
    """How to write an address in place of `x`."""
    element = _element_of_view(x) if isinstance(x, tensor) else None
    if element is None:
        return "pass a pointer plus offsets, as in gl.load(ptr + offsets), where the launch gives the parameter ptr an array"
    written = ast.unparse(element)
    if what == "load":
        return f"write {written} alone: it is the element, loaded"
    if what == "store":
        return f"write {written} = value"
    indices = element.slice.elts if isinstance(element.slice, ast.Tuple) else [element.slice]
    view = one_element(ast.unparse(element.value), *map(ast.unparse, indices))
    return f"pass {view}, the view of one element: {written} is what stands there"


def _element_of_view(x: tensor) -> ast.Subscript | None:
    """The author's expression `view[i, j]` that loaded `x`."""
    builder = current().builder
    op = builder.maker(x.handle)
    if op is not None and op.kind is regs.extract:
        op = builder.maker(op.uses[0])
    if op is None or op.kind not in _READS or op.loc is None or op.loc.end_line != op.loc.line:
        return None
    text = op.loc.source.encode()[op.loc.col : op.loc.end_col].decode()
    node = ast.parse(text, mode="eval").body
    return node if isinstance(node, ast.Subscript) else None


_READS = (memory.load_regs, thread.load_shared)


def power(base: Any, exponent: Any) -> str:
    """A replacement of `base ** exponent`, which is of integers or of small floats."""
    x, y = (value.handle.name or name if isinstance(value, tensor) else str(value)
            for value, name in ((base, "x"), (exponent, "y")))  # fmt: skip
    if not isinstance(base, tensor) and base == 2 and not _is_float(exponent.handle):
        return f"1 << {y}, or 2.0 ** {y}.to(gl.float32)"
    return f"{x}.to(gl.float32) ** {y}" if isinstance(base, tensor) else f"{x} ** {y}.to(gl.float32)"


def element_type(x: Any) -> str:
    """A replacement of `x` where an element type is required."""
    name = getattr(x, "__name__", None) or str(x).removeprefix("torch.")
    if name in _ELEMENTS:
        return f"write gl.{_ELEMENTS[name]}"
    if isinstance(x, DistributedLayout):
        return "pass the element type before the layout, as in gl.zeros(shape, gl.float32, layout)"
    return "use one of gl.int1 ... gl.float64, or gl.pointer_type(dtype) in a cast to pointers"


_NUMBERS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
)  # fmt: skip
_ELEMENTS = {name: name for name in _NUMBERS} | {
    "bool": "int1", "bool_": "int1", "int": "int32", "float": "float32", "double": "float64", "half": "float16",
    "fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "i32": "int32", "i64": "int64",
    "long": "int64", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5",
}  # fmt: skip
"""Names of element types in Python, NumPy and PyTorch, and the language's names of them."""


def _is_float(value: Value) -> bool:
    element = value.type.element
    return isinstance(element, DType) and element.is_floating()


def _is_quotient(builder: Builder, value: Value, depth: int) -> bool:
    """True for a float that is derived from a division of integers."""
    op = builder.maker(value) if depth and _is_float(value) else None
    if op is None:
        return False
    if op.kind is arith.div and any(_was_integer(builder, operand) for operand in op.uses):
        return True
    return any(_is_quotient(builder, operand, depth - 1) for operand in op.uses)


def _was_integer(builder: Builder, value: Value) -> bool:
    """True for a float converted from an integer, as a scalar or as a tile."""
    op = builder.maker(value)
    return op is not None and (
        (op.kind is arith.cast and not any(map(_is_float, op.uses)))
        or (op.kind is not arith.constant and len(op.uses) == 1 and any(_was_integer(builder, v) for v in op.uses))
    )
