"""The whole compilation path, from a kernel's source to machine code. No other file knows all of it.

    source --lang--> IR --tile_pipeline--> tile IR --lower_pipeline--> lowered IR --cuda--> CUDA text --NVRTC--> cubin

Every stage is computed on first use and then kept (lowered IR by the last kernels alone): a simulated launch stops at
tile IR, and a kernel found in the disk cache starts at the cubin. Packages are imported on first use too: a launch on a
GPU loads no simulator, and a kernel from the disk cache loads neither the reader nor the passes. `load_module` comes
before such an import because it defers Ctrl-C.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from weft import simulation, targets
from weft.errors import Loc, PerformanceWarning, Row, fail
from weft.errors.launch import NVRTC_SERIALISED, NVRTC_SLOW, PDL_NEVER_WAITS
from weft.ir import types
from weft.ir.core import Func, walk
from weft.ir.text import format_func
from weft.loading import load_module
from weft.locks import lazy
from weft.runtime import cache as caches
from weft.runtime import fingerprint, kept, manifest, nvrtc, paths, sass, tensormap, views
from weft.runtime.arguments import HostBuffer, joined
from weft.runtime.compiled import Binary, CompiledKernel, CompileRequest
from weft.runtime.descriptor import Descriptor, HostMap, parts
from weft.runtime.function_text import digest
from weft.runtime.specialise import ALIGNMENT, ArgumentType, Constexpr, Pointer, Scalar, Tuple, View, constants, leaves
from weft.runtime.toolchain import toolchain

if TYPE_CHECKING:
    from weft import lang, sim
    from weft.analysis.order import Departure
    from weft.sim.memory.launches import Dependence

DTYPES: dict[str, types.DType] = {
    "bool": types.int1,
    "float8_e4m3fn": types.float8e4nv,
    "float8_e5m2": types.float8e5,
    **{name: dtype for name, dtype in types.BY_NAME.items() if name not in ("int1", "float8e4nv", "float8e5")},
}
"""Element types by the runtime's names for them."""

HostValue = HostBuffer | HostMap | int | float | bool
"""An argument of a simulated launch: memory, a tensor map in memory, or a number."""

observers: list[Callable[[CompiledKernel], None]] = []
"""Called with every kernel that is compiled. Tools that report on a whole script register here."""

NVRTC = "NVRTC"
"""Name of the one stage that weft does not implement itself."""
SLOW_S = 20.0
"""A compilation warns when NVRTC takes longer than this, in seconds. A matmul kernel takes 0.2 to 0.45 s (CUDA 13.0)."""
KEPT = 64
"""Kernels whose lowered IR stays in memory: the last ones. It is the largest of a kernel's stages, and is made again from tile
IR when somebody asks for it."""
PAGE = 4096
"""The simulator keeps an address modulo this: enough bits to know its alignment."""


_lowered: deque[ref[Stages]] = deque()


def _keep_lowered(stages: Stages) -> None:
    """Remember that a kernel holds lowered IR; the kernel that has done so for longest lets go of its own."""
    _lowered.append(ref(stages))
    oldest = _lowered.popleft()() if len(_lowered) > KEPT else None
    if oldest is not None:
        vars(oldest).pop("lowered", None)


