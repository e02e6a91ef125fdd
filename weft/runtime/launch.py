"""From bound values to `cuLaunchKernelEx`: the part of a launch after its compiled kernel has been found.

Every number and array of the Python signature has a slot of eight bytes. The kernel's parameter table points at the slots that
it takes and skips those that specialisation folded. A view has a slot for its address and one for each run-time extent and
stride. A tensor descriptor's values are in its own memory, so its table entries are written at each launch. The driver copies
parameters before it returns, but cuda-bindings releases the GIL around the call, so each launch in flight has a frame (slots
and table) of its own, taken from a pool.

Kernels that create tensor descriptors need a workspace in global memory, which each launch allocates for itself.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

from weft.bounded import keep
from weft.errors import fail
from weft.errors.launch import ARGUMENT_RANGE, CLUSTER_SIZE, COOPERATIVE, PROGRAMS_WAIT
from weft.locks import lazy
from weft.runtime import driver, streams, views
from weft.runtime.compiled import CompiledKernel
from weft.runtime.descriptor import Descriptor, parts
from weft.runtime.generated import program
from weft.runtime.grid import check_threads, in_blocks
from weft.runtime.specialise import ArgumentType, Constexpr, Pointer, Scalar, Tuple, View, leaves

Grid = tuple[int, int, int]
Run = Callable[..., CompiledKernel]
"""`run(grid, stream, *values)`: addresses for arrays, `TensorMap`s for descriptors, any value for folded arguments. For a view
its address, or a tuple of the address and its run-time extents and strides; for a tuple one of its items' values."""

SLOT_BYTES = 8
_CODES = {"int32": "q", "int64": "q", "uint64": "Q", "float32": "f4x", "bool": "?7x"}


@dataclass(frozen=True, slots=True)
class Packing:
    """The conversion of a launch's values to kernel parameters.

    `format` packs the slots from the values with the indices `packed`; those in `spread` are tuples with several slots. `table`
    has an entry per kernel parameter: the index of a slot, or of a descriptor's value with the offset into its memory.
    """

    format: struct.Struct
    packed: tuple[int, ...]
    table: tuple[int | tuple[int, int], ...]
    spread: frozenset[int] = frozenset()

    @property
    def slots(self) -> int:
        """The number of slots, which precede the table."""
        return self.format.size // SLOT_BYTES

    def frame(self) -> tuple[Any, int]:
        """A buffer for one launch in flight, and the address of its parameter table."""
        buffer = (ctypes.c_uint64 * (self.slots + len(self.table)))()
        start = ctypes.addressof(buffer)
        for position, entry in enumerate(self.table):
            if isinstance(entry, int):
                buffer[self.slots + position] = start + entry * SLOT_BYTES
        return buffer, start + self.slots * SLOT_BYTES

    def fill(self, buffer: Any, values: Sequence[Any]) -> None:
        """Write the values of a launch to a frame. A descriptor is encoded at its first launch."""
        packed = ((values[number] if number in self.spread else (values[number],)) for number in self.packed)
        self.format.pack_into(buffer, 0, *chain.from_iterable(packed))
        for position, entry in enumerate(self.table, self.slots):
            if isinstance(entry, tuple):
                number, offset = entry
                buffer[position] = (values[number].address or values[number].encode()) + offset


def packing(kinds: Sequence[ArgumentType], names: Sequence[str] = (), unused: Collection[str] = ()) -> Packing:
    """The packing of argument types, one per value. Slots are little-endian, as GPUs and their hosts are.

    `names` are the values' parameter names, needed for descriptors and views; `unused` lists the parts of these that the kernel
    has no parameters for.
    """
    packed = tuple(number for number, kind in enumerate(kinds) if not isinstance(kind, Descriptor))
    spread = frozenset(number for number, kind in enumerate(kinds) if isinstance(kind, View) and kind.numbers)
    codes: list[str] = []
    table: list[int | tuple[int, int]] = []
    for number, kind in enumerate(kinds):
        if isinstance(kind, Descriptor):
            table += [(number, part.offset) for part in parts(names[number], kind.rank) if part.name not in unused]
            continue
        if isinstance(kind, View):
            own = views.names(names[number], kind)
            table += [slot for slot, part in enumerate(own, len(codes)) if part not in unused]
        elif not isinstance(kind, Constexpr):
            table.append(len(codes))
        codes += _codes(kind)
    return Packing(struct.Struct(f"<{''.join(codes)}"), packed, tuple(table), spread)


