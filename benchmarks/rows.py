"""The rows of a model (norms, softmax, cross-entropy, rotary embeddings, gates, experts) against PyTorch and a copy of the same
bytes. Bytes are those that have to be read and written once; the copy moves as many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from benchmarks import harness
from benchmarks.copies import UNIT
from benchmarks.report import Goal, Line
from weft import kernels

NEEDS_GPU = True
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
SHAPES = ((16384, 4096), (8192, 8192), (4096, 16384), (2048, 65536), (1048576, 128))
LONG = (1024, 131072)
LOGITS = (8192, 128256)
HIDDEN = 640, 768, 1024, 1280, 2048, 2560, 3072, 5120, 6144, 7168, 12288, 18432
VOCABULARIES = 32000, 50257, 100277, 129280, 151936, 256000
"""Columns of rows of published models."""
TOKENS = 8192
SEED = 20261123
SHAPES_DRAWN = 24
ELEMENTS = 1 << 24, 1 << 26
"""Elements of a random shape. All of them are compiled, checked against float64 and timed within half a minute."""


@dataclass(frozen=True, slots=True)
class Job:
    """One figure: weft's call, PyTorch's function, the array that both write, its wanted value, the bytes to be moved, and what
    part of the copy's rate is the goal. `compiled`: PyTorch's function is compiled, too."""

    what: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    out: Any
    want: Any
    nbytes: int
    share: float
    restore: Callable[[], Any] | None = None
    compiled: bool = False


def figures(job: Job, clock: harness.Clock, rounds: int) -> list[Line]:
    """All in one interleaved run. What PyTorch returns is checked by value; weft's call writes `job.out`."""
    import torch

    found: dict[str, Any] = {}
    tolerance = TOLERANCE.get(str(job.want.dtype).removeprefix("torch."), 1e-5)
    restore = job.restore or (lambda: job.out.fill_(float("nan")))

    def near(get: Callable[[], Any]) -> bool:
        return harness.relative_error(get(), job.want.double()) <= tolerance

    def keep(name: str, function: Callable[[], Any]) -> Any:
        found[name] = function()

    variants = [harness.Variant("weft", job.ours, restore, partial(near, lambda: job.out))]
    peers = {"torch": job.theirs}
    if job.compiled:
        peers["compile"] = torch.compile(job.theirs, dynamic=False)
    for name, function in peers.items():
        variants.append(
            harness.Variant(
                name,
                partial(keep, name, function),
                partial(found.pop, name, None),
                partial(near, partial(found.get, name)),
            )
        )
    source = torch.ones(job.nbytes // 2, dtype=torch.int8, device=job.out.device)
    target = torch.empty_like(source)
    variants.append(
        harness.Variant("copy", lambda: target.copy_(source), target.zero_, lambda: bool((target == source).all()))
    )
    speeds = {
        name: harness.terabytes_per_second(job.nbytes, time)
        for name, time in harness.measure(variants, clock, rounds).items()
    }
    others = {name: speeds[name] for name in (*peers, "copy") if name in speeds}
    return [Line(job.what, speeds.get("weft"), UNIT, others, (Goal(job.share, "copy"),))]


def norm_jobs(shapes: Iterable[tuple[int, int]], dtype: str = "bfloat16", device: str = "cuda") -> Iterable[Job]:
    """RMSNorm and LayerNorm, forward, with a residual, and backward."""
    import torch

    normed = torch.nn.functional
    for rows, cols in shapes:
        kind = getattr(torch, dtype)
        x, grad, out = (torch.randn(rows, cols, device=device).to(kind) for _ in range(3))
        w, b = (torch.randn(cols, device=device).to(kind) for _ in range(2))
        size = f"{rows} x {cols} {dtype}"
        exact = normed.rms_norm(x.double(), (cols,), w.double(), 1e-6).to(kind)
        yield Job(
            f"rms_norm of {size}", partial(kernels.rms_norm, x, w, out=out),
            partial(normed.rms_norm, x, (cols,), w, 1e-6), out, exact, 2 * x.nbytes, 0.97, compiled=True,
        )  # fmt: skip
        exact = normed.layer_norm(x.double(), (cols,), w.double(), b.double()).to(kind)
        yield Job(
            f"layer_norm of {size}", partial(kernels.layer_norm, x, w, b, out=out),
            partial(normed.layer_norm, x, (cols,), w, b), out, exact, 2 * x.nbytes, 0.97,
        )  # fmt: skip
        total = torch.empty_like(x)
        exact = normed.rms_norm((x + grad).double(), (cols,), w.double(), 1e-6).to(kind)
        yield Job(
            f"rms_norm with a residual of {size}",
            partial(kernels.rms_norm, x, w, residual=grad, total=total, out=out),
            lambda x=x, grad=grad, w=w, cols=cols: normed.rms_norm(x + grad, (cols,), w, 1e-6), out, exact, 4 * x.nbytes, 0.97,
        )  # fmt: skip
        rstd = kernels.rms_norm(x, w, statistics=True).rstd
        exact = _rms_gradient(grad.double(), x.double(), w.double(), 1e-6).to(kind)
        yield Job(
            f"rms_norm_backward of {size}", partial(kernels.rms_norm_backward, grad, x, w, rstd, out=out),
            partial(_rms_gradient, grad, x, w, 1e-6), out, exact, 3 * x.nbytes, 0.90,
        )  # fmt: skip


def _rms_gradient(grad: Any, x: Any, w: Any, eps: float) -> Any:
    """The gradient of x, as PyTorch composes it; that of the weight is computed, too."""
    rstd = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    normal, g = x * rstd, grad * w
    (grad * normal).sum(0)
    return (g - normal * (g * normal).mean(-1, keepdim=True)) * rstd


def softmax_jobs(shapes: Iterable[tuple[int, int]], dtype: str = "bfloat16", device: str = "cuda") -> Iterable[Job]:
    """Softmax and log-softmax, forward and backward."""
    import torch

    for rows, cols in shapes:
        kind = getattr(torch, dtype)
        x, grad, out = (torch.randn(rows, cols, device=device).to(kind) for _ in range(3))
        size = f"{rows} x {cols} {dtype}"
        exact = x.double().softmax(-1).to(kind)
        yield Job(
            f"softmax of {size}", partial(kernels.softmax, x, out), partial(torch.softmax, x, -1), out, exact, 2 * x.nbytes,
            0.97, compiled=True,
        )  # fmt: skip
        yield Job(
            f"log_softmax of {size}", partial(kernels.log_softmax, x, out), partial(torch.log_softmax, x, -1), out,
            x.double().log_softmax(-1).to(kind), 2 * x.nbytes, 0.97,
        )  # fmt: skip
        y = exact
        back = (y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))).to(kind)
        yield Job(
            f"softmax_backward of {size}", partial(kernels.softmax_backward, grad, y, out),
            partial(_softmax_gradient, grad, y), out, back, 3 * x.nbytes, 0.90,
        )  # fmt: skip


