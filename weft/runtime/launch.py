"""From values to `cuLaunchKernelEx`: what happens after a launch has found its compiled kernel.

Every run-time parameter of the Python signature has a slot of eight bytes; a kernel's parameter table points at the slots
it takes and skips those that specialisation folded. The driver copies parameters before it returns, but it returns
without Python's lock, so each launch in flight has a frame of slots to itself, taken from a pool.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.errors import fail
from weft.errors.launch import ARGUMENT_RANGE
from weft.runtime import driver, streams
from weft.runtime.compiled import CompiledKernel
from weft.runtime.specialise import ArgumentType, Constexpr, Pointer, Scalar

Grid = tuple[int, int, int]
Run = Callable[..., CompiledKernel]
"""`run(grid, stream, *values)`: one value per slot, addresses for arrays, anything for folded slots."""

SLOT_BYTES = 8
_CODES = {"int32": "q", "int64": "q", "uint64": "Q", "float32": "f4x", "bool": "?7x"}


@dataclass(frozen=True, slots=True)
class Packing:
    """How the values of a launch become kernel parameters: a `struct` of all slots, and the slots a kernel takes."""

    format: struct.Struct
    taken: tuple[int, ...]

    def frame(self) -> tuple[Any, int]:
        """A buffer for one launch in flight and the address of its parameter table."""
        slots = self.format.size // SLOT_BYTES
        buffer = (ctypes.c_uint64 * (slots + len(self.taken)))()
        start = ctypes.addressof(buffer)
        for position, slot in enumerate(self.taken):
            buffer[slots + position] = start + slot * SLOT_BYTES
        return buffer, start + slots * SLOT_BYTES


def packing(kinds: Sequence[ArgumentType]) -> Packing:
    """The packing of argument types, one per slot. Slots are little-endian, as GPUs and their hosts are."""
    codes = "".join(_code(kind) for kind in kinds)
    taken = tuple(slot for slot, kind in enumerate(kinds) if not isinstance(kind, Constexpr))
    return Packing(struct.Struct(f"<{codes}"), taken)


def _code(kind: ArgumentType) -> str:
    if isinstance(kind, Pointer):
        return "Q"
    # A folded slot still gets a value, which nobody reads: None arrives as 0.
    return _CODES[kind.dtype] if isinstance(kind, Scalar) else "q"


def launcher(
    compiled: CompiledKernel,
    ordinal: int,
    kinds: Sequence[ArgumentType],
    current_stream: Callable[[int], int] | None,
    names: Sequence[str] = (),
) -> Run:
    """A function that launches `compiled` on the device `ordinal` with values of `kinds`, one per slot.

    `current_stream(ordinal)` answers the stream to use when a launch names none; without it that is the default stream.
    `names` are the slots' parameters, for messages. Raises what loading the kernel raises; the function raises
    LaunchError (launch-argument-range), OutOfResources (launch-registers) and DeviceError (device-driver-error).
    """
    loaded = compiled.on_device(ordinal)
    layout = packing(kinds)
    configs: dict[tuple[Grid, int], Any] = {}

    def new_config(grid: Grid, raw: int) -> Any:
        if len(configs) >= _CONFIGS_KEPT:
            configs.clear()
        configs[grid, raw] = config = _config(grid, raw, compiled.threads, compiled.binary.dynamic_shared)
        return config

    def failed(status: Any, config: Any, table: int) -> None:
        _again(compiled, loaded, status, (config, loaded.function, table, 0))

    names_in_scope: dict[str, Any] = {
        "stream_now": current_stream or _default_stream, "raw_of": streams.raw, "ordinal": ordinal,
        "configs": configs, "new_config": new_config, "pool": [], "new_frame": layout.frame,
        "pack": layout.format.pack_into, "pack_errors": (OverflowError, struct.error),
        "unpackable": partial(_unpackable, compiled.name, kinds, names),
        "launch": _launch_function(loaded), "function": loaded.function, "compiled": compiled,
        "success": driver.bindings().CUresult.CUDA_SUCCESS, "failed": failed,
    }  # fmt: skip
    # One function per number of values: Python calls those faster than one that takes `*values`.
    values = [f"v{i}" for i in range(len(kinds))]
    text = _RUN.format(values="".join(f", {v}" for v in values), listed="".join(f"{v}, " for v in values))
    exec(compile(text, f"<run of {compiled.name}>", "exec"), names_in_scope)  # noqa: S102 - as dataclasses make `__init__`
    return names_in_scope["run"]


_CONFIGS_KEPT = 256
"""Grids and streams whose launch configuration a launcher keeps; a configuration costs more than a launch."""

_RUN = """
def run(grid, stream{values}):
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
    try:
        pack(buffer, 0{values})
    except pack_errors:
        raise unpackable(({listed})) from None
    (status,) = launch(config, function, table, 0)
    if status is not success:
        failed(status, config, table)
    pool.append(frame)
    return compiled
"""


def _default_stream(ordinal: int) -> int:
    return 0


def _config(grid: Grid, raw: int, threads: int, shared: int) -> Any:
    cuda = driver.bindings()
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream, config.numAttrs = shared, cuda.CUstream(raw), 0
    return config


def _launch_function(loaded: driver.Loaded) -> Callable[..., Any]:
    """`cuLaunchKernelEx`, with a look at the current context before each launch where there is more than one GPU."""
    bare: Callable[..., Any] = driver.bindings().cuLaunchKernelEx
    if driver.device_count() == 1:
        return bare

    def in_context(*arguments: Any) -> Any:
        with driver.current_context(loaded.device):
            return bare(*arguments)

    return in_context


def _again(compiled: CompiledKernel, loaded: driver.Loaded, status: Any, arguments: tuple[Any, ...]) -> None:
    """Launch once more from a thread that had no context, which the driver says before doing anything; else raise."""
    if driver.no_context(status):
        with driver.current_context(loaded.device):
            (status,) = driver.bindings().cuLaunchKernelEx(*arguments)
    if int(status) != 0:
        raise driver.launch_error(compiled.name, status, compiled.threads, compiled.n_regs)


def _unpackable(name: str, kinds: Sequence[ArgumentType], names: Sequence[str], values: Sequence[Any]) -> Exception:
    for slot, (kind, value) in enumerate(zip(kinds, values, strict=True)):
        try:
            struct.pack(f"<{_code(kind)}", value)
        except (OverflowError, struct.error):
            limit = kind.dtype if isinstance(kind, Scalar) else "64 bits"
            parameter = names[slot] if names else f"number {slot}"
            fix = "scale it down, or compute it in the kernel"
            return fail(ARGUMENT_RANGE, name=name, parameter=parameter, value=value, limit=limit, fix=fix)
    raise AssertionError("the values pack one by one")
