"""PTX instructions on single registers, written from the ISA manual with Python's integers and exact fractions.

It shares no code with the simulator: registers are integers, floats are fractions that are rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# Bits of the exponent and of the fraction.
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "e4m3": (4, 3), "e5m2": (5, 2)}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8 << 48, "e4m3": 0x7F, "e5m2": 0x7F}
LARGEST = {"e4m3": Fraction(448), "e5m2": Fraction(57344)}
TYPES = {f"{kind}{bits}" for kind in "sub" for bits in (8, 16, 32, 64)} | set(FORMATS) | {"pred"}
PAIRS = {"u16x2", "s16x2", "f16x2", "bf16x2", "e4m3x2", "e5m2x2"}


@dataclass(frozen=True)
class Number:
    """A float: its sign, and its magnitude, which is a fraction, `inf` or `nan`."""

    negative: bool
    size: Any

    @property
    def finite(self) -> bool:
        return isinstance(self.size, Fraction)

    @property
    def nan(self) -> bool:
        return self.size == "nan"

    @property
    def value(self) -> Any:
        """For comparisons of numbers that are not NaN."""
        size = self.size if self.finite else math.inf
        return -size if self.negative else size


NOT_A_NUMBER = Number(False, "nan")


def width(type: str) -> int:
    if type == "pred":
        return 1
    half = type.removesuffix("x2")
    bits = sum(FORMATS[half]) + 1 if half in FORMATS else int(half[1:])
    return bits * (2 if type in PAIRS else 1)


def decode(bits: int, type: str) -> Number:
    exponent_bits, fraction_bits = FORMATS[type]
    negative = bool(bits >> exponent_bits + fraction_bits & 1)
    exponent, fraction = bits >> fraction_bits & (1 << exponent_bits) - 1, bits & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if type == "e4m3":
        if exponent == 15 and fraction == 7:
            return Number(negative, "nan")
    elif exponent == (1 << exponent_bits) - 1:
        return Number(negative, "nan" if fraction else "inf")
    mantissa, power = (fraction, 1 - bias) if exponent == 0 else (fraction | 1 << fraction_bits, exponent - bias)
    return Number(negative, Fraction(mantissa) * Fraction(2) ** (power - fraction_bits))


def encode(number: Number, type: str, mode: str = "rn") -> int:
    """Rounded once; fp8 saturates."""
    exponent_bits, fraction_bits = FORMATS[type]
    sign = int(number.negative) << exponent_bits + fraction_bits
    if number.nan:
        return NAN[type]
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    size = number.size
    if type in LARGEST and (not number.finite or size > LARGEST[type]):
        size = LARGEST[type]
    elif not number.finite:
        return sign | infinity
    if size == 0:
        return sign
    bias = (1 << exponent_bits - 1) - 1
    power = max(size.numerator.bit_length() - size.denominator.bit_length(), 1 - bias)
    power -= size < Fraction(2) ** power and power > 1 - bias
    scaled = size / Fraction(2) ** (power - fraction_bits)
    whole = math.floor(scaled) if mode == "rz" else round(scaled)  # Python rounds halves to even
    bits = (power + bias - 1 << fraction_bits) + whole
    if type not in LARGEST and bits >= infinity:
        return sign | (infinity - 1 if mode == "rz" else infinity)
    return sign | bits


def signed(bits: int, size: int) -> int:
    return bits - (1 << size) if bits >> size - 1 & 1 else bits


def integer(bits: int, type: str) -> int:
    return signed(bits, width(type)) if type[0] == "s" else bits


# Floats


def add(a: Number, b: Number) -> Number:
    if a.nan or b.nan or (not a.finite and not b.finite and a.negative != b.negative):
        return NOT_A_NUMBER
    if not a.finite or not b.finite:
        return b if a.finite else a
    total = a.value + b.value
    return Number(a.negative and b.negative if total == 0 else total < 0, abs(total))


def multiply(a: Number, b: Number) -> Number:
    negative = a.negative != b.negative
    if a.nan or b.nan or (0 in (a.size, b.size) and not (a.finite and b.finite)):
        return NOT_A_NUMBER
    return Number(negative, a.size * b.size if a.finite and b.finite else "inf")


def divide(a: Number, b: Number) -> Number:
    negative = a.negative != b.negative
    if a.nan or b.nan or (not a.finite and not b.finite) or a.size == b.size == 0:
        return NOT_A_NUMBER
    if not a.finite or b.size == 0:
        return Number(negative, "inf")
    return Number(negative, a.size / b.size if b.finite else Fraction(0))


def root(a: Number, type: str) -> Number:
    if a.nan or (a.negative and a.size != 0):
        return NOT_A_NUMBER
    if not a.finite or a.size == 0:
        return a
    # Sixty bits and whether anything is left decide how a root rounds.
    shift = 2 * (140 + width(type)) + 2 * 1100
    scaled = int(a.size * Fraction(2) ** shift)
    whole = math.isqrt(scaled)
    exact = Fraction(whole * 2 + (whole * whole != scaled or a.size * Fraction(2) ** shift != scaled), 2)
    return Number(False, exact / Fraction(2) ** (shift // 2))


def extremum(a: Number, b: Number, name: str, propagate: bool) -> Number:
    if a.nan or b.nan:
        return NOT_A_NUMBER if propagate or (a.nan and b.nan) else b if a.nan else a
    if a.value == b.value:
        return a if a.negative == (name == "min") else b
    return a if (a.value < b.value) == (name == "min") else b


def flush(number: Number, type: str) -> Number:
    smallest = Fraction(2) ** (2 - (1 << FORMATS[type][0] - 1))
    return Number(number.negative, Fraction(0)) if number.finite and number.size < smallest else number


def limited(number: Number, mods: set[str]) -> Number:
    """`.sat` and `.relu`."""
    if "sat" in mods:
        if number.nan or number.negative or number.size == 0:
            return Number(False, Fraction(0))
        return Number(False, Fraction(1)) if not number.finite or number.size > 1 else number
    if "relu" in mods and not number.nan and (number.negative or number.size == 0):
        return Number(False, Fraction(0))
    return number


def arithmetic(name: str, mods: set[str], type: str, bits: list[int]) -> int:
    given = [decode(b, type) for b in bits]
    if "ftz" in mods:
        given = [flush(g, type) for g in given]
    if name in ("min", "max"):
        return encode(extremum(*given, name, "NaN" in mods), type)
    if name in ("abs", "neg"):
        return encode(Number(name == "neg" and not given[0].negative, given[0].size), type)
    if name == "copysign":
        return bits[1] & (1 << width(type) - 1) - 1 | bits[0] & 1 << width(type) - 1
    exact = {
        "add": add, "sub": lambda a, b: add(a, Number(not b.negative, b.size)), "mul": multiply, "div": divide,
        "fma": lambda a, b, c: add(multiply(a, b), c), "mad": lambda a, b, c: add(multiply(a, b), c),
        "rcp": lambda a: divide(Number(False, Fraction(1)), a), "sqrt": lambda a: root(a, type),
    }[name](*given)  # fmt: skip
    rounded = decode(encode(exact, type), type)
    if "ftz" in mods:
        rounded = flush(exact if name == "mul" else rounded, type) if not exact.nan else rounded
        rounded = decode(encode(rounded, type), type)
    return encode(limited(rounded, mods), type)


def related(mods: set[str], type: str, a: int, b: int) -> bool:
    (order,) = mods - {"ftz", "and", "or", "xor"}
    if type not in FORMATS:
        x, y = integer(a, type), integer(b, type)
        order = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(order, order)
        return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[order]
    first, second = (flush(decode(v, type), type) if "ftz" in mods else decode(v, type) for v in (a, b))
    unordered = first.nan or second.nan
    if order in ("num", "nan"):
        return unordered == (order == "nan")
    if unordered:
        return order.endswith("u")
    x, y, order = first.value, second.value, order.removesuffix("u")
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[order]


# Conversions


def rounded(number: Number, mode: str) -> Number:
    """To a whole number."""
    if not number.finite:
        return number
    value = number.value
    whole = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](value)
    return Number(number.negative, Fraction(abs(whole)))


def convert(mods: set[str], target: str, source: str, bits: int) -> int:
    mode = next((m for m in mods if m in ("rni", "rzi", "rmi", "rpi")), None)
    if source not in FORMATS:
        value = integer(bits, source)
        if target in FORMATS:
            number = Number(value < 0, Fraction(abs(value)))
            return encode(limited(decode(encode(number, target), target), mods), target)
        if "sat" in mods:
            low = -(1 << width(target) - 1) if target[0] == "s" else 0
            value = min(max(value, low), low + (1 << width(target)) - 1)
        return value & (1 << width(target)) - 1
    number = decode(bits, source)
    if "ftz" in mods and source == "f32":
        number = flush(number, source)
    if target not in FORMATS:
        size = width(target)
        if number.nan:
            return 0 if source != "f64" and target not in ("s64", "u64") else 1 << size - 1
        low = -(1 << size - 1) if target[0] == "s" else 0
        assert mode is not None
        value = rounded(number, mode).value
        return int(min(max(value, low), low + (1 << size) - 1)) & (1 << size) - 1
    if mode is not None:
        number = rounded(number, mode)
    result = decode(encode(number, target, "rz" if "rz" in mods else "rn"), target)
    if "ftz" in mods and target == "f32":
        result = flush(result, target)
    return encode(limited(result, mods), target)


# Integers


def c_divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def field(type: str, a: int, position: int, length: int) -> int:
    size, position, length = width(type), position & 255, length & 255
    top = min(position + length - 1, size - 1)
    sign = a >> top & 1 if type[0] == "s" and length else 0
    picked = [a >> position + i & 1 if i < length and position + i < size else sign for i in range(size)]
    return sum(bit << i for i, bit in enumerate(picked))


def insert(type: str, a: int, b: int, position: int, length: int) -> int:
    for i in range(length & 255):
        at = (position & 255) + i
        if at < width(type):
            b = b & ~(1 << at) | (a >> i & 1) << at
    return b


def permute(a: int, b: int, selector: int) -> int:
    out = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = (b << 32 | a) >> 8 * (nibble & 7) & 255
        out |= ((255 if byte & 128 else 0) if nibble & 8 else byte) << 8 * i
    return out


def highest(a: int, type: str, shifted: bool) -> int:
    value = integer(a, type)
    found = (~value if value < 0 else value).bit_length() - 1
    return found if found < 0 or not shifted else width(type) - 1 - found


def funnel(mods: set[str], low: int, high: int, amount: int) -> int:
    n = amount & 31 if "wrap" in mods else min(amount, 32)
    return (high << 32 | low) << n >> 32 if "l" in mods else (high << 32 | low) >> n


def dot(types: tuple[str, ...], a: int, b: int, c: int) -> int:
    parts = [[integer(v >> 8 * i & 255, f"{t[0]}8") for i in range(4)] for v, t in zip((a, b), types, strict=True)]
    return c + sum(x * y for x, y in zip(*parts, strict=True))


def clamp32(value: int) -> int:
    return min(max(value, -(2**31)), 2**31 - 1)


def whole(name: str, mods: set[str], types: tuple[str, ...], bits: list[int]) -> int:
    type = types[-1]
    size = 32 if type == "pred" else width(type)
    v = [integer(b, type) for b in bits]
    high: Callable[[], int] = lambda: v[0] * v[1] >> size  # noqa: E731 - one more line of the table
    product = {"hi": high, "wide": lambda: v[0] * v[1]}.get(next(iter(mods & {"hi", "wide"}), ""), lambda: v[0] * v[1])
    table: dict[str, Callable[[], int]] = {
        "add": lambda: clamp32(v[0] + v[1]) if "sat" in mods else v[0] + v[1],
        "sub": lambda: clamp32(v[0] - v[1]) if "sat" in mods else v[0] - v[1],
        "mul": lambda: product(),
        "mad": lambda: clamp32(product() + v[2]) if "sat" in mods else product() + bits[2],
        "sad": lambda: bits[2] + abs(v[0] - v[1]),
        "div": lambda: c_divide(v[0], v[1]), "rem": lambda: v[0] - c_divide(v[0], v[1]) * v[1],
        "abs": lambda: abs(v[0]), "neg": lambda: -v[0],
        "min": lambda: max(min(v), 0) if "relu" in mods else min(v),
        "max": lambda: max(*v, 0) if "relu" in mods else max(v),
        "and": lambda: bits[0] & bits[1], "or": lambda: bits[0] | bits[1], "xor": lambda: bits[0] ^ bits[1],
        "not": lambda: bits[0] ^ 1 if type == "pred" else ~bits[0], "cnot": lambda: int(bits[0] == 0),
        "lop3": lambda: sum((bits[3] >> (4 * (bits[0] >> i & 1) + 2 * (bits[1] >> i & 1) + (bits[2] >> i & 1)) & 1) << i
                            for i in range(32)),
        "shl": lambda: bits[0] << min(bits[1], size), "shr": lambda: v[0] >> min(bits[1], size),
        "shf": lambda: funnel(mods, *bits), "popc": lambda: bits[0].bit_count(),
        "clz": lambda: size - bits[0].bit_length(), "brev": lambda: int(f"{bits[0]:0{size}b}"[::-1], 2),
        "bfind": lambda: highest(bits[0], type, "shiftamt" in mods), "bfe": lambda: field(type, *bits),
        "bfi": lambda: insert(type, *bits), "prmt": lambda: permute(*bits),
        "selp": lambda: bits[0] if bits[2] else bits[1], "mov": lambda: bits[0],
        "dp4a": lambda: dot(types, *bits),
    }  # fmt: skip
    return table[name]()


def evaluate(text: str, bits: list[int], result: str) -> int:
    """The bits of an instruction's result. `text` is its opcode, `result` its type."""
    name, *parts = text.split(".")
    types, mods = (
        tuple(p for p in parts if p in TYPES or p in PAIRS),
        {p for p in parts if p not in TYPES and p not in PAIRS},
    )
    if name != "cvt" and types[-1] in PAIRS:
        half = types[-1].removesuffix("x2")
        halves = [evaluate(text.replace("x2", ""), [b >> s & 0xFFFF for b in bits], half) for s in (0, 16)]
        return halves[1] << 16 | halves[0]
    if name == "cvt":
        target, source = types
        if target in PAIRS:
            to, of, small = target.removesuffix("x2"), source.removesuffix("x2"), width(target) // 2
            values = (
                (bits[1], bits[0])
                if source == "f32"
                else tuple(bits[0] >> s & (1 << width(of)) - 1 for s in (0, width(of)))
            )
            low, up = (convert(mods, to, of, value) for value in values)
            return up << small | low
        return convert(mods, target, source, bits[0] & (1 << width(source)) - 1)
    if name in ("setp", "set"):
        found = int(related(mods, types[-1], bits[0], bits[1]))
        if len(bits) == 3:
            (operator,) = mods & {"and", "or", "xor"}
            found = {"and": found & bits[2], "or": found | bits[2], "xor": found ^ bits[2]}[operator]
        return found if name == "setp" else found * 0xFFFFFFFF
    if name == "testp":
        number = decode(bits[0], types[0])
        subnormal = number.finite and flush(number, types[0]).size != number.size
        answers = {
            "finite": number.finite, "infinite": number.size == "inf", "number": not number.nan, "notanumber": number.nan,
            "normal": number.finite and not subnormal, "subnormal": subnormal,
        }  # fmt: skip
        return int(answers[next(iter(mods))])
    if types[-1] in FORMATS and name not in ("selp", "mov"):
        return arithmetic(name, mods, types[-1], bits)
    return whole(name, mods, types, bits) & (1 << width(result)) - 1


TRUE: dict[str, Callable[..., float]] = {
    "div": lambda a, b: a / b, "rcp": lambda a: 1 / a, "sqrt": math.sqrt, "rsqrt": lambda a: 1 / math.sqrt(a),
    "ex2": lambda a: 2.0**a, "lg2": math.log2, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
}  # fmt: skip
"""Of approximate instructions the true value, where it is defined."""
