"""`python -m weft explain script.py`: what weft made of each line of a script's kernels.

For every kernel that the script compiles: the barriers and fences that weft inserted and that the author wrote, with or
without need; how tiles are converted and at what price; how wide accesses to global memory and copies by cp.async are; bank
conflicts of shared loads and stores; and the bills of shared memory and of tensor memory. Of kernels of single threads, how
wide each line's accesses to memory are, and whether arrays of a thread's own stay in registers. Kernels of which all that is
alike are shown once. Launches on host arrays run in the simulator as usual. The data come first, then the text that shows
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from weft import compiler
from weft.errors import Loc, UserError
from weft.ir.core import Func, Op, Value, walk
from weft.ir.define import OpDef
from weft.ir.types import DType, SharedType, TileType
from weft.layout import SharedAccess, describe, plan_access, plan_conversion
from weft.ops import async_copy, globals, shared, tensor_memory, thread, tile
from weft.ops.check import pointer_of
from weft.passes.handles import Place, handles
from weft.passes.liveness import lifetimes, place
from weft.passes.sync_report import Sync, synchronisation
from weft.passes.tensor_handles import columns_of
from weft.runtime.compiled import CompiledKernel
from weft.runtime.specialise import Constexpr
from weft.script import run_script

LONGEST_CONSTANT = 24
"""Characters of a constant that is shown."""
Topic = Literal["sync", "conversion", "shared access", "global access", "own array"]


@dataclass(frozen=True, slots=True)
class Note:
    """One thing to know about a line. `warning`: the author may want to change it."""

    topic: Topic
    loc: Loc | None
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Buffer:
    """An entry of the shared-memory bill: whose bytes, where, and in which lines they are in use."""

    name: str
    loc: Loc | None
    offset: int
    bytes: int
    lines: str


@dataclass(frozen=True, slots=True)
class Columns:
    """An entry of the bill of tensor memory: whose columns, and where."""

    name: str
    loc: Loc | None
    first: int
    columns: int


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What weft made of one kernel, for one set of argument types.

    `constants` are the arguments that it was compiled for, as far as they are short. `registers` and `spills` are known where
    machine code was asked for. `problem` says why lowering failed, where it did; then only tile IR is explained. `block` is set
    for kernels of single threads.
    """

    name: str
    target: str
    num_warps: int
    notes: tuple[Note, ...]
    buffers: tuple[Buffer, ...]
    shared_bytes: int
    shared_limit: int
    registers: int | None = None
    spills: int | None = None
    problem: str = ""
    constants: tuple[tuple[str, str], ...] = ()
    block: tuple[int, int, int] | None = None
    tensor_buffers: tuple[Columns, ...] = ()
    tensor_columns: int = 0
    tensor_limit: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a script's kernels became, and what stopped the script, if something did."""

    kernels: tuple[KernelFacts, ...]
    stopped: str = ""


def explain_script(script: Path, arguments: Sequence[str] = (), *, compiled: bool = False) -> Explanation:
    """Run a script and explain each kernel that it compiles; `compiled` makes machine code too, for its registers.

    Raises OSError where the script cannot be read.
    """
    made: list[CompiledKernel] = []
    compiler.observers.append(made.append)
    try:
        stopped = run_script(script, arguments)
    finally:
        compiler.observers.remove(made.append)
    facts = [explain_kernel(kernel, compiled=compiled) for kernel in made]
    return Explanation(tuple(dict.fromkeys(facts)), stopped)


def explain_kernel(kernel: CompiledKernel, *, compiled: bool = False) -> KernelFacts:
    """What one compiled kernel became. Raises what NVRTC objects to where `compiled` asks for machine code."""
    stages: compiler.Stages = kernel.front
    func, problem = stages.tile, ""
    try:
        lowered = stages.lowered
    except UserError as error:
        lowered, problem = func, str(error)
    found = [_sync_notes(synchronisation(lowered, func)), _conversions(func), _shared_accesses(func)]
    found += [_widths(lowered)] if kernel.block is None else [_thread_accesses(func, lowered), _own_arrays(func)]
    return KernelFacts(
        name=kernel.name,
        target=stages.target.name,
        num_warps=kernel.num_warps,
        notes=tuple(dict.fromkeys(chain.from_iterable(found))),
        buffers=tuple(_bill(func)),
        shared_bytes=lowered.attrs.get("shared_bytes", 0),
        shared_limit=stages.target.shared_bytes,
        registers=kernel.n_regs if compiled else None,
        spills=kernel.n_spills if compiled else None,
        problem=problem,
        constants=tuple(_constants(kernel)),
        block=kernel.block,
        tensor_buffers=tuple(_columns(func)),
        tensor_columns=func.attrs.get("tensor_columns", 0),
        tensor_limit=stages.target.tensor_memory_columns,
    )