def _codes(kind: ArgumentType) -> tuple[str, ...]:
    """The `struct` codes of a value's slots."""
    if isinstance(kind, View):
        return tuple(map(_code, (kind.pointer, *kind.numbers)))
    return (_code(kind),)


def _code(kind: ArgumentType) -> str:
    if isinstance(kind, Pointer):
        return "Q"
    # A folded slot is packed too, although no parameter points at it: None is passed as 0.
    return _CODES[kind.dtype] if isinstance(kind, Scalar) else "q"


class Launcher:
    """Launches `compiled` on the device `ordinal` with values of `kinds`, by either of two functions that do the same.

    `first` is for a kernel that may be launched once. `run` takes a third of its time, but 0.2 ms to generate. Both raise
    LaunchError (launch-argument-range, launch-programs-wait, launch-cooperative-grid), OutOfResources (launch-registers,
    launch-cluster-size) and DeviceError (device-driver-error).
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        ordinal: int,
        kinds: Sequence[ArgumentType],
        current_stream: Callable[[int], int] | None,
        names: Sequence[str] = (),
        *,
        awaited: bool = False,
    ) -> None:
        """`current_stream(ordinal)` returns the stream of launches that name none; without it that is the default stream.
        `names` are the values' parameter names. With `awaited` launches return after the kernel has ended. Raises what loading
        the kernel raises."""
        self._loaded = compiled.on_device(ordinal)
        self._given = kinds
        if any(isinstance(kind, Tuple) for kind in kinds):
            listed = [leaf for name, kind in zip(names, kinds, strict=True) for leaf in leaves(name, kind)]
            names, kinds = tuple(name for name, _ in listed), tuple(kind for _, kind in listed)
        if compiled.binary.workspace:
            kinds, names = (*kinds, _WORKSPACE), (*names, "workspace") if names else ()
        self._layout = packing(kinds, names, compiled.binary.unused)
        self._compiled, self._ordinal, self._kinds, self._names = compiled, ordinal, kinds, names
        self._stream_now = current_stream or _default_stream
        self._awaited = awaited
        self._configs: dict[tuple[Grid, int], Any] = {}
        self._launch = _launch_function(self._loaded)
        self._success = driver.bindings().CUresult.CUDA_SUCCESS

    @property
    def first(self) -> Run:
        """The function for a first launch."""
        return self._with_tuples(self._with_workspace(self._first))

    @lazy
    def run(self) -> Run:
        """The function for many launches."""
        return self._with_tuples(self._with_workspace(self._generated("grid, ", range(len(self._kinds)), {})))

    def fixed(self, grid: Grid, values: Sequence[Any], places: Sequence[int]) -> Callable[..., CompiledKernel] | None:
        """`run` on one grid and with one set of values, as a function of the stream and of the values at `places` only, where
        the values of tuples count one by one. None for a kernel with a workspace, which each launch allocates."""
        if self._compiled.binary.workspace:
            return None
        leaves = tuple(_leaf_values(self._given, values))
        scope = {"grid": grid, **{f"v{number}": value for number, value in enumerate(leaves)}}
        if not {*self._layout.packed}.isdisjoint(places):
            return self._generated("", places, scope)

        def filled() -> tuple[Any, int]:
            frame = self._layout.frame()
            self._layout.fill(frame[0], leaves)
            return frame

        return self._generated("", places, {**scope, "new_frame": filled}, packs=False)

    def _generated(self, grid: str, places: Sequence[int], scope: dict[str, Any], packs: bool = True) -> Run:
        """The function of a stream and the values at `places`; `scope` has the others, and `packs` is false if they are all
        that is packed."""
        layout, names = self._layout, [f"v{i}" for i in range(len(self._kinds))]
        packed = "".join(f", {'*' * (number in layout.spread)}{names[number]}" for number in layout.packed)
        listed = "".join(f"{name}, " for name in names)
        # One function per number of values: CPython calls it faster than one with `*values`, which builds a tuple.
        text = _RUN.format(
            grid=grid,
            values="".join(f", {names[place]}" for place in places),
            packing=_PACKING.format(packed=packed, listed=listed) if packs else "",
            pointed=_pointed(layout),
            awaiting="    ended(raw)\n" if self._awaited else "",
        )
        scope = {
            "stream_now": self._stream_now, "raw_of": streams.raw, "ordinal": self._ordinal,
            "configs": self._configs, "new_config": self._config, "pool": [], "new_frame": layout.frame,
            "pack": layout.format.pack_into, "pack_errors": _PACK_ERRORS, "unpackable": self._unpackable,
            "launch": self._launch, "function": self._loaded.function, "compiled": self._compiled,
            "success": self._success, "failed": self._failed, "ended": self._ended, **scope,
        }  # fmt: skip
        exec(program(text), scope)  # noqa: S102 - only numbers and names of weft
        return scope["run"]

    def _first(self, grid: Grid, stream: Any, *values: Any) -> CompiledKernel:
        raw = self._stream_now(self._ordinal) if stream is None else streams.raw(stream)
        config = self._configs.get((grid, raw)) or self._config(grid, raw)
        buffer, table = self._layout.frame()
        try:
            self._layout.fill(buffer, values)
        except _PACK_ERRORS:
            raise self._unpackable(values) from None
        (status,) = self._launch(config, self._loaded.function, table, 0)
        if status is not self._success:
            self._failed(status, config, table)
        if self._awaited:
            self._ended(raw)
        return self._compiled

    def _ended(self, raw: int) -> None:
        """Wait until a stream has finished, unless it is captured into a CUDA graph.

        JAX computes on streams of its own that do not wait for the default stream (XLA creates them with
        CU_STREAM_NON_BLOCKING), and gives the memory of an array without references to the next one at once."""
        cuda = driver.bindings()
        with driver.current_context(self._loaded.device):
            state = driver.call("cuStreamIsCapturing", cuda.CUstream(raw))
            if state == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
                driver.call("cuStreamSynchronize", cuda.CUstream(raw))

    def _config(self, grid: Grid, raw: int) -> Any:
        """A new launch configuration, which is kept."""
        if self._compiled.binary.waits or self._compiled.request.options.launch_cooperative_grid:
            self._check_room(grid)
        config = configuration(self._compiled, grid, raw)
        if self._compiled.num_ctas > 1 and not driver.active_clusters(self._loaded, config):
            raise _unplaceable(self._compiled, self._loaded)
        return keep(self._configs, (grid, raw), config, _CONFIGS_KEPT)

    def _check_room(self, grid: Grid) -> None:
        """Raises LaunchError (launch-programs-wait, launch-cooperative-grid) if not all programs fit on the GPU at once."""
        compiled, loaded = self._compiled, self._loaded
        blocks = (
            driver.occupancy(loaded, compiled.threads, compiled.binary.dynamic_shared) * loaded.device.multiprocessors
        )
        resident, programs = blocks // compiled.num_ctas, prod(grid)
        if programs > resident:
            row = PROGRAMS_WAIT if compiled.binary.waits else COOPERATIVE
            raise fail(row, name=compiled.name, programs=programs, resident=resident)

    def _failed(self, status: Any, config: Any, table: int) -> None:
        _again(self._compiled, self._loaded, status, (config, self._loaded.function, table, 0))

    def _unpackable(self, values: Sequence[Any]) -> Exception:
        return _unpackable(self._compiled.name, self._kinds, self._names, values)

    def _with_tuples(self, run: Run) -> Run:
        """`run`, for values of which tuples hold several."""
        kinds = self._given
        if not any(isinstance(kind, Tuple) for kind in kinds):
            return run

        def with_tuples(grid: Grid, stream: Any, *values: Any) -> CompiledKernel:
            return run(grid, stream, *_leaf_values(kinds, values))

        return with_tuples

    def _with_workspace(self, run: Run) -> Run:
        """`run`, with the address of the workspace of all blocks as its last value if the kernel takes one.

        The workspace is allocated and freed in stream order (`cuMemAllocAsync`), so that launches do not wait for one another,
        and a captured graph allocates and frees it at each replay."""
        compiled, device, stream_now = self._compiled, self._loaded.device, self._stream_now
        if not compiled.binary.workspace:
            return run
        cuda = driver.bindings()

        def with_workspace(grid: Grid, stream: Any, *values: Any) -> CompiledKernel:
            raw = stream_now(device.ordinal) if stream is None else streams.raw(stream)
            blocks = prod(in_blocks(compiled.name, grid, compiled.num_ctas))
            with driver.current_context(device):
                memory = driver.call("cuMemAllocAsync", compiled.binary.workspace * blocks, cuda.CUstream(raw))
                try:
                    return run(grid, raw, *values, int(memory))
                finally:
                    driver.call("cuMemFreeAsync", memory, cuda.CUstream(raw))

        return with_workspace


def _leaf_values(kinds: Sequence[ArgumentType], values: Sequence[Any]) -> Iterator[Any]:
    """The values in the order of `weft.runtime.specialise.leaves`."""
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, Tuple):
            yield from _leaf_values(kind.items, value)
        else:
            yield value


_PACK_ERRORS = (OverflowError, TypeError, struct.error)
_WORKSPACE = Pointer("uint8")
_CONFIGS_KEPT = 256
"""A launcher caches this many launch configurations, by grid and stream; building one takes longer than a launch."""

# The choice of cuda-bindings and `struct` was measured: on an H200's host a launch of five arguments took 2.9 us with a table
# packed once, 3.3 us if `struct` packs it at each call, 3.9 us through cuda-core's `launch`, and 4.3 us through ctypes.
_RUN = """
def run({grid}stream{values}):
    raw = stream_now(ordinal) if stream is None else raw_of(stream)
    try:
        config = configs[grid, raw]
    except KeyError:
        config = new_config(grid, raw)
    try:
        frame = pool.pop()
    except IndexError:
        frame = new_frame()
    buffer, table = frame
{packing}\
{pointed}\
    (status,) = launch(config, function, table, 0)
    if status is not success:
        failed(status, config, table)
    pool.append(frame)
{awaiting}\
    return compiled
