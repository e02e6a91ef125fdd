"""Epilogues of `weft.kernels.matmul` against the plain product, and against PyTorch's fused and separate operations.

    python benchmarks/run.py epilogues
    python benchmarks/run.py epilogues.layers epilogues.gated

Each line is a time; its peers are the plain product of the same operands (`plain`; for gated products one of twice the width),
in the same interleaved run, and PyTorch. Layers are timed in their own choice of a configuration, and in each of `VARIANTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.harness import Variant
from benchmarks.report import Goal, Line

NEEDS_GPU = True
UNIT = "us"
SHAPES = ((8192, 8192, 8192), (4096, 14336, 4096))
"""M, N, K."""
MOST = {SHAPES[0]: 1.03, SHAPES[1]: 1.05}
"""Goals: time with tanh-GELU, bias and residual, relative to the plain product."""
GATED_SHAPES = ((8192, 14336, 4096), (4096, 14336, 4096))
"""M, K and N of each half: layers of language models."""
MOST_GATED = 1.03
VARIANTS: dict[str, dict[str, Any] | None] = {
    "chosen": None,
    "cooperative": {"variant": "cooperative", "block_m": 128, "block_n": 256},
    "ping pong": {"variant": "ping_pong", "block_m": 128, "block_n": 128},
    "ping pong, wide": {"variant": "ping_pong", "block_m": 64, "block_n": 256},
}
BLOCK_MS, RATE = 8.0, 7e14
"""Milliseconds of a graph's replay, at an H200's usual operations per second."""
TOLERANCE = 1e-2
"""Of an element, relative to the largest of the result."""
Job = tuple[Callable[[], Any], Any, Any]
"""A function to time, its output, and what that has to be (a float32 tensor)."""


def layers(quick: bool) -> list[Line]:
    """Activation, bias and residual: by tanh, by erf, and what PyTorch does in two kernels."""
    import torch

    from weft.kernels import matmul

    functional: Any = torch.nn.functional
    lines: list[Line] = []
    for shape in SHAPES[:1] if quick else SHAPES:
        a, b, bias, residual = operands(*shape)
        out = torch.empty_like(residual)
        plain = a.float() @ b.float()
        for form, activation in (("tanh", "gelu_tanh"), ("none", "gelu")):
            want = functional.gelu(plain + bias, approximate=form) + residual
            ends = {"bias": bias, "activation": activation, "residual": residual}
            peers: dict[str, Job] = {"torch": (partial(separate, a, b, bias, residual, out, form), out, want)}
            for name, config in VARIANTS.items():
                peers[f"plain, {name}"] = (partial(matmul, a, b, out, config=config), out, plain)
                peers[name] = (partial(matmul, a, b, out, config=config, **ends), out, want)
            what = f"{'x'.join(map(str, shape))}, GELU ({'tanh' if form == 'tanh' else 'erf'}), bias, residual"
            goal = (Goal(MOST[shape], "plain", ceiling=True),) if form == "tanh" else ()
            lines += table(what, peers, quick, goal, calls_of(*shape))
    return lines


def gated(quick: bool) -> list[Line]:
    """SwiGLU in one product, against one of twice the width."""
    import torch

    from weft.kernels import matmul

    lines: list[Line] = []
    for m, n, k in GATED_SHAPES[:1] if quick else GATED_SHAPES:
        a, b, *_ = operands(m, 2 * n, k)
        wide = torch.empty((m, 2 * n), device="cuda", dtype=a.dtype)
        out = torch.empty((m, n), device="cuda", dtype=a.dtype)
        plain = a.float() @ b.float()
        want = torch.nn.functional.silu(plain[:, :n]) * plain[:, n:]
        jobs: dict[str, Job] = {"torch": (partial(separate_gated, a, b, wide, out), out, want)}
        for name, config in VARIANTS.items():
            jobs[f"plain, {name}"] = (partial(matmul, a, b, wide, config=config), wide, plain)
            jobs[name] = (partial(matmul, a, b, out, activation="silu", gated=True, config=config), out, want)
        lines += table(
            f"SwiGLU {m}x{n}x{k}", jobs, quick, (Goal(MOST_GATED, "plain", ceiling=True),), calls_of(m, 2 * n, k)
        )
    return lines


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any, Any]:
    """Random operands of bfloat16, a bias and a residual; elements of the product have variance 1."""
    import torch

    def random(*shape: int) -> Any:
        return torch.randn(shape, device="cuda").to(torch.bfloat16)

    return random(m, k), (random(k, n).float() / k**0.5).to(torch.bfloat16), random(n), random(m, n)


def separate(a: Any, b: Any, bias: Any, residual: Any, out: Any, form: str) -> Any:
    """PyTorch: a product with a bias, the activation, and the sum."""
    import torch

    torch.addmm(bias, a, b, out=out)
    return torch.add(torch.nn.functional.gelu(out, approximate=form), residual, out=out)


def separate_gated(a: Any, b: Any, wide: Any, out: Any) -> Any:
    """PyTorch: one product of twice the width, the activation, and the product of the halves."""
    import torch

    torch.matmul(a, b, out=wide)
    n = out.shape[1]
    return torch.mul(torch.nn.functional.silu(wide[:, :n]), wide[:, n:], out=out)


def calls_of(m: int, n: int, k: int) -> int:
    """Calls of a product in a graph, so that a replay takes about `BLOCK_MS`."""
    return max(1, round(BLOCK_MS * 1e-3 * RATE / (2 * m * n * k)))


def table(what: str, jobs: dict[str, Job], quick: bool, goals: tuple[Goal, ...], calls: int) -> list[Line]:
    """Microseconds of each of `VARIANTS` beside its plain product and PyTorch, in CUDA graphs."""
    variants = harness.sound(
        Variant(name, run, partial(out.fill_, float("nan")), partial(correct, out, want))
        for name, (run, out, want) in jobs.items()
    )
    times = harness.measure(variants, harness.GraphClock(calls), 8 if quick else 30)
    found = {name: 1e3 * milliseconds for name, milliseconds in times.items()}
    lines: list[Line] = []
    for name in VARIANTS:
        peers = {"plain": found.get(f"plain, {name}"), "torch": found.get("torch")}
        known = {who: time for who, time in peers.items() if time is not None}
        lines.append(Line(f"{what}, {name}", found.get(name), UNIT, known, goals if name == "chosen" else ()))
    return lines


def correct(out: Any, want: Any) -> bool:
    """Whether an output is what it has to be; a NaN is not."""
    return bool((out.float() - want).abs().max() <= TOLERANCE * want.abs().max() + TOLERANCE)


PARTS: dict[str, tuple[str, Callable[[bool], list[Line]]]] = {
    "layers": ("Matmul with GELU, bias and residual, bf16", layers),
    "gated": ("SwiGLU of two products, bf16", gated),
}
"""Title and function of each part."""
