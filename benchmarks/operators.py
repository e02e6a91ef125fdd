"""Host time of calls of PyTorch operators: a host function by weft.torch.operator, by torch.library, and called as it is.

`noop` needs no GPU: nothing is launched, so it is what the way from the caller to the host function takes, as CPU time.
`launches` has a launch in it, and the library's operators.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import weft
from benchmarks import launch
from benchmarks.report import Goal, Line
from weft import language as gl

if TYPE_CHECKING:
    from torch import Tensor

NUMEL = 128
CALLS = 2000
MARGIN = 2.0
"""Microseconds that a call may take longer than that of an operator that does nothing, and the launch by itself."""
Jobs = dict[str, Callable[[], Any]]


@weft.jit
def add_one(x, y, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(y + at, gl.load(x + at, mask=at < n) + 1.0, mask=at < n)


def registered(
    name: str, host: Callable[..., Any], schema: str, written: tuple[str, ...]
) -> dict[str, Callable[..., Any]]:
    """A host function by name of what calls it."""
    import torch

    import weft.torch

    library = torch.library.Library("bench", "FRAGMENT")
    library.define(f"{name}_bare{schema}")
    for key in ("CPU", "CUDA"):
        library.impl(f"{name}_bare", host, key)
    _kept.append(library)
    options: dict[str, Any] = {"mutates_args": written, "schema": schema}
    return {
        "weft": weft.torch.operator(f"bench::{name}", host, **options),
        "custom_op": torch.library.custom_op(f"bench::{name}_custom", host, **options),
        "Library.impl": getattr(torch.ops.bench, f"{name}_bare").default,
        "function": host,
    }


_kept: list[Any] = []
RETURNS, WRITES = "(Tensor x, int n) -> Tensor", "(Tensor x, Tensor(a!) y, int n) -> ()"


@cache
def families(launches: bool) -> dict[str, tuple[dict[str, Callable[..., Any]], bool]]:
    """The operators by kind, and whether they take an output. They are registered once in a process."""

    def returning(x: Tensor, n: int) -> Tensor:
        y = x.new_empty(x.shape)
        if launches:
            add_one[(1,)](x, y, n, NUMEL)
        return y

    def writing(x: Tensor, y: Tensor, n: int) -> None:
        if launches:
            add_one[(1,)](x, y, n, NUMEL)

    suffix = "launch" if launches else "noop"
    return {
        "returns a tensor": (registered(f"returning_{suffix}", returning, RETURNS, ()), False),
        "writes to an argument": (registered(f"writing_{suffix}", writing, WRITES, ("y",)), True),
    }


def jobs(device: str, launches: bool) -> dict[str, Jobs]:
    """Calls by kind of operator and by what was called."""
    import torch

    found: dict[str, Jobs] = {}
    x, y = torch.ones(NUMEL, device=device), torch.empty(NUMEL, device=device)
    for kind, (functions, takes_output) in families(launches).items():
        args = (x, y, NUMEL) if takes_output else (x, NUMEL)
        found[kind] = {who: lambda f=f, args=args: f(*args) for who, f in functions.items()}
    return found


def noop(quick: bool) -> list[Line]:
    """CPU time of operators that do nothing."""
    from weft.torch.contract import Contract

    checked = Contract.checked
    # On a GPU nothing is checked; here the call takes the same way without it.
    Contract.checked = lambda self, function, args, keywords: function(*args, **keywords)
    try:
        return [
            Line(kind, times.pop("weft"), "us", times, (Goal(1.0, "custom_op", ceiling=True),), "CPU time of a call")
            for kind, these in jobs("cpu", launches=False).items()
            for times in [{who: cpu_time(job, 5 if quick else 20) for who, job in these.items()}]
        ]
    finally:
        Contract.checked = checked


def cpu_time(job: Callable[[], Any], rounds: int) -> float:
    """Microseconds of the process's CPU time per call, in the fastest of some rounds."""
    found: list[float] = []
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(CALLS):
            job()
        found.append((time.process_time_ns() - start) / CALLS / 1e3)
    return min(found)


def launches(quick: bool) -> list[Line]:
    """Host time on a GPU: with a launch, without one, and of operators of `weft.kernels`."""
    import torch

    torch.cuda.init()
    return lines("cuda", 10 if quick else 60, torch.cuda.synchronize)


def lines(device: str, rounds: int, wait: Callable[[], Any]) -> list[Line]:
    """Time all jobs in one run; the goals follow from what was measured."""
    import torch

    x, y = (torch.ones(NUMEL, device=device) for _ in range(2))
    idle = {f"{kind}, nothing in it": these for kind, these in jobs(device, launches=False).items()}
    groups = {**jobs(device, launches=True), **idle, **library(device)}
    named = {f"{kind}: {who}": job for kind, these in groups.items() for who, job in these.items()}
    named["launch"] = lambda: add_one[(1,)](x, y, NUMEL, NUMEL)
    times = launch.times(named, rounds, wait)
    found: list[Line] = []
    for kind, these in groups.items():
        peers = {who: times[f"{kind}: {who}"] for who in these if who != "weft"}
        without = times.get(f"{kind}, nothing in it: custom_op")
        goals = () if without is None else (Goal(round(without + times["launch"] + MARGIN, 2), ceiling=True),)
        found.append(Line(kind, times[f"{kind}: weft"], "us", peers, goals))
    return [*found, Line("launch by itself", times["launch"], "us")]


def library(device: str) -> dict[str, Jobs]:
    """Operators of `weft.kernels` against the functions, and the former where a gradient is recorded."""
    import torch

    import weft.torch
    from weft import kernels

    x = torch.ones(4, 256, device=device)
    wanting = x.clone().requires_grad_()
    q, cache = (torch.ones(1, n, length, 128, device=device, dtype=torch.float16) for n, length in ((8, 1), (1, 128)))
    lengths = torch.full((1,), 128, device=device, dtype=torch.int32)
    return {
        "decode_attention, 8/1 heads, 128 positions": {
            "weft": lambda: weft.torch.decode_attention(q, cache, cache, lengths),
            "function": lambda: kernels.decode_attention(q, cache, cache, lengths),
            "torch": lambda: torch.nn.functional.scaled_dot_product_attention(q, cache, cache, enable_gqa=True),
        },
        "softmax 4 x 256": {
            "weft": lambda: weft.torch.softmax(x),
            "function": lambda: kernels.softmax(x),
            "torch": lambda: torch.softmax(x, -1),
        },
        "softmax 4 x 256, gradient recorded": {
            "weft": lambda: weft.torch.softmax(wanting),
            "torch": lambda: torch.softmax(wanting, -1),
        },
    }


PARTS = {
    "noop": ("CPU time of calls of operators that do nothing", noop),
    "launches": ("Host time of calls of operators", launches),
}
NEEDS_GPU = frozenset({"launches"})
