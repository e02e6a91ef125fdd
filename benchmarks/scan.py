"""Prefix sums of 2^28 float32 in one pass, beside a copy of the same bytes, CUB and PyTorch.

CUB is built by nvcc, which has to be on the path, from the headers that come with it. That takes longer than the benchmark, so
the library stays in the folder of temporary files.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line, warn
from weft.kernels import cumsum

TITLE = "Prefix sums of 2^28 float32"
NEEDS_GPU = True
NUMEL = 1 << 28
TOLERANCE = 1e-5
CUB = """
#include <cub/device/device_scan.cuh>
extern "C" int inclusive_sum(void* temporary, size_t* bytes, const float* x, float* out, int n, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(temporary, *bytes, x, out, n, stream);
}
"""


def run(quick: bool) -> list[Line]:
    """All in one interleaved run; each reads 1 GiB and writes 1 GiB."""
    import torch

    x = torch.randn(NUMEL, device="cuda")
    out = torch.empty_like(x)
    want = torch.cumsum(x, 0, dtype=torch.float64)
    jobs: dict[str, Callable[[], Any]] = {
        "weft": partial(cumsum, x, out=out),
        "torch": lambda: torch.cumsum(x, 0, out=out),
    }
    scan = _cub(x, out)
    if scan is not None:
        jobs["cub"] = scan
    variants = [
        harness.Variant(
            name, job, lambda: out.fill_(float("nan")), lambda: harness.relative_error(out, want) < TOLERANCE
        )
        for name, job in jobs.items()
    ]
    variants.append(harness.Variant("copy", lambda: out.copy_(x), out.zero_, lambda: torch.equal(out, x)))
    times = harness.measure(variants, harness.CudaClock(), 8 if quick else 30)
    found = {name: harness.terabytes_per_second(8 * NUMEL, ms) for name, ms in times.items()}
    goals = (Goal(0.90, "copy"), Goal(1.0, "cub"))
    return [Line("cumsum", found.pop("weft", None), "TB/s", found, goals)]


def _cub(x: Any, out: Any) -> Callable[[], Any] | None:
    """CUB's inclusive sum of `x` into `out`; None without nvcc."""
    import torch

    if shutil.which("nvcc") is None:
        warn("cub: left out, it needs nvcc")
        return None
    function = ctypes.CDLL(str(_library())).inclusive_sum
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, pointer, pointer, pointer, ctypes.c_int, pointer]
    size = ctypes.c_size_t()

    def call(memory: int | None) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        status = function(memory, ctypes.byref(size), x.data_ptr(), out.data_ptr(), x.numel(), stream)
        if status:
            raise RuntimeError(f"CUB returned CUDA error {status}")

    call(None)
    temporary = torch.empty(size.value, dtype=torch.uint8, device="cuda")
    return lambda: call(temporary.data_ptr())


def _library() -> Path:
    """The library with CUB's inclusive sum for this GPU, built unless it is there."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    library = Path(tempfile.gettempdir()) / f"weft-cub-{md5(CUB.encode()).hexdigest()}-sm_{major}{minor}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            source, built = Path(folder) / "scan.cu", Path(folder) / "scan.so"
            source.write_text(CUB, encoding="utf-8")
            options = ["-O3", "-std=c++17", f"-arch=sm_{major}{minor}", "-Xcompiler", "-fPIC", "-shared"]
            subprocess.run(["nvcc", *options, str(source), "-o", str(built)], check=True)
            built.replace(library)
    return library
