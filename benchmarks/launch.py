"""Host time of a launch with five arguments, of its parts, of a launch with three descriptors, and of calls of `matmul`."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from benchmarks import harness
from benchmarks.copies import compilers
from benchmarks.report import Goal, Line

TITLE = "Host time per launch"
NEEDS_GPU = True
BATCH = 300
"""Launches between two synchronisations: fewer than the driver's queue holds, so that no launch waits for the GPU."""
NUMEL = 128
TILE = [32, 64]
DESCRIPTORS = ", descriptors"
ORDER = 256
"""Rows and columns of the operands of products."""
MOST_OF_PRODUCT, GOALS = 10.0, ("matmul(a, b, out=c)",)
"""Microseconds of host time, and the calls that have them as a goal."""


def run(quick: bool) -> list[Line]:
    """A copy of 128 elements and the sum of two tiles, one program each: the host time is measured."""
    import torch

    torch.cuda.init()
    modules = compilers("copy_1d")
    src = torch.randn(NUMEL, device="cuda")
    dst = torch.empty_like(src)
    jobs: dict[str, Callable[[], Any]] = {who: whole_launch(module, src, dst) for who, module in modules.items()}
    jobs["torch"] = lambda: torch.add(src, 1.0, out=dst)
    jobs |= parts(modules["weft"], src, dst)
    matrices = [torch.randn(TILE, device="cuda") for _ in range(3)]
    for who, module in compilers("add_tma").items():
        jobs[who + DESCRIPTORS] = descriptor_launch(module, *matrices)
    calls = products()
    jobs |= {f"{what}, {who}": job for what, these in calls.items() for who, job in these.items()}
    found = times(jobs, 10 if quick else 60, torch.cuda.synchronize)
    return [
        Line(
            "launch, five arguments",
            found.pop("weft"),
            "us",
            {who: found.pop(who) for who in ("gluon", "torch") if who in found},
            (Goal(5.5, ceiling=True),),
            "torch: torch.add, three arguments",
        ),
        Line(
            "launch, three descriptors",
            found.pop("weft" + DESCRIPTORS),
            "us",
            {"gluon": found.pop("gluon" + DESCRIPTORS)} if "gluon" + DESCRIPTORS in found else {},
            (Goal(8.0, ceiling=True),),
            "descriptors built at each launch, one further argument, five constants",
        ),
        *(
            Line(
                what,
                found.pop(f"{what}, weft"),
                "us",
                {"torch": found.pop(f"{what}, torch")},
                (Goal(MOST_OF_PRODUCT, ceiling=True),) if what in GOALS else (),
                f"{ORDER} x {ORDER} x {ORDER}",
            )
            for what in calls
        ),
        *(Line(f"part: {name}", value, "us") for name, value in found.items()),
    ]


def whole_launch(module: Any, src: Any, dst: Any) -> Callable[[], Any]:
    """A launch as a user writes it: two tensors, a length, a block size, a layout."""
    kernel, layout = module.copy_1d, module.gl.BlockedLayout([1], [32], [4], [0])
    return lambda: kernel[(1,)](src, dst, NUMEL, NUMEL, layout, num_warps=4)


def descriptor_launch(module: Any, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """A launch as a user writes it, including the descriptors of three matrices."""
    kernel, describe = module.add_bands, module.TensorDescriptor.from_tensor
    smem = module.gl.NVMMASharedLayout.get_default_for(TILE, module.gl.float32)
    layout = module.gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    rows, cols = TILE
    return lambda: kernel[(1,)](
        describe(a, TILE, smem), describe(b, TILE, smem), describe(c, TILE, smem),
        cols, rows, cols, 1, 1, layout, num_warps=4,
    )  # fmt: skip


def products() -> dict[str, dict[str, Callable[[], Any]]]:
    """Calls of `weft.kernels.matmul` and of PyTorch's functions, of bfloat16."""
    import torch

    from weft.kernels import matmul

    a, b, c = (torch.randn((ORDER, ORDER), device="cuda").to(torch.bfloat16) for _ in range(3))
    bias = a[0].clone()
    return {
        "matmul(a, b, out=c)": {"weft": lambda: matmul(a, b, out=c), "torch": lambda: torch.mm(a, b, out=c)},
        "matmul(a, b)": {"weft": lambda: matmul(a, b), "torch": lambda: torch.mm(a, b)},
        "matmul(a, b, out=c, bias=bias)": {
            "weft": lambda: matmul(a, b, out=c, bias=bias),
            "torch": lambda: torch.addmm(bias, a, b, out=c),
        },
    }


def parts(module: Any, src: Any, dst: Any) -> dict[str, Callable[[], Any]]:
    """`kernel[grid]`, the launch after it, and the driver call alone with arguments packed once."""
    from cuda.bindings import driver as cuda

    from weft.runtime.launch import packing

    layout = module.gl.BlockedLayout([1], [32], [4], [0])
    bound = module.copy_1d[(1,)]
    compiled = bound(src, dst, NUMEL, NUMEL, layout, num_warps=4)
    kinds = tuple(compiled.request.run_time.values())
    layout_of_slots = packing(kinds)
    buffer, table = layout_of_slots.frame()
    layout_of_slots.format.pack_into(buffer, 0, src.data_ptr(), dst.data_ptr(), NUMEL)
    function, stream = compiled.on_device(src.get_device()).function, cuda.CUstream(0)

    def driver_call(keep: Any = buffer) -> Any:
        return cuda.cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, stream, table, 0)

    return {
        "kernel[grid]": lambda: module.copy_1d[(1,)],
        "launch without kernel[grid]": lambda: bound(src, dst, NUMEL, NUMEL, layout, num_warps=4),
        "cuLaunchKernel, arguments packed": driver_call,
    }


def times(jobs: dict[str, Callable[[], Any]], rounds: int, synchronize: Callable[[], Any]) -> dict[str, float]:
    """Median microseconds per call of each job, in interleaved batches."""
    for job in jobs.values():
        batch(job, synchronize)
    found: dict[str, list[float]] = {name: [] for name in jobs}
    # Collect the reference cycles of one job before the next, so that garbage collection is not timed with it.
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds):
            for name in harness.shuffled(list(jobs), number):
                found[name].append(batch(jobs[name], synchronize))
    finally:
        gc.unfreeze()
        gc.enable()
    return {name: statistics.median(values) for name, values in found.items()}


def batch(job: Callable[[], Any], synchronize: Callable[[], Any]) -> float:
    """Microseconds per call over one batch of calls into an empty queue."""
    gc.collect()
    synchronize()
    start = perf_counter_ns()
    for _ in range(BATCH):
        job()
    elapsed = perf_counter_ns() - start
    synchronize()
    return elapsed / BATCH / 1e3
