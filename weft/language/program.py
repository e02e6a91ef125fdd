"""Program and warp indices, and barriers between the threads of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.marks import builtin, unwrap
from weft.language.runtime_value import name_of
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import hints, program, sync


@builtin
def program_id(axis: int) -> tensor:
    """int32 index of this program along grid axis 0, 1 or 2. Raises language-grid-axis."""
    return apply(program.program_id, axis=_grid_axis("program_id", axis))


@builtin
def num_programs(axis: int) -> tensor:
    """int32 number of programs along grid axis 0, 1 or 2. Raises language-grid-axis."""
    return apply(program.num_programs, axis=_grid_axis("num_programs", axis))


@builtin
def num_warps() -> int:
    """The number of warps of the block, or in a warp-specialized function of its partition; a compile-time constant."""
    return current().num_warps


@builtin
def num_ctas() -> int:
    """The number of CTAs of the cluster; a compile-time constant."""
    return current().num_ctas


@builtin
def warp_id() -> tensor:
    """int32 index of the executing warp in its block; a scalar of warp scope."""
    return apply(program.warp_id)


@builtin
def lane_id() -> tensor:
    """int32 index of the executing thread in its warp; a scalar of thread scope."""
    return apply(program.lane_id)


@builtin
def uniform(x: Any, scope: str = "block") -> Any:
    """Assert that a scalar is uniform, that is equal in all threads of the block, or with `scope="warp"` of each warp; the
    simulator checks it.

    Raises language-scalar-needed, language-uniform-scope.
    """
    if scope not in ("block", "warp"):
        raise fail(errors.UNIFORM_SCOPE, scope=repr(scope))
    if not isinstance(x, tensor):
        return x
    if not x.is_scalar:
        raise fail(errors.SCALAR_NEEDED, what="uniform", got=name_of(x))
    return apply(hints.uniform, x, scope=scope)


@builtin
def barrier(cluster: bool = False) -> None:
    """A barrier of all threads of the block; memory accesses before it are visible to them after it.

    With `cluster`, a barrier of all threads of the cluster, as `hopper.cluster.barrier()`; without a cluster, of the block."""
    if cluster and current().num_ctas > 1:
        # A local import: that module imports this package, which is not initialized at this point.
        from weft.language.nvidia.hopper.cluster import barrier as of_cluster

        of_cluster()
    else:
        apply_many(sync.barrier, ())


thread_barrier = barrier


@builtin
def schedule_barrier() -> None:
    """Keep the machine code in order here: ptxas moves no instruction of a thread from one side of this line to the other.

    It costs one instruction, and orders nothing between threads: that takes barriers and fences. ptxas issues long waits early
    and what nothing depends on late, such as the arrival that releases a buffer, also past arithmetic that should overlap
    them. Waits of `warpgroup_mma_wait` behind arithmetic need none: they stay where they are written. `explain --registers`
    shows what has been moved."""
    apply_many(sync.schedule_barrier, ())


class static_range:
    """An unrolled `for` range: bounds are compile-time constants, and so is the loop variable in each copy of the body."""

    __slots__ = ("range",)

    def __init__(self, start: Any, end: Any = None, step: Any = 1) -> None:
        first, last = (0, start) if unwrap(end) is None else (start, end)
        self.range = range(*(check_int("static_range", unwrap(bound)) for bound in (first, last, step)))

    def __iter__(self) -> Iterator[int]:
        return iter(self.range)

    def __len__(self) -> int:
        return len(self.range)


def _grid_axis(what: str, axis: Any) -> int:
    number = check_int(what, axis)
    if number not in (0, 1, 2):
        raise fail(errors.GRID_AXIS, what=what, axis=number)
    return number
