"""Compilation of CUDA C++ to a cubin by NVRTC. Needs no GPU and no driver.

The binding is `cuda.bindings.nvrtc`: it loads in a third of the time of cuda-core's compiler classes, returns PTX and cubin
from one compilation, and does not initialise the driver. The library itself is loaded at the first compilation.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from weft.errors import DeviceError, Loc, UserError, fail
from weft.errors.launch import NO_NVRTC, NVRTC_ARCHITECTURE, NVRTC_REJECTED, TOO_MUCH_SHARED
from weft.loading import uninterrupted
from weft.runtime.shield import shielded

if TYPE_CHECKING:
    from types import ModuleType

_DISTRIBUTIONS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SERIALISED = re.compile(r"(\((C75\d\d)\) Potential Performance Loss: .*)")
_SHARED = re.compile(r"(\d+) bytes smem")
_TOO_MUCH_SHARED = re.compile(r"uses too much shared data \((.*)\)")
_ERROR_PLACE = re.compile(r"^(.+?)\((\d+)\): (?:catastrophic )?error", re.MULTILINE)

_PTXAS_PLACE = re.compile(r"ptxas .*?, line (\d+); (?:error|fatal)")
_PTX_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CompiledCuda:
    """One compilation. Sizes are per thread (`n_spills`, `stack`) or per block (`shared`), in bytes.

    `n_spills` is the sum of spill stores and loads; `shared` is static shared memory; `log` is the output of ptxas and NVRTC.
    """

    cubin: bytes
    ptx: str
    log: str
    n_regs: int
    n_spills: int
    shared: int
    stack: int


def compile_cuda(
    source: str, *, name: str, arch: str, debug: bool = False, relocatable: bool = False
) -> CompiledCuda:  # fmt: skip
    """Compile the CUDA C++ `source` of the kernel `name` for `arch` (as in `sm_90a`); a `relocatable` one has still to be
    linked (`weft.runtime.nvshmem`).

    Floating-point contraction is off (`--fmad=false`): a pass of weft forms FMAs, so that the simulator agrees bit by bit.
    `debug` keeps variables for cuda-gdb and turns optimisation off. A register limit is part of the text (`__maxnreg__`).

    Raises CompilationError (nvrtc-rejected) with NVRTC's log, at the Python line that `#line` gives, if any;
    OutOfResources (compile-shared-memory); DeviceError (device-no-nvrtc, nvrtc-architecture).
    """
    nvrtc = _library()
    options = _options(arch, debug) + [b"--relocatable-device-code=true"] * relocatable
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status) != 0:
            raise _rejected(nvrtc, name, arch, log or str(status), lambda: _ptx_of(nvrtc, source, name, arch))
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return CompiledCuda(cubin, ptx, log, *_resources(log))


def compile_library(
    source: str, *, name: str, arch: str, options: Sequence[str], headers: Mapping[str, str]
) -> tuple[bytes | None, str]:  # fmt: skip
    """Compile functions to be linked with kernels, with `headers` by the names under which they are included. Returns machine
    code, or None if NVRTC refuses the text, and NVRTC's log. Raises DeviceError (device-no-nvrtc)."""
    nvrtc = _library()
    texts, names = ([each.encode() for each in part] for part in (headers.values(), headers))
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), len(headers), texts, names))
    try:
        given = [option.encode() for option in (f"-arch={arch}", "-std=c++17", *options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status) != 0:
            return None, log or str(status)
        return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def version() -> str:
    """Version of the installed NVRTC, for cache keys; "none" without one. Taken from package metadata if there is any, since
    loading the library takes longer."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return _library_version(_library()) if available() else "none"


def _options(arch: str, debug: bool) -> list[bytes]:
    # `--no-cache`: a hit in NVRTC's own cache returns no ptxas log, so register count and spills would be unknown; weft has its
    # own cache. `--minimal` leaves out the declarations of the device runtime, which kernels do not use: NVRTC starts 4 ms
    # sooner and emits the same code. `-lineinfo` keeps `#line` in the cubin for profilers.
    options = [f"-arch={arch}", "-std=c++17", "--fmad=false", "--ptxas-options=-v", "--no-cache", "--minimal"]
    options += ["--device-debug"] if debug else ["-lineinfo"]
    return [option.encode() for option in options]


@cache
def _library() -> ModuleType:
    try:
        with uninterrupted():
            from cuda.bindings import nvrtc

            # The first call loads the libraries, by Python: interrupted, it leaves NVRTC without its built-ins for good.
            nvrtc.nvrtcVersion()
        shielded(lambda: _compile_nothing(nvrtc))
    except (ImportError, OSError, RuntimeError) as error:
        raise fail(NO_NVRTC, reason=_first_line(error)) from error
    return nvrtc


def _compile_nothing(nvrtc: ModuleType) -> None:
    """The first compilation of a process, which replaces handlers of signals, in the shortest way.

    It takes 6 ms, of which the next one saves 3."""
    _, program = nvrtc.nvrtcCreateProgram(b"#error", b"nothing", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--minimal"])
    nvrtc.nvrtcDestroyProgram(program)


def _library_version(nvrtc: ModuleType) -> str:
    _, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _value(result: tuple[Any, ...]) -> Any:
    """The value of a call that fails only if NVRTC itself is broken."""
    status, *values = result
    if int(status) != 0:
        raise fail(NO_NVRTC, reason=f"it answered {status!s}")
    return values[0]


def _bytes(size: Any, read: Any, program: Any) -> bytes:
    """The contents that NVRTC writes into a buffer of the size that it returns."""
    count: int = _value(size(program))
    if count <= 1:
        # An empty text. CPython shares byte strings of length one, so NVRTC must not write into one.
        return b""
    buffer = bytes(count)
    read(program, buffer)
    return buffer


def _text(size: Any, read: Any, program: Any) -> str:
    return _bytes(size, read, program).rstrip(b"\0 ").decode(errors="replace")


def serialised(log: str) -> list[str]:
    """What ptxas says of wgmmas that it serialises, each code once.

    >>> serialised("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x")
    ['(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x']
    """
    return list({code: text for text, code in _SERIALISED.findall(log)}.values())


def _ptx_of(nvrtc: ModuleType, source: str, name: str, arch: str) -> str:
    """The PTX that ptxas rejected: from compiling the same text for `compute_*`, which stops before ptxas."""
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        options = _options(arch.replace("sm_", "compute_"), debug=False)
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program) if int(status) == 0 else ""
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def python_line(ptx: str, number: int) -> Loc | None:
    """The Python line of a line of PTX: from the last `.loc` before it, whose file number `.file` resolves."""
    before = ptx.splitlines()[:number]
    found = next((match for line in reversed(before) if (match := _PTX_LOC.match(line))), None)
    files = {match[1]: match[2] for match in _PTX_FILE.finditer(ptx)}
    file = files.get(found[1], "") if found else ""
    return Loc(file, int(found[2])) if found and file.endswith(".py") else None


def _rejected(nvrtc: ModuleType, name: str, arch: str, log: str, ptx: Callable[[], str]) -> UserError:
    """The error of a failed compilation, at a Python line if the log names one. ptxas names lines of the PTX instead."""
    if "invalid value for --gpu-architecture" in log:
        return fail(NVRTC_ARCHITECTURE, version=_library_version(nvrtc), arch=arch)
    if match := _TOO_MUCH_SHARED.search(log):
        return fail(TOO_MUCH_SHARED, name=name, detail=match[1])
    place = _ERROR_PLACE.search(log)
    loc = Loc(place[1], int(place[2])) if place and place[1].endswith(".py") else None
    if loc is None and (line := _PTXAS_PLACE.search(log)):
        loc = python_line(ptx(), int(line[1]))
    return fail(NVRTC_REJECTED, loc=loc, name=name, arch=arch, log=log)


def _resources(log: str) -> tuple[int, int, int, int]:
    """Registers, spilled bytes, static shared bytes and stack bytes, parsed from the log of `ptxas -v`."""
    registers = max((int(count) for count in _REGISTERS.findall(log)), default=0)
    stacks = [tuple(map(int, sizes)) for sizes in _STACK.findall(log)]
    spills = sum(stores + loads for _, stores, loads in stacks)
    shared = sum(int(size) for size in _SHARED.findall(log))
    return registers, spills, shared, max((stack for stack, _, _ in stacks), default=0)


def available() -> bool:
    """True when NVRTC can be loaded."""
    try:
        _library()
    except DeviceError:
        return False
    return True
