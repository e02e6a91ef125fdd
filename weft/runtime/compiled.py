"""What a launch asks the compiler for, and what it gets back.

`CompileRequest` is the whole question: the kernel, a type for each argument, the options, the target. `CompiledKernel` is
the answer, made of thunks: a stage of it is computed when someone looks, so a simulated launch never runs NVRTC.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, NoReturn, Protocol, overload

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

    `block` counts a block's threads in x, y and z, for kernels that are written for threads; `num_warps` is then how many warps
    they fill, the last one perhaps in part.
    """

    num_warps: int = 4
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = False
    block: tuple[int, int, int] | None = None
    sync: str = "auto"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A kernel to be compiled. Hashable; equal when the compiled code would be.

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
        """The arguments that the compiled kernel takes, in the order of its CUDA parameters; some have several of those."""
        return {name: kind for name, kind in self.arguments.items() if not isinstance(kind, Constexpr)}


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code and what it uses: registers and spilled bytes per thread, shared bytes per block.

    `dynamic_shared` is given at launch, `static_shared` is part of the code. `unused` are parts of descriptors and of views, by
    the names of `weft.runtime.descriptor.parts` and `weft.runtime.views.names`, that the code has no parameters for.
    `worker_warps` run in a block beside the kernel's own (see `warp_specialize`). `workspace` is how many bytes of global
    memory each block needs while it runs; where it needs some, the code has a last parameter for the address of all of them.
    """

    cubin: bytes
    n_regs: int
    n_spills: int
    dynamic_shared: int = 0
    static_shared: int = 0
    unused: tuple[str, ...] = ()
    worker_warps: int = 0
    workspace: int = 0


TextStage = Literal["ir", "lowered", "cuda", "ptx", "sass", "sync"]


class Stages(Mapping[str, "str | bytes"]):
    """The texts of a kernel's stages by name, each made at its first look and then kept."""

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


class CompiledKernel:
    """A kernel compiled for one request, or one about to be: what is not looked at is not computed.

    Attributes: `request`, `name` (its symbol), `num_warps`, `block`, `threads`, `asm` (stage -> text: "ir", "cuda", "ptx",
    "sass", "sync"; "cubin" is bytes), `reads` (what compilation read, see `weft.runtime.manifest`), `ran` (the author's
    Python that compilation called, with its arguments), and `report` of a simulated launch.
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
        """`resident_blocks(threads, registers, shared)` is the target's own occupancy formula, for where no GPU is.

        `front` is what the compiler keeps of its front half, for the simulator.
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
        """The machine code; made at the first look."""
        return self._binary()

    @property
    def num_warps(self) -> int:
        """Warps of a block that the launch asked for; workers have others beside them."""
        return self.request.options.num_warps

    @property
    def block(self) -> tuple[int, int, int] | None:
        """Threads of a block in x, y and z, where the launch asked for them; None for kernels that are written for tiles."""
        return self.request.options.block

    @property
    def num_ctas(self) -> int:
        """Blocks of a program: more than one make a cluster."""
        return self.request.options.num_ctas

    @property
    def threads(self) -> int:
        """Threads of a block, those of workers included."""
        own = self.num_warps * WARP_SIZE if self.block is None else prod(self.block)
        return own + self.binary.worker_warps * WARP_SIZE

    @property
    def n_regs(self) -> int:
        """Registers of a thread."""
        return self.binary.n_regs

    @property
    def n_spills(self) -> int:
        """Bytes a thread spills and reloads; 0 in a good kernel."""
        return self.binary.n_spills

    @property
    def shared(self) -> int:
        """Shared memory of a block, in bytes."""
        return self.binary.dynamic_shared + self.binary.static_shared

    def occupancy(self) -> int:
        """Blocks that a multiprocessor holds at a time: the driver's word, or the target's formula without a GPU."""
        if driver.available() or self._resident_blocks is None:
            loaded = self.on_device(driver.active.get_current_device())
            return driver.occupancy(loaded, self.threads, self.binary.dynamic_shared)
        return self._resident_blocks(self.threads, self.n_regs, self.shared)

    def on_device(self, ordinal: int) -> driver.Loaded:
        """The kernel loaded on a device; once per device. Raises what `weft.runtime.driver.load` raises."""
        with self._lock:
            if ordinal not in self._loaded:
                binary = self.binary
                self._loaded[ordinal] = driver.load(binary.cubin, self.name, ordinal, binary.dynamic_shared)
            return self._loaded[ordinal]

    def launch(
        self,
        grid: tuple[int, int, int],
        stream: int | None,
        params: Sequence[int | float | bool | tuple[int, ...] | HostDescriptor],
    ) -> None:
        """Launch on the current device with packed values, one for each of `request.run_time`.

        That is an address for an array; for a view it is that of its first element, in a tuple with its numbers where it has
        some. The short way for hosts that have bound their arguments already; `kernel[grid](...)` is the checked one.
        """
        from weft.runtime.launch import launcher

        kinds = self.request.run_time
        run = launcher(self, driver.active.get_current_device(), tuple(kinds.values()), None, tuple(kinds))
        run(grid, stream, *(p.tensor_map if isinstance(p, HostDescriptor) else p for p in params))

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
    """A kernel with its grid, as `kernel[grid]` gives it: called with the kernel's arguments and the options of the launch."""

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
        **keywords: Any,
    ) -> CompiledKernel:
        """Launch."""
        ...
