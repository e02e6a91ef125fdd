"""The interface between launches and the compiler.

`CompileRequest` is the input: the kernel, a type for each argument, the options, the target. `CompiledKernel` is the result.
Its stages are thunks, computed on first use, so that a simulated launch never runs NVRTC.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, overload

from weft.errors import fail
from weft.errors.launch import PICKLE_COMPILED, UNKNOWN_STAGE
from weft.locks import Lock
from weft.runtime import driver, sass
from weft.runtime.descriptor import HostDescriptor
from weft.runtime.specialise import ArgumentType, Constexpr

WARP_SIZE = 32


@dataclass(frozen=True, slots=True)
class Options:
    """Launch options that change the compiled code.

    `launch_pdl` and `launch_cooperative_grid` change only how it is launched, and which kernels are refused.
    `block` is the number of threads of a block in x, y and z, for thread-level kernels; `num_warps` is then their number of
    warps, the last of which may be partial.
    """

    num_warps: int = 4
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = False
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    enable_fp_fusion: bool = True
    block: tuple[int, int, int] | None = None
    sync: str = "auto"
    fast_math: tuple[str, ...] = ()


FAST_MATH = (
    "div", "sqrt", "rsqrt", "exp", "exp2", "exp10", "log", "log2", "log10", "pow", "sin", "cos", "tan", "tanh",
)  # fmt: skip
"""What `fast_math` may list: operations of float32 for which the GPU has approximate instructions."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A kernel to be compiled. Hashable; equal requests have equal code.

    `fn` is the `weft.kernel.JITFunction`, `arguments` holds a type for every parameter in order, `target` is an
    architecture as CUDA's tools spell it (`sm_90a`).
    """

    fn: Any
    arguments: Mapping[str, ArgumentType] = field(hash=False, compare=False)
    options: Options
    target: str
    _types: tuple[tuple[str, ArgumentType], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_types", tuple(self.arguments.items()))

    @property
    def run_time(self) -> dict[str, ArgumentType]:
        """The run-time arguments, in the order of the CUDA parameters; a view or descriptor has several parameters."""
        return {name: kind for name, kind in self.arguments.items() if not isinstance(kind, Constexpr)}


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code and its resource usage: registers and spilled bytes per thread, shared bytes per block.

    `dynamic_shared` is set at launch, `static_shared` is part of the code. `unused` lists parts of descriptors and views, by
    the names of `weft.runtime.descriptor.parts` and `weft.runtime.views.names`, for which the code has no parameters.
    `worker_warps` is the number of warps of worker partitions in a block, besides `num_warps` (see `warp_specialize`).
    `workspace` is the global memory in bytes that each block needs while it runs; if nonzero, the code has a last parameter
    with the address of the workspace of all blocks. `waits` is 1 if programs wait for signals of other ranks, so that all
    programs of a launch must fit on the GPU at once. `nvshmem` is 1 if the code has to be linked with NVSHMEM, which happens
    when it is loaded; `n_regs` leaves its functions out.
    """

    cubin: bytes
    n_regs: int
    n_spills: int
    dynamic_shared: int = 0
    static_shared: int = 0
    unused: tuple[str, ...] = ()
    worker_warps: int = 0
    workspace: int = 0
    waits: int = 0
    nvshmem: int = 0


TextStage = Literal["ir", "lowered", "cuda", "ptx", "sass", "sync", "order"]


class Stages(Mapping[str, "str | bytes"]):
    """The texts of a kernel's stages by name, each computed on first use and then kept."""

    def __init__(self, thunks: Mapping[str, Callable[[], str | bytes]], kernel: str) -> None:
        self._thunks = dict(thunks)
        self._kernel = kernel
        self._made: dict[str, str | bytes] = {}
        self._lock = Lock()

    @overload
    def __getitem__(self, stage: TextStage) -> str: ...
    @overload
    def __getitem__(self, stage: Literal["cubin"]) -> bytes: ...
    @overload
    def __getitem__(self, stage: str) -> str | bytes: ...
    def __getitem__(self, stage: str) -> str | bytes:
        if stage not in self._thunks:
            raise fail(UNKNOWN_STAGE, name=self._kernel, stage=stage, known=", ".join(self._thunks))
        with self._lock:
            if stage not in self._made:
                self._made[stage] = self._thunks[stage]()
            return self._made[stage]

    def __contains__(self, stage: object) -> bool:
        return stage in self._thunks

    def __iter__(self) -> Iterator[str]:
        return iter(self._thunks)

    def __len__(self) -> int:
        return len(self._thunks)


def _once(make: Callable[[], Binary]) -> Callable[[], Binary]:
    """`make`, called at most once by any number of threads."""
    lock = Lock()
    made: list[Binary] = []

    def get() -> Binary:
        with lock:
            if not made:
                made.append(make())
            return made[0]

    return get


class Metadata(NamedTuple):
    """A compiled kernel's symbol, its warps and blocks, and the bytes of shared memory of a block."""

    name: str
    num_warps: int
    num_ctas: int
    shared: int