def _softmax_gradient(grad: Any, y: Any) -> Any:
    return y * (grad - (grad * y).sum(-1, keepdim=True))


def cross_entropy_jobs(
    shapes: Iterable[tuple[int, int]], dtype: str = "bfloat16", device: str = "cuda"
) -> Iterable[Job]:
    """Losses alone (reads only), and with the gradient over the logits."""
    import torch

    loss = torch.nn.functional.cross_entropy
    for rows, cols in shapes:
        kind = getattr(torch, dtype)
        x = torch.randn(rows, cols, device=device).to(kind)
        labels = torch.randint(0, cols, (rows,), device=device)
        losses = torch.empty(rows, device=device)
        size = f"{rows} x {cols} {dtype}"
        exact = torch.cat(
            [loss(x[i : i + 256].double(), labels[i : i + 256], reduction="none") for i in range(0, rows, 256)]
        )

        def forward(x: Any = x, labels: Any = labels, losses: Any = losses) -> None:
            losses.copy_(kernels.cross_entropy(x, labels)[0])

        yield Job(
            f"cross_entropy of {size}", forward, partial(loss, x, labels, reduction="none"), losses, exact.float(), x.nbytes,
            0.97, compiled=True,
        )  # fmt: skip
        # Each call overwrites the logits, whose rows are then gradients: as many bytes, and finite numbers again.
        original, work = x, x.clone()
        wide = original.float().softmax(-1)
        wide[torch.arange(rows, device=device), labels] -= 1
        yield Job(
            f"cross_entropy with gradients in place of {size}",
            partial(kernels.cross_entropy, work, labels, grad=work),
            partial(_both, original, labels), work, wide.to(kind), 2 * x.nbytes, 0.95, partial(work.copy_, original),
        )  # fmt: skip


