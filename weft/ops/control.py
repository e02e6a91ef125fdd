"""Structured control flow. Regions may use values of the regions around them; values that change are carried explicitly."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.core import Func, Op, Region, Value
from weft.ir.define import exact, op
from weft.ir.types import ScalarType, Type, int32, int64, uint32, uint64
from weft.ops.check import boolean, dtype_of, integer, require, same_type, scalar, yields

UNSIGNED = {int32: uint32, int64: uint64}
"""The type of a trip count, by the type of the counter."""


def trip_count(lower: int, upper: int, step: int) -> int:
    """The trip count of a loop over `range(lower, upper, step)`, as in Python; 0 if the step is 0.

    >>> trip_count(10, 0, -3), trip_count(0, 10, -3), trip_count(2**31 - 3, 2**31 - 1, 16), trip_count(0, 5, 0)
    (4, 0, 1, 0)
    """
    # Not `len(range(...))`, which raises OverflowError for counts of int64 beyond 2**63 - 1.
    return max(-((lower - upper) // step), 0) if step else 0


def _trips(lower: int, upper: int, step: int) -> int | None:
    # A step of 0 is reported at run time.
    return trip_count(lower, upper, step) if step else None


@op("control.trips", fold=exact(_trips))
def trips(lower: Value, upper: Value, step: Value) -> Type:
    """The trip count of a loop over `range(lower, upper, step)`, as an unsigned integer of the bounds' width."""
    scalar(lower)
    same_type(lower, upper, step)
    dtype = dtype_of(lower)
    require(dtype in UNSIGNED, "bounds of a loop are int32 or int64")
    return ScalarType(UNSIGNED[dtype])


@op("control.for")
def for_(
    lower: Value, upper: Value, step: Value, *inits: Value, descending: bool | None, body: Region
) -> tuple[Type, ...]:
    """Loop over Python's `range(lower, upper, step)` in any integer type. `descending` is the sign of the step, None if it is
    known at run time only. The body takes the counter and the carried values and yields the next carried values, which are
    assigned in parallel. The results are the last carried values."""
    scalar(lower)
    integer(lower)
    same_type(lower, upper, step)
    types = tuple(value.type for value in inits)
    require(
        tuple(arg.type for arg in body.args) == (lower.type, *types),
        "the loop's arguments do not fit its initial values",
    )
    yields(body, types, "the loop")
    return types


@op("control.while")
def while_(*inits: Value, condition: Region, body: Region) -> tuple[Type, ...]:
    """Loop while a condition holds. The region `condition` takes the carried values and ends in `control.condition`, which
    passes values on. While it holds, `body` takes these and yields the next carried values; the results are the values that
    are passed on when it fails."""
    types = tuple(value.type for value in inits)
    require(tuple(arg.type for arg in condition.args) == types, "the loop's arguments do not fit its initial values")
    passed = tuple(value.type for value in condition.terminator.uses[1:])
    require(tuple(arg.type for arg in body.args) == passed, "the loop's body does not fit its condition")
    yields(body, types, "the loop")
    return passed


@op("control.if")
def if_(condition: Value, then: Region, orelse: Region) -> tuple[Type, ...]:
    """Run one of two regions; the results are the values that it yields. Both yield the same types."""
    scalar(condition)
    boolean(condition)
    types = tuple(value.type for value in then.terminator.uses)
    yields(orelse, types, "the else branch")
    return types


@op("control.warp_specialize", needs="block", removed_by="split_partitions")
def warp_specialize(*partitions: Region, num_warps: tuple[int, ...], num_regs: tuple[int, ...]) -> tuple[Type, ...]:
    """Warp specialization: the kernel's own warps run the first region, additional worker warps run the others concurrently.

    `num_warps` is the number of warps of each worker region, `num_regs` the registers of their threads (empty: as compiled).
    A barrier of all threads of the block precedes and follows. Regions may use scalars, handles and descriptors from outside.
    The results are the values that the first region yields; worker regions yield none."""
    require(len(partitions) == len(num_warps) + 1, "a number of warps for each partition but the first")
    require(len(num_regs) in (0, len(num_warps)), "registers for all of these or for none")
    require(all(not any(region.terminator.uses) for region in partitions[1:]), "workers yield nothing")
    return tuple(value.type for value in partitions[0].terminator.uses)


@op("control.partitions", needs="block")
def partitions(
    *partitions: Region, first_warps: tuple[int, ...], num_warps: tuple[int, ...], num_regs: tuple[int, ...]
) -> None:
    """A whole warp-specialised kernel, as `split_partitions` makes it: one region per partition with all of its code.

    Partition i has `num_warps[i]` warps from warp `first_warps[i]` on; its threads have `num_regs[i]` registers (0: as at
    launch). Within a region the number of warps, barriers and thread indices are the partition's; its named barrier is i + 1.
    Each warp of the block is in one partition; idle ones that fill up warpgroups come last. Partitions that share a warpgroup
    (4 warps) have the same number of registers, as `setmaxnreg` requires."""
    require(len(partitions) == len(first_warps) == len(num_warps) == len(num_regs), "each partition is described")


@op("control.yield", terminator=True)
def yield_(*values: Value) -> None:
    """End a region and pass its values to the operation that contains it."""


@op("control.condition", terminator=True)
def condition(condition: Value, *values: Value) -> None:
    """End the condition region of a while: continue while the condition holds, passing the values on."""
    boolean(condition)
    require(isinstance(condition.type, ScalarType), "a condition is a scalar")


@op("control.return", terminator=True)
def return_() -> None:
    """End the kernel. It is the last operation of the function's body only; the reader structures early returns."""


def run_by(func: Func) -> Iterator[tuple[Op, int]]:
    """Every operation of a function in tile IR or lowered IR, outer before inner, with the number of warps that execute it."""
    return _run_by(func.body, func.attrs.num_warps)


def _run_by(region: Region, warps: int) -> Iterator[tuple[Op, int]]:
    for each in region.ops:
        yield each, warps
        for inner, count in zip(each.regions, _counts(each, warps), strict=True):
            yield from _run_by(inner, count)


def _counts(each: Op, warps: int) -> tuple[int, ...]:
    """The number of warps that execute each region of an operation."""
    if each.kind is partitions:
        return each.attrs["num_warps"]
    if each.kind is warp_specialize:
        return (warps, *each.attrs["num_warps"])
    return (warps,) * len(each.regions)
