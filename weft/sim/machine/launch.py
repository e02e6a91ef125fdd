"""Running a kernel on NumPy: arguments become values, the grid's programs run, and a report comes back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from time import perf_counter
from typing import Any, Literal, TextIO

import numpy as np

from weft.analysis.steering import reads_strongly
from weft.errors import Hazard
from weft.ir.core import Func, walk
from weft.ir.types import DType
from weft.ops import clc
from weft.sim.machine.agents import Schedule
from weft.sim.machine.data import Data
from weft.sim.machine.pending import Pending
from weft.sim.machine.programs import GridPrograms, Order, Pid, backwards, shuffled, windowed
from weft.sim.machine.report import Report
from weft.sim.machine.schedule import run_blocks
from weft.sim.machine.tasks import Machine, Uninitialized
from weft.sim.memory.heap import Buffer, Heap, Segment, TensorMap, segment_of
from weft.sim.numbers import arithmetic as numbers
from weft.targets import Target

# Multiprocessors of an H100 or H200. How many a GPU has is a fact of the board, which a target does not know.
MULTIPROCESSORS = 132
# Registers that a thread is assumed to need when a kernel's residency is estimated.
REGISTERS = 64
# Of a kernel that takes over programs, one of so many gets a place at first, whatever the GPU holds.
TAKEN_OVER = 4
PROGRESS_AFTER = 2.0
StartOrder = Literal["grid", "reverse", "random"]
ORDERS: dict[StartOrder, str] = {
    "grid": "in the order of the grid", "reverse": "in reverse order", "random": "in a random order (seed {seed})",
}  # fmt: skip
Argument = Buffer | TensorMap | int | float | bool


def run(
    func: Func,
    grid: Pid,
    arguments: Sequence[Argument],
    *,
    target: Target,
    seed: int = 0,
    programs: Sequence[Pid] | None = None,
    stdout: TextIO | None = None,
    progress: bool | None = None,
    max_resident: int | None = None,
    hazards: bool = True,
    schedule: Schedule | None = None,
    uninitialized: Uninitialized = "error",
    order: StartOrder | None = None,
    keep_going: bool = False,
) -> Report:
    """Run a function of either stage; its stores appear in the buffers.

    `grid`: programs along three axes. `arguments`: one per parameter, a Buffer for a pointer, a TensorMap for a descriptor.
    `programs`: run only these (first axis fastest, all of the grid without it). `seed`: another one takes turns between waiting
    blocks in another order. `stdout`: where kernels print (`sys.stdout`). `progress`: None shows a bar on a terminal when a run
    takes over two seconds, True at once, False never. `max_resident`: how many programs may be live together (what the target
    holds; of a kernel that takes over programs, a quarter of them at most, so that some are left to take).
    `order`: programs start in the order of the grid (or of `programs`), in reverse, or at random by the seed; None is random
    under a seed and without `programs`. Programs that may wait for one another change places with those only that would be
    under way together. `keep_going`: hazards that leave what follows meaningful do not end the run
    (`weft.sim.machine.findings`). Raises the Hazard that the kernel meets first, or that ends the run.
    """
    segments: dict[int, Segment] = {}
    values = tuple(_value(func, number, argument, segments) for number, argument in enumerate(arguments))
    out = sys.stdout if stdout is None else stdout
    machine = Machine(
        func, grid, Heap(segments), target, lambda line: _print(out, line), seed=seed, hazards=hazards,
        schedule=schedule, uninitialized=uninitialized, keep_going=keep_going,
    )  # fmt: skip
    order = order or ("random" if seed and programs is None else "grid")
    count = prod(grid) if programs is None else len(programs)
    resident = max_resident or _resident(machine, count)
    # Programs that never read what others publish cannot wait for one another, and start in any order.
    waits = any(map(reads_strongly, walk(func.body)))
    started = _ordered(grid, programs, order, seed, resident if waits else max(count, 1))
    machine.pending = Pending(started, resident, resident if waits and order != "grid" else 1)
    machine.report.order = (
        ORDERS[order].format(seed=seed) if programs is None or order != "grid" else "as they were listed"
    )
    start = perf_counter()
    with np.errstate(all="ignore"), _bar(func.name, count, progress) as advance:
        try:
            run_blocks(machine, values, seed, advance)
        except Hazard as error:
            error.earlier = tuple(machine.found.hazards)
            raise
    machine.advise_idle()
    machine.report.canceled = machine.pending.canceled
    machine.report.seconds = perf_counter() - start
    return machine.report


def _ordered(grid: Pid, programs: Sequence[Pid] | None, order: StartOrder, seed: int, window: int) -> Sequence[Pid]:
    """The programs of a launch in the order in which they start, by windows of so many."""
    count = prod(grid) if programs is None else len(programs)
    by: Order | None = None
    if order == "reverse":
        by = windowed(count, window, lambda size, _: backwards(size))
    elif order == "random":
        by = windowed(count, window, lambda size, number: shuffled(size, seed + number))
    if programs is None:
        return GridPrograms(grid, by)
    return programs if by is None else [programs[by(position)] for position in range(count)]


def _value(func: Func, number: int, argument: Argument, segments: dict[int, Segment]) -> Data:
    element = func.params[number].type.element
    if isinstance(argument, TensorMap):
        segments[number] = segment_of(number, argument.buffer)
        return Data(replace(argument, address=segments[number].pointer))
    if isinstance(argument, Buffer):
        segments[number] = segment_of(number, argument)
        return Data(np.int64(segments[number].pointer))
    if not isinstance(element, DType):
        raise TypeError(f"parameter {func.params[number].name} is a pointer; the simulator needs a Buffer for it")
    return Data(numbers.constant(argument, element))


def _print(out: TextIO, line: str) -> None:
    out.write(line + "\n")


def _resident(machine: Machine, programs: int) -> int:
    """How many programs may be under way together."""
    shared = machine.func.attrs.shared_bytes
    blocks = max(machine.target.resident_blocks(machine.threads, REGISTERS, shared), 1) * MULTIPROCESSORS
    resident = max(blocks // machine.blocks, 1)
    if any(op.kind is clc.try_cancel for op in walk(machine.func.body)):
        return min(resident, max(programs // TAKEN_OVER, 1))
    return resident


@contextmanager
def _bar(name: str, total: int, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar for grids that take long; gives the function to call with how many are over."""
    begin = perf_counter()
    shown: Any = None
    hidden = wanted is False

    def advance(ended: int) -> None:
        nonlocal shown, hidden
        if hidden:
            return
        if shown is None and (wanted or perf_counter() - begin > PROGRESS_AFTER):
            shown = _terminal_bar(name, total)
            hidden = shown is None
        if shown is not None:
            shown.update(shown.task_ids[0], completed=ended)

    try:
        yield advance
    finally:
        if shown is not None:
            shown.stop()


def _terminal_bar(name: str, total: int) -> Any:
    """A started bar on the error stream, or None where that is no terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    bar = Progress(console=console, transient=True)
    bar.add_task(f"simulating {name}", total=total)
    bar.start()
    return bar
