"""Random numbers by counters: Philox 4x32-10 (and 4x64-10), with the bits that Triton's functions of these names give.

    noise = gl.rand(seed, offsets)      # every element has the number of its own offset, in every layout and launch

Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a bijection of counters under a key. The key
is the seed, the counter the offset: equal seeds and offsets give equal numbers, and there is no state.
"""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import DType, float32, int32, int64, uint32, uint64
from weft.language.arith import add, maximum, mul
from weft.language.creation import check_int
from weft.language.logic import bit_and, bit_not, bit_xor, compare, shift_right, where
from weft.language.marks import builtin
from weft.language.math import cos, log, sin, sqrt, umulhi
from weft.language.promote import convert, number_dtype, to_tensor
from weft.language.runtime_value import describe
from weft.language.tensor import Operand, tensor

ROUNDS = 10
_KEYS = {uint32: (0x9E3779B9, 0xBB67AE85), uint64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
"""What is added to the two halves of the key after a round."""
_FACTORS = {uint32: (0xD2511F53, 0xCD9E8D57), uint64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
"""The factors of the first and the third word of the counter."""
Four = tuple[tensor, tensor, tensor, tensor]


@builtin
def philox(seed: Operand, c0: Operand, c1: Operand, c2: Operand, c3: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four random unsigned integers for a counter of four words and a seed of 64 bits.

    The type of `c0` decides: words of 32 bits (Philox 4x32, whose key is the seed), or of 64 bits (4x64, whose key is the seed
    and 0). Scalars or tiles of integers. Raises language-random.
    """
    words = [_integer("philox", each) for each in (c0, c1, c2, c3)]
    dtype = uint64 if words[0].element.bits == 64 else uint32
    return _philox(_key(seed, dtype), [convert(word, dtype) for word in words], dtype, check_int("philox", n_rounds))


def _key(seed: Operand, dtype: DType) -> tuple[Any, Any]:
    whole = convert(_integer("a seed", seed), uint64)
    if dtype == uint64:
        return whole, 0
    return convert(whole, uint32), convert(shift_right(whole, 32), uint32)


def _philox(key: tuple[Any, Any], words: list[tensor], dtype: DType, rounds: int) -> Four:
    c0, c1, c2, c3 = words
    k0, k1 = key
    for _ in range(rounds):
        (low0, high0), (low2, high2) = (_product(x, f, dtype) for x, f in zip((c0, c2), _FACTORS[dtype], strict=True))
        c0, c1, c2, c3 = bit_xor(bit_xor(high2, c1), k0), low2, bit_xor(bit_xor(high0, c3), k1), low0
        k0, k1 = (_raised(k, step, dtype) for k, step in zip((k0, k1), _KEYS[dtype], strict=True))
    return c0, c1, c2, c3


def _raised(key: Any, step: int, dtype: DType) -> Any:
    return add(key, step) if isinstance(key, tensor) else (key + step) & dtype.max_value


def _product(x: tensor, factor: int, dtype: DType) -> tuple[tensor, tensor]:
    """The halves of a product. Of 32-bit words they are one instruction if written as a 64-bit product (IMAD.WIDE)."""
    if dtype == uint64:
        return mul(x, factor), umulhi(x, factor)
    wide = mul(convert(x, uint64), factor)
    return convert(wide, uint32), convert(shift_right(wide, 32), uint32)


@builtin
def randint4x(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four random uint32 for each offset: Philox 4x32 at the counter (offset, offset >> 32, 0, 0).

    `seed` is an integer of up to 64 bits, `offset` a scalar or tile of integers. It costs as much as `randint`, which uses one
    of the four. Raises language-random."""
    at = _integer("randint4x", offset)
    low = convert(at, uint32)
    zero = bit_and(low, 0)
    high = convert(shift_right(at, 32), uint32) if at.element.bits > 32 else zero
    return _philox(_key(seed, uint32), [low, high, zero, zero], uint32, check_int("randint4x", n_rounds))


@builtin
def randint(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> tensor:
    """A random uint32 for each offset; otherwise as `randint4x`."""
    return randint4x(seed, offset, n_rounds)[0]


@builtin
def rand(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> tensor:
    """A random float32 for each offset, uniform in [0, 1); otherwise as `randint4x`."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@builtin
def rand4x(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four random float32 for each offset, uniform in [0, 1); otherwise as `randint4x`."""
    a, b, c, d = map(uint_to_uniform_float, randint4x(seed, offset, n_rounds))
    return a, b, c, d


@builtin
def randn(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> tensor:
    """A random float32 for each offset, normally distributed with mean 0 and variance 1; otherwise as `randint4x`.

    It is computed by `log`, `sqrt` and `cos`, within their bounds."""
    a, b, _, _ = rand4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(a, b)[0]


@builtin
def randn4x(seed: Operand, offset: Operand, n_rounds: int = ROUNDS) -> Four:
    """Four random float32 for each offset, normally distributed; otherwise as `randn`."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    return *pair_uniform_to_normal(a, b), *pair_uniform_to_normal(c, d)


@builtin
def uint_to_uniform_float(x: Operand) -> tensor:
    """An integer of 32 or 64 random bits as a float32 in [0, 1): the bits without their sign, scaled."""
    value = _integer("uint_to_uniform_float", x)
    wide = value.element.bits == 64
    bits = convert(value, int64 if wide else int32)
    size = where(compare("lt", bits, 0), bit_not(bits), bits)
    # The largest factor by which the largest integer, rounded to float32, stays below 1.
    return mul(convert(size, float32), 1.0842020432385337e-19 if wide else 4.6566127342e-10)


@builtin
def pair_uniform_to_normal(u1: Operand, u2: Operand) -> tuple[tensor, tensor]:
    """Two independent normally distributed float32 from two uniform ones (the Box-Muller transform)."""
    angle = mul(u2, 6.283185307179586)
    radius = sqrt(mul(log(maximum(u1, 1.0e-7)), -2.0))
    return mul(radius, cos(angle)), mul(radius, sin(angle))


def _integer(what: str, x: Operand) -> tensor:
    """An integer value. Raises language-random."""
    value = to_tensor(x)
    if not number_dtype(what, value).is_int() or value.dtype.is_bool():
        raise fail(errors.RANDOM, what=what, got=describe(value))
    return value
