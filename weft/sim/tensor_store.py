"""A block's tensor memory: its bytes, which allocation wrote each cell last, and which elements are undefined.

A *cell* is 32 bits: cell `column * 128 + lane`, so that the columns of an allocation follow one another. The last accesses of
every cell are kept in a shadow of their own (`weft.sim.shadow`); what makes two of them clash is here.

Accesses of threads are noted by warp, since the threads of a warp access tensor memory together. Of the operations of tcgen05
that one thread starts some follow one another (`weft.sim.tensor_order`), and so do those of two threads where the second knows
that the first has been started; all others wait until the first is complete. Whatever passes from one thread to another goes
through a fence on both sides of what orders the threads, but a commit needs none before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import Loc, tensor_hazard
from weft.ir.core import Op
from weft.layout.tensor_memory.layouts import LANES
from weft.sim.agents import Pipe
from weft.sim.clocks import Clock
from weft.sim.data import Array, Mark, marked
from weft.sim.findings import Findings
from weft.sim.naming import Naming
from weft.sim.shadow import Event, Shadow
from weft.sim.shared_memory import Lifetime
from weft.sim.tensor_order import disorder
from weft.sim.verdicts import FINE, TENSOR_CORE, Verdict

CELL = 4
"""Bytes of a cell."""
COLUMNS = 512
COLUMN_BYTES = LANES * CELL
TENSOR_NEVER_WRITTEN = "the tensor memory it was read from was never written"


@dataclass(frozen=True, slots=True)
class TensorHandle:
    """What a handle points to: an allocation, the column at which the view's first tile begins, and the first coordinates of
    the view in its tile."""

    memory: Lifetime
    column: int
    start: tuple[int, int] = (0, 0)


class TensorShadow(Shadow):
    """The last accesses to tensor memory. `pipes` are those of all tasks of the cluster."""

    __slots__ = ("_pipes",)

    def __init__(
        self, program: tuple[int, int, int], tasks: int, blocks: int, rank: int, names: Naming, pipes: Sequence[Pipe],
        found: Findings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(program, tasks, blocks, rank, names=names, found=found)
        self._pipes = pipes
        self.granule = CELL

    def judge(self, earlier: Event, event: Event, clock: Clock) -> Verdict:
        """What is wrong between two accesses to the same cell, one of them a write."""
        own = earlier.slot == clock.slot
        done = clock.known.get(earlier.component, 0) > earlier.value
        if earlier.mode not in TENSOR_CORE:
            if not done:
                return (tensor_hazard.TENSOR_RACE, None if own else tensor_hazard.TENSOR_RACE)
            other, same = self._fenced(clock, earlier.component, earlier.value)
            return other, None if own else same
        if event.mode not in TENSOR_CORE:
            if not done:
                row = tensor_hazard.TENSOR_IN_FLIGHT if earlier.writes else tensor_hazard.TENSOR_OPERAND
                return row, row
            return self._fenced(clock, earlier.component, earlier.value)
        waited = done or not self._why(earlier, event)
        if own:
            return FINE if waited else (tensor_hazard.TENSOR_ORDER, tensor_hazard.TENSOR_ORDER)
        either = earlier.component, self._pipes[earlier.slot].issued
        found = [self._fenced(clock, c, earlier.value) for c in either if clock.known.get(c, 0) > earlier.value]
        if not found:
            return tensor_hazard.TENSOR_RACE, tensor_hazard.TENSOR_RACE
        if FINE not in found:
            return found[0]
        return FINE if waited else (tensor_hazard.TENSOR_ORDER, tensor_hazard.TENSOR_ORDER)

    def _why(self, earlier: Event, event: Event) -> str:
        """Why an operation of tcgen05 does not come after an earlier one that is under way; empty where it does."""
        if earlier.mode not in TENSOR_CORE or event.mode not in TENSOR_CORE:
            return ""
        pipe, later = self._pipes[earlier.slot], self._pipes[event.slot].started[event.value]
        multiplied = pipe.product > earlier.value
        return disorder(pipe.started[earlier.value], earlier.writes, later, not event.writes, multiplied)

    def _fenced(self, clock: Clock, component: int, value: int) -> Verdict:
        """What is wrong with an access that comes after another thread's, as far as fences go."""
        if clock.ordered.get(component, 0) > value:
            return FINE
        sealed = clock.sealed.get(component, 0) > value
        row = tensor_hazard.TENSOR_FENCE_AFTER if sealed else tensor_hazard.TENSOR_FENCE_BEFORE
        return row, row

    def under_way(self, clock: Clock) -> Event | None:
        """An operation of tcgen05 that the clock's task does not know to be complete."""
        for channel in self._channels():
            for number in np.unique(channel.events).tolist():
                event = self._events[number] if number else None
                if event is None or event.mode not in TENSOR_CORE:
                    continue
                if clock.known.get(event.component, 0) <= event.value:
                    return event
        return None


