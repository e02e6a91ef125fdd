"""The explanation of a kernel's lines, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from weft import compiler
from weft.analysis.blocks import reaches_blocks
from weft.analysis.handles import Place, handles
from weft.analysis.liveness import lifetimes, place
from weft.analysis.tensor_handles import columns_of
from weft.errors import DeviceError, Loc, UserError
from weft.explain import widths
from weft.explain.notes import Note, in_bytes
from weft.ir.core import Func, Op, OpDef, Value, walk
from weft.ir.types import DescriptorType, DType, SharedType, TileType
from weft.layout import NVMMASharedLayout, SharedAccess, describe, plan_access, plan_conversion
from weft.layout.cluster import block_shape as part_of_block
from weft.layout.linear.f2 import is_power_of_two
from weft.layout.shared.sizes import tile_bytes
from weft.layout.shared.tma import boxes
from weft.ops import shared, tensor_memory, thread, tile, tma
from weft.passes.sync.report import Sync, synchronisation
from weft.passes.tile.partition_plan import plan_partitions
from weft.runtime.compiled import CompiledKernel
from weft.runtime.specialise import Constexpr
from weft.script import run_script
from weft.targets import Target

LONGEST_CONSTANT = 24
"""Longer constants are not shown, in characters."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A shared-memory buffer: its name, definition, offset and size, and the lines in which it is live."""

    name: str
    loc: Loc | None
    offset: int
    bytes: int
    lines: str


@dataclass(frozen=True, slots=True)
class Columns:
    """A tensor-memory buffer: its name, definition and columns."""

    name: str
    loc: Loc | None
    first: int
    columns: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The warps of a partition, and the registers of each of their threads (0: as compiled)."""

    name: str
    first_warp: int
    num_warps: int
    registers: int

    def __str__(self) -> str:
        last = self.first_warp + self.num_warps - 1
        warps = f"warp {last}" if self.num_warps == 1 else f"warps {self.first_warp} to {last}"
        return f"{self.name}: {warps}" + (f", {self.registers} registers a thread" if self.registers else "")


@dataclass(frozen=True, slots=True)
class Times:
    """Compile times of a first call in milliseconds: `front` is weft's, from the source to CUDA text.

    `nvrtc` is None if NVRTC did not run in this process; `from_disk`: because the machine code was in the disk cache.
    """

    front: float
    nvrtc: float | None = None
    from_disk: bool = False


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The explanation of one kernel, for one set of argument types.

    `constants` are its constexpr arguments, except long ones. `registers` and `spills` are set if machine code was requested.
    `problem` is the error if lowering failed; then only tile IR is explained. `block` is set for thread-level kernels.
    `portable`: every GPU of the target can place clusters of `num_ctas` blocks.
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
    num_ctas: int = 1
    portable: bool = True
    partitions: tuple[Partition, ...] = ()
    times: Times = field(default=Times(0.0), compare=False)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanations of a script's kernels, and the error that stopped the script, if any."""

    kernels: tuple[KernelFacts, ...]
    stopped: str = ""


