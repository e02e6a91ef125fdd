"""The C spelling of types and constants, independent of operations."""

from __future__ import annotations

import math
import struct

from weft.ir.types import DescriptorType, DType, Element, Pointer, RegsType, SharedArrayType, Type, wrap

C_NAMES: dict[str, str] = {
    "i1": "bool", "i8": "i8", "i16": "i16", "i32": "int", "i64": "i64",
    "u8": "u8", "u16": "u16", "u32": "u32", "u64": "u64",
    "f8e4m3": "f8e4m3", "f8e5m2": "f8e5m2", "f16": "f16", "bf16": "bf16", "f32": "float", "f64": "double",
}  # fmt: skip
SMALL_FLOATS = frozenset({"f8e4m3", "f8e5m2", "f16", "bf16"})

# Suffixes of integer constants; narrow types use a cast instead.
_SUFFIX = {"i32": "", "u32": "u", "i64": "ll", "u64": "ull"}
# Exponent bits of the small floats. f8e4m3 has no infinity, and its largest exponent encodes finite numbers.
_EXPONENT = {"f8e4m3": 4, "f8e5m2": 5, "f16": 5, "bf16": 8}
_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


def c_type(element: Element) -> str:
    """The C type of an element; a pointer in any space points to its element's type."""
    if isinstance(element, Pointer):
        return f"{C_NAMES[element.element_ty.code]}*"
    return C_NAMES[element.code]


def unnamed(element: Element) -> str:
    """The default name of a value without an author's name."""
    if isinstance(element, Pointer):
        return "p"
    return "on" if element.is_bool() else "t"


def c_type_of(type: Type) -> str:
    """The C type of a value, or of an element of its array. Memory is represented by its address, a descriptor by a pointer."""
    if isinstance(type, SharedArrayType):
        return "u32"
    return "const CUtensorMap*" if isinstance(type, DescriptorType) else c_type(type.element)


def count_of(type: Type) -> int | None:
    """The length of a value's C array; None for a C scalar, which also represents an array of one register."""
    return type.count if isinstance(type, RegsType) and type.count > 1 else None


def is_small_float(element: Element) -> bool:
    """True for floats of less than 32 bits, which are structs in the text."""
    return isinstance(element, DType) and element.code in SMALL_FLOATS


def integer(value: int, wide: bool = False) -> str:
    """An index or offset: `long long` if it is out of the range of `int`, or if `wide`."""
    return f"{value}" if not wide and -(2**31) < value < 2**31 else f"{value}ll"


def string(text: str) -> str:
    """A C string literal, quotes included."""
    escaped = "".join(_ESCAPES.get(c, c) if c.isprintable() or c in _ESCAPES else f"\\{ord(c):03o}" for c in text)
    return f'"{escaped}"'


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def constant(value: int | float | bool, dtype: DType) -> str:
    """A constant of a type: integers wrap, and floats round to nearest even (conversions to fp8 saturate)."""
    if dtype.is_bool():
        return "true" if value else "false"
    if dtype.is_int():
        return _int_constant(int(value), dtype)
    if dtype.code == "f64":
        return _f64_constant(float(value))
    if dtype.code == "f32":
        return _f32_constant(float(value))
    return f"{C_NAMES[dtype.code]}{{{small_float_bits(float(value), dtype):#0{2 + dtype.bits // 4}x}}}"


def _int_constant(value: int, dtype: DType) -> str:
    value = wrap(value, dtype)
    if dtype.bits < 32:
        return f"({C_NAMES[dtype.code]}){value}"
    suffix = _SUFFIX[dtype.code]
    # C has no negative literals, and the literal of the smallest number without its sign would overflow.
    return f"({value + 1}{suffix} - 1)" if value == dtype.min_value < 0 else f"{value}{suffix}"


def _f32_constant(value: float) -> str:
    bits = struct.unpack("<I", _pack_f32(value))[0]
    rounded = struct.unpack("<f", struct.pack("<I", bits))[0]
    if not math.isfinite(rounded):
        return f"__uint_as_float({bits:#010x}u)"
    spellings = (f"{rounded:.{digits}g}" for digits in range(1, 10))
    shortest = next(s for s in spellings if _pack_f32(float(s)) == _pack_f32(rounded))
    return _with_point(shortest) + "f"


def _pack_f32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _f64_constant(value: float) -> str:
    if not math.isfinite(value):
        return f"__longlong_as_double({struct.unpack('<Q', struct.pack('<d', value))[0]:#018x}ull)"
    return _with_point(repr(value))


def _with_point(digits: str) -> str:
    return digits if any(c in digits for c in ".e") else digits + ".0"


def small_float_bits(value: float, dtype: DType) -> int:
    """The bits of a number in a float type of less than 32 bits: rounded to nearest even, and saturated in the fp8 types."""
    mantissa, exponent_bits = dtype.mantissa, _EXPONENT[dtype.code]
    sign = int(math.copysign(1.0, value) < 0) << (dtype.bits - 1)
    infinity = ((1 << exponent_bits) - 1) << mantissa
    if math.isnan(value):
        return (1 << (dtype.bits - 1)) - 1 if dtype.is_fp8() else infinity | 1 << (mantissa - 1)
    magnitude = abs(value)
    if dtype.is_fp8():
        magnitude = min(magnitude, _LARGEST[dtype.code])
    if math.isinf(magnitude):
        return sign | infinity
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = max(math.frexp(magnitude)[1] - 1, 1 - bias) if magnitude else 1 - bias
    # Python's `round` rounds to even. A carry of the mantissa into the exponent gives the next binade, which is correct.
    steps = round(math.ldexp(magnitude, mantissa - exponent))
    bits = ((exponent + bias - 1) << mantissa) + steps
    return sign | min(bits, infinity if not dtype.is_fp8() else bits)