class TensorMemory:
    """128 lanes by 512 columns. `reserved`: what the kernel has taken in the lowered stage."""

    __slots__ = (
        "_causes",
        "_data",
        "_lifetimes",
        "_owner",
        "_placed",
        "_top",
        "_undefined",
        "_words",
        "reserved",
        "shadow",
    )

    def __init__(self, shadow: TensorShadow | None) -> None:
        self._data = np.zeros(COLUMNS * COLUMN_BYTES, np.uint8)
        self._owner = np.zeros(COLUMNS * LANES, np.int32)
        self._words: dict[np.dtype[Any], Array] = {}
        self._undefined: Array | None = None
        self._causes: tuple[str, Loc | None] = (TENSOR_NEVER_WRITTEN, None)
        self._lifetimes = 0
        self._placed: dict[object, int] = {}
        self._top = 0
        self.shadow = shadow
        self.reserved: Lifetime | None = None
        if shadow is not None:
            shadow.resize(COLUMNS * LANES)

    def allocate(self, op: Op, columns: int, name: str, leading: tuple[int, ...], each: int) -> TensorHandle:
        """Begin a lifetime at the operation's column; without one each allocation has columns of its own. `leading` are the
        extents of an array of tiles, of `each` columns."""
        column = int(op.attrs["column"])
        if column < 0:
            tag = op.attrs["tag"], op.result.type
            if tag not in self._placed:
                self._placed[tag] = self._top
                self._top += columns
            column = self._placed[tag]
        return TensorHandle(self.begin(op, column, columns, name, leading, each), column)

    def begin(
        self, op: Op, column: int, columns: int, name: str, leading: tuple[int, ...] = (), each: int = 0
    ) -> Lifetime:  # fmt: skip
        """A lifetime of some columns, whatever they held before."""
        self._lifetimes += 1
        start, size, stage = (count * COLUMN_BYTES for count in (column, columns, each))
        return Lifetime(self._lifetimes, start, size, name, op, leading, stage)

    def words(self, dtype: np.dtype[Any]) -> Array:
        """All of memory as elements of a type."""
        if dtype not in self._words:
            self._words[dtype] = self._data.view(dtype)
        return self._words[dtype]

    def unwritten(self, memory: Lifetime, cells: slice | Array) -> bool:
        """Whether some cells were never written in the allocation's lifetime."""
        return bool((self._owner[cells] != memory.number).any())

    def never_written(self, memory: Lifetime, cells: Array) -> Array:
        """For each of some cells whether it was never written in the allocation's lifetime."""
        return self._owner[cells] != memory.number

    def written(self, memory: Lifetime, cells: slice | Array) -> None:
        """These cells have values now."""
        self._owner[cells] = memory.number
        if self._undefined is not None:
            self._undefined.reshape(-1, CELL)[cells] = False

    @property
    def holds_undefined(self) -> bool:
        """Whether an undefined element was ever stored."""
        return self._undefined is not None

    def mark(self, index: Array, itemsize: int, mark: Mark, undefined: Array) -> None:
        """Elements of a size, by number, are undefined where `undefined` holds."""
        if self._undefined is None:
            self._undefined = np.zeros(self._data.size, bool)
        self._undefined.reshape(-1, itemsize)[index] = undefined[..., None]
        self._causes = mark.cause, mark.loc

    def undefined(self, index: Array, itemsize: int) -> Mark | None:
        """The undefined ones among elements of a size, by number."""
        if self._undefined is None:
            return None
        return marked(self._undefined.reshape(-1, itemsize)[index].any(axis=-1), *self._causes)
