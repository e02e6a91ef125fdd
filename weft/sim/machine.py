"""Blocks and how they execute regions.

A block runs as a generator, so that it can stop where it waits for another and be resumed (`weft.sim.schedule`). All its
threads go in step: an operation acts on whole arrays, and where threads (or elements that a function is mapped over) take
different ways, `active` says for whom a region runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from weft.errors import Loc, Row, UserError, fail, hazard
from weft.ir.core import Func, Op, Region, Value
from weft.layout import WARP_SIZE
from weft.sim.code import Code, compile_region
from weft.sim.data import Array, Data, Mark, where_marked
from weft.sim.heap import Access, Heap
from weft.sim.numbers import bits_of
from weft.sim.report import Report
from weft.targets import Target


@dataclass(frozen=True, slots=True)
class Wait:
    """What a block yields when it repeats a loop: where, and whether it can only go on once memory has changed."""

    loc: Loc | None
    stuck: bool


Run: TypeAlias = Generator[Wait, None, tuple[Data, ...]]


class Machine:
    """What all blocks of one launch share."""

    __slots__ = ("_codes", "func", "grid", "heap", "output", "report", "target", "threads")

    def __init__(
        self, func: Func, grid: tuple[int, int, int], heap: Heap, target: Target, output: Callable[[str], None]
    ) -> None:
        self.func = func
        self.grid = grid
        self.heap = heap
        self.target = target
        self.output = output
        self.report = Report()
        self.threads = int(func.attrs["num_warps"]) * WARP_SIZE
        self._codes: dict[Region, Code] = {}

    @property
    def lowered(self) -> bool:
        """True for a function of the lowered stage."""
        return self.func.attrs.get("stage") == "lowered"

    def code(self, region: Region) -> Code:
        """The region made ready to run, once."""
        if region not in self._codes:
            self._codes[region] = compile_region(region)
        return self._codes[region]

    def print(self, line: str) -> None:
        """A line of output of the kernel."""
        self.report.lines.append(line)
        self.output(line)


class Block:
    """One program: its place in the grid, its values, its memory, and which threads or elements are active (None: all)."""

    __slots__ = ("active", "env", "last_read", "machine", "pid", "reads", "shared")

    def __init__(self, machine: Machine, pid: tuple[int, int, int]) -> None:
        self.machine = machine
        self.pid = pid
        self.env: dict[Value, Data] = {}
        self.active: Array | None = None
        self.shared: dict[Any, Any] = {}
        self.reads = 0
        self.last_read: Access | None = None

    def fail(self, entry: Row, op: Op, **fields: Any) -> UserError:
        """The exception of a row at an operation of this program."""
        return fail(entry, loc=op.loc, program=self.pid, **fields)

    def under(self, mask: Array | None) -> Array | None:
        """A mask restricted to what is active."""
        if mask is None or self.active is None:
            return self.active if mask is None else mask
        return mask & self.active

    @contextmanager
    def only(self, mask: Array) -> Generator[None, None, None]:
        """Run for the active ones among `mask` only."""
        before = self.active
        self.active = mask if before is None else mask & before
        try:
            yield
        finally:
            self.active = before

    def where(self, shape: tuple[int, ...], flat: int) -> str:
        """Words for one element of an array, by its row-major number."""
        if len(shape) == 0:
            return "a scalar"
        index = tuple(int(i) for i in np.unravel_index(flat, shape))
        if self.machine.lowered:
            return f"thread {index[0]}" + (f", register {index[1]}" if shape[1] > 1 else "")
        return f"index {index}" if len(index) > 1 else f"index {flat}"

    def demand(self, op: Op, data: Data | None, sink: str, mask: Array | None = None) -> None:
        """Refuse undefined elements of a value that is about to count, where `mask` holds. Raises UndefinedValue."""
        if data is None or data.undefined is None:
            return
        bad = where_marked(data.undefined, np.shape(data.array), self.under(mask))
        if bad is not None:
            raise self.undefined(op, data.undefined, sink, bad)

    def undefined(self, op: Op, mark: Mark, sink: str, bad: Array) -> UserError:
        """The report of an undefined element that reaches `sink`."""
        where = f" ({self.where(np.shape(bad), int(np.argmax(bad)))})" if np.ndim(bad) else ""
        related: tuple[tuple[str, Loc], ...] = () if mark.loc is None else (("the element comes from", mark.loc),)
        if mark.cause == DIVIDED:
            return fail(hazard.DIVISION, loc=mark.loc, program=self.pid, where=where)
        entry = hazard.UNDEFINED
        return fail(entry, loc=op.loc, related=related, program=self.pid, sink=sink, where=where, cause=mark.cause)

    def uniform(self, op: Op, data: Data, what: str) -> Data:
        """A scalar that must be equal in all active threads, as one of shape (). Raises BrokenPromise."""
        if np.ndim(data.array) == 0:
            return data
        self.demand(op, data, what)
        active = np.broadcast_to(True if self.active is None else self.active, data.array.shape)
        chosen = np.flatnonzero(active)
        if not chosen.size:
            return Data(data.array.ravel()[0])
        flat = data.array.ravel()[chosen]
        differs = np.flatnonzero(bits_of(flat) != bits_of(flat[0]))
        if differs.size:
            second = int(differs[0])
            raise self.fail(
                hazard.NOT_UNIFORM, op, what=what, first=int(chosen[0]), first_value=flat[0],
                second=int(chosen[second]), second_value=flat[second],
            )  # fmt: skip
        return Data(flat[0])


DIVIDED = "it is the result of a division by zero"


def execute(block: Block, region: Region, args: Sequence[Data]) -> Run:
    """Run a region with these arguments; returns what its terminator hands over."""
    code = block.machine.code(region)
    env = block.env
    env.update(zip(code.args, args, strict=True))
    block.machine.report.operations += len(code.steps)
    for step in code.steps:
        out: Any = step.rule(block, step.op, *[None if v is None else env[v] for v in step.operands])
        if step.suspends:
            running: Run = out
            env.update(zip(step.results, (yield from running), strict=True))
        elif step.single is not None:
            env[step.single] = out
        elif step.results:
            env.update(zip(step.results, out, strict=True))
        for value in step.dead:
            env.pop(value, None)
    end = code.end
    return end.rule(block, end.op, *[env[v] for v in end.operands if v is not None])
