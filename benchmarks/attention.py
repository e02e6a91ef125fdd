"""`weft.kernels.attention` beside cuDNN, through `scaled_dot_product_attention`, in one run: bfloat16, TFLOP/s of what the mask
leaves. `configs` are other tiles, and other places of the second wait, of the first shapes."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import AttentionConfig, attention, attention_backward

NEEDS_GPU = True
CUDNN = "cuDNN"
IN_ORDER = "deterministic"
SHAPES = (
    (2, 16, 16, 4096, 128, (1.0, 1.08)), (1, 64, 8, 8192, 128, (1.0, 1.03)), (1, 64, 8, 16_384, 128, (1.02, 1.05)),
    (4, 32, 32, 2048, 64, (1.0, 1.1)), (1, 16, 16, 8192, 256, (0.98, 1.0)), (2, 16, 16, 4096, 96, None),
)  # fmt: skip
"""Batch, query heads, heads of keys, length, head size, and the goals without and with a causal mask."""
VARIANTS = {
    64: (AttentionConfig(128, 3), AttentionConfig(128, 3, turns=True), AttentionConfig(128, 2), AttentionConfig(192, 2)),
    128: (
        AttentionConfig(128), AttentionConfig(128, late=True), AttentionConfig(128, turns=True),
        AttentionConfig(128, late=True, turns=True), AttentionConfig(128, rescale_first=True),
    ),
    256: (AttentionConfig(64, rescale_first=True), AttentionConfig(64), AttentionConfig(64, rescale_first=True, turns=True)),
}  # fmt: skip


def forward(quick: bool) -> list[Line]:
    """Every shape, without a mask and with a causal one."""
    lines: list[Line] = []
    for *shape, goals in SHAPES[:1] if quick else SHAPES:
        for causal in (False, True):
            goal = () if goals is None else (Goal(goals[causal], CUDNN),)
            lines += _compared(shape, causal, {"": None}, goal, quick)
    return lines


def backward(quick: bool) -> list[Line]:
    """Gradients of every shape, also with programs that take turns; cuDNN's in the same run, with its own forward before."""
    import torch

    lines: list[Line] = []
    for *shape, goals in SHAPES[: 1 if quick else None]:
        batch, heads, kv_heads, length, size = shape
        q, grad = (torch.randn((batch, heads, length, size), device="cuda").bfloat16() for _ in range(2))
        k, v = (torch.randn((batch, kv_heads, length, size), device="cuda").bfloat16() for _ in range(2))
        for causal in (False, True):
            given = [x.clone().requires_grad_() for x in (q, k, v)]
            theirs_out = _cudnn(*given, causal)
            out, lse = attention(q, k, v, causal=causal, return_lse=True)
            found: dict[str, Any] = {}

            def theirs(made: Any = theirs_out, given: Any = given, found: Any = found, grad: Any = grad) -> None:
                found["out"] = torch.autograd.grad(made, given, grad, retain_graph=True)

            def ours(
                ordered: bool, given: Any = (grad, q, k, v, out, lse), causal: bool = causal, found: Any = found
            ) -> None:
                found["out"] = attention_backward(*given, causal=causal, deterministic=ordered)

            theirs()
            wanted = [x.clone() for x in found["out"]]

            def correct(found: Any = found, wanted: Any = wanted) -> bool:
                pairs = zip(found["out"], wanted, strict=True)
                return all(bool(((a - b).float().norm() / b.float().norm()) < 2e-2) for a, b in pairs)

            poison = partial(found.pop, "out", None)
            variants = [harness.Variant(CUDNN, theirs, poison, correct)]
            variants += [
                harness.Variant(name, partial(ours, ordered), poison, correct)
                for name, ordered in (("weft", False), (IN_ORDER, True))
            ]
            times = harness.measure(variants, harness.CudaClock(), 5 if quick else 25)
            operations = 10 * batch * heads * length * length * size / (2 if causal else 1)
            speeds = {name: operations / ms / 1e9 for name, ms in times.items()}
            goal = () if goals is None else (Goal(1.1 if size == 256 else 1.0, CUDNN),)
            what = f"{batch}, {heads}/{kv_heads}, {length}, {size}{', causal' if causal else ''}"
            ordered = speeds.pop(IN_ORDER, None)
            fast = {"weft": speeds["weft"]} if "weft" in speeds else {}
            lines.append(Line(what, speeds.pop("weft", None), "TFLOP/s", speeds, goal))
            lines.append(Line(f"{what}, {IN_ORDER}", ordered, "TFLOP/s", speeds | fast, (Goal(0.85, "weft"),)))
    return lines


def configs(quick: bool) -> list[Line]:
    """Other configurations of the first shape of each head size."""
    lines: list[Line] = []
    for *shape, _ in (SHAPES[0], SHAPES[3], SHAPES[4])[: 1 if quick else None]:
        chosen = {str(config): config for config in VARIANTS[shape[-1]]}
        for causal in (False, True):
            lines += _compared(shape, causal, chosen, (), quick)
    return lines


def _compared(
    shape: list[int], causal: bool, chosen: dict[str, Any], goals: tuple[Goal, ...], quick: bool
) -> list[Line]:
    """A line for each configuration."""
    import torch

    batch, heads, kv_heads, length, size = shape
    q = torch.randn((batch, heads, length, size), device="cuda").bfloat16()
    k, v = (torch.randn((batch, kv_heads, length, size), device="cuda").bfloat16() for _ in range(2))
    out = torch.empty_like(q)
    found: dict[str, Any] = {}

    def ours(config: Any) -> None:
        found["out"] = attention(q, k, v, causal=causal, out=out, config=config)

    def theirs() -> None:
        found["out"] = _cudnn(q, k, v, causal)

    theirs()
    wanted = found["out"].clone()

    def correct() -> bool:
        # A unit in the last place of the largest elements is 0.8% of them.
        error = (found["out"].float() - wanted.float()).abs().max() / wanted.float().abs().max()
        return bool(error < 2e-2)

    poison = partial(out.fill_, float("nan"))
    variants = [harness.Variant(CUDNN, theirs, poison, correct)]
    variants += [
        harness.Variant(f"weft {name}", partial(ours, config), poison, correct) for name, config in chosen.items()
    ]
    times = harness.measure(variants, harness.CudaClock(), 5 if quick else 25)
    # Each of length queries sees (length + 1) / 2 keys on average, counted as half of them as in published figures.
    operations = 4 * batch * heads * length * length * size / (2 if causal else 1)
    speeds = {name: operations / ms / 1e9 for name, ms in times.items()}
    what = f"{batch}, {heads}/{kv_heads}, {length}, {size}{', causal' if causal else ''}"
    peers = {CUDNN: speeds[CUDNN]} if CUDNN in speeds else {}
    return [Line(f"{what} {name}".rstrip(), speeds.get(f"weft {name}"), "TFLOP/s", peers, goals) for name in chosen]


def _cudnn(q: Any, k: Any, v: Any, causal: bool) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


PARTS = {
    "forward": ("Attention forward, bfloat16", forward),
    "backward": ("Attention backward, bfloat16", backward),
    "configs": ("Configurations of attention forward, bfloat16", configs),
}
