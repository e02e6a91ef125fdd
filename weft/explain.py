"""`python -m weft explain script.py`: what weft made of each line of a script's kernels.

For every kernel that the script compiles: the barriers and fences that weft inserted and that the author wrote, with or
without need; how tiles are converted and at what price; how wide accesses to global memory and copies by cp.async are; bank
conflicts of shared loads and stores; and the shared-memory bill. Kernels of which all that is alike are shown once.
Launches on host arrays run in the simulator as usual. The data come first, then the text that shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from weft import compiler
from weft.errors import Loc, UserError
from weft.ir.core import Func, Op, walk
from weft.ir.define import OpDef
from weft.ir.types import SharedType, TileType
from weft.layout import SharedAccess, describe, plan_access, plan_conversion
from weft.ops import async_copy, globals, shared, tile
from weft.ops.check import pointer_of
from weft.passes.handles import Place, handles
from weft.passes.liveness import lifetimes, place
from weft.passes.sync_report import Sync, synchronisation
from weft.runtime.compiled import CompiledKernel
from weft.runtime.specialise import Constexpr
from weft.script import run_script

LONGEST_CONSTANT = 24
"""Characters of a constant that is shown."""
Topic = Literal["sync", "conversion", "shared access", "global access"]


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
    found = (_sync_notes(synchronisation(lowered, func)), _conversions(func), _shared_accesses(func), _widths(lowered))
    return KernelFacts(
        name=kernel.name,
        target=stages.target.name,
        num_warps=kernel.num_warps,
        notes=tuple(dict.fromkeys(chain(*found))),
        buffers=tuple(_bill(func)),
        shared_bytes=lowered.attrs.get("shared_bytes", 0),
        shared_limit=stages.target.shared_bytes,
        registers=kernel.n_regs if compiled else None,
        spills=kernel.n_spills if compiled else None,
        problem=problem,
        constants=tuple(_constants(kernel)),
        block=kernel.block,
    )


def _constants(kernel: CompiledKernel) -> Iterator[tuple[str, str]]:
    for name, argument in kernel.request.arguments.items():
        text = str(argument.value) if isinstance(argument, Constexpr) else ""
        if 0 < len(text) <= LONGEST_CONSTANT:
            yield name, text


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
        ptr = op.operand("ptr")
        assert ptr is not None
        name, table = _INSTRUCTIONS[op.kind]
        size = op.attrs["vec"] * pointer_of(ptr).element_ty.itemsize
        yield Note("global access", op.loc, f"{name}: {len(op.attrs[table])} times {_bytes(size)} a thread")


_INSTRUCTIONS: dict[OpDef, tuple[str, str]] = {
    globals.load: ("load", "registers"),
    globals.store: ("store", "registers"),
    async_copy.copy: ("async_copy.global_to_shared", "places"),
}
"""What they are called, and the attribute that has an entry for each."""


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