"""

_PACKING = """\
    try:
        pack(buffer, 0{packed})
    except pack_errors:
        raise unpackable(({listed})) from None
"""


def _pointed(layout: Packing) -> str:
    """Lines that write the table entries of descriptors, as `Packing.fill` does.

    The entries are skipped when the frame's last launch had the same descriptor."""
    entries: dict[int, list[tuple[int, int]]] = {}
    for position, entry in enumerate(layout.table, layout.slots):
        if isinstance(entry, tuple):
            number, offset = entry
            entries.setdefault(number, []).append((position, offset))
    lines: list[str] = []
    for number, places in entries.items():
        first, offset = places[0]
        lines.append(
            f"    at = v{number}.address or v{number}.encode()\n    if buffer[{first}] != {_beyond(offset)}:\n"
        )
        lines += [f"        buffer[{position}] = {_beyond(offset)}\n" for position, offset in places]
    return "".join(lines)


def _beyond(offset: int) -> str:
    return f"at + {offset}" if offset else "at"


def _default_stream(ordinal: int) -> int:
    return 0


def configuration(compiled: CompiledKernel, grid: Grid, raw: int) -> Any:
    """The launch configuration of a grid of programs. A program of several blocks is a cluster along x.

    Raises LaunchError: launch-grid-limit, launch-grid-threads."""
    cuda, blocks = driver.bindings(), compiled.num_ctas
    check_threads(compiled.name, grid, compiled.block, blocks)
    x, y, z = in_blocks(compiled.name, grid, blocks)
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = x, y, z
    config.blockDimX, config.blockDimY, config.blockDimZ = compiled.threads, 1, 1
    config.sharedMemBytes, config.hStream = compiled.binary.dynamic_shared, cuda.CUstream(raw)
    attributes = [] if blocks == 1 else [_cluster_of(blocks)]
    # A workspace is freed in the order of the stream, and the next launch may be given the same memory: a launch that overlaps
    # the one before it would write descriptors which that one still uses (seen on an H200).
    if compiled.request.options.launch_pdl and not compiled.binary.workspace:
        attributes.append(_dependent())
    if compiled.request.options.launch_cooperative_grid:
        attributes.append(_cooperative())
    if attributes:
        config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _cluster_of(blocks: int) -> Any:
    """The launch attribute for clusters of `blocks` blocks."""
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size = attribute.value.clusterDim
    size.x, size.y, size.z = blocks, 1, 1
    return attribute