def _constants(kernel: CompiledKernel) -> Iterator[tuple[str, str]]:
    for name, argument in kernel.request.arguments.items():
        text = str(argument.value) if isinstance(argument, Constexpr) else ""
        if 0 < len(text) <= LONGEST_CONSTANT:
            yield name, text


def _columns(func: Func) -> Iterator[Columns]:
    for op in walk(func.body):
        if op.kind is tensor_memory.alloc:
            yield Columns(op.result.name, op.loc, op.attrs["column"], columns_of(op.result))


def _sync_notes(found: Iterable[Sync]) -> Iterator[Note]:
    return (Note("sync", sync.loc, str(sync), warning=not sync.needed) for sync in found)


def _conversions(func: Func) -> Iterator[Note]:
    for op in walk(func.body):
        if op.kind is tile.convert:
            (source,) = op.uses
            before, after = source.type, op.result.type
            assert isinstance(before, TileType)
            assert isinstance(after, TileType)
            if before.linear is None or after.linear is None or before.linear == after.linear:
                continue
            plan = plan_conversion(before.linear, after.linear, before.element.bits)
            text = f"layout conversion{_named(op)}: {describe(plan)}, {plan.cost().quarters / 4:g} cycles a warp"
            yield Note("conversion", op.loc, text)


def _named(op: Op) -> str:
    name = next((value.name for value in (*op.results, *op.uses) if value.name), "")
    return f" of {name}" if name else ""


def _shared_accesses(func: Func) -> Iterator[Note]:
    places = handles(func)
    for op in walk(func.body):
        if op.kind not in (shared.load, shared.store):
            continue
        handle = op.operand("handle")
        assert handle is not None
        t = handle.type
        held = op.result.type if op.kind is shared.load else op.operands[1].type if op.operands[1] is not None else None
        assert isinstance(t, SharedType)
        assert isinstance(held, TileType)
        if held.linear is None:
            continue
        plan = plan_access(
            held.linear, t.layout, t.alloc_shape, t.shape, (0,) * len(t.shape), t.element.bits, op.kind is shared.store
        )
        text, conflicts = _access_words(plan)
        yield Note("shared access", op.loc, f"{op.name}{_buffer_name(places[handle])}: {text}", warning=conflicts > 0)


def _widths(lowered: Func) -> Iterator[Note]:
    """Accesses to global memory, copies from there among them, as the machine makes them."""
    for op in walk(lowered.body):
        if op.kind not in _INSTRUCTIONS:
            continue
        name, table = _INSTRUCTIONS[op.kind]
        yield Note(
            "global access", op.loc, f"{name}: {len(op.attrs[table])} times {_bytes(_access_bytes(op))} a thread"
        )


def _access_bytes(op: Op) -> int:
    ptr = op.operand("ptr")
    assert ptr is not None
    return op.attrs["vec"] * pointer_of(ptr).element_ty.itemsize


_INSTRUCTIONS: dict[OpDef, tuple[str, str]] = {
    globals.load: ("load", "registers"),
    globals.store: ("store", "registers"),
    async_copy.copy: ("async_copy.global_to_shared", "places"),
}
"""What they are called, and the attribute that has an entry for each."""


# Kernels of single threads: one line is many operations where its loop is unrolled, so they are counted together.


def _thread_accesses(func: Func, lowered: Func) -> Iterator[Note]:
    places = handles(func)
    counts: dict[tuple[Topic, str, int, str], int] = {}
    locs: dict[str, Loc | None] = {}

    def count(topic: Topic, op: Op, what: str, size: int, times: int) -> None:
        line = "" if op.loc is None else str(op.loc)
        locs.setdefault(line, op.loc)
        key = topic, what, size, line
        counts[key] = counts.get(key, 0) + times

    for op in walk(func.body):
        if op.kind in _OF_THREADS:
            memory = op.operand("memory")
            assert memory is not None
            element = memory.type.element
            assert isinstance(element, DType)
            what = f"{_OF_THREADS[op.kind]} shared memory{_buffer_name(places[memory])}"
            count(
                "shared access", op, what, op.attrs.get("vec", 1) * element.itemsize, len(op.attrs.get("offsets", (0,)))
            )
    for op in walk(lowered.body):
        if op.kind in _INSTRUCTIONS:
            name, table = _INSTRUCTIONS[op.kind]
            count("global access", op, name, _access_bytes(op), len(op.attrs[table]))
    for (topic, what, size, line), times in counts.items():
        yield Note(topic, locs[line], f"{what}: {times} times {_bytes(size)} a thread")


_OF_THREADS: dict[OpDef, str] = {
    thread.load_shared: "load from",
    thread.store_shared: "store to",
    thread.atomic_shared: "atomic on",
}


