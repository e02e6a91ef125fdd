"""Unroll a loop by two if its wgmma takes operand A from registers and is waited for in the next iteration.

    control.for 0, %n, 1 body(%i) {             control.for 0, %n - 1, 2 body(%i) {
      %a = ...                                    %a = ...; %p = mma.warpgroup %a, %b, %acc
      %p = mma.warpgroup %a, %b, %acc             mma.warpgroup_wait %p {pendings=1}
      mma.warpgroup_wait %p {pendings=1}   -->    %c = ...; %q = mma.warpgroup %c, %d, ...
    }                                             mma.warpgroup_wait %q {pendings=1}
                                                }
                                                control.if (one iteration is left) { the body }

Nothing may write the registers of A before the wgmma is complete (PTX ISA, wgmma.mma_async), and one body has one set of them.
The two copies of the body have two, which take turns: while the tensor core reads one, the threads compute the other. Without
this, the wgmma would have to be waited for at once (`weft.analysis.accumulators.alone`), and nothing would overlap it. Loops of
another kind stay as they are, and a `PerformanceWarning` at the wgmma says why it is waited for.
"""

from __future__ import annotations

import warnings
from collections.abc import Set as AbstractSet

from weft.analysis.accumulators import alone, completes, left_of
from weft.analysis.facts import ValueFacts, facts
from weft.analysis.facts.scalar import Scalar
from weft.errors import PerformanceWarning, fail
from weft.errors import compiler as errors
from weft.ir.core import Func, Op, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import DType, ScalarType
from weft.ops import arith, control, mma

BEFORE = "inserted before the last iteration of an odd number, which is behind the unrolled loop"
LEFT = "inserted behind this MMA in the last iteration of an odd number: no iteration follows that would wait for it"


def unroll_products(func: Func) -> Func:
    """The function, in tile IR, with such loops unrolled; unchanged if there are none."""
    if mma.warpgroup not in func.body.kinds:
        return func
    waiting = alone(func)
    if not waiting:
        return func
    known = facts(func)
    chosen = {op for op in walk(func.body) if op.kind is control.for_ and _gains(op, waiting) and _is_simple(op, known)}
    handled = {inner for loop in chosen for inner in loop.regions[0].ops}
    for product in sorted(waiting - handled, key=lambda op: str(op.loc)):
        _warn(product)

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        return _unrolled(out, op, operands, known, waiting) if op in chosen else None

    return rebuild(func, rule) if chosen else func


def _warn(product: Op) -> None:
    warning = fail(errors.PRODUCT_WAITS, loc=product.loc)
    assert isinstance(warning, PerformanceWarning)
    if product.loc is None:
        warnings.warn(warning, stacklevel=2)
    else:
        warnings.warn_explicit(warning, None, product.loc.file, product.loc.line)


def _gains(loop: Op, waiting: set[Op]) -> bool:
    """Whether the loop's body has such wgmmas, and all of them are complete at the end of the iteration that follows."""
    (body,) = loop.regions
    own = [op for op in body.ops if op in waiting]
    return bool(own) and all(completes((*left_of(op, body), *body.ops)) for op in own)


def _is_simple(loop: Op, known: ValueFacts) -> bool:
    """Whether the loop counts upwards by a constant, and a bound one step lower does not overflow."""
    lower, _, step = (known.hull(value) for value in loop.uses[:3])
    assert lower is not None and step is not None
    dtype = loop.uses[0].type.element
    assert isinstance(dtype, DType)
    return 0 < step.low == step.high and lower.low - step.low >= dtype.min_value


def _constant(fact: Scalar | None) -> int | None:
    return fact.low if fact is not None and fact.low == fact.high else None


def _unrolled(
    out: Rebuilder, loop: Op, operands: Operands, known: ValueFacts, waiting: set[Op]
) -> tuple[Value, ...]:  # fmt: skip
    """The loop over pairs of iterations, and the iteration that may be left."""
    lower, upper, step, *inits = operands
    assert lower is not None and upper is not None and step is not None
    (body,) = loop.regions
    type = ScalarType(lower.type.element)
    stride = _constant(known.hull(loop.uses[2]))
    assert stride is not None and isinstance(type.element, DType)
    out.loc = loop.loc
    first, last = (_constant(known.hull(value)) for value in loop.uses[:2])
    upper = upper if last is not None else out.emit(arith.maximum, upper, lower)
    end = out.emit(arith.sub, upper, step)
    pair: Value = out.emit(arith.constant, value=2 * stride, type=type)
    types = [type, *(init.type for init in inits if init is not None)]
    with out.region(types, [arg.name for arg in body.args]) as pairs:
        i, *carried = pairs.args
        middle = _copy(out, loop, [i, *carried])
        out.loc = loop.loc
        _close(out, _copy(out, loop, [out.emit(arith.add, i, step, name=i.name), *middle]))
    out.loc = loop.loc
    made = out.create(control.for_, (lower, end, pair, *inits), {"descending": False}, (pairs.done,))
    for new, old in zip(made, loop.results, strict=True):
        new.name = old.name
    if first is not None and last is not None and control.trip_count(first, last, stride) % 2 == 0:
        return made
    count = out.emit(control.trips, lower, end, pair)
    rest = out.emit(arith.add, lower, out.emit(arith.mul, out.emit(arith.cast, count, dtype=type.element), pair))
    with out.region() as one:
        # Else ptxas was seen to serialize all wgmmas (C7513), as the operand of this iteration is computed behind the loop.
        out.emit(mma.warpgroup_wait, pendings=0, reason=BEFORE)
        _close(out, _copy(out, loop, [rest, *made], waiting))
    with out.region() as none:
        _close(out, made)
    out.loc = loop.loc
    left = out.emit(arith.cmp, rest, upper, predicate="lt")
    return out.create(control.if_, (left,), {}, (one.done, none.done))


def _copy(
    out: Rebuilder, loop: Op, values: list[Value], waiting: AbstractSet[Op] = frozenset()
) -> list[Value]:  # fmt: skip
    """Append a copy of the body for these arguments, with a wait behind each wgmma of `waiting`; returns what it yields."""
    (body,) = loop.regions
    out.env.update(zip(body.args, values, strict=True))
    for op in body.ops[:-1]:
        out.copy_op(op)
        if op in waiting:
            out.emit(mma.warpgroup_wait, pendings=0, reason=LEFT)
    return [out.env[value] for value in body.terminator.uses]


def _close(out: Rebuilder, values: list[Value] | tuple[Value, ...]) -> None:
    out.create(control.yield_, tuple(values), {})
