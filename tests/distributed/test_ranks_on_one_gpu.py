"""Kernels between ranks on a GPU, all ranks of which share it: `weft.distributed.on_one_gpu`, with small grids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, distributed

PRODUCT = MatmulConfig(programs=30)
PROGRAMS = 30
"""Programs of a rank that take a multiprocessor each: those of four ranks fit on an H200 with 132 at once."""
LAUNCHES = 5
ROOT = Path(__file__).parents[2]


class Numbers:
    """Random numbers by rank and launch, and sums over ranks in their order."""

    def __init__(self, torch: Any, ranks: int) -> None:
        self.torch, self.ranks = torch, ranks

    def of(self, rank: int, shape: tuple[int, ...], launch: int = 0) -> Any:
        generator = self.torch.Generator().manual_seed(1000 * rank + launch)
        return self.torch.randn(shape, generator=generator).bfloat16().cuda()

    def total(self, shape: tuple[int, ...], launch: int = 0) -> Any:
        sums = self.of(0, shape, launch).float()
        for rank in range(1, self.ranks):
            sums = sums + self.of(rank, shape, launch).float()
        return sums


def check_all_reduce(numbers: Numbers, rank: int) -> None:
    for method, n in (("one_shot", 5000), ("two_shot", 5000), ("two_shot", 1 << 18), (None, 7)):
        x = weft.distributed.empty(n, numbers.torch.bfloat16)
        shared = weft.Symmetric(x)
        for launch in range(LAUNCHES):
            x.copy_(numbers.of(rank, (n,), launch))
            weft.distributed.barrier()
            distributed.all_reduce(shared, method=method)  # pyright: ignore[reportArgumentType]
            numbers.torch.testing.assert_close(x, numbers.total((n,), launch).bfloat16(), rtol=0, atol=0)


def check_gather_and_scatter(numbers: Numbers, rank: int) -> None:
    shape = 33, 1001
    out = weft.distributed.empty((numbers.ranks, *shape), numbers.torch.bfloat16)
    shared = weft.Symmetric(out)
    for launch in range(LAUNCHES):
        out.fill_(float("nan"))
        x = numbers.of(rank, shape, launch)
        weft.distributed.barrier()
        distributed.all_gather(x, shared)
        for other in range(numbers.ranks):
            numbers.torch.testing.assert_close(out[other], numbers.of(other, shape, launch), rtol=0, atol=0)
        weft.distributed.barrier()
        part = distributed.reduce_scatter(shared)
        wanted = (numbers.of(rank, shape, launch).float() * numbers.ranks).bfloat16()
        numbers.torch.testing.assert_close(part, wanted, rtol=0.01, atol=0.01)


def check_all_reduce_rms_norm(numbers: Numbers, rank: int) -> None:
    for method, rows, d in (("one_shot", 5, 72), ("two_shot", 37, 4096), (None, 8, 7168)):
        x = weft.distributed.empty((rows, d), numbers.torch.bfloat16)
        shared, weight = weft.Symmetric(x), numbers.of(77, (d,))
        for launch in range(LAUNCHES):
            x.copy_(numbers.of(rank, (rows, d), launch))
            residual = numbers.of(99, (rows, d), launch)
            weft.distributed.barrier()
            out = distributed.all_reduce_rms_norm(shared, residual, weight, method=method)  # pyright: ignore[reportArgumentType]
            h = numbers.total((rows, d), launch).bfloat16().float() + numbers.of(99, (rows, d), launch).float()
            wanted = numbers.torch.nn.functional.rms_norm(h, (d,), weight.float(), 1e-6)
            numbers.torch.testing.assert_close(residual.float(), h, rtol=0.02, atol=0.02)
            numbers.torch.testing.assert_close(out.float(), wanted, rtol=0.03, atol=0.03)


def check_all_gather_matmul(numbers: Numbers, rank: int) -> None:
    for m, n, k in ((128, 136, 72), (512, 1024, 512)):
        a, b = weft.distributed.empty((numbers.ranks, m, k), numbers.torch.bfloat16), numbers.of(7, (k, n))
        shared = weft.Symmetric(a)
        for launch in range(LAUNCHES):
            a[rank].copy_(numbers.of(rank, (m, k), launch))
            weft.distributed.barrier()
            out = distributed.all_gather_matmul(shared, b, chunk=256, config=PRODUCT)
            whole = numbers.torch.cat([numbers.of(other, (m, k), launch) for other in range(numbers.ranks)])
            numbers.torch.testing.assert_close(out.float(), whole.float() @ b.float(), rtol=0.02, atol=0.1)


def check_matmul_sums(numbers: Numbers, rank: int) -> None:
    ranks, dtype = numbers.ranks, numbers.torch.bfloat16
    for m, n, k in ((100, 136, 72), (1024, 1032, 512)):
        work = weft.Symmetric(weft.distributed.empty(distributed.work_elements(ranks * m, n, ranks), dtype))
        every = weft.Symmetric(weft.distributed.empty((ranks * m, n), dtype))
        for launch in range(LAUNCHES):
            a, b = numbers.of(rank, (ranks * m, k), launch), numbers.of(rank + 50, (k, n))
            weft.distributed.barrier()
            part = distributed.matmul_reduce_scatter(a, b, work, config=PRODUCT)
            weft.distributed.barrier()
            whole = distributed.matmul_all_reduce(a, b, work, every, config=PRODUCT)
            parts = [
                numbers.of(r, (ranks * m, k), launch).float() @ numbers.of(r + 50, (k, n)).float() for r in range(ranks)
            ]
            # The product of each rank is rounded to bfloat16, by at most 2**-8 of it, before they are added, and so is the sum.
            wanted, most = sum(parts), 2**-7 * sum(part.abs() for part in parts) + 0.01
            assert ((whole.float() - wanted).abs() <= most).all()
            assert ((part.float() - wanted[rank * m : rank * m + m]).abs() <= most[rank * m : rank * m + m]).all()


def check_experts(numbers: Numbers, rank: int) -> None:
    torch, ranks, experts = numbers.torch, numbers.ranks, 16
    each = experts // ranks
    for tokens, width, slots in ((33, 1000, 2), (128, 7168, 8)):
        capacity = ranks * tokens * slots
        rows, results = (weft.distributed.empty((capacity, width), torch.bfloat16) for _ in range(2))
        counts = weft.Symmetric(weft.distributed.empty((ranks, experts), torch.int32))
        sent, back = weft.Symmetric(rows), weft.Symmetric(results)
        for launch in range(LAUNCHES):
            generator = torch.Generator().manual_seed(10 * launch + rank)
            ids = torch.randint(0, experts, (tokens, slots), generator=generator, dtype=torch.int32).cuda()
            weights = torch.rand(tokens, slots, generator=generator).cuda()
            x = numbers.of(rank, (tokens, width), launch)
            weft.distributed.barrier()
            found = distributed.dispatch(x, ids, experts, sent, counts, programs=PROGRAMS)
            bounds = found.offsets.tolist()
            assert bounds[-1] == int(counts.tensor[:, rank * each : rank * each + each].sum())
            for expert in range(each):
                part = slice(bounds[expert], bounds[expert + 1])
                results[part] = rows[part] * (1 + rank * each + expert)
            weft.distributed.barrier()
            out = distributed.combine(back, ids, found.places, weights, experts, programs=PROGRAMS)
            factors = (weights * (1 + ids)).sum(-1, keepdim=True)
            torch.testing.assert_close(out.float(), x.float() * factors, rtol=0.02, atol=0.02)


CHECKS = [check_all_reduce, check_gather_and_scatter, check_all_reduce_rms_norm, check_experts]
ON_HOPPER = [check_all_gather_matmul, check_matmul_sums]


def together(torch: Any, check: Any, ranks: int = 2) -> None:
    weft.distributed.on_one_gpu(lambda rank: check(Numbers(torch, ranks), rank), ranks)


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", CHECKS)
def test_ranks_of_one_gpu(torch: Any, check: Any, ranks: int):
    together(torch, check, ranks)


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", ON_HOPPER)
def test_ranks_of_one_gpu_that_multiply(torch: Any, check: Any, ranks: int):
    if torch.cuda.get_device_capability()[0] == 9:
        together(torch, check, ranks)


TIMEOUT = """
import torch
import weft
from weft import language as gl