class Stages:
    """The stages of one compilation, each computed on first use.

    `seconds` holds the time of each stage without the stages before it. `from_disk` is true when the machine code was found
    in the disk cache.
    """

    def __init__(self, request: CompileRequest) -> None:
        self.request = request
        self.target = targets.get(request.target)
        self.seconds: dict[str, float] = {}
        self.from_disk = False

    @lazy
    def built(self) -> lang.Built:
        """The IR that the reader built from the source. Raises CompilationError for an error in the source."""
        load_module("weft.lang")
        from weft import lang

        params = {name: _parameter(name, kind) for name, kind in self.request.arguments.items()}
        fn, options = self.request.fn, self.request.options
        with self._timed("read"):
            return lang.build_kernel(
                fn.fn,
                params,
                num_warps=options.num_warps,
                target=self.target,
                num_ctas=options.num_ctas,
                block=options.block,
                name=self.name,
            )

    @lazy
    def tile(self) -> Func:
        """Tile IR: what the simulator runs."""
        load_module("weft.passes.pipeline")
        from weft.passes.pipeline import tile_pipeline

        options = self.request.options
        func = self.built.func.with_attrs(sync=options.sync, fp_fusion=options.enable_fp_fusion)
        with self._timed("tile passes"):
            if options.sanitize_overflow:
                from weft.passes.tile.check_overflow import check_overflow

                func = check_overflow(func)
            if options.fast_math:
                from weft.passes.tile.fast_math import fast_math

                func = fast_math(func, options.fast_math)
            func = tile_pipeline(func, self.target)
        from weft.ops.sync import gdc_wait

        if options.launch_pdl and gdc_wait not in func.body.kinds:
            raise fail(PDL_NEVER_WAITS, loc=func.loc, name=self.name)
        return func

    @property
    def simulated(self) -> Func:
        """What the simulator runs: tile IR."""
        return self.tile

    @lazy
    def lowered(self) -> Func:
        """Lowered IR: the program of one thread, from which CUDA text is emitted."""
        from weft.passes.pipeline import lower_pipeline

        options = self.request.options
        tile = self.tile.with_attrs(maxnreg=options.maxnreg, debug=options.debug)
        with self._timed("lowering"):
            made = lower_pipeline(tile, self.target)
        _keep_lowered(self)
        return made

    @lazy
    def cuda(self) -> str:
        """CUDA C++ text."""
        load_module("weft.cuda")
        from weft import cuda

        lowered = self.lowered
        with self._timed("CUDA text"):
            return cuda.emit(lowered, self.target)

    @lazy
    def sync(self) -> str:
        """The listing of barriers and fences."""
        from weft.passes.sync.report import sync_report

        return sync_report(self.lowered, self.tile)

    def departures(self, cubin: bytes) -> list[Departure]:
        """Where the machine code departs from the order of the text (`weft.analysis.order`). Raises DeviceError without
        nvdisasm."""
        from weft.analysis.order import ANCHORS, Instruction, departures

        if self.lowered.body.kinds.isdisjoint(ANCHORS):
            return []
        return departures(self.lowered, [Instruction(*each) for each in sass.instructions(cubin)])

    def accept(self) -> None:
        """Raise what later stages would refuse of the tile IR: what the simulator runs, the compiler compiles."""
        _ = self.cuda

    @property
    def complaints(self) -> list[str]:
        """What ptxas says of wgmmas that it has to wait for at once (C7510, C7514 and their like)."""
        from weft.ops import mma

        return nvrtc.serialised(self.machine_code.log) if mma.wgmma in self.lowered.body.kinds else []

    def order(self, cubin: bytes) -> str:
        """The listing of departures and of what ptxas complains of."""
        lines = [f"{self.lowered.loc}: {complaint}" for complaint in self.complaints]
        lines += [f"{each.loc}: {each}" for each in self.departures(cubin)]
        return "\n".join(lines) if lines else f"{self.name}: in the order of the text"

    @property
    def text(self) -> str:
        """The CUDA text as it is compiled, which differs from `cuda` if registers spilled with its launch bounds."""
        return self.compiled[0] if (self.lowered.attrs.min_blocks or 1) > 1 and nvrtc.available() else self.cuda

    @property
    def is_linked(self) -> bool:
        """Whether the machine code has to be linked with NVSHMEM."""
        from weft.ops.nvshmem import CALLS

        return not CALLS.isdisjoint(self.lowered.body.kinds)

    @property
    def machine_code(self) -> nvrtc.CompiledCuda:
        """Cubin and PTX that NVRTC compiled from the CUDA text."""
        return self.compiled[1]

    @lazy
    def compiled(self) -> tuple[str, nvrtc.CompiledCuda]:
        """The CUDA text and what NVRTC made of it. If registers spill with the number of blocks that `bound_blocks` chose, the
        text asks for one block instead: the number is an estimate, and must cost nothing."""
        text, blocks = self.cuda, self.lowered.attrs.min_blocks
        with self._timed(NVRTC):
            linked = self.is_linked
            made = nvrtc.compile_cuda(text, name=self.name, arch=self.request.target, relocatable=linked)
            if made.n_spills and blocks is not None and blocks > 1:
                from weft import cuda

                free = cuda.emit(self.lowered.with_attrs(min_blocks=1), self.target)
                again = nvrtc.compile_cuda(free, name=self.name, arch=self.request.target, relocatable=linked)
                text, made = (free, again) if again.n_spills < made.n_spills else (text, made)
        self._warn_of(self.seconds[NVRTC])
        for complaint in nvrtc.serialised(made.log):
            self._warn(NVRTC_SERIALISED, name=self.name, complaint=complaint)
        return text, made

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[stage] = perf_counter() - start

    def _warn_of(self, seconds: float) -> None:
        """Warn, at the kernel's line, that NVRTC took long."""
        if seconds > SLOW_S:
            self._warn(NVRTC_SLOW, seconds=seconds, name=self.name, lines=self.cuda.count("\n"))

    def _warn(self, row: Row, **values: Any) -> None:
        """Warn at the kernel's line."""
        loc = self.lowered.loc
        if loc is not None:
            warning = fail(row, loc=loc, **values)
            assert isinstance(warning, PerformanceWarning)
            warnings.warn_explicit(warning, None, loc.file, loc.line)

    @lazy
    def name(self) -> str:
        """The kernel's symbol."""
        return self.request.fn.symbol(self.request.arguments)

    @lazy
    def reads(self) -> list[manifest.Read]:
        """The values that the reader looked up outside the kernel, in the form that the disk cache stores."""
        known = frozenset(self.built.known)
        return [manifest.read(each.owner, paths.path(each.path), called=known) for each in self.built.reads]

    @lazy
    def is_open(self) -> bool:
        """True when the recorded reads do not cover everything that the IR depends on."""
        known, values = frozenset(self.built.known), constants(self.request.arguments)
        return self.built.opened or any(fingerprint.inert(value, known) is None for _, value in values)

    @lazy
    def ran(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The author's Python that the reader called, with its arguments."""
        return [(each.function, each.arguments) for each in self.built.ran]

    @lazy
    def key(self) -> str:
        """The key of the machine code: a digest of the IR, its locations, the options, the target and the toolchain."""
        options = (self.request.options, self.request.target, toolchain())
        return digest(format_func(self.built.func), _places(self.built.func), *map(str, options))

    def binary(self) -> Binary:
        """Machine code with its resource usage."""
        made, taken = self.machine_code, {param.name for param in self.lowered.params}
        listed = [leaf for argument in self.request.run_time.items() for leaf in leaves(*argument)]
        own = [part for name, kind in listed for part in _parts(name, kind)]
        return Binary(
            made.cubin,
            made.n_regs,
            made.n_spills,
            self.lowered.attrs.shared_bytes,
            made.shared,
            tuple(name for name in own if name not in taken),
            self.lowered.attrs.warps_of_block - self.lowered.attrs.num_warps,
            self.lowered.attrs.workspace_bytes,
            int(any(op.attrs.get("patience") for op in walk(self.lowered.body))),
            int(self.is_linked),
        )


def compile_kernel(request: CompileRequest) -> CompiledKernel:
    """Compile a kernel for the types of its arguments, or find it in the disk cache.

    Tile IR is built here, so that errors in the source are raised by this call; later stages are compiled on first use.
    """
    store = caches.default()
    found = manifest.find(store, request) if store is not None else None
    stages = Stages(request)
    known = None if found is None else found.binary
    if store is not None and found is not None and known is None:
        known = store.get(stages.key, kept.binary)
    stages.from_disk = known is not None
    if known is None:
        _ = stages.tile

    def binary() -> Binary:
        if known is not None:
            return known
        made = store.get(stages.key, kept.binary) if store is not None else None
        fresh = made is None
        stages.from_disk = not fresh
        made = stages.binary() if made is None else made
        if (
            store is not None
            and not manifest.remember(store, request, stages.reads, made, is_open=stages.is_open)
            and fresh
        ):
            store.put(stages.key, kept.of_binary(made))
        return made

    kernel = CompiledKernel(
        request,
        name=stages.name,
        stages={
            "ir": lambda: format_func(stages.tile),
            "lowered": lambda: format_func(stages.lowered),
            "cuda": lambda: stages.text,
            "ptx": lambda: stages.machine_code.ptx,
            "sync": lambda: stages.sync,
            "order": lambda: stages.order(kernel.binary.cubin),
        },
        binary=binary,
        reads=stages.reads if found is None or found.binary is None else found.reads,
        ran=stages.ran if found is None or found.binary is None else (),
        resident_blocks=stages.target.resident_blocks,
        front=stages,
    )
    for observer in observers:
        observer(kernel)
    return kernel


def simulate(compiled: CompiledKernel, grid: tuple[int, int, int], arguments: Mapping[str, HostValue]) -> sim.Report:
    """Run a compiled kernel on host memory in the simulator, with the options of `weft.simulate`.

    Under `weft.simulation.supervised` the supervisor decides how often the kernel runs, but for launches of a rank of a world,
    which other ranks see. Raises `weft.errors.Hazard` for races
    and other errors that a GPU would not report, and LaunchError (launch-no-such-program).
    """
    load_module("weft.sim")
    from weft.sim.memory.launches import launching

    supervisor = simulation.supervisor()
    with launching(compiled.request.options.launch_pdl) as dependence:
        if supervisor is None or simulation.member() is not None:
            return _simulate(compiled, grid, arguments, dependence)
        return supervisor(compiled.name, arguments, lambda: _simulate(compiled, grid, arguments, dependence))


def _simulate(
    compiled: CompiledKernel,
    grid: tuple[int, int, int],
    arguments: Mapping[str, HostValue],
    dependence: Dependence,
) -> sim.Report:
    from weft import sim

    stages: Stages = compiled.front
    stages.accept()
    way = simulation.current()
    return sim.run(
        stages.simulated,
        grid,
        given(stages.simulated, arguments),
        target=stages.target,
        seed=way.seed,
        programs=way.chosen(stages.name, grid),
        stdout=sys.stdout,
        progress=way.progress,
        max_resident=way.max_resident,
        schedule=way.schedule,
        uninitialized=way.uninitialized,
        hazards=way.hazards,
        order=way.order,
        keep_going=way.keep_going,
        dependence=dependence,
        member=cast("Any", simulation.member()),
        together=compiled.request.options.launch_cooperative_grid,
    )


def given(func: Func, arguments: Mapping[str, HostValue]) -> list[sim.Buffer | sim.TensorMap | int | float | bool]:
    """The simulator's value for each parameter of a function of either stage."""
    values: dict[str, sim.Buffer | sim.TensorMap | int | float | bool] = {}
    for name, argument in _joined(arguments).items():
        if isinstance(argument, HostMap):
            known = argument.tensor_map
            all_of_it = (_tensor_map(name, argument), *known.shape, *known.strides)
            values.update(zip((part.name for part in parts(name, len(known.shape))), all_of_it, strict=True))
        else:
            values[name] = _buffer(name, argument) if isinstance(argument, HostBuffer) else argument
    return [values[param.name] for param in func.params]


def _places(func: Func) -> str:
    """The source location of each operation, with the calls that inlined it. It is part of the key because the CUDA text
    carries `#line`."""
    found: dict[int, tuple[int, Loc | None]] = {}
    numbers = [found.setdefault(id(op.loc), (len(found), op.loc))[0] for op in walk(func.body)]
    return f"{func.loc!r} {numbers!r} {[loc for _, loc in found.values()]!r}"


def _parts(name: str, kind: ArgumentType) -> tuple[str, ...]:
    """Names of the compiled kernel's parameters for a view or descriptor, which is passed as several."""
    if isinstance(kind, View):
        return views.names(name, kind)
    return tuple(part.name for part in parts(name, kind.rank)) if isinstance(kind, Descriptor) else ()


def _parameter(name: str, kind: ArgumentType) -> lang.Param:
    from weft import lang

    if isinstance(kind, Constexpr):
        return lang.ConstexprParam(kind.value)
    if isinstance(kind, Tuple):
        return lang.TupleParam({called: _parameter(called, item) for called, item in kind.named(name)}, kind.form)
    dtype = DTYPES[kind.dtype]
    if isinstance(kind, Descriptor):
        type = types.DescriptorType(dtype, kind.block_shape, kind.layout, kind.mode)
        return lang.DescriptorParam(type, _parts(name, kind), divisible=ALIGNMENT // dtype.itemsize)
    if isinstance(kind, View):
        called = views.names(name, kind)[1:]
        numbers = dict(zip(called, map(_run_time, kind.numbers), strict=True))
        return lang.ViewParam(_run_time(kind.pointer), kind.key, numbers)
    return _run_time(kind)


def _run_time(kind: Pointer | Scalar) -> lang.RuntimeParam:
    from weft import lang

    dtype = DTYPES[kind.dtype]
    if isinstance(kind, Pointer):
        return lang.RuntimeParam(types.Pointer(dtype), divisible=ALIGNMENT if kind.aligned else dtype.itemsize)
    return lang.RuntimeParam(dtype, divisible=16 if kind.divisible_by_16 else 1)


def _buffer(name: str, host: HostBuffer, *, described: bool = False) -> sim.Buffer:
    """Host memory as a buffer of the simulator. A `described` buffer belongs to a descriptor, whose shape gives the bounds."""
    from weft import sim

    whole = described or simulation.current().bounds == "storage"
    own = None if whole else (host.low - host.address, host.high - host.address)
    if host.label:
        name = f"{name.partition('.')[0]}{host.label}" if host.label.startswith(".") else host.label
    return sim.Buffer(
        name, host.bytes(), host.pointer - host.address, host.pointer % PAGE, own, host.form, host.owner(),
        None if host.pad is None else sim.Pad(*host.pad),
        tuple(_buffer(name, each) for each in host.multicast),
    )  # fmt: skip


def _joined(arguments: Mapping[str, HostValue]) -> dict[str, HostValue]:
    """The arguments, with one common storage for those buffers that overlap in memory."""
    buffers = {name: value.buffer if isinstance(value, HostMap) else value for name, value in arguments.items()}
    hosts = {name: buffer for name, buffer in buffers.items() if isinstance(buffer, HostBuffer)}
    whole = dict(zip(hosts, joined(tuple(hosts.values())), strict=True))
    return {
        name: replace(value, buffer=whole[name]) if isinstance(value, HostMap) else whole.get(name, value)
        for name, value in arguments.items()
    }


def _tensor_map(name: str, host: HostMap) -> sim.TensorMap:
    from weft import sim

    kind, spec = host.tensor_map.kind, host.tensor_map.spec
    element = DTYPES[kind.dtype]
    im2col = spec.im2col or tensormap.Im2Col((), (), ())
    return sim.TensorMap(
        _buffer(name, host.buffer, described=True),
        element,
        spec.shape,
        (*spec.strides, element.itemsize),
        kind.block_shape,
        kind.layout,
        spec.padding,
        kind.mode,
        im2col.lower,
        im2col.upper,
        im2col.steps,
        rounds=spec.rounds,
    )
