"""NVSHMEM's device functions for kernels that put data to other ranks: compiled and linked when such a kernel is loaded.

Kernels call the four functions of `SHIM`, which is CUDA C++ against the headers of the installed wheel (`nvidia-nvshmem-cu13`).
NVRTC compiles it once for each version and architecture. nvJitLink links kernel, shim and the wheel's `libnvshmem_device.a`;
the disk cache keeps both results. The kernel itself is compiled without NVSHMEM, so its cubin is the same with any version.

A module that calls NVSHMEM has a copy of the library's state in constant memory, which `nvshmemx_cumodule_init` fills. That is
a function of the host library that PyTorch has loaded and initialised with its first symmetric tensor: another copy of the
library would know nothing of these tensors. Library and headers must be of one version.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.errors import fail
from weft.errors.launch import NO_NVSHMEM, NVSHMEM_INIT, NVSHMEM_LINK, NVSHMEM_VERSION
from weft.runtime import cache as caches
from weft.runtime import driver, nvrtc
from weft.runtime.entry import Entry
from weft.runtime.files import UnusableFile
from weft.runtime.function_text import digest

PACKAGE = "nvidia-nvshmem-cu13"

# A put to memory that this GPU reaches is a copy by all threads: `nvshmem_putmem_nbi` would copy with the calling thread alone,
# and `nvshmemx_putmem_nbi_block` has barriers of the whole block in it, which a partition must not enter. Any other put is one
# request of one thread. So are puts of less than 64 bytes. Fence and quiet cover the puts of all threads of the PE
# (`nvshmemi_proxy_quiet`, `nvshmemi_ibgda_quiet` in the headers of 3.4.5).
SHIM = """\
#include <device/nvshmem_defines.h>

typedef unsigned long long u64;

template <typename T>
__device__ void copy_part(char *to, const char *from, u64 bytes, int thread, int threads) {
  constexpr int AHEAD = 8;
  const T *source = (const T *)from;
  T *target = (T *)to;
  const u64 n = bytes / sizeof(T), step = threads;
  u64 i = thread;
  for (; i + (AHEAD - 1) * step < n; i += AHEAD * step) {
    T parts[AHEAD];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) parts[j] = source[i + j * step];
#pragma unroll
    for (int j = 0; j < AHEAD; ++j) target[i + j * step] = parts[j];
  }
  for (; i < n; i += step) target[i] = source[i];
}

extern "C" __device__ void weft_nvshmem_put(void *to, const void *from, u64 bytes, int pe, int thread, int threads) {
  char *peer = (char *)nvshmem_ptr(to, pe);
  const char *source = (const char *)from;
  if (!peer || bytes < 64) {
    if (thread == 0 && bytes) nvshmem_putmem_nbi(to, from, bytes, pe);
    return;
  }
  const u64 all = (u64)peer | (u64)source | bytes;
  if (all % 16 == 0) copy_part<uint4>(peer, source, bytes, thread, threads);
  else if (all % 4 == 0) copy_part<unsigned int>(peer, source, bytes, thread, threads);
  else copy_part<char>(peer, source, bytes, thread, threads);
}

extern "C" __device__ void weft_nvshmem_quiet() { nvshmem_quiet(); }

extern "C" __device__ void weft_nvshmem_signal(int *at, int count, int pe) {
  nvshmem_fence();
  nvshmem_int_atomic_add(at, count, pe);
}

extern "C" __device__ void weft_nvshmem_acquire() { nvshmemi_transfer_syncapi_update_mem(); }
"""

# The part of libcu++ that the headers of 3.4 use; newer ones need libcu++ itself (`nvidia-cuda-cccl`).
_LIMITS = """\
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 18446744073709551615ul
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-LLONG_MAX - 1)
#define ULLONG_MAX 18446744073709551615ull
"""
_INTEGERS = """\
#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t; typedef long intptr_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long uint64_t; typedef unsigned long uintptr_t;
"""
_TRAITS = """\
#pragma once
namespace cuda { namespace std {
struct false_type { static constexpr bool value = false; };
struct true_type { static constexpr bool value = true; };
template <typename T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};
} }
"""
_LIBCUDACXX = {
    "cuda/std/cstdint": _INTEGERS, "cuda/std/climits": f"#pragma once\n{_LIMITS}", "cuda/std/type_traits": _TRAITS,
    "cuda/std/cstddef": "", "cuda/std/cstdlib": "", "cuda/std/cassert": "",
}  # fmt: skip

_REGISTERS = 64
"""Of a function of the shim; a kernel has as many as the functions that it calls, and 1,024 threads leave 64 for each."""
_VERSION = re.compile(r"#define\s+NVSHMEM_VENDOR_(MAJOR|MINOR|PATCH)_VERSION\s+(\d+)")
_INITIALISED = 2
"""`NVSHMEM_STATUS_IS_INITIALIZED`; higher ones are initialised, too."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The wheel's folder, its version, and the folders of headers."""

    root: Path
    version: tuple[int, int, int]
    include: tuple[Path, ...]
    has_libcudacxx: bool

    @property
    def device_library(self) -> Path:
        """The library of device functions."""
        return self.root / "lib" / "libnvshmem_device.a"

    @property
    def host_library(self) -> str:
        """The file name of the host library, as PyTorch loads it."""
        return next(
            (path.name for path in sorted((self.root / "lib").glob("libnvshmem_host.so*"))), "libnvshmem_host.so.3"
        )


