"""Arrays that library kernels allocate: outputs and partial results. They belong to the caller's framework."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.forms import of_jax
from weft.runtime import driver
from weft.runtime.arguments import array, host_buffer
from weft.runtime.dtypes import ITEMSIZE, numpy_dtype


def empty_like(value: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A new array of the framework and on the device of `value`. Raises LaunchError (kernels-out-needed)."""
    kind: type = value.__class__
    module, own = _own(kind, dtype)
    if module is None:
        return value.new_empty(shape, dtype=own)
    if own is not None:
        return module.empty(shape, own) if module.__name__ != "jax" else _empty_of_jax(module, value, shape, own)
    raise fail(errors.OUT_NEEDED, got=f"a {kind.__name__} of {module}", shape=list(shape))


@lru_cache(maxsize=256)
def _own(kind: type, dtype: str) -> tuple[Any, Any]:
    """For arrays of a class, the framework's module (None for PyTorch, whose arrays make new ones) and its dtype; for arrays of
    other frameworks that one's name, and None."""
    framework = kind.__module__.partition(".")[0]
    if framework == "jaxlib":  # The classes of JAX's arrays are in its library of C++.
        framework = "jax"
    module: Any = sys.modules.get(framework)
    if framework == "torch":
        return None, getattr(module, dtype)
    return (module, numpy_dtype(dtype)) if framework in ("numpy", "cupy", "jax") else (framework, None)


def _empty_of_jax(jax: Any, like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A JAX array in memory of its own, on the device of `like`, and committed to it if that is. JAX has finished with it.

    The result of a computation has a buffer of its own, whereas `device_put` may take that of its argument. Without
    `jax_enable_x64` JAX would make an int32 array, of half the bytes, where int64 is asked for."""
    device = like.device
    make = _maker_of_jax(shape, dtype, device if like.committed else None)
    with _64_bits(jax) if dtype.itemsize == 8 else nullcontext(), jax.default_device(device):
        return make().block_until_ready()


def _64_bits(jax: Any) -> Any:
    """A context in which JAX makes arrays of 64-bit elements. Before JAX 0.8 it was experimental."""
    known = jax if hasattr(jax, "enable_x64") else import_module("jax.experimental")
    return known.enable_x64(True)


@lru_cache(maxsize=1024)
def _maker_of_jax(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A compiled function that makes arrays, on a device that they are committed to, or None.

    `jax.numpy.empty` on its own dispatches piece by piece: it took 435 us with a device, this function 13 us (JAX 0.10.2 on two
    cores of a CPU)."""
    jax: Any = sys.modules["jax"]
    place = None if device is None else jax.sharding.SingleDeviceSharding(device)
    return jax.jit(lambda: jax.numpy.empty(shape, dtype), out_shardings=place)


def joined_columns(parts: tuple[Any, ...]) -> Any:
    """JAX arrays side by side, along their last axis: a new array."""
    jax: Any = sys.modules["jax"]
    return jax.numpy.concatenate(parts, axis=-1)


def fill_zero(value: Any) -> None:
    """Set every element to zero."""
    if hasattr(value, "zero_"):
        value.zero_()
    else:
        fill(value, 0)


class _Words:
    """int32 zeros in a GPU's memory, outside the pools of PyTorch's allocator and for the life of the process.

    PyTorch takes what it allocates while it prepares a CUDA graph for memory of that graph, rejects graphs that leave some of
    it to later calls, and gives what a graph has allocated to others. A stream of its own, and the relaxed mode, let this
    happen while other streams are captured."""

    def __init__(self, count: int, ordinal: int) -> None:
        cuda = driver.bindings()
        with driver.current_context(driver.device(ordinal)):
            before = driver.call(
                "cuThreadExchangeStreamCaptureMode", cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            )
            try:
                address = int(driver.call("cuMemAlloc", 4 * count))
                stream = driver.call("cuStreamCreate", int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
                driver.call("cuMemsetD32Async", address, 0, count, stream)
                driver.call("cuStreamSynchronize", stream)
                driver.call("cuStreamDestroy", stream)
            finally:
                driver.call("cuThreadExchangeStreamCaptureMode", before)
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<i4", "data": (address, False), "version": 3}


LEAST_KEPT = 1024
_zeros: dict[tuple[int, int, int], Any] = {}
"""PyTorch's arrays of zeros that launches leave zero, by device, stream and capture."""


def zeros_kept(value: Any, count: int, stream: Any, dtype: str = "int32") -> Any:
    """At least `count` zeros for a launch on `stream` that leaves them zero, on the device of `value`: int32 or int64.

    Launches on a stream follow one another, so all of them get the same array. A CUDA graph may be replayed beside launches and
    other graphs, but not beside itself, so the launches that are captured on a stream get an array of this capture's."""
    if not getattr(value, "is_cuda", False):
        made = empty_like(value, (count,), dtype)
        fill_zero(made)
        return made
    torch: Any = sys.modules["torch"]
    cuda = torch.cuda
    on = cuda.current_stream(value.device).cuda_stream
    if stream is not None:
        on = stream.cuda_stream if isinstance(stream, cuda.Stream) else int(stream)
    capture = _capture_of(on) if stream is not None or cuda.is_current_stream_capturing() else 0
    key, words = (value.get_device(), on, capture), count * ITEMSIZE[dtype] // ITEMSIZE["int32"]
    found = _zeros.get(key)
    if found is None or found.shape[0] < words:
        found = torch.as_tensor(_Words(max(1 << (words - 1).bit_length(), LEAST_KEPT), key[0]), device=value.device)
        _zeros[key] = found
    return found if dtype == "int32" else found.view(getattr(torch, dtype))


def _capture_of(stream: int) -> int:
    """The number of the capture of a stream into a CUDA graph, which no other capture of the process has; 0 for none."""
    cuda = driver.bindings()
    status, state, number, *_ = cuda.cuStreamGetCaptureInfo(cuda.CUstream(stream))
    active = int(status) == 0 and state == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    return int(number) if active else 0


def fill(value: Any, number: float) -> None:
    """Set every element to a number."""
    if hasattr(value, "fill_"):
        value.fill_(number)
    elif of_jax(value):
        _fill_of_jax(value, number)
    else:
        value[...] = number


def _fill_of_jax(value: Any, number: float) -> None:
    """The same for a JAX array, which has no method that writes to its memory; on a GPU for elements of up to 32 bits, or 0."""
    found = array(value)
    assert found is not None
    if found.on_host:
        host_buffer(value).elements()[...] = number
        return
    count, element = prod(value.shape), numpy_dtype(found.dtype).type(number).tobytes()
    if not count:
        return
    if not any(element):
        count, element = count * len(element), element[:1]
    cuda, bits = driver.bindings(), 8 * len(element)
    with driver.current_context(driver.device(found.device)):
        stream = cuda.CUstream(0)
        driver.call(f"cuMemsetD{bits}Async", found.pointer, int.from_bytes(element, "little"), count, stream)
        driver.call("cuStreamSynchronize", stream)


def used_on(value: Any, stream: Any) -> None:
    """Keep the memory of a temporary array until `stream` has finished with it, if it is not the current stream.

    PyTorch's caching allocator reuses memory in the order of the current stream and must be told of another one. Launches with
    arrays of NumPy and JAX return when they have ended, and CuPy frees in the order of its current stream, which `stream` has
    to be."""
    if stream is None or not hasattr(value, "record_stream") or not value.is_cuda:
        return
    cuda: Any = sys.modules["torch"].cuda
    value.record_stream(stream if isinstance(stream, cuda.Stream) else cuda.ExternalStream(int(stream)))