def _dependent() -> Any:
    """The launch attribute of a kernel that may start before the launch before it is complete."""
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    return attribute


def _cooperative() -> Any:
    """The launch attribute of a kernel whose blocks all run at the same time, beside other kernels as well."""
    cuda = driver.bindings()
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    return attribute


def _unplaceable(compiled: CompiledKernel, loaded: driver.Loaded) -> Exception:
    """The error of a cluster that the device cannot place. The launch itself would fail with INVALID_CLUSTER_SIZE."""
    return fail(
        CLUSTER_SIZE, name=compiled.name, device=loaded.device.name, num_ctas=compiled.num_ctas,
        threads=compiled.threads, registers=compiled.n_regs, shared=compiled.shared,
    )  # fmt: skip


def _launch_function(loaded: driver.Loaded) -> Callable[..., Any]:
    """`cuLaunchKernelEx`; with several GPUs the context is checked before each launch, since it may be another GPU's."""
    bare: Callable[..., Any] = driver.bindings().cuLaunchKernelEx
    if driver.device_count() == 1:
        return bare

    current: Callable[[], tuple[Any, Any]] = driver.bindings().cuCtxGetCurrent
    own = int(loaded.device.context)

    def in_context(*arguments: Any) -> Any:
        # Every launch comes here on a host with several GPUs, so it asks the driver itself.
        if int(current()[1]) == own:
            return bare(*arguments)
        with driver.current_context(loaded.device):
            return bare(*arguments)

    return in_context