def _both(x: Any, labels: Any) -> Any:
    """The gradient of the sum of losses in PyTorch."""
    import torch

    p = torch.softmax(x, -1, dtype=torch.float32)
    return p.scatter_add(1, labels[:, None], p.new_full((len(labels), 1), -1.0)).to(x.dtype)


def elementwise_jobs(tokens: int = TOKENS, dtype: str = "bfloat16", device: str = "cuda") -> Iterable[Job]:
    """Rotary embeddings of both pairings, and SwiGLU and GeGLU with gradients."""
    import torch

    kind, functional = getattr(torch, dtype), torch.nn.functional
    q, turned = (torch.randn(1, tokens, 64, 128, device=device).to(kind) for _ in range(2))
    angles = torch.randn(tokens, 64, device=device)
    cos, sin = angles.cos(), angles.sin()
    for interleaved in (False, True):
        rotated = partial(_rope, q, cos, sin, interleaved)
        yield Job(
            f"rope of {tokens} x 64 x 128 {dtype}{', interleaved' if interleaved else ''}",
            partial(kernels.rope, q, cos, sin, interleaved=interleaved, out=turned),
            rotated, turned, _rope(q.double(), cos.double(), sin.double(), interleaved).to(kind), 2 * q.nbytes, 0.95,
        )  # fmt: skip
    gate, up, grad, out = (torch.randn(tokens, 14336, device=device).to(kind) for _ in range(4))
    size = f"{tokens} x 14336 {dtype}"
    for name, ours, theirs in (
        ("swiglu", kernels.swiglu, functional.silu),
        ("geglu", kernels.geglu, functional.gelu),
        ("geglu by tanh", partial(kernels.geglu, approximate="tanh"), partial(functional.gelu, approximate="tanh")),
    ):
        yield Job(
            f"{name} of {size}", partial(ours, gate, up, out=out),
            lambda theirs=theirs: theirs(gate) * up, out, (theirs(gate.double()) * up.double()).to(kind), 3 * gate.nbytes, 0.95,
        )  # fmt: skip
    s = gate.double().sigmoid()
    exact = (grad.double() * up.double() * s * (1 + gate.double() * (1 - s))).to(kind)
    both = out, torch.empty_like(out)
    yield Job(
        f"swiglu_backward of {size}", partial(kernels.swiglu_backward, grad, gate, up, out=both),
        lambda: _silu_gradient(grad, gate, up)[0], out, exact, 5 * gate.nbytes, 0.95,
    )  # fmt: skip


def _rope(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    import torch

    cos, sin = cos[:, None], sin[:, None]
    if interleaved:
        one, other = x[..., 0::2], x[..., 1::2]
        return torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2).to(x.dtype)
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1).to(x.dtype)


def _silu_gradient(grad: Any, gate: Any, up: Any) -> tuple[Any, Any]:
    s = gate.sigmoid()
    return grad * up * s * (1 + gate * (1 - s)), grad * gate * s


def expert_jobs(tokens: int = 65536, device: str = "cuda") -> Iterable[Job]:
    """The choice of 8 of 128 and 256 experts, and the order of tokens by expert."""
    import torch

    for experts in (128, 256):
        logits = torch.randn(tokens, experts, device=device)
        weights = torch.empty(tokens, 8, device=device)

        def choose(logits: Any = logits, weights: Any = weights) -> None:
            weights.copy_(kernels.topk_gating(logits, 8)[0])

        def theirs(logits: Any = logits) -> Any:
            best = logits.softmax(-1).topk(8).values
            return best / best.sum(-1, keepdim=True)

        best = logits.double().softmax(-1).topk(8).values
        yield Job(
            f"topk_gating of {tokens} x {experts}, k = 8", choose, theirs, weights,
            (best / best.sum(-1, keepdim=True)).float(), logits.nbytes + 64 * tokens, 0.5,
        )  # fmt: skip
        ids = logits.topk(8).indices.int().contiguous()
        order = torch.empty(ids.numel(), dtype=torch.float32, device=device)

        def sort(ids: Any = ids, order: Any = order, experts: int = experts) -> None:
            order.copy_(kernels.sort_experts(ids, experts).order)

        yield Job(
            f"sort_experts of {ids.numel()} numbers below {experts}", sort,
            lambda ids=ids: torch.sort(ids.flatten(), stable=True).indices.float(), order,
            torch.sort(ids.flatten(), stable=True).indices.float(), 3 * ids.nbytes, 0.1,
        )  # fmt: skip