def _own_arrays(func: Func) -> Iterator[Note]:
    """Arrays of threads' own: they are in registers unless a place in them is known at run time only."""
    at_run_time: dict[Value, list[str]] = {}
    for op in walk(func.body):
        memory = op.operand("memory") if op.kind in (thread.load_local, thread.store_local) else None
        if memory is not None and op.operand("index") is not None:
            at_run_time.setdefault(memory, []).append("?" if op.loc is None else str(op.loc.line))
    for op in walk(func.body):
        if op.kind is thread.alloc_local:
            lines = ", ".join(dict.fromkeys(at_run_time.get(op.result, ())))
            rest = f"indexed at run time (line {lines}), so in local memory unless that is unrolled"
            where = rest if lines else "in registers"
            text = f"array{_named(op)}, {op.attrs['count']} {op.attrs['dtype'].name} of each thread's own: {where}"
            yield Note("own array", op.loc, text, warning=bool(lines))


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _access_words(plan: SharedAccess) -> tuple[str, int]:
    """An access in words, and the wavefronts that bank conflicts add to it."""
    access = plan.access if plan.matrix is None else plan.matrix.rows
    conflicts, count = access.conflicts(plan.bits), len(access.offsets)
    size = access.vec * max(plan.bits, 8) // 8
    how = f"{count} times {_bytes(size)} a thread" if plan.matrix is None else f"{count} matrix instructions"
    what = f"bank conflicts add {conflicts} wavefronts to each" if conflicts else "no bank conflicts"
    return f"{how}, {what}", conflicts


def _buffer_name(places: frozenset[Place]) -> str:
    names = sorted({p.alloc.result.name for p in places if p.alloc.result.name})
    return f" of {' or '.join(names)}" if names else ""


def _bill(func: Func) -> Iterator[Buffer]:
    for placed in sorted(place(lifetimes(func)), key=lambda p: p.offset):
        alloc = placed.alloc
        yield Buffer(alloc.result.name, alloc.loc, placed.offset, placed.bytes, placed.lifetime.lines)


# Text


def show(explanation: Explanation, console: Any) -> None:
    """Print an explanation on a `rich.console.Console`."""
    for facts in explanation.kernels:
        _show_kernel(facts, console)
    if not explanation.kernels:
        console.print("the script compiles no kernel")
    if explanation.stopped:
        console.print(f"the script stopped: {explanation.stopped}", style="bold red", markup=False)


def _show_kernel(facts: KernelFacts, console: Any) -> None:
    warps = "1 warp" if facts.num_warps == 1 else f"{facts.num_warps} warps"
    head = f"{facts.name} for {facts.target}, {warps if facts.block is None else f'blocks of {facts.block} threads'}"
    if facts.registers is not None:
        head += f", {facts.registers} registers a thread, {facts.spills} bytes spilled"
    console.print(head, style="bold", markup=False)
    if facts.constants:
        console.print(f"  {', '.join(f'{name}={value}' for name, value in facts.constants)}", markup=False)
    if facts.problem:
        console.print(f"  cannot be lowered: {facts.problem}", style="red", markup=False)
    for loc, notes in _by_line(facts.notes):
        console.print(f"  {'(no line)' if loc is None else f'{loc}: {loc.source.strip()}'}", style="cyan", markup=False)
        for text, warning in dict.fromkeys((note.text, note.warning) for note in notes):
            console.print(f"      {text}", style="yellow" if warning else None, markup=False)
    _show_bill(facts, console)
    _show_columns(facts, console)
    console.print()


def _by_line(notes: Iterable[Note]) -> list[tuple[Loc | None, list[Note]]]:
    """Notes by file and line, in the order of these."""
    lines: dict[tuple[str, int], tuple[Loc | None, list[Note]]] = {}
    for note in notes:
        key = ("", 0) if note.loc is None else (note.loc.file, note.loc.line)
        lines.setdefault(key, (note.loc, []))[1].append(note)
    return [lines[key] for key in sorted(lines)]


def _show_bill(facts: KernelFacts, console: Any) -> None:
    from rich.padding import Padding
    from rich.table import Table

    if not facts.shared_bytes:
        console.print("  no shared memory")
        return
    console.print(f"  shared memory: {facts.shared_bytes} of {facts.shared_limit} bytes")
    if facts.buffers:
        table = Table("buffer", "line", "bytes", "offset", "in use", box=None, pad_edge=False, padding=(0, 2))
        for item in facts.buffers:
            line = "" if item.loc is None else str(item.loc.line)
            table.add_row(item.name or "(unnamed)", line, str(item.bytes), str(item.offset), item.lines or "never")
        console.print(Padding(table, (0, 0, 0, 4)))


def _show_columns(facts: KernelFacts, console: Any) -> None:
    from rich.padding import Padding
    from rich.table import Table

    if not facts.tensor_columns:
        return
    console.print(f"  tensor memory: {facts.tensor_columns} of {facts.tensor_limit} columns")
    table = Table("buffer", "line", "columns", "first", box=None, pad_edge=False, padding=(0, 2))
    for item in facts.tensor_buffers:
        line = "" if item.loc is None else str(item.loc.line)
        table.add_row(item.name or "(unnamed)", line, str(item.columns), str(item.first))
    console.print(Padding(table, (0, 0, 0, 4)))
