"""`weft.kernels.attention` beside cuDNN, through `scaled_dot_product_attention`, in one run: bfloat16, TFLOP/s of what the mask
leaves. `configs` are other tiles, and other places of the second wait, of the first shapes; `masks` compares the rate of
visited blocks with that of dense attention, `narrow` is of float8, `ladder` and `timeline` are of the tutorial's kernels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import weft
from benchmarks import harness, page
from benchmarks.report import Goal, Line
from weft import language as gl
from weft.kernels import AttentionConfig, attention, attention_backward, block_mask

NEEDS_GPU = True
CUDNN = "cuDNN"
IN_ORDER = "deterministic"
SHAPES = (
    (2, 16, 16, 4096, 128, (1.0, 1.08)), (1, 64, 8, 8192, 128, (1.0, 1.03)), (1, 64, 8, 16_384, 128, (1.02, 1.05)),
    (4, 32, 32, 2048, 64, (1.0, 1.1)), (1, 16, 16, 8192, 256, (0.98, 1.0)), (2, 16, 16, 4096, 96, None),
)  # fmt: skip
"""Batch, query heads, heads of keys, length, head size, and the goals without and with a causal mask."""
VARIANTS = {
    64: (
        AttentionConfig(128, 3), AttentionConfig(128, 3, turns=True), AttentionConfig(128, 2), AttentionConfig(128, turns=True),
    ),
    128: (
        AttentionConfig(128), AttentionConfig(128, late=True), AttentionConfig(128, turns=True),
        AttentionConfig(128, rescale_first=True), AttentionConfig(144), AttentionConfig(160), AttentionConfig(176),
    ),
    256: (AttentionConfig(64, rescale_first=True), AttentionConfig(64), AttentionConfig(80, rescale_first=True)),
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


@weft.jit
def unmoved(score: gl.tensor, batch: gl.tensor, head: gl.tensor, query: gl.tensor, key: gl.tensor):
    """A score_mod that does nothing."""
    return score


@weft.jit
def of_document(batch: gl.tensor, head: gl.tensor, query: gl.tensor, key: gl.tensor, ids: gl.tensor):
    """A query sees the keys of its own document up to its position."""
    return (gl.load(ids + query) == gl.load(ids + key)) & (key <= query)


EDGE = 128
"""Queries and keys of a block that a tile visits."""


def masks(quick: bool) -> list[Line]:
    """A window, documents, sequences of variable lengths and a score_mod that does nothing, beside dense attention in the same
    run: 16 heads of size 128, bfloat16, TFLOP/s of the blocks of 128 by 128 that are visited."""
    import torch

    heads, size, length, window = 16, 128, 4096 if quick else 32_768, 1024
    q, k, v = (torch.randn((1, heads, length, size), device="cuda").bfloat16() for _ in range(3))
    half = [x[:, :, : length // 2] for x in (q, k, v)]
    rng = np.random.default_rng(0)
    ends = np.cumsum(np.maximum(rng.lognormal(np.log(2048) - 0.18, 0.6, 64).astype(int), 16))
    ends = np.unique(np.minimum(ends, length // 2))
    lengths = np.diff([0, *ends])
    starts = torch.tensor([0, *ends], dtype=torch.int32, device="cuda")
    ids = torch.tensor(np.repeat(np.arange(len(lengths)), lengths), dtype=torch.int32, device="cuda")
    packed = [x[:, :, : int(ends[-1])].contiguous() for x in half]
    blocks = block_mask(of_document, q, len(ids), len(ids), mask_args=(ids,))

    def rows(count: int) -> int:
        return -(-count // EDGE)

    def causal_blocks(count: int) -> int:
        return rows(count) * (rows(count) + 1) // 2

    reach = window // EDGE + 1
    jobs: dict[str, tuple[int, list[Any], dict[str, Any]]] = {
        "dense": (rows(length // 2) ** 2, half, {}),
        "dense, causal": (causal_blocks(length // 2), half, {"causal": True}),
        "score_mod that does nothing": (rows(length // 2) ** 2, half, {"score_mod": unmoved}),
        f"window of {window} keys, length {length}": (
            sum(min(i + 1, reach) for i in range(rows(length))), [q, k, v], {"window": (window, 0)},
        ),
        f"{len(lengths)} sequences": (sum(rows(n) ** 2 for n in lengths), packed, {"cu_seqlens_q": starts}),
        f"{len(lengths)} sequences, causal": (
            sum(map(causal_blocks, lengths)), packed, {"cu_seqlens_q": starts, "causal": True},
        ),
        f"{len(lengths)} documents, causal": (
            int(blocks.counts.sum()), packed, {"documents": ids[None], "causal": True},
        ),
        f"{len(lengths)} documents, causal, by a block mask": (int(blocks.counts.sum()), packed, {"mask_mod": blocks}),
    }  # fmt: skip
    outs = {name: torch.empty_like(given[0]) for name, (_, given, _) in jobs.items()}
    variants: list[harness.Variant] = []
    for name, (_, given, options) in jobs.items():
        run = partial(attention, *given, out=outs[name], **options)
        poison = partial(outs[name].fill_, float("nan"))
        variants.append(harness.Variant(name, run, poison, lambda name=name: not bool(outs[name].isnan().any())))
    times = harness.measure(variants, harness.CudaClock(), 3 if quick else 7)
    speeds = {name: 4 * heads * size * EDGE**2 * jobs[name][0] / ms / 1e9 for name, ms in times.items()}
    lines: list[Line] = []
    for name, speed in speeds.items():
        beside = "dense, causal" if "causal" in name or "window" in name else "dense"
        bound = {"dense": None, "dense, causal": None}.get(name, 0.75 if "window" in name else 0.9)
        bound = 0.99 if "score_mod" in name else bound
        goals = () if bound is None else (Goal(bound, beside),)
        lines.append(Line(name, speed, "TFLOP/s", {} if bound is None else {beside: speeds[beside]}, goals))
    return lines


def narrow(quick: bool) -> list[Line]:
    """Attention of float8_e4m3fn beside that of bfloat16 of the same numbers, and the error of both against float64 in the
    first head, for float8 also that of weights rounded to e4m3 with every sum in float64."""
    import torch

    lines: list[Line] = []
    shapes = ((2, 16, 16, 4096, 128), (1, 64, 8, 16_384, 128), (1, 64, 8, 16_384, 64), (1, 16, 16, 8192, 256))
    for batch, heads, kv_heads, length, size in shapes[: 1 if quick else None]:
        q = torch.randn((batch, heads, length, size), device="cuda").to(torch.float8_e4m3fn)
        k, v = (torch.randn((batch, kv_heads, length, size), device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        wide = [x.bfloat16() for x in (q, k, v)]
        for causal in (False, True):
            out, other = torch.empty_like(wide[0]), torch.empty_like(wide[0])
            one, two = (partial(attention, *x, causal=causal, out=y) for x, y in (((q, k, v), out), (wide, other)))
            bound, mine = _errors(one, out, (q, k, v), causal)
            variants = [
                harness.Variant("weft", one, partial(out.fill_, float("nan")), lambda: True),
                harness.Variant("bfloat16", two, partial(other.fill_, float("nan")), lambda: True),
            ]
            times = harness.measure(variants, harness.CudaClock(), 3 if quick else 7)
            operations = 4 * batch * heads * length * length * size / (2 if causal else 1)
            speeds = {name: operations / ms / 1e9 for name, ms in times.items()}
            goals = (Goal(950.0),) if (length, size) == (16_384, 128) else ()
            what = f"{batch}, {heads}/{kv_heads}, {length}, {size}{', causal' if causal else ''}"
            speed = speeds.pop("weft", None) if mine <= 1.1 * bound else None
            facts = {"RMSE": f"{mine:.3g}", "of weights in e4m3": f"{bound:.3g}"}
            lines.append(Line(what, speed, "TFLOP/s", speeds, goals, facts=facts))
    return lines


def _errors(run: Any, out: Any, given: Any, causal: bool) -> tuple[float, float]:
    """Root mean squares of errors of 256 queries of the first head: of weights rounded to e4m3, and of `run`."""
    import torch

    run()
    q, k, v = (x[0, 0].double() for x in given)
    q, length = q[-256:], k.shape[0]
    scores = q @ k.mT * q.shape[1] ** -0.5
    if causal:
        position = torch.arange(length, device="cuda")
        scores = torch.where(position[None, :] <= position[-256:, None], scores, -torch.inf)
    weights = (scores - scores.max(-1, keepdim=True).values).exp()
    exact = weights @ v / weights.sum(-1, keepdim=True)
    rounded = (weights * 256).float().to(torch.float8_e4m3fn).double() @ v / 256 / weights.sum(-1, keepdim=True)
    found = [(x.double() - exact).square().mean().sqrt().item() for x in (rounded.bfloat16(), out[0, 0, -256:])]
    return found[0], found[1]


PAGE = "tutorial/17-attention.md"
LADDER = (2, 16, 4096, 128)
"""Batch, heads, length and head size."""


def _ladder() -> list[Any]:
    """q, k, v and an output [batch, heads, length, size] of float16."""
    import torch

    return [torch.randn(LADDER, device="cuda").half() for _ in range(4)]


def ladder(quick: bool) -> list[Line]:
    """The rungs of the tutorial, and `weft.kernels.attention`."""
    kernels = page.program(PAGE)
    in_turn, attend = kernels["attend_in_turn"], kernels["attend"]
    by_exp2, consume, ahead = (kernels[name] for name in ("by_exp2", "consume", "consume_ahead"))
    q, k, v, out = whole = _ladder()
    wanted = _cudnn(q, k, v, False).clone()
    given = [x.flatten(0, 1) for x in whole]
    rungs: dict[str, Any] = {
        "1. one block at a time, exp": partial(in_turn, *given, 1, kernels["by_exp"]),
        "2. exp2": partial(in_turn, *given, 1, by_exp2),
        "3. blocks arrive ahead": partial(in_turn, *given, 2, by_exp2),
        "4. a producer warp": partial(attend, *given, 1, consume),
        "5. two MMAs in flight": partial(attend, *given, 1, ahead),
        "6. two consumers": partial(attend, *given, 2, ahead),
        "7. consumers take turns": partial(attend, *given, 2, ahead, True),
    }
    rungs["8. weft.kernels.attention"] = partial(attention, q, k, v, out=out)

    def correct() -> bool:
        return bool((out.float() - wanted.float()).abs().max() < 2e-2 * wanted.float().abs().max())

    def theirs() -> None:
        found["out"] = _cudnn(q, k, v, False)

    found: dict[str, Any] = {}
    poison = partial(out.fill_, float("nan"))
    variants = [harness.Variant(CUDNN, theirs, found.clear, lambda: found["out"].shape == out.shape)]
    variants += [harness.Variant(name, run, poison, correct) for name, run in rungs.items()]
    times = harness.measure(variants, harness.CudaClock(), 5 if quick else 25)
    batch, heads, length, size = LADDER
    speeds = {name: 4 * batch * heads * length**2 * size / ms / 1e9 for name, ms in times.items()}
    peers = {CUDNN: speeds[CUDNN]} if CUDNN in speeds else {}
    return [Line(name, speeds.get(name), "TFLOP/s", peers) for name in rungs]


def timeline(quick: bool) -> list[Line]:
    """What the consumers of one program do: cycles of a block, and a character for every 100 cycles of some blocks, `.` in the
    wait for scores and `#` behind it."""
    import torch

    kernels = page.program(PAGE)
    given = [x.flatten(0, 1) for x in _ladder()]
    blocks, cycles = LADDER[2] // 128, 100
    lines: list[Line] = []
    for name, consumers, turns in (("one consumer", 1, False), ("two consumers", 2, False), ("in turns", 2, True)):
        log = torch.zeros((blocks, 2, 2), dtype=torch.int64, device="cuda")
        for _ in range(2):
            kernels["attend"](*given, consumers, kernels["consume_ahead"], turns, False, log)
        found = log.cpu().numpy()[:, :consumers]
        a_block = float(found[-1, 0, 0] - found[1, 0, 0]) / (blocks - 2)
        drawn = kernels["timeline"](found, blocks // 2, blocks // 2 + 4, cycles)
        facts = {f"consumer {i}": drawn[i] if i < consumers else "" for i in range(2)}
        lines.append(Line(name, a_block, "cycles a block", facts=facts))
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
    "masks": ("Attention forward under masks, bfloat16", masks),
    "narrow": ("Attention forward, float8_e4m3fn", narrow),
    "ladder": ("Attention rung by rung, float16", ladder),
    "timeline": ("Consumers of attention on one multiprocessor", timeline),
}
