"""Reject invalid uses of the accumulators of asynchronous wgmmas, and warn of accumulators that will spill.

    %b = mma.warpgroup %x, %y, %a
    %s = arith.add %b, %c            -->    error accumulator-in-flight: %b is read before a wait

An accumulator in flight has no value yet. It may be the accumulator of the next wgmma, an operand of a wait, and carried by
control flow. The hardware updates its registers in place, so it must not be used after another value has claimed them, and it
must never move to other registers.
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
"""The allocation granularity of registers per thread."""


def check_accumulators(func: Func, target: Target) -> Func:
    """Check a function in tile IR. Raises CompilationError: accumulator-in-flight, accumulator-kept.

    Warns (accumulator-registers, a `PerformanceWarning`) if accumulators leave too few registers for everything else."""
    if not func.body.kinds.isdisjoint(PRODUCTS):
        Flow(func, _Refuse())
        _check_registers(func, target)
    return func


def check_moves(func: Func) -> Func:
    """Check a function with registers assigned. Raises CompilationError (accumulator-moved)."""
    if not func.body.kinds.isdisjoint(PRODUCTS):
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
    """The error at an operation, with the lines at which the wgmma starts and at which its registers were claimed."""
    places = [("the MMA was issued here", flight.product.loc)]
    if flight.taken is not None and flight.taken is not op:
        places.append(("it was handed on here", flight.taken.loc))
    related = tuple((label, loc) for label, loc in places if loc is not None)
    return fail(row, loc=op.loc, related=related, name=value.name or flight.product.result.name or "acc")


# Registers


def _check_registers(func: Func, target: Target) -> None:
    """Warn of each partition whose accumulators do not fit in registers, at the wgmma of the largest one."""
    plan = plan_partitions(func, target)
    # Value numbering may share the zeros that initialise accumulators; they take no registers before the wgmma.
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
    """The bytes of registers per thread that a tile takes."""
    assert isinstance(value.type, TileType)
    return value.type.registers * value.type.element.bits // 8
