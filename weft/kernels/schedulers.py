"""Schedulers: which program computes which tile, or part of a tile, and in which order; swapped by one argument of a kernel.

    @weft.jit
    def kernel(..., state, schedule: gl.constexpr):
        grid = schedulers.Grid(rows, columns, steps, None, schedule)         # tiles, and steps along K of each
        work = schedulers.begin(grid, state.counters, schedulers.prepare(schedule))
        while work.valid():
            work.request_next()
            row, column = work.place()
            first, end = work.steps()
            ...                                                             # acc, of the steps from first to end
            acc, complete = schedulers.combined(work, acc, state.partials, state.counters)
            if complete:
                ...                                                         # store the tile
            work = work.next()

    schedule = Schedule("ticket", order="serpentine")
    programs = schedule.programs(tiles, resident)
    kernel[programs](..., schedule.state(out, tiles, programs, acc_shape), schedule)

The functions that kernels call are in `weft.kernels.device.schedulers`; this module adds what the host does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.schedulers import Grid, begin, combined, place, prepare
from weft.kernels.memory import empty_like, fill_zero

__all__ = ["Grid", "Schedule", "State", "begin", "combined", "longest_first", "place", "prepare"]

Kind = Literal["static", "ticket", "stolen", "split_k", "stream_k"]
Order = Literal["rows", "columns", "grouped", "serpentine", "listed"]


class State(NamedTuple):
    """What the programs of a launch share: int32 counters, which are zero between launches, and float32 partial tiles. None
    where the schedule needs none."""

    counters: Any
    partials: Any


@dataclass(frozen=True, slots=True)
class Schedule:
    """How tiles are assigned to programs (`kind`), and how they are numbered (`order`).

    `static`: program p computes tiles p, p + programs, ...; best for tiles of equal cost. `ticket`: a program that has
    finished a tile takes the next number from an atomic counter; for tiles of different cost, and for GPUs that other kernels
    share. `stolen`: a grid with a program per tile, whose running programs claim tiles of those that have not started
    (cluster launch control, Blackwell). `split_k`: each tile is computed in `splits` parts along K, for a few tiles with a
    long K; there are at least as many steps as parts, so that none is empty. `stream_k`: the tiles of the last, partial wave,
    and of the one before it, are divided evenly among all programs along K, for a few tiles more than programs.

    `rows` and `columns` number tiles along rows or columns; `grouped` in bands of `group` rows, each band column by column,
    so that concurrent tiles share operands in L2; `serpentine` the same with every other band backwards, so that the operands
    at the turn are still there. `listed` takes the numbers from an array, such as that of `longest_first`.

    Raises LaunchError (kernels-schedule).
    """

    kind: Kind = "static"
    order: Order = "grouped"
    group: int = 8
    splits: int = 1

    def __post_init__(self) -> None:
        fewest = 2 if self.kind == "split_k" else 1
        most = MOST_SPLITS if self.kind == "split_k" else 1
        allowed: dict[str, tuple[object, bool, str]] = {
            "kind": (self.kind, self.kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
            "order": (self.order, self.order in get_args(Order), f"one of {', '.join(get_args(Order))}"),
            "group": (self.group, type(self.group) is int and self.group >= 1, "a positive int"),
            "splits": (
                self.splits,
                type(self.splits) is int and fewest <= self.splits <= most,
                f"an int from {fewest} to {most} with kind={self.kind!r}",
            ),
        }
        for field, (value, good, rule) in allowed.items():
            if not good:
                raise fail(errors.SCHEDULE, field=field, value=repr(value), rule=rule)

    @property
    def divides(self) -> bool:
        """True if several programs may compute parts of a tile along K, whose sums `combined` makes."""
        return self.kind in ("split_k", "stream_k")

    def programs(self, tiles: int, resident: int) -> int:
        """The number of programs to launch for `tiles` tiles, if `resident` programs run at a time."""
        if self.kind == "stolen":
            return tiles
        return resident if self.kind == "stream_k" else min(tiles * self.splits, resident)

    def state(self, like: Any, tiles: int, programs: int, block: Sequence[int] = (), partitions: int = 1) -> State:
        """Memory for launches with these numbers of tiles and programs, one at a time, of the framework and device of `like`.

        `block` is the shape of the accumulator that a partition adds up, and `partitions` the number of them; only schedules
        that divide tiles need it. Launches leave the counters zero, so that a CUDA graph can be replayed."""
        if not self.divides and self.kind != "ticket":
            return State(None, None)
        counters = empty_like(like, (max(1, tiles * partitions if self.divides else 1),), "int32")
        fill_zero(counters)
        if not self.divides:
            return State(counters, None)
        slots = 2 * programs if self.kind == "stream_k" else tiles * self.splits
        return State(counters, empty_like(like, (partitions * slots, *block), "float32"))


MOST_SPLITS = 1024
"""The largest number of splits."""


def longest_first(costs: Sequence[float]) -> Any:
    """The numbers of tiles as an int32 NumPy array, the most expensive one first (ties in order), for the order `listed`:
    programs that take tickets then end at about the same time."""
    return np.argsort(-np.asarray(costs, np.float64), kind="stable").astype(np.int32)
