"""Conversions between element types, each with a single rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.emitter import Emitter
from weft.cuda.text.spelling import c_type, is_small_float
from weft.errors import fail
from weft.errors.compiler import CUDA_FLOAT8, CUDA_FLOAT8_ROUNDING
from weft.ir.types import DType, float32

if TYPE_CHECKING:
    from weft.ir.core import Op


def cast(e: Emitter, op: Op, text: str, source: DType, dtype: DType, rounding: str = "rn") -> str:
    """The expression that converts a `source` value to `dtype`, as `arith.cast` defines it; `op` locates errors.

    Raises CompilationError: cuda-float8 if the target lacks the conversion, cuda-float8-rounding.
    """
    if source == dtype:
        return text
    if not e.target.has_fp8_cvt and (source.is_fp8() or dtype.is_fp8()):
        raise fail(CUDA_FLOAT8, loc=op.loc, dtype=source if source.is_fp8() else dtype, target=e.target)
    if dtype.is_fp8() and rounding == "rz":
        raise fail(CUDA_FLOAT8_ROUNDING, loc=op.loc, dtype=dtype)
    if is_small_float(source):
        return cast(e, op, e.call(f"to_f32({c_type(source)})", text), float32, dtype, rounding)
    if dtype.is_bool():
        return f"{text} != 0"
    suffix = "_rz" if rounding == "rz" else ""
    if source.is_int():
        return f"({c_type(dtype)}){text}" if dtype.is_int() else _from_integer(e, text, source, dtype, suffix)
    return _to_integer(e, text, source, dtype) if dtype.is_int() else _between_floats(e, text, source, dtype, suffix)


def _to_integer(e: Emitter, text: str, source: DType, dtype: DType) -> str:
    if dtype.bits >= 32:
        return e.call(f"to_{dtype.code}({c_type(source)})", text)
    if dtype.kind == "uint":
        return f"({c_type(dtype)})min({e.call(f'to_u32({c_type(source)})', text)}, {dtype.max_value}u)"
    wide = e.call(f"to_i32({c_type(source)})", text)
    return f"({c_type(dtype)})min(max({wide}, {dtype.min_value}), {dtype.max_value})"


def _from_integer(e: Emitter, text: str, source: DType, dtype: DType, suffix: str) -> str:
    exact = source.bits <= 16
    if dtype.code in ("f32", "f64"):
        rounds = suffix and source.bits > dtype.mantissa
        return e.call(f"to_{dtype.code}_rz({c_type(source)})", text) if rounds else f"({c_type(dtype)}){text}"
    if dtype.code == "f16":
        wide = f"(int){text}" if exact else text
        return e.call(f"to_f16{suffix}({'int' if exact else c_type(source)})", wide)
    if dtype.is_fp8() or exact:
        return _from_float(e, f"(float){text}", dtype, suffix)
    step = "rz" if suffix else "odd"
    return _from_float(e, e.call(f"to_f32_{step}({c_type(source)})", text), dtype, suffix)


def _between_floats(e: Emitter, text: str, source: DType, dtype: DType, suffix: str) -> str:
    if source.code == "f32":
        return f"(double){text}" if dtype.code == "f64" else _from_float(e, text, dtype, suffix)
    if dtype.code == "f32":
        return e.call("to_f32_rz(double)", text) if suffix else f"(float){text}"
    if dtype.code == "f16":
        return e.call(f"to_f16{suffix}(double)", text)
    step = "rz" if suffix else "odd"
    return _from_float(e, e.call(f"to_f32_{step}(double)", text), dtype, suffix)


def _from_float(e: Emitter, text: str, dtype: DType, suffix: str) -> str:
    return e.call(f"to_{c_type(dtype)}{suffix}(float)", text)
