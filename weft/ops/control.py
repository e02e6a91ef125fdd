"""Structured control flow. Regions see the values around them; what changes is carried explicitly."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.core import Func, Op, Region, Value
from weft.ir.define import exact, op
from weft.ir.types import ScalarType, Type, int32, int64, uint32, uint64
from weft.ops.check import boolean, dtype_of, integer, require, same_type, scalar, yields

UNSIGNED = {int32: uint32, int64: uint64}
"""The type of a number of iterations, by the counter's."""


def trip_count(lower: int, upper: int, step: int) -> int:
    """Iterations of a loop over `range(lower, upper, step)`: Python's, and none where the step is 0.

    >>> trip_count(10, 0, -3), trip_count(0, 10, -3), trip_count(2**31 - 3, 2**31 - 1, 16), trip_count(0, 5, 0)
    (4, 0, 1, 0)
    """
    # Not `len(range(...))`, which raises OverflowError for counts of int64 beyond 2**63 - 1.
    return max(-((lower - upper) // step), 0) if step else 0


def _trips(lower: int, upper: int, step: int) -> int | None:
    # A step of 0 is reported when it runs.
    return trip_count(lower, upper, step) if step else None


@op("control.trips", fold=exact(_trips))
def trips(lower: Value, upper: Value, step: Value) -> Type:
    """The number of iterations of a loop over `range(lower, upper, step)` (`trip_count`), unsigned and of the bounds' width."""
    scalar(lower)
    same_type(lower, upper, step)
    dtype = dtype_of(lower)
    require(dtype in UNSIGNED, "bounds of a loop are int32 or int64")
    return ScalarType(UNSIGNED[dtype])


@op("control.for")
def for_(
    lower: Value, upper: Value, step: Value, *inits: Value, descending: bool | None, body: Region
) -> tuple[Type, ...]:
    """Count as Python's `range(lower, upper, step)` does, in any of the integer types. `descending` is the sign of the step,
    None where only the running kernel knows it. The body takes the counter and the carried values, and yields the next carried
    values; the yield assigns them in parallel. Results are the last ones."""
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
    """Repeat: `condition` takes the carried values and ends in `control.condition`; while it holds, `body` takes the values
    that were passed on and yields the next carried values. Results are the values passed on when the condition fails."""
    types = tuple(value.type for value in inits)
    require(tuple(arg.type for arg in condition.args) == types, "the loop's arguments do not fit its initial values")
    passed = tuple(value.type for value in list(condition.terminator.uses)[1:])
    require(tuple(arg.type for arg in body.args) == passed, "the loop's body does not fit its condition")
    yields(body, types, "the loop")
    return passed


@op("control.if")
def if_(condition: Value, then: Region, orelse: Region) -> tuple[Type, ...]:
    """Run one of two regions; results are what it yields. Both yield the same types."""
    scalar(condition)
    boolean(condition)
    types = tuple(value.type for value in then.terminator.uses)
    yields(orelse, types, "the else branch")
    return types


@op("control.warp_specialize", needs="block", removed_by="split_partitions")
def warp_specialize(*partitions: Region, num_warps: tuple[int, ...], num_regs: tuple[int, ...]) -> tuple[Type, ...]:
    """Warps of the block go different ways: the kernel's own run the first region, further ones the others, side by side.

    `num_warps` counts the warps of each further region, `num_regs` the registers of their threads (none: as compiled). All
    threads of the block meet before and after. Regions see scalars, handles and descriptors around them; results are what the
    first one yields, the others yield nothing."""
    require(len(partitions) == len(num_warps) + 1, "a number of warps for each partition but the first")
    require(len(num_regs) in (0, len(num_warps)), "registers for all of these or for none")
    require(all(not any(region.terminator.uses) for region in partitions[1:]), "workers yield nothing")
    return tuple(value.type for value in partitions[0].terminator.uses)


@op("control.partitions", needs="block")
def partitions(
    *partitions: Region, first_warps: tuple[int, ...], num_warps: tuple[int, ...], num_regs: tuple[int, ...]
) -> None:
    """All of a kernel that is specialised by warps, as `split_partitions` leaves it: what each partition does, begin to end.

    Partition i is `num_warps[i]` warps from warp `first_warps[i]` on; its threads take `num_regs[i]` registers (0: as before).
    Within a region `num_warps`, barriers and thread numbers are the partition's, whose hardware barrier is number i + 1. Each
    warp of the block is in one partition; those that only fill up warpgroups come last. Partitions that share a warpgroup (4
    warps) have the same registers."""
    require(len(partitions) == len(first_warps) == len(num_warps) == len(num_regs), "each partition is described")


@op("control.yield", terminator=True)
def yield_(*values: Value) -> None:
    """End a region and hand its values to the operation that owns it."""


@op("control.condition", terminator=True)
def condition(condition: Value, *values: Value) -> None:
    """End the condition region of a while: go on while the condition holds, passing the values on."""
    boolean(condition)
    require(isinstance(condition.type, ScalarType), "a condition is a scalar")


@op("control.return", terminator=True)
def return_() -> None:
    """End the kernel. It stands at the end of the function's body only; early returns are structured by the reader."""


def run_by(func: Func) -> Iterator[tuple[Op, int]]:
    """Every operation of either stage, outer before inner, with the number of warps that run it."""
    return _run_by(func.body, func.attrs.num_warps)


def _run_by(region: Region, warps: int) -> Iterator[tuple[Op, int]]:
    for each in region.ops:
        yield each, warps
        for inner, count in zip(each.regions, _counts(each, warps), strict=True):
            yield from _run_by(inner, count)


def _counts(each: Op, warps: int) -> tuple[int, ...]:
    """The number of warps that run each region of an operation."""
    if each.kind is partitions:
        return each.attrs["num_warps"]
    if each.kind is warp_specialize:
        return (warps, *each.attrs["num_warps"])
    return (warps,) * len(each.regions)
