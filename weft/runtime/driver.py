"""The CUDA driver: devices, modules, launches. Everything is loaded on first use, so importing this touches no GPU.

Handles are those of `cuda.bindings.driver`; device numbers are CUDA ordinals of this process. Contexts are the devices'
primary ones, the same that PyTorch and the CUDA runtime use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from weft import settings
from weft.errors import DeviceError, UserError, fail
from weft.errors.launch import DRIVER_ERROR, NO_DEVICE, NO_DRIVER, REGISTER_LIMIT, SHARED_LIMIT, WRONG_ARCHITECTURE
from weft.loading import uninterrupted

_STATIC_SHARED_BYTES = 48 * 1024
"""A function must opt in to more dynamic shared memory than this (MAX_DYNAMIC_SHARED_SIZE_BYTES), or its launch fails."""

_PORTABLE_CLUSTER = 8
"""A function must opt in to clusters of more blocks than this (NON_PORTABLE_CLUSTER_SIZE_ALLOWED), or its launch fails."""

# Codes of CUresult (CUDA Driver API, Data types used by CUDA driver). As numbers, since cuda-bindings is imported lazily.
# NO_DEVICE, INVALID_DEVICE
_NO_DEVICE_CODES = (100, 101)
# INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION
_WRONG_IMAGE_CODES = (200, 209, 218, 222)
# INVALID_CONTEXT, INVALID_HANDLE
_NO_CONTEXT_CODES = (201, 400)
# LAUNCH_OUT_OF_RESOURCES
_OUT_OF_RESOURCES = 701
# The errors after which every call in the process fails: ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED, ASSERT,
# HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED
_STICKY_CODES = (700, 702, 709, 710, 714, 715, 716, 717, 718, 719)
# Errors of stream capture: STREAM_CAPTURE_UNSUPPORTED (900) to STREAM_CAPTURE_WRONG_THREAD (908)
_CAPTURE_CODES = range(900, 909)
_CAPTURE_ADVICE = "launch the kernel once before the capture of a CUDA graph begins: it cannot be loaded during one"
_ADVICE = "check the arguments of the launch"
_STICKY_ADVICE = (
    "an earlier kernel broke the CUDA context, and only a new process gets a new one; launch with NumPy arrays or CPU "
    "tensors to have the simulator name the line, or set CUDA_LAUNCH_BLOCKING=1 to fail at the kernel itself"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target; `arch` is the compute capability times ten."""

    backend: str
    arch: int
    warp_size: int


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and its primary context."""

    ordinal: int
    name: str
    arch: int
    multiprocessors: int
    shared_bytes: int
    """Maximum shared memory of one block."""
    context: Any

    @property
    def target(self) -> Target:
        """The target of this device."""
        return Target("cuda", self.arch, 32)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel on a device: its function handle, and the module that owns it."""

    function: Any
    module: Any
    device: Device


class ActiveDriver:
    """The driver of this process, as `weft.runtime.driver.active`: the name that host code written for Triton uses."""

    def get_current_target(self) -> Target:
        """The target of the current device; without a GPU, the simulated one of `WEFT_TARGET`."""
        return device(self.get_current_device()).target if available() else simulated_target()

    def get_current_device(self) -> int:
        """Ordinal of the device whose context is current in this thread, else 0. Raises DeviceError without a GPU."""
        status, current = bindings().cuCtxGetDevice()
        return int(current) if int(status) == 0 else 0


active = ActiveDriver()


def simulated_target() -> Target:
    """The target that `WEFT_TARGET` names, for the simulator."""
    digits = re.search(r"\d+", settings.current().target)
    assert digits is not None
    return Target("cuda", int(digits[0]), 32)


@cache
def bindings() -> Any:
    """`cuda.bindings.driver`, initialised. Raises DeviceError (device-no-driver, device-none)."""
    try:
        with uninterrupted():
            from cuda.bindings import driver as cuda

        (status,) = cuda.cuInit(0)
    except (ImportError, OSError, RuntimeError) as error:
        raise fail(NO_DRIVER, reason=(str(error) or type(error).__name__).splitlines()[0]) from error
    if int(status) in _NO_DEVICE_CODES:
        raise fail(NO_DEVICE, reason=_describe(cuda, status)[1])
    if int(status) != 0:
        raise fail(NO_DRIVER, reason=_describe(cuda, status)[1])
    return cuda


@cache
def available() -> bool:
    """True when the process has a driver and a GPU."""
    try:
        return device_count() > 0
    except DeviceError:
        return False


@cache
def device_count() -> int:
    """Number of GPUs visible to this process. Raises DeviceError without a driver."""
    return int(call("cuDeviceGetCount"))