@weft.jit
def waits(x: gl.symmetric):
    if x.rank == 0:
        gl.wait_signal(x, 1, 3, timeout_ns=300_000_000)

def on(rank):
    waits[1](weft.Symmetric(weft.distributed.empty(4, torch.float32)))
    torch.cuda.current_stream().synchronize()

weft.distributed.on_one_gpu(on, 2)
"""


@pytest.mark.gpu
def test_a_signal_that_does_not_come_stops_the_kernel(torch: Any, tmp_path: Path):
    """In a process of its own, whose context is lost."""
    script = tmp_path / "waits.py"
    script.write_text(TIMEOUT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert found.returncode == 1
    said = "waits.py:9: rank 0, program (0, 0, 0): gl.wait_signal has waited for 0.3 s for a signal of rank 1 on flag 3"
    assert said in found.stdout
    assert "CUDA error" in found.stderr


@pytest.mark.gpu
def test_ranks_of_one_gpu_that_launch_different_kernels(torch: Any):
    def on(rank: int):
        x = weft.Symmetric(weft.distributed.empty(16, torch.float32))
        method: Any = "one_shot" if rank else "two_shot"
        distributed.all_reduce(x, method=method)

    with pytest.raises(LaunchError) as found:
        weft.distributed.on_one_gpu(on, 2)
    assert found.value.code == "ranks-different"
    assert "rank 0 is at kernel two_shot" in found.value.message


def test_ranks_of_one_gpu_have_a_positive_number():
    with pytest.raises(LaunchError) as found:
        weft.distributed.on_one_gpu(lambda rank: rank, 0)
    assert found.value.code == "ranks-option"
