"""Refuse what cannot be done with accumulators of asynchronous products, and warn of what will be slow.

A product in flight has no value: it may be added to by the next product, waited for, and carried along. It is changed in
place, so nobody may keep it beside what it was handed on to, and it may never move to other registers.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from weft.analysis.accumulators import PRODUCTS, Flight, Flow, Watcher, accumulators
from weft.errors import PerformanceWarning, Row, UserError, fail
from weft.errors import compiler as errors
from weft.ir.core import Func, Op, Region, Value, walk
from weft.ir.types import TileType
from weft.ops import arith, tile
from weft.passes.lowered.bound_blocks import SPARE, Pressure
from weft.passes.tile.partition_plan import plan_partitions
from weft.targets import Target

REGISTER_BYTES = 4
WARP_REGISTERS = 8
"""Registers of a thread are given in multiples of this."""


def check_accumulators(func: Func, target: Target) -> Func:
    """The function as it is, in tile IR. Raises CompilationError: accumulator-in-flight, accumulator-kept.

    Warns (accumulator-registers, a `PerformanceWarning`) where accumulators leave too few registers for anything else."""
    if any(op.kind in PRODUCTS for op in walk(func.body)):
        Flow(func, _Refuse())
        _check_registers(func, target)
    return func


def check_moves(func: Func) -> Func:
    """The function as it is, with registers assigned. Raises CompilationError (accumulator-moved)."""
    if any(op.kind in PRODUCTS for op in walk(func.body)):
        Flow(func, _Stay(func.attrs.storage))
    return func


class _Refuse(Watcher):
    def used(self, value: Value, flight: Flight, op: Op) -> None:
        raise _error(errors.ACCUMULATOR_READ, value, flight, op)

    def taken(self, value: Value, flight: Flight, op: Op) -> None:
        raise _error(errors.ACCUMULATOR_KEPT, value, flight, op)


class _Stay(Watcher):
    def __init__(self, storage: Mapping[Value, int]) -> None:
        self._storage = storage

    def handed(self, source: Value, target: Value, flight: Flight, op: Op) -> None:
        if source not in self._storage or self._storage[source] != self._storage.get(target):
            raise _error(errors.ACCUMULATOR_MOVED, source, flight, op)


def _error(row: Row, value: Value, flight: Flight, op: Op) -> UserError:
    """The mistake at an operation, with the places where the product starts and where it was handed on."""
    places = [("the product starts here", flight.product.loc)]
    if flight.taken is not None and flight.taken is not op:
        places.append(("it was handed on here", flight.taken.loc))
    related = tuple((label, loc) for label, loc in places if loc is not None)
    return fail(row, loc=op.loc, related=related, name=value.name or flight.product.result.name or "acc")


# Registers


def _check_registers(func: Func, target: Target) -> None:
    """Warn of every partition whose accumulators do not fit, at the largest one's product."""
    plan = plan_partitions(func, target)
    # Zeros that a sum begins with may be those of other lines too; they take no registers before the product.
    values = accumulators(func) - {op.result for op in walk(func.body) if op.kind in (arith.constant, tile.splat)}
    total = plan.total_warps if plan else func.attrs.num_warps
    most = target.registers_per_block // (total * target.warp_size) // WARP_REGISTERS * WARP_REGISTERS
    most = min(most, target.registers_per_thread, func.attrs.maxnreg or most)
    if plan is None:
        _check_partition(func.body, values, min(most, target.registers_per_thread), total)
        return
    own = [region for role in plan.roles for region in role.regions if region is not None]
    _check_partition(func.body, values - _inside(own), most, total)
    for role in plan.roles:
        for region in role.regions:
            if region is not None:
                limit = min(role.registers or most, target.registers_per_thread)
                _check_partition(region, values, limit, role.num_warps)


def _inside(regions: list[Region]) -> set[Value]:
    return {result for region in regions for op in walk(region) for result in op.results}


def _check_partition(region: Region, values: set[Value], limit: int, warps: int) -> None:
    products = [op for op in walk(region) if op.kind in PRODUCTS and op.result in values]
    if not products:
        return
    peak = Pressure(lambda value: _bytes(value) if value in values else 0).peak(region)
    if peak > (limit - SPARE) * REGISTER_BYTES:
        widest = max(products, key=lambda op: _bytes(op.result))
        warning = fail(errors.ACCUMULATOR_SIZE, loc=widest.loc, bytes=peak, limit=limit * REGISTER_BYTES, warps=warps)
        assert isinstance(warning, PerformanceWarning)
        if widest.loc is None:
            warnings.warn(warning, stacklevel=2)
        else:
            warnings.warn_explicit(warning, None, widest.loc.file, widest.loc.line)


def _bytes(value: Value) -> int:
    """Bytes of each thread's registers that a tile takes."""
    assert isinstance(value.type, TileType)
    return value.type.registers * value.type.element.bits // 8