def linked(cubin: bytes, name: str, arch: str) -> bytes:
    """The machine code of a kernel together with the functions of NVSHMEM that it calls; from the disk cache if it is there.

    Raises DeviceError: device-no-nvshmem, nvshmem-link."""
    found = installed()
    key = digest("nvshmem", *_key(found, arch), hashlib.sha256(cubin).hexdigest())
    return _kept(key, lambda: _link(found, name, arch, {"kernel": cubin, "shim": _shim(found, arch)}))


def initialise(loaded: driver.Loaded, name: str) -> None:
    """Give a loaded kernel the state of NVSHMEM. Raises DeviceError: nvshmem-init, nvshmem-version."""
    found = installed()
    try:
        # RTLD_NOLOAD: only the copy that PyTorch has loaded has been initialised.
        host: Any = ctypes.CDLL(found.host_library, mode=os.RTLD_NOLOAD)
    except OSError as error:
        raise fail(NVSHMEM_INIT, name=name, reason=f"this process has not loaded {found.host_library}") from error
    numbers = [ctypes.c_int() for _ in range(3)]
    host.nvshmemx_vendor_get_version_info(*map(ctypes.byref, numbers))
    if (running := tuple(number.value for number in numbers)) != found.version:
        raise fail(NVSHMEM_VERSION, name=name, installed=_dotted(found.version), running=_dotted(running))
    if (status := int(host.nvshmemx_init_status())) < _INITIALISED:
        raise fail(NVSHMEM_INIT, name=name, reason=f"nvshmemx_init_status() is {status}, not initialised")
    with driver.current_context(loaded.device):
        status = int(host.nvshmemx_cumodule_init(ctypes.c_void_p(int(loaded.module))))
    if status:
        raise fail(NVSHMEM_INIT, name=name, reason=f"nvshmemx_cumodule_init() answered {status}")


@cache
def installed() -> Installed:
    """The installed wheel. Raises DeviceError (device-no-nvshmem)."""
    spec = importlib.util.find_spec("nvidia")
    bases = [Path(base) for base in (spec and spec.submodule_search_locations) or ()]
    root = next((base / "nvshmem" for base in bases if (base / "nvshmem/include/nvshmem.h").is_file()), None)
    if root is None:
        raise fail(NO_NVSHMEM, reason=f"{PACKAGE} is not installed")
    if not (root / "lib" / "libnvshmem_device.a").is_file():
        raise fail(NO_NVSHMEM, reason=f"{root} has no lib/libnvshmem_device.a")
    text = (root / "include/non_abi/nvshmem_version.h").read_text()
    parts = {part: int(number) for part, number in _VERSION.findall(text)}
    headers = [base / "cu13/include" for base in bases]
    runtime = [path for path in headers if (path / "cuda_runtime.h").is_file()]
    if not runtime:
        raise fail(NO_NVSHMEM, reason="the headers of the CUDA runtime (nvidia-cuda-runtime) are not installed")
    libcudacxx = [path / "cccl" for path in headers if (path / "cccl/cuda/std/cstdint").is_file()]
    include = (root / "include", *runtime[:1], *libcudacxx[:1])
    return Installed(root, (parts["MAJOR"], parts["MINOR"], parts["PATCH"]), include, bool(libcudacxx))


def _key(found: Installed, arch: str) -> tuple[str, ...]:
    """What machine code of the shim depends on."""
    return SHIM, str(_LIBCUDACXX), _dotted(found.version), str(found.has_libcudacxx), arch, nvrtc.version()


def _shim(found: Installed, arch: str) -> bytes:
    """The shim's machine code."""
    options = (
        # Without `-default-device` the headers have host functions in them; without NDEBUG, assertions that print.
        "--relocatable-device-code=true", "-default-device", "-DNDEBUG", f"-maxrregcount={_REGISTERS}",
        *(f"-I{path}" for path in found.include),
    )  # fmt: skip
    headers = {} if found.has_libcudacxx else _LIBCUDACXX

    def compiled() -> bytes:
        cubin, log = nvrtc.compile_library(SHIM, name="weft_nvshmem", arch=arch, options=options, headers=headers)
        if cubin is None:
            raise fail(NVSHMEM_LINK, name="the shim", version=_dotted(found.version), arch=arch, log=log)
        return cubin

    return _kept(digest("nvshmem shim", *_key(found, arch)), compiled)


def _link(found: Installed, name: str, arch: str, cubins: dict[str, bytes]) -> bytes:
    try:
        from cuda.bindings import nvjitlink

        linker = nvjitlink.create(1, [f"-arch={arch}"])
    except (ImportError, OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise fail(NO_NVSHMEM, reason=f"nvJitLink (nvidia-nvjitlink) cannot be loaded: {reason}") from error
    try:
        for called, cubin in cubins.items():
            nvjitlink.add_data(linker, nvjitlink.InputType.CUBIN, cubin, len(cubin), called)
        nvjitlink.add_file(linker, nvjitlink.InputType.LIBRARY, str(found.device_library))
        nvjitlink.complete(linker)
        made = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, made)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(linker))
        nvjitlink.get_error_log(linker, log)
        text = f"{error}\n{log.decode(errors='replace').rstrip(chr(0))}"
        raise fail(NVSHMEM_LINK, name=name, version=_dotted(found.version), arch=arch, log=text) from error
    finally:
        nvjitlink.destroy(linker)
    return bytes(made)


def _kept(key: str, make: Any) -> bytes:
    """Machine code from the disk cache, or made and stored there."""
    store = caches.default()
    found = None if store is None else store.get(key, _code)
    if found is not None:
        return found
    made: bytes = make()
    if store is not None:
        store.put(key, Entry({}, {"code": made}))
    return made


def _code(entry: Entry) -> bytes:
    if set(entry.parts) != {"code"}:
        raise UnusableFile("it holds no machine code")
    return entry.parts["code"]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
