"""Functions between ranks on random numbers of ranks, shapes and types, with arrays that begin elsewhere on each rank.

Ordinary arrays lie anywhere within larger ones, symmetric arrays at the same random place on all ranks, and outputs hold NaN
before. Ranks take turns in a random order. Numbers are compared with NumPy's in float64, and hazards are reported.
"""

from __future__ import annotations

import random
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

import weft
from weft.kernels import distributed

TRIED = 120
BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(np.float16), BF16, np.dtype(np.float32)]


class Case:
    """A random world: every rank draws the same shapes from it, and its own places and numbers."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, random.Random(seed)
        self.ranks, self.dtype = self.draw.choice([1, 2, 2, 3, 4]), self.draw.choice(TYPES)
        self.begin = self.draw.choice([0, 8, 1, 40])
        self.launches = self.draw.randint(1, 3)

    def size(self, most: int) -> int:
        """A random size, often small or beside a power of two."""
        near = (1 << self.draw.randint(0, most.bit_length() - 1)) + self.draw.randint(-1, 1)
        return max(min(self.draw.choice([near, self.draw.randint(1, most)]), most), 1)

    def numbers(self, rank: int, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray:
        """The numbers of a rank."""
        rng = np.random.default_rng([self.seed, rank, *shape])
        return rng.standard_normal(shape).astype(self.dtype if dtype is None else dtype)

    def array(self, rank: int, values: np.ndarray) -> np.ndarray:
        """An ordinary array with these values, that begins at a place of this rank."""
        begin = random.Random(f"{self.seed} {rank} {values.shape}").choice([0, 8, 16, 32, 1, 3])
        room = np.zeros(values.size + begin, values.dtype)
        found = room[begin:].reshape(values.shape)
        found[...] = values
        return found

    def shared(
        self, shape: tuple[int, ...], dtype: Any = None, begin: int | None = None
    ) -> tuple[np.ndarray, weft.Symmetric]:
        """A symmetric array of NaN, that begins at a place of all ranks."""
        begin = self.begin if begin is None else begin
        whole = weft.distributed.empty(begin + prod(shape), self.dtype if dtype is None else dtype)
        part = whole[begin:].reshape(shape)
        if part.dtype.kind != "i":
            part[...] = np.nan
        return part, weft.Symmetric(part)

    def world(self, on: Any) -> list[Any]:
        """What a function returns on every rank."""
        with weft.simulate(target="sm_90a"):
            return weft.distributed.simulate(on, ranks=self.ranks, seed=self.seed)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def close(case: Case, found: np.ndarray, wanted: np.ndarray, scale: float = 1) -> None:
    bits = {"float16": 11, "bfloat16": 8, "float32": 20}[case.dtype.name]
    np.testing.assert_allclose(wide(found), wanted, rtol=4 * 2.0**-bits, atol=8 * scale * 2.0**-bits)


def sums(case: Case) -> None:
    shape = (case.size(6000),)
    method: Any = case.draw.choice([None, "one_shot", "two_shot", "pushed"])

    def on(rank: int):
        x, symmetric = case.shared(shape)
        for _ in range(case.launches):
            x[...] = case.numbers(rank, shape)
            distributed.all_reduce(symmetric, method=method)
        return x.copy()

    wanted = sum(wide(case.numbers(rank, shape)) for rank in range(case.ranks))
    for found in case.world(on):
        close(case, found, wanted, case.ranks)


def exchanges(case: Case) -> None:
    shape = tuple(case.size(90) for _ in range(case.draw.randint(1, 2)))

    def on(rank: int):
        every, symmetric = case.shared((case.ranks, *shape))
        distributed.all_gather(case.array(rank, case.numbers(rank, shape)), symmetric)
        gathered = every.copy()
        weft.distributed.barrier()
        out = case.array(rank, np.full(shape, np.nan, case.dtype))
        distributed.reduce_scatter(symmetric, out)
        return gathered, out

    every = np.stack([case.numbers(rank, shape) for rank in range(case.ranks)])
    for rank, (gathered, out) in enumerate(case.world(on)):
        np.testing.assert_array_equal(gathered, every)
        close(case, out, wide(every[rank]) * case.ranks, case.ranks)


def norms(case: Case) -> None:
    shape, method = (case.size(12), case.size(700)), case.draw.choice([None, "one_shot", "two_shot"])
    residual = case.draw.random() < 0.5

    def on(rank: int):
        x, symmetric = case.shared(shape)
        weight = case.array(rank, case.numbers(99, shape[1:]))
        for _ in range(case.launches):
            x[...] = case.numbers(rank, shape)
            h = case.array(rank, case.numbers(98, shape)) if residual else None
            out = distributed.all_reduce_rms_norm(symmetric, h, weight, method=method)
        return out

    h = sum(wide(case.numbers(rank, shape)) for rank in range(case.ranks)) + residual * wide(case.numbers(98, shape))
    wanted = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6) * wide(case.numbers(99, shape[1:]))
    for found in case.world(on):
        close(case, found, wanted, 4)


def gathered_products(case: Case) -> None:
    case.dtype = case.draw.choice(TYPES[:2])
    m, k, n = case.size(150), 8 * case.size(16), 8 * case.size(32)
    chunk = case.draw.choice([None, None, max(-(-m // 16), case.size(m))])

    def on(rank: int):
        a, symmetric = case.shared((case.ranks, m, k), begin=case.begin & ~7)
        b = case.array(rank, case.numbers(99, (k, n))) if rank % 2 else case.numbers(99, (k, n))
        if b.ctypes.data % 16:
            b = case.numbers(99, (k, n))
        for _ in range(case.launches):
            a[rank] = case.numbers(rank, (m, k))
            out = distributed.all_gather_matmul(symmetric, b, chunk=chunk)
        return out

    a = np.concatenate([case.numbers(rank, (m, k)) for rank in range(case.ranks)])
    for found in case.world(on):
        close(case, found, wide(a) @ wide(case.numbers(99, (k, n))), k**0.5)


def summed_products(case: Case) -> None:
    case.dtype = case.draw.choice(TYPES[:2])
    scatter = case.draw.random() < 0.5
    rows, k, n = case.ranks * case.size(80), 8 * case.size(12), 8 * case.size(24)
    rows -= 0 if scatter else case.draw.randint(0, min(rows - 1, 3))

    def on(rank: int):
        _, work = case.shared((distributed.work_elements(rows, n, case.ranks),), begin=case.begin & ~7)
        every, symmetric = case.shared((rows, n), begin=case.begin & ~7)
        a, b = (case.array(rank, case.numbers(rank, shape)) for shape in ((rows, k), (k, n)))
        for _ in range(case.launches):
            if scatter:
                out = distributed.matmul_reduce_scatter(a, b, work)
            else:
                out = distributed.matmul_all_reduce(a, b, work, symmetric)
        return out if scatter else every.copy()

    wanted = sum(wide(case.numbers(r, (rows, k))) @ wide(case.numbers(r, (k, n))) for r in range(case.ranks))
    found = case.world(on)
    for out in [np.concatenate(found)] if scatter else found:
        close(case, out, wanted, case.ranks * k**0.5)


def tokens(case: Case) -> None:
    experts, width, slots = case.ranks * case.size(6), case.size(60), case.draw.randint(1, 3)
    counts = [case.draw.choice([0, 1, case.size(40)]) for _ in range(case.ranks)]
    room, programs = slots * sum(counts) + 1, case.draw.choice([1, 3, 5])

    def ids_of(rank: int) -> np.ndarray:
        rng = np.random.default_rng([case.seed, rank])
        return rng.integers(0, experts, (counts[rank], slots)).astype(np.int32)

    def on(rank: int):
        _, rows = case.shared((room, width))
        _, table = case.shared((case.ranks, experts), np.int32, 0)
        x, ids = case.array(rank, case.numbers(rank, (counts[rank], width))), ids_of(rank)
        weights = case.numbers(50 + rank, ids.shape, np.float32)
        for _ in range(case.launches):
            _, places = distributed.dispatch(x, ids, experts, rows, table, programs=programs)
            out = distributed.combine(rows, ids, places, weights, experts, programs=programs)
        return out

    for rank, found in enumerate(case.world(on)):
        weights = wide(case.numbers(50 + rank, (counts[rank], slots), np.float32))
        wanted = wide(case.numbers(rank, (counts[rank], width))) * weights.sum(-1, keepdims=True)
        close(case, found, wanted, 4)


def test_random_worlds(scale: int, stress_report: Any):
    wrong: list[str] = []
    functions = [sums, exchanges, norms, gathered_products, summed_products, tokens]
    for seed in range(TRIED * scale):
        try:
            functions[seed % len(functions)](Case(seed))
        except Exception as error:  # noqa: BLE001 - whatever it is, the case is reported with its seed
            wrong.append(f"{functions[seed % len(functions)].__name__} {seed}: {type(error).__name__}: {error}"[:600])
    stress_report("functions between ranks", tried=TRIED * scale, wrong=len(wrong))
    assert not wrong, "\n".join(wrong)
