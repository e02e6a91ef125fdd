"""`weft.kernels.decode_attention` beside cuDNN, through `scaled_dot_product_attention`: one query of each sequence, bfloat16.

The figure is the speed at which keys and values are read. Calls are those of a CUDA graph. `latent` is multi-head latent
attention, which PyTorch has no kernel for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import decode_attention

NEEDS_GPU = True
CUDNN = "cuDNN"
SHAPES = ((1, 32, 8, 32_768, 4.0), (16, 32, 8, 8192, 4.4), (64, 64, 8, 4096, 4.4))
"""Batch, query heads, heads of keys, length, and the goal in TB/s; the head size is 128."""
PAGES = ((16, 0.97), (1, 0.9))
"""Positions of a page, and the goal as a share of the speed without pages."""
LATENT = ((128, 16, 4096, 3.8, "TB/s"), (66, 128, 8192, 600.0, "TFLOP/s"))
"""Batch, query heads, length, and the goal."""
COPIES = 3
"""Caches that calls take in turn: the smallest one would stay in L2 in part."""


def dense(quick: bool) -> list[Line]:
    """Every shape without pages, with lengths on the GPU, and with pages."""
    import torch

    lines: list[Line] = []
    for batch, heads, kv_heads, length, goal in SHAPES[:1] if quick else SHAPES:
        q = torch.randn((batch, heads, 1, 128), device="cuda").bfloat16()
        copies = COPIES if batch == 1 else 1
        shape = batch, kv_heads, length, 128
        caches = [tuple(torch.randn(shape, device="cuda").bfloat16() for _ in "kv") for _ in range(copies)]
        lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
        calls = {
            CUDNN: [partial(_cudnn, q, *cache) for cache in caches],
            "weft": [partial(decode_attention, q, *cache, lengths) for cache in caches],
        }
        for page, _ in PAGES:
            table = torch.randperm(batch * length // page, device="cuda").reshape(batch, -1).int()
            paged = [tuple(_in_pages(x, table, page) for x in cache) for cache in caches]
            calls[f"pages of {page}"] = [partial(decode_attention, q, *x, lengths, block_table=table) for x in paged]
        speeds = _speeds(calls, 4 * batch * kv_heads * length * 128, _cudnn(q, *caches[-1]), quick)
        what = f"{batch}, {heads}/{kv_heads}, {length}"
        lines.append(Line(what, speeds.get("weft"), "TB/s", {CUDNN: speeds[CUDNN]}, (Goal(goal),)))
        for page, share in PAGES:
            name, peers = f"pages of {page}", {"without pages": speeds["weft"]}
            lines.append(Line(f"{what}, {name}", speeds.get(name), "TB/s", peers, (Goal(share, "without pages"),)))
    return lines


def latent(quick: bool) -> list[Line]:
    """Latent caches in pages of 64."""
    import torch

    lines: list[Line] = []
    for batch, heads, length, goal, unit in LATENT[:1] if quick else LATENT:
        q = torch.randn((batch, heads, 1, 576), device="cuda").bfloat16() / 4
        cache = torch.randn((batch, 1, length, 576), device="cuda").bfloat16()
        table = torch.randperm(batch * length // 64, device="cuda").reshape(batch, -1).int()
        pages = _in_pages(cache, table, 64)
        lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
        # Of each sequence one product: a broadcast would copy the cache for every head.
        scores = (q[:, :, 0] @ cache[:, 0].mT).float() / 24
        wanted = (scores.softmax(-1).bfloat16() @ cache[:, 0, :, :512])[:, :, None]
        calls = {"weft": [partial(decode_attention, q, pages, None, lengths, block_table=table)]}
        work = 2 * batch * heads * length * (576 + 512) if unit == "TFLOP/s" else cache.nbytes
        speeds = _speeds(calls, work, wanted, quick)
        lines.append(Line(f"{batch}, {heads} heads, {length}", speeds.get("weft"), unit, {}, (Goal(goal),)))
    return lines


def _speeds(calls: dict[str, list[Any]], work: float, wanted: Any, quick: bool) -> dict[str, float]:
    """Work for each second of a call, in units of 1e12. The last call of each gives what is wanted."""
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        for call in calls[name]:
            found["out"] = call()

    def correct() -> bool:
        return harness.relative_error(found["out"], wanted) < 1e-2

    variants = [harness.Variant(name, partial(run, name), partial(found.pop, "out", None), correct) for name in calls]
    times = harness.measure(variants, harness.GraphClock(4), 5 if quick else 25)
    return {name: work * len(calls[name]) / ms / 1e9 for name, ms in times.items()}


def _in_pages(x: Any, table: Any, page: int) -> Any:
    """A cache [batch, heads, length, size] as pages, with the heads of a position side by side."""
    batch, heads, length, size = x.shape
    pages = x.new_empty((batch * length // page, page, heads, size))
    pages[table.long()] = x.unflatten(2, (-1, page)).permute(0, 2, 3, 1, 4)
    return pages.transpose(1, 2)


def _cudnn(q: Any, k: Any, v: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, enable_gqa=True)


PARTS = {
    "dense": ("Decode attention, bfloat16", dense),
    "latent": ("Decode attention with a latent cache, bfloat16", latent),
}
