"""Which power of two divides a scalar: alignment of addresses, and masks that are equal across a vector.

Integers wrap modulo a power of two, so a power-of-two divisor survives wrapping. Pointers are measured in elements.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.core import Attrs, Value
from weft.ir.define import OpDef
from weft.ir.types import Element, Pointer
from weft.ops import arith, memory, program, tile
from weft.passes.fact_rules import MOST, power_of_two_part

Known = Callable[[Value], int]
DivisorRule = Callable[[Known, tuple[Value | None, ...], Attrs], int]


def counts(element: Element) -> bool:
    """True of elements that have divisors: integers and pointers."""
    return isinstance(element, Pointer) or element.kind in ("int", "uint")


def pointer_divisor(pointer: Pointer, byte_alignment: int) -> int:
    """Elements that an address aligned to `byte_alignment` bytes is a multiple of."""
    return max(byte_alignment // pointer.element_ty.itemsize, 1)


def _least(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    return min(known(value) for value in operands if value is not None)


def _product(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    lhs, rhs = operands
    assert lhs is not None and rhs is not None
    return min(known(lhs) * known(rhs), MOST)


def _most(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    return max(known(value) for value in operands if value is not None)


def _constant(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    value = attrs["value"]
    return power_of_two_part(value) if isinstance(value, int) else 1


def _hint(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    (x,) = operands
    assert x is not None
    promised = [power_of_two_part(d) for d in attrs.get("divisible", ())]
    if isinstance(x.type.element, Pointer):
        promised = [pointer_divisor(x.type.element, d) for d in promised]
    return max([known(x), *promised])


def _select(known: Known, operands: tuple[Value | None, ...], attrs: Attrs) -> int:
    return _least(known, operands[1:], attrs)


RULES: dict[OpDef, DivisorRule] = {
    arith.constant: _constant,
    arith.add: _least,
    arith.sub: _least,
    arith.mul: _product,
    arith.rem: _least,
    arith.minimum: _least,
    arith.maximum: _least,
    arith.and_: _most,
    arith.or_: _least,
    arith.xor: _least,
    arith.cast: _least,
    arith.select: _select,
    memory.addptr: _least,
    tile.hint: _hint,
    program.uniform: _least,
}
