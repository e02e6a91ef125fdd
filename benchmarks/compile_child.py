"""One process of `compile.py`: calls kernels for the first time and prints their milliseconds as a line of JSON.

    python benchmarks/compile_child.py weft|gluon

The CUDA context and both inputs exist before the clock starts; reading the example's module is not timed either. With weft
each call is split into NVRTC, loading, and the rest: reading, passes, printing, cache and the launch itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from benchmarks import twin

SIDE = 1024


def main(who: str) -> None:
    """Time a first kernel and four later ones, all of them copies, and then a persistent matmul."""
    src = torch.randn((SIDE, SIDE), device="cuda")
    dst = torch.empty_like(src)
    turned = torch.empty_like(src).T
    torch.cuda.synchronize()
    load = twin.load if who == "weft" else twin.load_gluon
    one, two, opposite = load("copy_1d"), load("copy_2d"), load("copy_opposite")
    parts = watch() if who == "weft" else {}
    numel = src.numel()
    calls: list[Callable[[], Any]] = [
        lambda: one.run(src, dst, numel, 2048, 4),
        lambda: one.run(src, dst, numel, 1024, 1),
        lambda: two.run(src, dst, two.along_rows(), 1, 1024),
        lambda: two.run(src.T, turned, two.along_columns(), 1024, 1),
        lambda: opposite.run(src, turned, opposite.layout_for(src), opposite.layout_for(turned)),
    ]
    measured = [timed(call, parts) for call in calls]
    product = [timed(product_of(load("matmul_ladder")), parts)]
    print(json.dumps({"first": measured[:1], "later": measured[1:], "product": product}))


def product_of(module: Any) -> Callable[[], Any]:
    """The persistent matmul, tiles of 128x256 with 8 warps."""
    A, B = (torch.randn((SIDE, SIDE), device="cuda").to(torch.float16) for _ in range(2))
    C = torch.empty_like(A)
    return lambda: module.persistent_matmul(A, B, C, 128, 256, 64, 3, 8, module.PersistentTileScheduler)


def timed(call: Callable[[], Any], parts: dict[str, float]) -> dict[str, Any]:
    """Milliseconds of a call until its result is complete, and of its parts."""
    parts.update(dict.fromkeys(parts, 0.0))
    start = perf_counter()
    call()
    torch.cuda.synchronize()
    whole = (perf_counter() - start) * 1e3
    rest = {"rest": whole - sum(parts.values())} if parts else {}
    return {"ms": whole, "parts": {**parts, **rest}}


def watch() -> dict[str, float]:
    """Milliseconds spent in NVRTC and in loading, counted from now on."""
    from weft.runtime import driver, nvrtc

    spent = {"NVRTC": 0.0, "load": 0.0}
    for module, function, part in ((nvrtc, "compile_cuda", "NVRTC"), (driver, "load", "load")):
        setattr(module, function, _counting(getattr(module, function), spent, part))
    return spent


def _counting(function: Callable[..., Any], spent: dict[str, float], part: str) -> Callable[..., Any]:
    def counted(*args: Any, **keywords: Any) -> Any:
        start = perf_counter()
        try:
            return function(*args, **keywords)
        finally:
            spent[part] += (perf_counter() - start) * 1e3

    return counted


if __name__ == "__main__":
    main(sys.argv[1])