def _again(compiled: CompiledKernel, loaded: driver.Loaded, status: Any, arguments: tuple[Any, ...]) -> None:
    """Handle a failed launch: from a thread without a context, push one and launch again; otherwise raise."""
    if driver.no_context(status):
        with driver.current_context(loaded.device):
            (status,) = driver.bindings().cuLaunchKernelEx(*arguments)
    if int(status) != 0:
        raise driver.launch_error(compiled.name, status, compiled.threads, compiled.n_regs)


def _unpackable(name: str, kinds: Sequence[ArgumentType], names: Sequence[str], values: Sequence[Any]) -> Exception:
    for slot, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        if isinstance(kind, Descriptor):
            continue
        several = isinstance(kind, View) and bool(kind.numbers)
        try:
            struct.pack(f"<{''.join(_codes(kind))}", *(value if several else (value,)))
        except (OverflowError, TypeError, struct.error):
            limit = kind.dtype if isinstance(kind, Scalar) else "64 bits"
            fix = "scale it down, or compute it in the kernel"
            if several:
                limit = "the address and the numbers of a view"
                fix = f"pass a tuple of {len(_codes(kind))} integers of 64 bits"
            parameter = names[slot] if names else f"number {slot}"
            return fail(ARGUMENT_RANGE, name=name, parameter=parameter, value=value, limit=limit, fix=fix)
    raise AssertionError("the values pack one by one")
