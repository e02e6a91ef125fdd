"""Arithmetic that overlaps MMAs: attention, and int4 weights that are unpacked while the ones before are multiplied."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import twin
from benchmarks.harness import Jobs
from benchmarks.matmul import CUBLAS, table
from benchmarks.report import Goal, Line

NEEDS_GPU = True
CUDNN = "cuDNN"
SHAPES = ((2, 16, 4096, 128), (1, 64, 8192, 128))
"""Batch, heads, length, head size."""
WEIGHTS = 8192
TOKENS = (512, 4096)
KERNELS = ((1, 64), (1, 128), (2, 128), (2, 256))
"""Consumers, and the columns of their tile."""


def attention(quick: bool) -> list[Line]:
    """The example's attention with each place of its second wait, bfloat16."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    example = twin.load("attention")
    lines: list[Line] = []
    for batch, heads, length, size in SHAPES[: 1 if quick else None]:
        q, k, v = (torch.randn((batch, heads, length, size), device="cuda").bfloat16() for _ in range(3))
        out = torch.empty((batch * heads, length, size), device="cuda", dtype=torch.bfloat16)

        flat = [x.view(batch * heads, length, size) for x in (q, k, v)]
        found: dict[str, Any] = {}

        def theirs(q: Any = q, k: Any = k, v: Any = v, found: dict[str, Any] = found) -> None:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                found["out"] = scaled_dot_product_attention(q, k, v)

        def ours(*how: Any, flat: list[Any] = flat, out: Any = out, found: dict[str, Any] = found) -> None:
            example.attention(*flat, out, *how)
            found["out"] = out

        theirs()
        wanted = found["out"].reshape(out.shape)
        jobs: Jobs = {
            f"|{CUDNN}": theirs,
            **{f"{name}|weft": partial(ours, *how) for name, how in example.RUNS.items()},
        }

        def correct(found: dict[str, Any] = found, wanted: Any = wanted) -> bool:
            # A unit in the last place of the largest elements is 0.8% of them.
            return close(found["out"].reshape(wanted.shape), wanted, 2e-2)

        result = {"poison": partial(out.fill_, float("nan")), "correct": correct}
        operations = 4 * batch * heads * length * length * size
        lines += table(f"{batch}x{heads}x{length}x{size}", jobs, operations, quick, result)
    return lines


def int4(quick: bool) -> list[Line]:
    """The example's product with weights of four bits, asynchronous and synchronous, and cuBLAS on their float16."""
    import torch

    example = twin.load("matmul_int4")
    words = torch.randint(-(2**31), 2**31 - 1, (WEIGHTS, WEIGHTS // 8), device="cuda", dtype=torch.int32)
    scales = torch.rand((WEIGHTS // example.GROUP, WEIGHTS), device="cuda").half()
    weights = torch.from_numpy(example.dequantised(words.cpu().numpy(), scales.cpu().numpy())).half().cuda()
    lines: list[Line] = []
    for tokens in TOKENS[: 1 if quick else None]:
        x = torch.randn((tokens, WEIGHTS), device="cuda").half()
        out = torch.empty((tokens, WEIGHTS), device="cuda", dtype=torch.float16)
        # The weights of the reference are rounded once, as the kernel's are.
        check = partial(close, out, x @ weights.T, 5e-3)
        result = {"poison": partial(out.fill_, float("nan")), "correct": check}
        jobs: Jobs = {f"|{CUBLAS}": partial(torch.matmul, x, weights.T, out=out)}
        for consumers, columns in KERNELS:
            for who, synchronous in (("weft", False), ("synchronous", True)):
                case = f"{example.ROWS * consumers}x{columns}"
                jobs[f"{case}|{who}"] = partial(
                    example.matmul_int4, words, scales, x, out, consumers, columns, synchronous
                )
        lines += table(f"{tokens} tokens", jobs, 2 * tokens * WEIGHTS**2, quick, result)
    # With one consumer nothing else keeps the tensor cores busy.
    return [replace(line, goals=(Goal(1.3, "synchronous"),)) if " 64x128" in line.what else line for line in lines]


def close(got: Any, wanted: Any, tolerance: float) -> bool:
    """Whether all elements are as wanted, up to an error relative to the largest."""
    error = (got.float() - wanted.float()).abs().max() / wanted.float().abs().max()
    return bool(error < tolerance)


PARTS = {"attention": ("Attention with two MMAs in flight", attention), "int4": ("Weights of four bits", int4)}