def explain_script(script: Path, arguments: Sequence[str] = (), *, compiled: bool = False) -> Explanation:
    """Run a script and explain each kernel that it compiles; `compiled` requests machine code, for register counts.

    Raises OSError when the script cannot be read.
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
    """The explanation of one compiled kernel. With `compiled`, raises the errors of NVRTC."""
    stages: compiler.Stages = kernel.front
    func, problem = stages.tile, ""
    try:
        lowered, _ = stages.lowered, stages.cuda
    except UserError as error:
        lowered, problem = func, str(error)
    found = [_sync_notes(synchronisation(lowered, func)), _conversions(func), _shared_accesses(func), _requests(func)]
    threads = kernel.block is not None
    found += [_thread_accesses(func)] if threads else []
    found += [] if problem else [widths.notes(stages, together=threads)]
    found += [_local_arrays(func)] if threads else []
    found += [_order(lowered, kernel)] if compiled and not problem else []
    return KernelFacts(
        name=kernel.name,
        target=stages.target.name,
        num_warps=kernel.num_warps,
        notes=tuple(dict.fromkeys(chain.from_iterable(found))),
        buffers=tuple(_bill(func)),
        shared_bytes=lowered.attrs.shared_bytes,
        shared_limit=stages.target.shared_bytes,
        registers=kernel.n_regs if compiled else None,
        spills=kernel.n_spills if compiled else None,
        problem=problem,
        constants=tuple(_constants(kernel)),
        block=kernel.block,
        tensor_buffers=tuple(_columns(func)),
        tensor_columns=func.attrs.tensor_columns,
        tensor_limit=stages.target.tensor_memory_columns,
        num_ctas=kernel.num_ctas,
        portable=kernel.num_ctas <= stages.target.portable_cluster,
        partitions=tuple(_partitions(func, stages.target)),
        times=_times(stages),
    )


def _times(stages: compiler.Stages) -> Times:
    milliseconds = {stage: seconds * 1e3 for stage, seconds in stages.seconds.items()}
    nvrtc = milliseconds.pop(compiler.NVRTC, None)
    return Times(sum(milliseconds.values()), nvrtc, stages.from_disk)


def _constants(kernel: CompiledKernel) -> Iterator[tuple[str, str]]:
    for name, argument in kernel.request.arguments.items():
        text = str(argument.value) if isinstance(argument, Constexpr) else ""
        if 0 < len(text) <= LONGEST_CONSTANT:
            yield name, text


def _partitions(func: Func, target: Target) -> Iterator[Partition]:
    plan = plan_partitions(func, target)
    for number, role in enumerate(plan.roles if plan is not None else ()):
        name = f"worker {number - 1}" if number else "default partition"
        yield Partition(name, role.first_warp, role.num_warps, role.registers)


def _columns(func: Func) -> Iterator[Columns]:
    for op in walk(func.body):
        if op.kind is tensor_memory.alloc:
            yield Columns(op.result.name, op.loc, op.attrs["column"], columns_of(op.result))


def _sync_notes(found: Iterable[Sync]) -> Iterator[Note]:
    return (Note("sync", sync.loc, str(sync), warning=not sync.needed) for sync in found)


def _order(lowered: Func, kernel: CompiledKernel) -> Iterator[Note]:
    """Where machine code departs from the order of the text, and what ptxas warns of."""
    stages: compiler.Stages = kernel.front
    for complaint in stages.complaints:
        yield Note("machine code", lowered.loc, complaint, warning=True)
    try:
        departures = stages.departures(kernel.binary.cubin)
    except DeviceError as error:
        yield Note("machine code", lowered.loc, f"its order is not compared with the text's: {error.message}")
        return
    for each in departures:
        yield Note("machine code", each.loc, str(each), warning=True)


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


def _requests(func: Func) -> Iterator[Note]:
    """What a block costs TMA whose sizes are no powers of two."""
    for op in walk(func.body):
        desc = op.operand("desc") if op.kind in (tma.load, tma.store, tma.reduce) else None
        if (
            desc is None
            or not isinstance(desc.type, DescriptorType)
            or not isinstance(desc.type.layout, NVMMASharedLayout)
        ):
            continue
        t, layout = desc.type, desc.type.layout
        part = part_of_block(layout.cga, t.block_shape)
        if all(map(is_power_of_two, part)):
            continue
        found = boxes(t.block_shape, layout, t.element.bits)
        count, row = len(found.placements), part[layout.order[0]] * t.element.itemsize
        text = f"a block {list(part)} of {t.element.name} in {count} request{'s' * (count > 1)} of {list(found.box)}"
        narrow = layout.swizzle_byte_width < max(layout.WIDTHS) and not is_power_of_two(row)
        text += f"; no wider swizzle than {layout.swizzle_byte_width} bytes divides its rows of {row}" if narrow else ""
        held, used = tile_bytes(layout, t.block_shape, t.element.bits), found.box_bytes * count
        text += f"; it takes {in_bytes(held)}, of which {in_bytes(held - used)} are holes" if held > used else ""
        yield Note("TMA", op.loc, text, warning=narrow or held > used)


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
        if held.linear is None or reaches_blocks(op):
            continue
        plan = plan_access(
            held.linear, t.layout, t.alloc_shape, t.shape, (0,) * len(t.shape), t.element.bits, op.kind is shared.store
        )
        text, conflicts = _access_text(plan)
        yield Note("shared access", op.loc, f"{op.name}{_buffer_name(places[handle])}: {text}", warning=conflicts > 0)


# Thread-level kernels: in an unrolled loop one line becomes many operations, so they are counted together.


def _thread_accesses(func: Func) -> Iterator[Note]:
    places = handles(func)
    counts: dict[tuple[str, int, str], int] = {}
    locs: dict[str, Loc | None] = {}
    for op in walk(func.body):
        if op.kind not in _OF_THREADS:
            continue
        memory = op.operand("memory")
        assert memory is not None
        element = memory.type.element
        assert isinstance(element, DType)
        line = str(op.loc)
        locs.setdefault(line, op.loc)
        what = f"{_OF_THREADS[op.kind]} shared memory{_buffer_name(places[memory])}"
        key = what, op.attrs.get("vec", 1) * element.itemsize, line
        counts[key] = counts.get(key, 0) + len(op.attrs.get("offsets", (0,)))
    for (what, size, line), times in counts.items():
        yield Note("shared access", locs[line], f"{what}: {times} times {in_bytes(size)} a thread")


_OF_THREADS: dict[OpDef, str] = {
    thread.load_shared: "load from",
    thread.store_shared: "store to",
    thread.atomic_shared: "atomic on",
}


def _local_arrays(func: Func) -> Iterator[Note]:
    """Thread-local arrays. ptxas keeps an array in registers only if every index is a constant after unrolling; a run-time
    index puts it into local memory."""
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


def _access_text(plan: SharedAccess) -> tuple[str, int]:
    """The text of an access, and the wavefronts that bank conflicts add to it."""
    access = plan.access if plan.matrix is None else plan.matrix.rows
    conflicts, count = access.conflicts(plan.bits), len(access.offsets)
    size = access.vec * max(plan.bits, 8) // 8
    how = f"{count} times {in_bytes(size)} a thread" if plan.matrix is None else f"{count} matrix instructions"
    what = f"bank conflicts add {conflicts} wavefronts to each" if conflicts else "no bank conflicts"
    return f"{how}, {what}", conflicts


def _buffer_name(places: frozenset[Place]) -> str:
    names = sorted({p.alloc.result.name for p in places if p.alloc.result.name})
    return f" of {' or '.join(names)}" if names else ""


def _bill(func: Func) -> Iterator[Buffer]:
    for placed in sorted(place(lifetimes(func)), key=lambda p: p.offset):
        alloc = placed.alloc
        yield Buffer(alloc.result.name, alloc.loc, placed.offset, placed.bytes, placed.lifetime.lines)