def drawn(count: int, seed: int) -> list[tuple[int, int]]:
    """Random numbers of rows and columns: half of the numbers of columns are any, the others multiples of 8."""
    random = Random(seed)
    shapes: list[tuple[int, int]] = []
    for i in range(count):
        cols = int(2 ** random.uniform(8, 17.9))
        cols = cols // 8 * 8 if i % 2 else cols
        shapes.append((random.randint(*ELEMENTS) // cols, cols))
    return shapes


def random_jobs(shapes: Iterable[tuple[int, int]], dtype: str = "bfloat16", device: str = "cuda") -> Iterable[Job]:
    """One norm, one softmax and one cross-entropy of each shape."""
    for shape in shapes:
        for jobs in (norm_jobs, softmax_jobs, cross_entropy_jobs):
            for job in jobs([shape], dtype, device):
                if job.what.startswith(("rms_norm of", "softmax of", "cross_entropy with")):
                    yield replace(job, compiled=False)
                    # The next jobs of the shape are not wanted, nor are their references.
                    break


def model_jobs(
    hidden: Iterable[tuple[int, int]], logits: Iterable[tuple[int, int]], dtype: str = "bfloat16", device: str = "cuda"
) -> Iterable[Job]:
    """The norms of hidden states, and softmax and cross-entropy with gradients of logits."""
    wanted = ("rms_norm", "layer_norm of", "softmax of", "log_softmax of", "cross_entropy with")
    for jobs, shapes in ((norm_jobs, hidden), (softmax_jobs, logits), (cross_entropy_jobs, logits)):
        for job in jobs(shapes, dtype, device):
            if job.what.startswith(wanted):
                yield replace(job, compiled=False)


def _models(quick: bool) -> list[Line]:
    few, most = (1 if quick else None), ELEMENTS[1]
    hidden = [(most // cols, cols) for cols in HIDDEN[:few]]
    logits = [(4 * most // cols, cols) for cols in VOCABULARIES[:few]]
    return _part(lambda _: model_jobs(hidden, logits), quick, rounds=10)


def spread(lines: list[Line]) -> list[Line]:
    """The distribution of the rates, as parts of the copy's, before the lines themselves."""
    found: list[Line] = []
    for kind, which in (("columns in eights", True), ("other columns", False)):
        for name in ("rms_norm", "softmax", "cross_entropy"):
            mine = [
                line for line in lines if line.what.startswith(f"{name} ") and (_columns(line.what) % 8 == 0) == which
            ]
            parts = sorted(line.ours / line.peers["copy"] for line in mine if line.ours)
            if parts:
                at = {"least": parts[0], "5 %": parts[len(parts) // 20], "median": parts[len(parts) // 2]}
                found.append(Line(f"{name} of {len(mine)} shapes, {kind}", at.pop("median"), "of the copy", facts=at))
    return [*found, *lines]


def _columns(what: str) -> int:
    return int(what.partition(" x ")[2].split()[0])


def _part(jobs: Callable[[bool], Iterable[Job]], quick: bool, rounds: int = 20) -> list[Line]:
    clock = harness.CudaClock()
    return [line for job in jobs(quick) for line in figures(job, clock, 5 if quick else rounds)]


def _shapes(quick: bool) -> tuple[tuple[int, int], ...]:
    return SHAPES[:1] if quick else SHAPES


def _random(quick: bool) -> list[Line]:
    return spread(_part(lambda quick: random_jobs(drawn(4 if quick else SHAPES_DRAWN, SEED)), quick, rounds=10))


PARTS = {
    "norms": ("Norms of rows", partial(_part, lambda quick: norm_jobs(_shapes(quick)))),
    "softmax": ("Softmax of rows", partial(_part, lambda quick: softmax_jobs((*_shapes(quick), LONG)))),
    "cross_entropy": ("Cross-entropy", partial(_part, lambda quick: cross_entropy_jobs((LOGITS,)))),
    "elementwise": ("Rotary embeddings and gates", partial(_part, lambda quick: elementwise_jobs())),
    "experts": ("Choice and order of experts", partial(_part, lambda quick: expert_jobs())),
    "models": ("Rows of models", _models),
    "random": ("Rows of random shapes", _random),
}
