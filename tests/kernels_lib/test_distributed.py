"""`weft.kernels.distributed` on simulated ranks: numbers against NumPy, the same bits on all ranks, and no hazard."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.distributed.worlds import world
from weft import compiler
from weft.errors import LaunchError
from weft.kernels import distributed

BF16 = np.dtype(ml_dtypes.bfloat16)
WORLDS = [2, pytest.param(4, marks=pytest.mark.matrix), pytest.param(8, marks=pytest.mark.matrix)]
SIZES = [1, 5000, pytest.param(4096, marks=pytest.mark.matrix), pytest.param(20_003, marks=pytest.mark.matrix)]


def numbers(rank: int, shape: Any, dtype: Any, launch: int = 0) -> np.ndarray:
    rng = np.random.default_rng(17 * rank + launch)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-99, 99, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def total(ranks: int, shape: Any, dtype: Any, launch: int = 0) -> np.ndarray:
    """The sum in the order of the ranks, in float32 or an integer, rounded once."""
    wide = dtype if np.dtype(dtype).kind == "i" else np.float32
    sums = numbers(0, shape, dtype, launch).astype(wide)
    for rank in range(1, ranks):
        sums = sums + numbers(rank, shape, dtype, launch).astype(wide)
    return sums.astype(dtype)


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("method", ["one_shot", "two_shot"])
@pytest.mark.parametrize("dtype", [BF16, pytest.param(np.float32, marks=pytest.mark.matrix)])
def test_all_reduce(ranks: int, n: int, method: Any, dtype: Any):
    def on(rank: int):
        x = weft.distributed.empty(n, dtype)
        shared, results = weft.Symmetric(x), []
        for launch in range(2):
            x[:] = numbers(rank, n, dtype, launch)
            assert distributed.all_reduce(shared, method=method) is x
            results.append(x.copy())
        return results

    for seed in (0, 2):
        for results in world(on, ranks, seed):
            for launch, found in enumerate(results):
                np.testing.assert_array_equal(found, total(ranks, n, dtype, launch))


def test_all_reduce_of_three_ranks_in_lowered_ir():
    def on(rank: int):
        x = weft.distributed.empty((3, 700), np.int32)
        x[:] = numbers(rank, (3, 700), np.int32)
        return distributed.all_reduce(weft.Symmetric(x), method="two_shot")

    for found in world(on, 3, 1, "lowered"):
        np.testing.assert_array_equal(found, total(3, (3, 700), np.int32))


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize("shape", [(3, 1001), pytest.param((64, 64), marks=pytest.mark.matrix)])
def test_gather_and_scatter(ranks: int, shape: tuple[int, ...]):
    def on(rank: int):
        out = weft.distributed.empty((ranks, *shape), BF16)
        out[:] = np.nan
        shared = weft.Symmetric(out)
        x = numbers(rank, shape, BF16)
        gathered = distributed.all_gather(x, shared).copy()
        return gathered, distributed.reduce_scatter(shared)

    every = np.stack([numbers(rank, shape, BF16) for rank in range(ranks)])
    for seed in (0, 3):
        for rank, (gathered, part) in enumerate(world(on, ranks, seed)):
            np.testing.assert_array_equal(gathered, every)
            wanted = (every[rank].astype(np.float32) * ranks).astype(BF16)
            np.testing.assert_allclose(part.astype(np.float32), wanted.astype(np.float32), rtol=0.01)


def test_the_loads_of_all_ranks_are_in_flight_together():
    ranks, made = 8, []

    def on(rank: int):
        x = weft.distributed.empty(4096, BF16)
        x[:] = 0
        distributed.all_reduce(weft.Symmetric(x), method="one_shot")

    compiler.observers.append(made.append)
    try:
        with weft.simulate(target="sm_90a", hazards=False):
            world(on, ranks)
    finally:
        compiler.observers.remove(made.append)
    (kernel,) = {each.name: each for each in made}.values()
    assert kernel.n_spills == 0
    lines = kernel.asm["sass"].splitlines()
    loads = [number for number, line in enumerate(lines) if "LDG.E.128" in line]
    sums = [number for number, line in enumerate(lines) if re.search(r"\bFADD\b", line)]
    assert len(loads) == ranks
    assert max(loads) < min(sums)


SMALL = distributed.GatherMatmulConfig(block_m=128, block_n=64, block_k=32, copiers=2, consumers=7, chunks=2, stages=3)


@pytest.mark.parametrize("ranks", WORLDS)
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.matrix), pytest.param(2, marks=pytest.mark.matrix)]
)
def test_all_gather_matmul(ranks: int, seed: int):
    m, k, n, made = 384, 72, 136, []

    def on(rank: int):
        a, b = weft.distributed.empty((ranks, m, k), np.float16), numbers(99, (k, n), np.float16)
        a[:] = np.nan
        shared, results = weft.Symmetric(a), []
        for launch in range(2):
            a[rank] = numbers(rank, (m, k), np.float16, launch)
            results.append(distributed.all_gather_matmul(shared, b, config=SMALL))
        return results

    with weft.simulate(target="sm_90a"):
        for results in world(on, ranks, seed):
            for launch, found in enumerate(results):
                a = np.concatenate([numbers(rank, (m, k), np.float16, launch) for rank in range(ranks)])
                wanted = a.astype(np.float64) @ numbers(99, (k, n), np.float16).astype(np.float64)
                np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3, atol=2e-3)
                made.append(found)
    for first, other in zip(made, made[2:], strict=False):
        np.testing.assert_array_equal(first, other)


def test_machine_code_of_all_gather_matmul():
    made: list[Any] = []

    def on(rank: int):
        a = weft.distributed.empty((2, 128, 64), BF16)
        a[:] = 1
        return float(distributed.all_gather_matmul(weft.Symmetric(a), np.ones((64, 256), BF16))[0, 0])

    compiler.observers.append(made.append)
    try:
        with weft.simulate(target="sm_90a", hazards=False):
            assert world(on, 2) == [64, 64]
    finally:
        compiler.observers.remove(made.append)
    kernel = made[0]
    assert kernel.n_spills == 0
    assert "C75" not in kernel.asm["order"], "MMAs run asynchronously"
    assert {"HGMMA", "UTMALDG", "UTMASTG"} <= set(re.findall(r"HGMMA|UTMALDG|UTMASTG", kernel.asm["sass"]))


def test_nothing_to_add():
    def on(rank: int):
        x = weft.distributed.empty(0, np.float32)
        return distributed.all_reduce(weft.Symmetric(x)).size

    assert world(on, 2) == [0, 0]


def _shared(shape: Any, dtype: Any = np.float32) -> weft.Symmetric:
    return weft.Symmetric(weft.distributed.empty(shape, dtype))


MISTAKES = {
    "kernels-ranks-symmetric": lambda: distributed.all_reduce(np.zeros(4)),  # pyright: ignore[reportArgumentType]
    "kernels-ranks-array": lambda: distributed.all_gather([1], _shared((2, 1))),
    "kernels-ranks-dtype": lambda: distributed.all_reduce(_shared(4, np.int8)),
    "kernels-ranks-shape": lambda: distributed.all_gather(np.zeros(4, np.float32), _shared((2, 5))),
    "kernels-ranks-method": lambda: distributed.all_reduce(_shared(4), method="three_shot"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake(code: str):
    with pytest.raises(LaunchError) as found:
        weft.distributed.simulate(lambda rank: MISTAKES[code]())
    assert found.value.code == code
    assert found.value.fix


@pytest.mark.parametrize(
    "call",
    [
        lambda: distributed.all_reduce(_shared(100_000), method="one_shot"),
        lambda: distributed.reduce_scatter(_shared(4)),
        lambda: distributed.reduce_scatter(_shared((2, 4)), np.zeros(3, np.float32)),
        lambda: distributed.all_gather(np.zeros((4, 4), np.float32)[:, 1], _shared((2, 4))),
    ],
)
def test_operands_that_do_not_fit(call: Any):
    with pytest.raises(LaunchError):
        weft.distributed.simulate(lambda rank: call())
