# ruff: noqa: N802 - the names are the driver's
"""A CUDA driver, a compiler and arrays made of Python: enough to launch on, and a record of what was launched."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft.errors import fail
from weft.errors.launch import NO_DRIVER
from weft.runtime import driver
from weft.runtime.compiled import Binary, CompiledKernel
from weft.runtime.dlpack import contiguous


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


OK = CUresult.CUDA_SUCCESS
WORKSPACE = 0x7F0000000000
"""Where all stream-ordered memory lies."""


@dataclass(frozen=True)
class Launched:
    """A recorded launch: `words` holds the 64-bit slot of each parameter that the kernel takes, `cluster` counts blocks,
    `dependent`: it may start before the one before is complete, `cooperative`: all its blocks run at the same time."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    words: tuple[int, ...]
    cluster: int = 1
    dependent: bool = False
    cooperative: bool = False


class Attribute:
    """Poses as an attribute of a launch."""

    def __init__(self) -> None:
        self.id = ""
        self.value = SimpleNamespace(
            clusterDim=SimpleNamespace(x=0, y=0, z=0), programmaticStreamSerializationAllowed=0, cooperative=0
        )


class Names:
    """Poses as an enumeration of the driver: a member is its own name, without the prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __getattr__(self, name: str) -> str:
        return name.removeprefix(f"CU_TENSOR_MAP_{self.prefix}_")


class FakeMap:
    """What an encoding call gives: 128 bytes that begin with the tensor's address, at an address that is barely aligned."""

    def __init__(self, pointer: int) -> None:
        self.words = (ctypes.c_uint64 * 17)()
        self.words[:] = [pointer] + [0xA5A5] * 16

    def getPtr(self) -> int:
        return ctypes.addressof(self.words)


