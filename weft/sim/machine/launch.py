"""A simulated launch: binds the arguments, runs the programs of the grid, and returns a report."""

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
from weft.errors import Hazard, fail
from weft.errors.launch import COOPERATIVE, PROGRAMS_WAIT
from weft.ir.core import Func, walk
from weft.ir.types import DType
from weft.ops import clc
from weft.sim.machine.agents import Schedule
from weft.sim.machine.data import Data
from weft.sim.machine.machine import Machine, Uninitialized
from weft.sim.machine.pending import Pending
from weft.sim.machine.programs import GridPrograms, Order, Pid, backwards, shuffled, windowed
from weft.sim.machine.report import Report
from weft.sim.machine.schedule import run_blocks
from weft.sim.machine.world import Rank
from weft.sim.memory.heap import Buffer, Heap, Segment, TensorMap, segment_of
from weft.sim.memory.launches import Dependence
from weft.sim.numbers import arithmetic as numbers
from weft.targets import Target

# SMs of an H100 SXM or H200. The number of SMs is a property of the board, which a target does not describe.
MULTIPROCESSORS = 132
# Registers per thread that the estimate of a kernel's occupancy assumes.
REGISTERS = 64
# If a kernel claims programs (clusterlaunchcontrol), at most one in this many is resident at first, so that some are left.
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
    dependence: Dependence | None = None,
    member: Rank | None = None,
    together: bool = False,
) -> Report:
    """Run a function of the tile or the lowered stage. Its stores go to the buffers.

    `grid`: programs along three axes. `arguments`: one per parameter, a Buffer for a pointer, a TensorMap for a descriptor.
    `programs`: run only these (default: the whole grid, first axis fastest). `seed`: determines the order in which blocks and
    tasks take turns. `stdout`: where kernels print (default: `sys.stdout`). `progress`: None shows a bar on a terminal once a
    run takes more than two seconds, True at once, False never. `max_resident`: the number of programs resident at the same
    time (default: the target's occupancy; for a kernel that claims programs at most a quarter of the grid, so that some are
    left to claim). `order`: programs start in the order of the grid (or of `programs`), in reverse, or at random by the seed;
    None means random if there is a seed and no `programs`. Programs that may wait for each other are reordered only within
    the set that is resident together. `keep_going`: a hazard after which execution is still meaningful does not end the run
    (`weft.sim.machine.findings`). `dependence`: the launches that may still be running meanwhile. `member`: the rank of a world
    whose launch this is; such launches run in the order of the rank's stream. `together`: all programs are resident. Raises
    the first Hazard, or the one that ends the run, and LaunchError (launch-programs-wait, launch-cooperative-grid).
    """
    segments: dict[int, Segment] = {}
    values = tuple(_value(func, number, argument, segments) for number, argument in enumerate(arguments))
    # A kernel that has a multicast address may have no parameter for the memory of each rank.
    ranks = [buffer for segment in segments.values() for buffer in segment.buffer.multicast]
    segments.update((number, segment_of(number, buffer)) for number, buffer in enumerate(ranks, len(arguments)))
    out = sys.stdout if stdout is None else stdout
    if member is not None:
        member.begin()
        dependence = Dependence(dependence is not None and dependence.dependent)
    heap = Heap(segments) if member is None else Heap(segments, member.home, member.changes)
    machine = Machine(
        func, grid, heap, target, lambda line: _print(out, line), seed=seed, hazards=hazards,
        schedule=schedule, uninitialized=uninitialized, keep_going=keep_going,
        dependence=dependence, member=member,
    )  # fmt: skip
    order = order or ("random" if seed and programs is None else "grid")
    count = prod(grid) if programs is None else len(programs)
    resident = max_resident or _resident(machine, count)
    if count > resident and any(op.attrs.get("patience") for op in walk(func.body)):
        raise fail(PROGRAMS_WAIT, name=func.name, programs=count, resident=resident)
    if together and count > resident:
        raise fail(COOPERATIVE, name=func.name, programs=count, resident=resident)
    # Programs without strong reads cannot wait for each other, so they may start in any order.
    waits = any(map(reads_strongly, walk(func.body)))
    started = _ordered(grid, programs, order, seed, resident if waits else max(count, 1))
    machine.pending = Pending(started, resident, resident if waits and order != "grid" else 1, together)
    machine.report.order = (
        ORDERS[order].format(seed=seed) if programs is None or order != "grid" else "as they were listed"
    )
    start = perf_counter()
    with np.errstate(all="ignore"), _bar(func.name, count, progress) as advance:
        try:
            run_blocks(machine, values, seed, advance)
            machine.dependence.finish(func, machine.races, machine.found)
            if member is not None:
                member.end()
        except Hazard as error:
            error.earlier = tuple(machine.found.hazards)
            raise
    machine.advise_idle()
    machine.report.canceled = machine.pending.canceled
    machine.report.seconds = perf_counter() - start
    return machine.report


def _ordered(grid: Pid, programs: Sequence[Pid] | None, order: StartOrder, seed: int, window: int) -> Sequence[Pid]:
    """The programs of a launch in start order; reordering happens within windows of `window` programs."""
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
    """The number of programs that are resident at the same time."""
    shared = machine.func.attrs.shared_bytes
    blocks = max(machine.target.resident_blocks(machine.threads, REGISTERS, shared), 1) * MULTIPROCESSORS
    resident = max(blocks // machine.blocks, 1)
    if any(op.kind is clc.try_cancel for op in walk(machine.func.body)):
        return min(resident, max(programs // TAKEN_OVER, 1))
    return resident


@contextmanager
def _bar(name: str, total: int, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar for long runs. Yields the function to call with the number of finished programs."""
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
    """A started bar on the error stream, or None if that is not a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    bar = Progress(console=console, transient=True)
    bar.add_task(f"simulating {name}", total=total)
    bar.start()
    return bar
