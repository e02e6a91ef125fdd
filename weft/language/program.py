"""Who and where a program is, and barriers between its threads."""

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
from weft.ops import program


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
    """Warps of the block, known at compile time (of the partition, under warp specialisation)."""
    return current().num_warps


@builtin
def num_ctas() -> int:
    """Blocks of the cluster, known at compile time."""
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
def uniform(x: Any) -> Any:
    """The same scalar, claimed to be equal in all threads of the block; the simulator checks it.

    Raises language-scalar-needed.
    """
    if not isinstance(x, tensor):
        return x
    if not x.is_scalar:
        raise fail(errors.SCALAR_NEEDED, what="uniform", got=name_of(x))
    return apply(program.uniform, x)


@builtin
def barrier(cluster: bool = False) -> None:
    """All threads of the block arrive before any goes on; their memory accesses before it are visible after it.

    With `cluster` all threads of all blocks of the cluster do, as by `hopper.cluster.barrier()`."""
    if cluster:
        # Those functions are written over this package, which is not complete while it is imported.
        from weft.language.nvidia.hopper.cluster import barrier as of_cluster

        of_cluster()
    else:
        apply_many(program.barrier, ())


thread_barrier = barrier


class static_range:
    """A `for` range that is unrolled: bounds known at compile time, the loop variable a constant in each copy of the body."""

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