class CompiledKernel:
    """A kernel compiled for one request. Its stages are computed on first use.

    Attributes: `request`, `name` (its symbol), `num_warps`, `block`, `threads`, `asm` (stage -> text: "ir", "cuda", "ptx",
    "sass", "sync", "order"; "cubin" is bytes), `reads` (values that the compilation read, see `weft.runtime.manifest`),
    `ran` (the author's Python that the compilation called, with its arguments), and `report` of a simulated launch.
    """

    def __init__(
        self,
        request: CompileRequest,
        *,
        name: str,
        stages: Mapping[str, Callable[[], str | bytes]],
        binary: Callable[[], Binary],
        reads: Sequence[Any] = (),
        ran: Sequence[Any] = (),
        resident_blocks: Callable[[int, int, int], int] | None = None,
        front: Any = None,
    ) -> None:
        """`resident_blocks(threads, registers, shared)` is the target's occupancy formula, used without a GPU.

        `front` holds the compiler's stages, of which the simulator needs the tile IR.
        """
        self.request = request
        self.name = name
        self.reads = reads
        self.ran = ran
        self.front = front
        self.report: Any = None
        self._binary = _once(binary)
        self._resident_blocks = resident_blocks
        self._loaded: dict[int, driver.Loaded] = {}
        self._lock = Lock()
        derived = {"cubin": lambda: self.binary.cubin, "sass": lambda: sass.disassemble(self.binary.cubin)}
        self.asm = Stages({**stages, **derived}, name)

    @property
    def binary(self) -> Binary:
        """The machine code; compiled on first use."""
        return self._binary()

    @property
    def num_warps(self) -> int:
        """Warps of a block as set at the launch; warps of worker partitions come on top."""
        return self.request.options.num_warps

    @property
    def block(self) -> tuple[int, int, int] | None:
        """Threads of a block in x, y and z for thread-level kernels; None for tile kernels."""
        return self.request.options.block

    @property
    def num_ctas(self) -> int:
        """Blocks of a program; more than one form a cluster."""
        return self.request.options.num_ctas

    @property
    def metadata(self) -> Metadata:
        """What the kernel takes, under the names that Gluon gives it."""
        return Metadata(self.name, self.num_warps, self.num_ctas, self.shared)

    @property
    def threads(self) -> int:
        """Threads of a block, including those of worker partitions."""
        own = self.num_warps * WARP_SIZE if self.block is None else prod(self.block)
        return own + self.binary.worker_warps * WARP_SIZE

    @property
    def n_regs(self) -> int:
        """Registers per thread."""
        return self.binary.n_regs

    @property
    def n_spills(self) -> int:
        """Bytes of spill stores and loads per thread; 0 in a good kernel."""
        return self.binary.n_spills

    @property
    def shared(self) -> int:
        """Shared memory per block, in bytes."""
        return self.binary.dynamic_shared + self.binary.static_shared

    def occupancy(self) -> int:
        """Resident blocks per multiprocessor: from the driver, or from the target's formula without a GPU."""
        if driver.available() or self._resident_blocks is None:
            loaded = self.on_device(driver.active.get_current_device())
            return driver.occupancy(loaded, self.threads, self.binary.dynamic_shared)
        return self._resident_blocks(self.threads, self.n_regs, self.shared)

    def active_clusters(self) -> int:
        """The number of programs that the current device can hold at the same time, if programs are clusters (`num_ctas`); 0
        if it cannot place a cluster of this size. Raises DeviceError without a GPU: a target does not say how the
        multiprocessors of a device are grouped."""
        from weft.runtime.launch import configuration

        loaded = self.on_device(driver.active.get_current_device())
        return driver.active_clusters(loaded, configuration(self, (1, 1, 1), 0))

    def on_device(self, ordinal: int) -> driver.Loaded:
        """The kernel loaded on a device; once per device. Raises what `weft.runtime.driver.load` raises."""
        with self._lock:
            if ordinal not in self._loaded:
                self._loaded[ordinal] = self._load(ordinal)
            return self._loaded[ordinal]

    def _load(self, ordinal: int) -> driver.Loaded:
        binary = self.binary
        shape = self.name, ordinal, binary.dynamic_shared, self.num_ctas
        if not binary.nvshmem:
            return driver.load(binary.cubin, *shape)
        from weft.runtime import nvshmem

        loaded = driver.load(nvshmem.linked(binary.cubin, self.name, self.request.target), *shape)
        nvshmem.initialise(loaded, self.name)
        return loaded

    def launch(
        self,
        grid: tuple[int, int, int],
        stream: int | None,
        params: Sequence[int | float | bool | tuple[int, ...] | HostDescriptor],
    ) -> None:
        """Launch on the current device with packed values, one for each of `request.run_time`.

        The value of an array is its address. The value of a view is the address of its first element, in a tuple with its
        run-time extents and strides if it has any. Nothing is checked; `kernel[grid](...)` is the checked launch.
        """
        from weft.runtime.launch import Launcher

        kinds = self.request.run_time
        launcher = Launcher(self, driver.active.get_current_device(), tuple(kinds.values()), None, tuple(kinds))
        launcher.first(grid, stream, *(p.tensor_map if isinstance(p, HostDescriptor) else p for p in params))

    def with_report(self, report: Any) -> CompiledKernel:
        """The same kernel with the report of one simulated launch."""
        twin = copy.copy(self)
        twin.report = report
        return twin

    def __copy__(self) -> CompiledKernel:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, _: Any) -> CompiledKernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise fail(PICKLE_COMPILED, name=self.name)

    def __repr__(self) -> str:
        return f"<compiled kernel {self.name} for {self.request.target}>"


class Launch(Protocol):
    """The type of `kernel[grid]`: called with the kernel's arguments and launch options."""

    def __call__(
        self,
        *args: Any,
        num_warps: int | None = None,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        block: int | tuple[int, ...] | None = None,
        stream: Any = None,
        debug: bool | None = None,
        sanitize_overflow: bool = False,
        launch_pdl: bool = False,
        launch_cooperative_grid: bool = False,
        enable_fp_fusion: bool = True,
        **keywords: Any,
    ) -> CompiledKernel:
        """Launch."""
        ...
