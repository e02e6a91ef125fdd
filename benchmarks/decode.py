"""`weft.kernels.decode_attention` beside cuDNN, through `scaled_dot_product_attention`: one query of each sequence, bfloat16.

The figure is the speed at which keys and values are read. Calls are those of a CUDA graph. `latent` is multi-head latent
attention, and `narrow` a cache of float8_e4m3fn, which PyTorch has no kernels for. `append` stores new positions, rotated, and
rotates their queries, beside a copy of the same bytes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.report import Goal, Line
from weft.kernels import append_to_cache, decode_attention

NEEDS_GPU = True
CUDNN = "cuDNN"
SHAPES = ((1, 32, 8, 32_768, 4.0), (16, 32, 8, 8192, 4.4), (64, 64, 8, 4096, 4.4))
"""Batch, query heads, heads of keys, length, and the goal in TB/s; the head size is 128."""
PAGES = ((16, 0.97), (1, 0.9))
"""Positions of a page, and the goal as a share of the speed without pages."""
LATENT = ((128, 16, 4096, 3.8, "TB/s"), (66, 128, 8192, 600.0, "TFLOP/s"))
"""Batch, query heads, length, and the goal."""
NEW = ((64, 64, 8, 1), (16, 32, 8, 512))
"""Sequences, query heads, heads of keys and new positions of each; pages have 16 positions and the head size is 128."""
COPIES = 3
"""Caches that calls take in turn: the smallest one would stay in L2 in part."""


def dense(quick: bool) -> list[Line]:
    """Every shape without pages, with lengths on the GPU, and with pages."""
    import torch

    lines: list[Line] = []
    for batch, heads, kv_heads, length, goal in SHAPES[:1] if quick else SHAPES:
        q, lengths, caches = _made(batch, heads, kv_heads, length, torch.bfloat16)
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


def narrow(quick: bool) -> list[Line]:
    """A cache of 8-bit floats beside one of bfloat16 with as many positions, as multiples of its speed in positions."""
    import torch

    lines: list[Line] = []
    for batch, heads, kv_heads, length, _ in SHAPES[:1] if quick else SHAPES:
        q, lengths, made = _made(batch, heads, kv_heads, length, torch.float8_e4m3fn)
        wide = [[x.bfloat16() for x in cache] for cache in made]
        calls = {
            "bfloat16": [partial(decode_attention, q, *cache, lengths) for cache in wide],
            "weft": [partial(decode_attention, q, *cache, lengths) for cache in made],
        }
        nbytes = 2 * batch * kv_heads * length * 128
        speeds = _speeds(calls, nbytes, _cudnn(q, *wide[-1]), quick)
        lines.append(
            Line(f"{batch}, {heads}/{kv_heads}, {length}", speeds.get("weft"), "TB/s", {"bfloat16": speeds["bfloat16"]})
        )
    return lines


def append(quick: bool) -> list[Line]:
    """New positions of sequences with different lengths, with rotary embeddings."""
    import torch

    lines: list[Line] = []
    for batch, heads, kv_heads, new in NEW[:1] if quick else NEW:
        pages, width = batch * 256, 256
        cache = [torch.zeros((pages, 16, kv_heads, 128), device="cuda").bfloat16().transpose(1, 2) for _ in "kv"]
        table = torch.randperm(pages, device="cuda").reshape(batch, width).int()
        lengths = torch.randint(new, width * 16, (batch,), device="cuda").int()
        key, value, q = (
            torch.randn((batch, new, n, 128), device="cuda").bfloat16().transpose(1, 2)
            for n in (kv_heads, kv_heads, heads)
        )
        angles = torch.outer(
            torch.arange(width * 16, device="cuda"), 10_000.0 ** (-torch.arange(64, device="cuda") / 64)
        )
        cos, sin = angles.cos(), angles.sin()
        moved = torch.cat([x.flatten() for x in (key, value, q)])
        target = torch.empty_like(moved)
        at = lengths.long()[:, None] - new + torch.arange(new, device="cuda")
        where = table.long().gather(1, at // 16), at % 16

        def stored(where: Any = where, cache: Any = cache) -> Any:
            return torch.stack([x.transpose(1, 2)[where].transpose(1, 2) for x in cache])

        options = {"block_table": table, "q": q, "cos": cos, "sin": sin}
        first, second = key.float().chunk(2, -1)
        turn = cos[at][:, None], sin[at][:, None]
        turned = torch.cat([first * turn[0] - second * turn[1], second * turn[0] + first * turn[1]], -1)
        wanted = torch.stack([turned.bfloat16(), value])
        variants = [
            harness.Variant(
                "weft", partial(append_to_cache, key, value, *cache, lengths, **options), cache[0].zero_,
                lambda wanted=wanted, stored=stored: harness.relative_error(stored(), wanted) < 1e-2,
            ),
            harness.Variant("copy", partial(target.copy_, moved), target.zero_, lambda x=target, y=moved: torch.equal(x, y)),
        ]  # fmt: skip
        times = harness.measure(variants, harness.GraphClock(), 5 if quick else 25)
        found = {name: 1e3 * ms for name, ms in times.items()}
        what = f"{batch} sequences, {heads}/{kv_heads}, {new} new"
        lines.append(Line(what, found.get("weft"), "us", {"copy": found["copy"]}))
    return lines


def _made(batch: int, heads: int, kv_heads: int, length: int, dtype: Any) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Queries, the lengths of sequences, and caches of keys and values that calls take in turn."""
    import torch

    def numbers(*shape: int) -> Any:
        return torch.randn(shape, device="cuda")

    caches = [
        (numbers(batch, kv_heads, length, 128).to(dtype), numbers(batch, kv_heads, length, 128).to(dtype))
        for _ in range(COPIES if batch == 1 else 1)
    ]
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    return numbers(batch, heads, 1, 128).bfloat16(), lengths, caches


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
    "narrow": ("Decode attention with a cache of float8_e4m3fn", narrow),
    "append": ("Appending to a cache in pages of 16, with rotary embeddings, bfloat16", append),
}