@cache
def device(ordinal: int) -> Device:
    """The GPU of a CUDA ordinal, with its primary context retained for the life of the process."""
    attribute = bindings().CUdevice_attribute
    handle = call("cuDeviceGet", ordinal)

    def query(name: str) -> int:
        return int(call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    return Device(
        ordinal=ordinal,
        name=call("cuDeviceGetName", 96, handle).split(b"\0")[0].decode(),
        arch=10 * query("COMPUTE_CAPABILITY_MAJOR") + query("COMPUTE_CAPABILITY_MINOR"),
        multiprocessors=query("MULTIPROCESSOR_COUNT"),
        shared_bytes=query("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        context=call("cuDevicePrimaryCtxRetain", handle),
    )


def device_of_pointer(pointer: int) -> int:
    """Ordinal of the device that a CUDA address belongs to. Raises DeviceError for an address that CUDA does not know."""
    ordinal = bindings().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    return int(call("cuPointerGetAttribute", ordinal, pointer))


def load(cubin: bytes, name: str, ordinal: int, shared: int, cluster: int = 1) -> Loaded:
    """Load the kernel `name` of a cubin on a device, for `shared` bytes of dynamic shared memory and clusters of that many
    blocks.

    Raises OutOfResources (launch-shared-memory), DeviceError (device-wrong-architecture, device-driver-error).
    """
    gpu = device(ordinal)
    if shared > gpu.shared_bytes:
        raise fail(SHARED_LIMIT, name=name, needed=shared, limit=gpu.shared_bytes)
    with current_context(gpu):
        cuda = bindings()
        status, module = cuda.cuModuleLoadData(cubin)
        if int(status) in _WRONG_IMAGE_CODES:
            raise fail(WRONG_ARCHITECTURE, name=name, device=f"{gpu.name} (sm_{gpu.arch})")
        _check("cuModuleLoadData", status)
        # A cubin of weft has exactly one kernel. Its symbol may differ from `name`, since not every Python name is valid C++.
        (function,) = call("cuModuleEnumerateFunctions", 1, module)
        if shared > _STATIC_SHARED_BYTES:
            limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call("cuFuncSetAttribute", function, limit, shared)
        if cluster > _PORTABLE_CLUSTER:
            allowed = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call("cuFuncSetAttribute", function, allowed, 1)
    return Loaded(function, module, gpu)


def occupancy(loaded: Loaded, threads: int, shared: int) -> int:
    """Resident blocks per multiprocessor, for blocks of `threads` threads and `shared` bytes of dynamic shared memory."""
    with current_context(loaded.device):
        return int(call("cuOccupancyMaxActiveBlocksPerMultiprocessor", loaded.function, threads, shared))


def active_clusters(loaded: Loaded, config: Any) -> int:
    """The number of clusters of a launch configuration that the device can hold at the same time."""
    with current_context(loaded.device):
        return int(call("cuOccupancyMaxActiveClusters", loaded.function, config))


class current_context:  # noqa: N801 - used as a statement: `with current_context(device):`
    """Make a device's context current for a block of code, unless it already is."""

    __slots__ = ("device", "pushed")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.pushed = False

    def __enter__(self) -> None:
        if int(call("cuCtxGetCurrent")) != int(self.device.context):
            call("cuCtxPushCurrent", self.device.context)
            self.pushed = True

    def __exit__(self, *_: object) -> None:
        if self.pushed:
            call("cuCtxPopCurrent")


def call(function: str, *arguments: Any) -> Any:
    """Call a driver function by name. Returns its first value, or None. Raises DeviceError (device-driver-error)."""
    status, *values = getattr(bindings(), function)(*arguments)
    _check(function, status)
    return values[0] if values else None


def call_for(pointer: int, function: str, *arguments: Any) -> Any:
    """`call` for a function that needs a context: where the thread has none, in that of the device of an address."""
    status, *values = getattr(bindings(), function)(*arguments)
    if no_context(status):
        with current_context(device(device_of_pointer(pointer))):
            return call(function, *arguments)
    _check(function, status)
    return values[0]


def _check(function: str, status: Any) -> None:
    if int(status) != 0:
        raise driver_error(function, status)


def no_context(status: Any) -> bool:
    """True when a launch failed because its thread lacks the right context. The driver checks this before doing anything."""
    return int(status) in _NO_CONTEXT_CODES


def launch_error(name: str, status: Any, threads: int, registers: int) -> UserError:
    """The error of a launch that the driver refused."""
    if int(status) == _OUT_OF_RESOURCES:
        return fail(REGISTER_LIMIT, name=name, threads=threads, registers=registers)
    return driver_error(f"launching {name}", status)


def driver_error(what: str, status: Any) -> UserError:
    """The error of a driver call, with NVIDIA's name and text, and advice for a lost context or a graph capture."""
    name, text = _describe(bindings(), status)
    return fail(DRIVER_ERROR, what=what, error=name, text=text, advice=_advice(int(status)))


def _advice(code: int) -> str:
    if code in _CAPTURE_CODES:
        return _CAPTURE_ADVICE
    return _STICKY_ADVICE if code in _STICKY_CODES else _ADVICE


def _describe(cuda: Any, status: Any) -> tuple[str, str]:
    (_, name), (_, text) = cuda.cuGetErrorName(status), cuda.cuGetErrorString(status)
    return (name or b"unknown").decode(), (text or b"no description").decode()