@dataclass
class FakeCuda:
    """`parameters` is how many parameters the next launched kernels take; `encoded` records calls that make tensor maps,
    `allocated` stream-ordered memory: "alloc" with bytes, "free" with the address, and the stream. `waited` has the streams
    that the host has waited for, with the number of launches before; `filled` has the bits, address, value and number of the
    elements that were set; `captured` are the streams that are captured."""

    devices: int = 1
    parameters: int = 0
    launches: list[Launched] = field(default_factory=list)
    results: list[CUresult] = field(default_factory=list)
    load_result: CUresult = OK
    loads: int = 0
    current: int = 1000
    opted_in: int = 0
    non_portable: int = 0
    most_clusters: int = 132
    encoded: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    allocated: list[tuple[str, int, int]] = field(default_factory=list)
    waited: list[tuple[int, int]] = field(default_factory=list)
    filled: list[tuple[int, int, int, int]] = field(default_factory=list)
    captured: set[int] = field(default_factory=set)
    CUresult = CUresult
    CUtensorMapDataType = Names("DATA_TYPE")
    CUtensorMapInterleave = Names("INTERLEAVE")
    CUtensorMapSwizzle = Names("SWIZZLE")
    CUtensorMapL2promotion = Names("L2_PROMOTION")
    CUtensorMapFloatOOBfill = Names("FLOAT_OOB_FILL")
    cuuint32_t = int
    cuuint64_t = int
    CUstream = int
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE="none")
    CUlaunchConfig = SimpleNamespace
    CUlaunchAttribute = Attribute
    CUlaunchAttributeID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster",
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION="dependent",
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE="cooperative",
    )
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major",
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor",
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT="sms",
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="shared",
    )
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="max dynamic",
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED="non-portable",
    )
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal")

    def cuDeviceGetCount(self) -> Any:
        return OK, self.devices

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetAttribute(self, name: str, handle: int) -> Any:
        return OK, {"major": 9, "minor": 0, "sms": 132, "shared": 232448}[name]

    def cuDeviceGetName(self, size: int, handle: int) -> Any:
        return OK, b"Fake H200\0"

    def cuDevicePrimaryCtxRetain(self, handle: int) -> Any:
        return OK, 1000 + handle

    def cuCtxGetDevice(self) -> Any:
        return OK, self.current - 1000

    def cuCtxGetCurrent(self) -> Any:
        return OK, self.current

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.current = context
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        popped, self.current = self.current, 1000
        return OK, popped

    def cuMemAllocAsync(self, size: int, stream: int) -> Any:
        if self.results:
            return (self.results.pop(0), None)
        self.allocated.append(("alloc", size, stream))
        return OK, WORKSPACE

    def cuMemFreeAsync(self, address: int, stream: int) -> Any:
        self.allocated.append(("free", address, stream))
        return (OK,)

    def cuStreamIsCapturing(self, stream: int) -> Any:
        return OK, "active" if stream in self.captured else "none"

    def cuStreamSynchronize(self, stream: int) -> Any:
        self.waited.append((stream, len(self.launches)))
        return (OK,)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> Any:
        self.filled.append((8, address, value, count))
        return (OK,)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> Any:
        self.filled.append((32, address, value, count))
        return (OK,)

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        self.loads += 1
        return self.load_result, "module"

    def cuModuleEnumerateFunctions(self, count: int, module: str) -> Any:
        return OK, ["function"] * count

    def cuFuncSetAttribute(self, function: bytes, name: str, value: int) -> Any:
        if name == "non-portable":
            self.non_portable = value
        else:
            self.opted_in = value
        return (OK,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: bytes, threads: int, shared: int) -> Any:
        return OK, 2048 // threads

    def cuOccupancyMaxActiveClusters(self, function: bytes, config: Any) -> Any:
        return OK, self.most_clusters // _cluster_of(config)

    def cuPointerGetAttribute(self, name: str, pointer: int) -> Any:
        return OK, 0

    def cuGetErrorName(self, status: CUresult) -> Any:
        return OK, status.name.encode()

    def cuGetErrorString(self, status: CUresult) -> Any:
        return OK, b"as the fake driver says"

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> Any:
        return self._encoded("tiled", arguments)

    def cuTensorMapEncodeIm2col(self, *arguments: Any) -> Any:
        return self._encoded("im2col", arguments)

    def _encoded(self, mode: str, arguments: tuple[Any, ...]) -> Any:
        self.encoded.append((mode, arguments))
        return (self.results.pop(0), None) if self.results else (OK, FakeMap(arguments[2]))

    def cuLaunchKernelEx(self, config: Any, function: Any, table: int, extra: int) -> Any:
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        pointers = (ctypes.c_uint64 * self.parameters).from_address(table)
        words = tuple(ctypes.c_uint64.from_address(pointer).value for pointer in pointers)
        if self.results:
            return (self.results.pop(0),)
        shared, stream = config.sharedMemBytes, int(config.hStream)
        dependent = _attributes(config).get("dependent")
        allowed = dependent is not None and dependent.programmaticStreamSerializationAllowed == 1
        together = "cooperative" in _attributes(config) and _attributes(config)["cooperative"].cooperative == 1
        self.launches.append(Launched(grid, block, shared, stream, words, _cluster_of(config), allowed, together))
        return (OK,)


def _attributes(config: Any) -> dict[str, Any]:
    """The attributes of a launch's configuration by their names."""
    found = {attribute.id: attribute.value for attribute in (config.attrs if config.numAttrs else ())}
    assert len(found) == config.numAttrs
    assert found.keys() <= {"cluster", "dependent", "cooperative"}
    return found


def _cluster_of(config: Any) -> int:
    """The blocks of a cluster, of a launch's configuration."""
    cluster = _attributes(config).get("cluster")
    if cluster is None:
        return 1
    size = cluster.clusterDim
    assert (size.y, size.z) == (1, 1)
    return size.x


