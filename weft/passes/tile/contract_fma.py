"""Contract multiplications and additions to fused multiply-adds, which round once.

    %p = arith.mul %a, %b
    %s = arith.add %p, %c      -->      %s = arith.fma %a, %b, %c

    arith.sub %p, %c           -->      arith.fma %a, %b, (neg %c)
    arith.sub %c, %p           -->      arith.fma (neg %a), %b, %c

The product must have no other use and be in the same region. In a sum of two products the first one is contracted. The pass
contracts float16, bfloat16, float32 and float64; fp8 has no arithmetic in hardware. Contraction happens nowhere else: CUDA text
is compiled with `--fmad=false`, so that simulator and GPU compute the same numbers.
"""

from __future__ import annotations

from collections import Counter

from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import bfloat16, float16, float32, float64
from weft.ops import arith

CONTRACTED = (float16, bfloat16, float32, float64)


def contract_fma(func: Func) -> Func:
    """The function with products and sums contracted. Unchanged operations are shared with the old function."""
    if not any(_is_product(op) for op in walk(func.body)):
        return func
    uses = Counter(value for op in walk(func.body) for value in op.uses)
    return func.with_body(_contract(func.body, uses))


def _is_product(op: Op) -> bool:
    return op.kind is arith.mul and op.result.type.element in CONTRACTED


def _contract(region: Region, uses: Counter[Value]) -> Region:
    products = {op.result: op for op in region.ops if _is_product(op) and uses[op.result] == 1}
    ops: list[Op] = []
    gone: set[Op] = set()
    for op in region.ops:
        product = _product(op, products)
        if product is not None:
            gone.add(product)
            ops += _fused(op, product)
        elif op.regions:
            inner = tuple(_contract(nested, uses) for nested in op.regions)
            ops.append(Op(op.kind, op.operands, op.attrs, op.results, inner, op.loc))
        else:
            ops.append(op)
    return Region(region.args, tuple(op for op in ops if op not in gone))


def _product(op: Op, products: dict[Value, Op]) -> Op | None:
    """The operand of a sum that is a product which can be contracted into it."""
    if op.kind is not arith.add and op.kind is not arith.sub:
        return None
    return next((products[value] for value in op.uses if value in products), None)


def _fused(op: Op, product: Op) -> tuple[Op, ...]:
    """The fused multiply-add that replaces a sum, after a negation if it is a difference."""
    lhs, rhs = op.operands
    x, y = product.operands
    first = lhs is product.result
    other = rhs if first else lhs
    if op.kind is arith.add:
        return (Op(arith.fma, (x, y, other), {}, op.results, (), op.loc),)
    negation = Op(arith.math, (other if first else x,), {"fn": "neg"}, (Value(op.result.type),), (), op.loc)
    operands = (x, y, negation.result) if first else (negation.result, y, other)
    return negation, Op(arith.fma, operands, {}, op.results, (), op.loc)