class FakeDtype:
    """Poses as `torch.dtype`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name}"


FakeDtype.__module__ = "torch"
float32, float16 = FakeDtype("float32"), FakeDtype("float16")


WARM = 3
"""Launches of one kernel until its launch function is made and its table filled; the next ones take the short way."""


class FakeTensor:
    """Poses as `torch.Tensor` on a CUDA device; contiguous unless it is told its strides (in elements)."""

    def __init__(
        self,
        pointer: int,
        dtype: FakeDtype = float32,
        device: int = 0,
        shape: tuple[int, ...] = (8,),
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.pointer = pointer
        self.dtype = dtype
        self.device = SimpleNamespace(type="cuda", index=device)
        self.shape = shape
        self.strides = contiguous(shape) if strides is None else strides

    def data_ptr(self) -> int:
        return self.pointer

    def get_device(self) -> int:
        return self.device.index

    def is_neg(self) -> bool:
        return False

    def stride(self) -> tuple[int, ...]:
        return self.strides


class FakeArray:
    """Poses as a CuPy array: `__cuda_array_interface__`, and a `device` with an `id`. Strides are in bytes."""

    def __init__(
        self,
        pointer: int,
        typestr: str = "<f4",
        device: int = 0,
        shape: tuple[int, ...] = (8,),
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.__cuda_array_interface__ = {
            "data": (pointer, False), "typestr": typestr, "shape": shape, "strides": strides, "version": 3,
        }  # fmt: skip
        self.device = SimpleNamespace(id=device)


class FakeJaxArray(FakeArray):
    """Poses as a JAX array on a GPU. Device `id` counts the devices of all processes."""

    def __init__(self, pointer: int, typestr: str = "<f4", device: int = 0, shape: tuple[int, ...] = (8,)) -> None:
        super().__init__(pointer, typestr, device, shape)
        self.device = SimpleNamespace(id=device + 8, local_hardware_id=device)
        self.sharding = SimpleNamespace(device_set={device})
        self.shape = self.aval = shape
        self.awaited = 0

    def is_deleted(self) -> bool:
        return False

    def block_until_ready(self) -> FakeJaxArray:
        self.awaited += 1
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.local_hardware_id


FakeJaxArray.__module__ = "jaxlib._jax"


@dataclass
class FakeCompiler:
    """Poses as `weft.compiler`: records requests and simulated launches."""

    requests: list[Any] = field(default_factory=list)
    simulated: list[Any] = field(default_factory=list)
    reads: tuple[Any, ...] = ()
    dynamic_shared: int = 0
    unused: tuple[str, ...] = ()
    workspace: int = 0
    waits: int = 0

    def compile_kernel(self, request: Any) -> CompiledKernel:
        self.requests.append(request)
        binary = Binary(
            b"machine code", n_regs=32, n_spills=0, dynamic_shared=self.dynamic_shared, unused=self.unused,
            workspace=self.workspace, waits=self.waits,
        )  # fmt: skip
        stages = {"ir": lambda: "func"}
        return CompiledKernel(request, name=request.fn.__name__, stages=stages, binary=lambda: binary, reads=self.reads)

    def simulate(self, compiled: CompiledKernel, grid: tuple[int, int, int], arguments: dict[str, Any]) -> str:
        self.simulated.append((compiled, grid, arguments))
        return f"report of {grid}"


def forget_devices() -> None:
    """Drop what the driver module remembers about GPUs."""
    for function in (driver.available, driver.device_count, driver.device):
        function.cache_clear()


def install_compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    """Put a fake in the place of `weft.compiler`."""
    fake = FakeCompiler()
    monkeypatch.setitem(sys.modules, "weft.compiler", fake)
    monkeypatch.setattr(weft, "compiler", fake, raising=False)
    return fake


def install_driver(monkeypatch: pytest.MonkeyPatch, devices: int = 1) -> FakeCuda:
    """Put a fake in the place of the CUDA driver, and of PyTorch; undo with `forget_devices`."""
    fake = FakeCuda(devices)
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    forget_devices()
    raw_stream = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 700 + device)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=FakeTensor, _C=raw_stream))
    return fake


def install_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every look for a driver fail, as on a machine without a GPU."""

    def missing() -> Any:
        raise fail(NO_DRIVER, reason="this machine has none")

    monkeypatch.setattr(driver, "bindings", missing)
    forget_devices()
