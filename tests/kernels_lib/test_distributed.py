"""`weft.kernels.distributed` on simulated ranks: numbers against NumPy, the same bits on all ranks, and no hazard."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.distributed.worlds import world
from weft import compiler
from weft.errors import LaunchError
from weft.kernels import MatmulConfig, distributed
from weft.kernels.distributed import collectives, operands, rooms

BF16 = np.dtype(ml_dtypes.bfloat16)
WORLDS = [2, pytest.param(4, marks=pytest.mark.matrix), pytest.param(8, marks=pytest.mark.matrix)]
SIZES = [1, 5000, pytest.param(4096, marks=pytest.mark.matrix), pytest.param(20_003, marks=pytest.mark.matrix)]


def numbers(rank: int, shape: Any, dtype: Any, launch: int = 0) -> np.ndarray:
    rng = np.random.default_rng(17 * rank + launch)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-99, 99, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def total(ranks: int, shape: Any, dtype: Any, launch: int = 0) -> np.ndarray:
    """The sum in the order of the ranks, in float32, float64 or an integer, rounded once."""
    wide = dtype if np.dtype(dtype).kind == "i" or dtype == np.float64 else np.float32
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


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(8, marks=pytest.mark.matrix)])
@pytest.mark.parametrize(
    "dtype", [BF16, np.float32, *(pytest.param(x, marks=pytest.mark.matrix) for x in (np.float16, np.int32))]
)
@pytest.mark.parametrize("of", ["tile", "lowered"])
def test_all_reduce_by_pushes(ranks: int, dtype: Any, of: str):
    """Sums of several sizes in turn, which have the same inboxes: those of earlier turns must not be taken for new ones."""
    sizes = (2, 1000, 3000, 1000, 2, 2, 1026)

    def on(rank: int):
        results = []
        for turn, n in enumerate(sizes):
            x = weft.distributed.empty(n, dtype)
            x[:] = numbers(rank, n, dtype, turn)
            results.append(distributed.all_reduce(weft.Symmetric(x), method="pushed").copy())
        return results

    for seed in (0, 2):
        for results in world(on, ranks, seed, of):
            for turn, found in enumerate(results):
                np.testing.assert_array_equal(found, total(ranks, sizes[turn], dtype, turn))


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(8, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("dtype", [np.float16, pytest.param(np.float64, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.matrix)])
def test_all_reduce_by_stores(ranks: int, dtype: Any, of: str, step: int, monkeypatch: pytest.MonkeyPatch):
    """Sums of several sizes in turn, in rooms of several sizes, in one piece and in several, of one and of several steps of a
    program."""
    monkeypatch.setattr(collectives, "STORED_PROGRAMS", 3)
    monkeypatch.setattr(collectives, "MOST_PROGRAMS", 3)
    monkeypatch.setattr(collectives, "STORED_STEP", step)
    monkeypatch.setattr(collectives, "STORED", 1 << 15)
    monkeypatch.setattr(collectives, "LEAST_ROOM", 1 << 12)
    sizes = (1, 17_501, 2047 * ranks, 9001)

    def on(rank: int):
        results = []
        for turn, n in enumerate(sizes):
            x = weft.distributed.empty(n + 1, dtype)
            x[:] = numbers(rank, n + 1, dtype, turn)
            # Addresses and sizes that are no multiples of 4 bytes are not those of words.
            distributed.all_reduce(weft.Symmetric(x[1:] if n % 2 else x[:n]), method="pushed")
            results.append(x.copy())
        return results

    for seed in (0, 2):
        for rank, results in enumerate(world(on, ranks, seed, of)):
            for turn, (n, found) in enumerate(zip(sizes, results, strict=True)):
                given = slice(n % 2, n % 2 + n)
                wanted = numbers(rank, n + 1, dtype, turn)
                wanted[given] = total(ranks, n + 1, dtype, turn)[given]
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("method", ["one_shot_multicast", "two_shot_multicast"])
def test_all_reduce_by_multicast(method: Any):
    n, ranks = 5008, 2

    def on(rank: int):
        x = weft.distributed.empty(n, BF16)
        shared, results = weft.Symmetric(x), []
        for launch in range(2):
            x[:] = numbers(rank, n, BF16, launch)
            distributed.all_reduce(shared, method=method)
            results.append(x.copy())
        return results

    for results in weft.distributed.simulate(on, ranks, 2, multicast=True):
        for launch, found in enumerate(results):
            np.testing.assert_array_equal(found, total(ranks, n, BF16, launch))


@pytest.mark.parametrize("ranks", [3, 8])
def test_all_reduce_of_more_ranks_in_lowered_ir(ranks: int):
    def on(rank: int):
        x = weft.distributed.empty((3, 700), np.int32)
        x[:] = numbers(rank, (3, 700), np.int32)
        return distributed.all_reduce(weft.Symmetric(x), method="two_shot")

    for found in world(on, ranks, 1, "lowered"):
        np.testing.assert_array_equal(found, total(ranks, (3, 700), np.int32))


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


SMALL = MatmulConfig(block_m=128, block_n=64, block_k=32, programs=5, stages=3, group=2)
SWAPPED = MatmulConfig(block_m=128, block_n=48, block_k=32, programs=3, stages=4, swap=True)
TURNS = MatmulConfig(variant="ping_pong", block_m=64, block_n=128, block_k=32, programs=3, stages=4, order="rows")


@pytest.mark.parametrize(
    ("ranks", "m", "chunk", "config", "seed"),
    [
        (2, 384, 256, SMALL, 0),
        # Tiles that have rows of two ranks, and of several chunks.
        (2, 200, 48, TURNS, 1),
        (3, 40, 16, SMALL, 2),
        (2, 200, 48, SWAPPED, 7),
        pytest.param(2, 384, None, None, 3, marks=pytest.mark.matrix),
        pytest.param(4, 130, 33, SMALL, 4, marks=pytest.mark.matrix),
        pytest.param(8, 72, 72, TURNS, 5, marks=pytest.mark.matrix),
        pytest.param(8, 1, 1, SMALL, 6, marks=pytest.mark.matrix),
    ],
)
def test_all_gather_matmul(ranks: int, m: int, chunk: int | None, config: MatmulConfig | None, seed: int):
    k, n, made = 72, 136, []

    def on(rank: int):
        a, b = weft.distributed.empty((ranks, m, k), np.float16), numbers(99, (k, n), np.float16)
        a[:] = np.nan
        shared, results = weft.Symmetric(a), []
        for launch in range(2):
            a[rank] = numbers(rank, (m, k), np.float16, launch)
            results.append(distributed.all_gather_matmul(shared, b, chunk=chunk, config=config))
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


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.matrix), *WORLDS[1:]])
@pytest.mark.parametrize("seed", [3, pytest.param(0, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("scatter", [True, False])
def test_matmul_with_sums_over_ranks(ranks: int, seed: int, scatter: bool):
    """Two launches in a row, of rows that fill no tile; of the sum that all get, the last rank has no rows."""
    m, k, n, config = 130, 40, 136, MatmulConfig(block_m=128, block_n=64, block_k=32, programs=3, stages=3)

    def on(rank: int):
        elements = distributed.work_elements(ranks * m, n, ranks)
        work, every = (weft.distributed.empty(shape, np.float16) for shape in (elements, (ranks * m, n)))
        work[:], every[:] = np.nan, np.nan
        room, out, results = weft.Symmetric(work), weft.Symmetric(every), []
        for launch in range(2):
            a, b = numbers(rank, (ranks * m, k), np.float16, launch), numbers(rank + 50, (k, n), np.float16)
            if scatter:
                results.append(distributed.matmul_reduce_scatter(a, b, room, config=config))
            else:
                results.append(distributed.matmul_all_reduce(a, b, room, out, config=config).copy())
        return results

    def wanted(launch: int) -> np.ndarray:
        return sum(
            numbers(rank, (ranks * m, k), np.float16, launch).astype(np.float64)
            @ numbers(rank + 50, (k, n), np.float16).astype(np.float64)
            for rank in range(ranks)
        )  # fmt: skip

    with weft.simulate(target="sm_90a"):
        found = world(on, ranks, seed)
    for launch in range(2):
        parts = [results[launch].astype(np.float64) for results in found]
        for part in parts if not scatter else []:
            np.testing.assert_array_equal(part, parts[0])
        whole = np.concatenate(parts) if scatter else parts[0]
        np.testing.assert_allclose(whole, wanted(launch), rtol=5e-3, atol=5e-2)


@pytest.mark.parametrize("ranks", [pytest.param(3, marks=pytest.mark.matrix), *WORLDS])
@pytest.mark.parametrize("method", ["one_shot", "two_shot"])
@pytest.mark.parametrize(
    ("residual", "dtype"), [(True, BF16), pytest.param(False, np.float32, marks=pytest.mark.matrix)]
)
@pytest.mark.parametrize("d", [200, 1])
def test_all_reduce_rms_norm(ranks: int, method: Any, residual: bool, dtype: Any, d: int):
    rows, eps = 7, 1e-5
    weight = numbers(77, d, dtype)

    def on(rank: int):
        x = weft.distributed.empty((rows, d), dtype)
        shared, results = weft.Symmetric(x), []
        for launch in range(2):
            x[:] = numbers(rank, (rows, d), dtype, launch)
            h = numbers(99, (rows, d), dtype) if residual else None
            out = distributed.all_reduce_rms_norm(shared, h, weight, eps=eps, method=method)
            results.append((h, out))
        return results

    found = world(on, ranks, 1)
    for launch in range(2):
        h = sum(numbers(rank, (rows, d), dtype, launch).astype(np.float64) for rank in range(ranks))
        if residual:
            h = h + numbers(99, (rows, d), dtype).astype(np.float64)
        wanted = h / np.sqrt((h * h).mean(-1, keepdims=True) + eps) * weight.astype(np.float64)
        for results in found:
            kept, out = results[launch]
            np.testing.assert_array_equal(out, found[0][launch][1])
            np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=0.03, atol=0.03)
            if residual:
                np.testing.assert_allclose(kept.astype(np.float64), h, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("ranks", "tokens", "width", "experts", "slots", "capacity"),
    [
        (2, 9, 40, 4, 2, 13),
        pytest.param(2, 3, 5000, 2, 1, None, marks=pytest.mark.matrix),
        pytest.param(3, 6, 24, 6, 1, None, marks=pytest.mark.matrix),
        # One rank sorts its numbers in one launch, the other in three.
        (2, 341, 8, 4, 3, None),
        pytest.param(4, 9, 72, 8, 3, None, marks=pytest.mark.matrix),
        pytest.param(8, 5, 40, 16, 2, None, marks=pytest.mark.matrix),
    ],
)
def test_experts(ranks: int, tokens: int, width: int, experts: int, slots: int, capacity: int | None):
    """Tokens go to experts that multiply them by a number of their own, and come back; also where there is not enough room."""
    each, room = experts // ranks, capacity or ranks * (tokens + ranks) * slots

    def given(rank: int, launch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(100 * launch + rank)
        count = tokens + rank
        return (
            numbers(rank, (count, width), np.float16, launch),
            rng.integers(0, experts, (count, slots)).astype(np.int32),
            rng.random((count, slots)).astype(np.float32),
        )

    def on(rank: int):
        rows, results = (weft.distributed.empty((room, width), np.float16) for _ in range(2))
        counts, found = weft.Symmetric(weft.distributed.empty((ranks, experts), np.int32)), []
        sent, back = weft.Symmetric(rows), weft.Symmetric(results)
        for launch in range(2):
            x, ids, weights = given(rank, launch)
            offsets, places = distributed.dispatch(x, ids, experts, sent, counts, programs=3)
            for expert in range(each):
                part = slice(offsets[expert], offsets[expert + 1])
                results[part] = rows[part] * (1 + rank * each + expert)
            out = distributed.combine(back, ids, places, weights, experts, programs=3)
            found.append((rows[: offsets[-1]].copy(), places, out))
        return found

    found = world(on, ranks, 2)
    for launch in range(2):
        for rank, results in enumerate(found):
            rows, places, out = results[launch]
            x, ids, weights = given(rank, launch)
            factors = np.where(places >= 0, weights * (1.0 + ids), 0).sum(-1, keepdims=True)
            np.testing.assert_allclose(out.astype(np.float64), x.astype(np.float64) * factors, rtol=5e-3, atol=5e-2)
            arrived = [
                given(source, launch)[0][token]
                for expert in range(rank * each, rank * each + each)
                for source in range(ranks)
                for token, slot in np.argwhere(given(source, launch)[1] == expert)
            ]
            np.testing.assert_array_equal(rows, np.stack(arrived[:room]))
            assert (places >= 0).all() or capacity is not None


def test_ranks_without_tokens():
    """A rank that has no tokens takes part in every exchange, in the first as in later ones."""
    experts, width = 4, 16

    def on(rank: int):
        rows, counts = (
            weft.Symmetric(weft.distributed.empty(*each))
            for each in (((6, width), np.float16), ((2, experts), np.int32))
        )
        found = []
        for tokens in (0, 3, 0):
            count = tokens if rank == 0 else 3
            x, ids = np.full((count, width), rank + 1, np.float16), np.arange(count, dtype=np.int32)[:, None]
            offsets, places = distributed.dispatch(x, ids, experts, rows, counts, programs=2)
            out = distributed.combine(rows, ids, places, np.ones((count, 1), np.float32), experts, programs=2)
            assert (out == rank + 1).all()
            found.append(offsets.tolist())
        return found

    # Experts 0 and 1 are rank 0's, and each rank has one token for each of the experts 0, 1 and 2.
    assert world(on, 2) == [[[0, 1, 2], [0, 2, 4], [0, 1, 2]], [[0, 1, 1], [0, 2, 2], [0, 1, 1]]]


def test_a_sum_of_numbers_that_begin_at_an_odd_place():
    def on(rank: int):
        whole = weft.distributed.empty(513, np.float16)
        whole[1:] = rank
        return distributed.all_reduce(weft.Symmetric(whole[1:])).copy()

    for found in world(on, 3):
        np.testing.assert_array_equal(found, np.full(512, 3))


def test_what_needs_room_is_called_before_a_capture(monkeypatch: pytest.MonkeyPatch):
    """The first call of a group makes symmetric memory. A small all-reduce does without while a graph is captured."""
    monkeypatch.setattr(rooms, "capturing", lambda x: True)
    monkeypatch.setattr(collectives, "capturing", lambda x: True)

    def summed(rank: int) -> float:
        x = weft.distributed.empty(64, np.float32)
        x[:] = rank + 1
        return float(distributed.all_reduce(weft.Symmetric(x))[5])

    assert world(summed, 2) == [3, 3]
    with weft.simulate(target="sm_90a"), pytest.raises(LaunchError) as found:
        world(_gathered, 2)
    assert found.value.code == "kernels-ranks-capture"


def _gathered(rank: int) -> float:
    a = weft.distributed.empty((2, 128, 64), BF16)
    a[:] = 1
    return float(distributed.all_gather_matmul(weft.Symmetric(a), np.ones((64, 256), BF16))[0, 0])


def _summed(rank: int) -> float:
    work, out = (weft.Symmetric(weft.distributed.empty(shape, BF16)) for shape in (2 * 128 * 256, (256, 256)))
    a, b = np.ones((256, 32), BF16), np.ones((32, 256), BF16)
    return float(distributed.matmul_all_reduce(a, b, work, out)[200, 200])


@pytest.mark.parametrize("named", ["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"])
def test_operands_that_begin_elsewhere_on_each_rank(named: str):
    """All ranks choose one configuration for a product, wherever their arrays begin in a cache line."""
    rows, depth, columns = 192, 64, 248

    def placed(shape: tuple[int, int], begin: int) -> Any:
        """An array of ones that begins at a place, in bytes, of a line of 128."""
        room = np.zeros(2 * prod(shape) + 256, np.uint8)
        first = -room.ctypes.data % 128 + begin
        found = room[first : first + 2 * prod(shape)].view(BF16).reshape(shape)
        found[:] = 1
        return found

    def on(rank: int) -> bool:
        begin = 16 * rank
        b = placed((depth, columns), begin)
        if named == "all_gather_matmul":
            a = weft.distributed.empty((2, rows, depth), BF16)
            a[rank] = 1
            return bool((distributed.all_gather_matmul(weft.Symmetric(a), b) == depth).all())
        a = placed((2 * rows, depth), begin)
        work = weft.Symmetric(weft.distributed.empty(distributed.work_elements(2 * rows, columns, 2), BF16))
        if named == "matmul_reduce_scatter":
            return bool((distributed.matmul_reduce_scatter(a, b, work) == 2 * depth).all())
        out = weft.Symmetric(weft.distributed.empty((2 * rows, columns), BF16))
        return bool((distributed.matmul_all_reduce(a, b, work, out) == 2 * depth).all())

    assert world(on, 2) == [True, True]


@pytest.mark.parametrize("on", [_gathered, _summed])
def test_machine_code_of_a_matmul_between_ranks(on: Any):
    made: list[Any] = []
    compiler.observers.append(made.append)
    try:
        with weft.simulate(target="sm_90a", hazards=False):
            assert world(on, 2) == [64, 64]
    finally:
        compiler.observers.remove(made.append)
    kernel = next(each for each in made if each.name.startswith("matmul"))
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


HALF, IDS = np.zeros((8, 8), np.float16), np.zeros((8, 2), np.int32)
MISTAKES = {
    "kernels-ranks-symmetric": lambda: distributed.all_reduce(np.zeros(4)),  # pyright: ignore[reportArgumentType]
    "kernels-ranks-array": lambda: distributed.all_gather([1], _shared((2, 1))),
    "kernels-ranks-dtype": lambda: distributed.all_reduce(_shared(4, np.int8)),
    "kernels-ranks-shape": lambda: distributed.all_gather(np.zeros(4, np.float32), _shared((2, 5))),
    "kernels-ranks-flags": lambda: distributed.combine(
        _shared((8, 8)), IDS, IDS, np.zeros((8, 2), np.float32), 4, programs=5000
    ),
    "kernels-ranks-chunk": lambda: distributed.all_gather_matmul(_shared((2, 40, 8), np.float16), HALF, chunk=2),
    "kernels-ranks-config": lambda: distributed.all_gather_matmul(
        _shared((2, 8, 8), np.float16), HALF, config=MatmulConfig(splits=2)
    ),
    "kernels-ranks-experts": lambda: distributed.dispatch(HALF, IDS, 5, _shared((8, 8), np.float16), _shared((2, 5))),
    "kernels-ranks-multicast": lambda: distributed.all_reduce(_shared(16), method="two_shot_multicast"),
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
        lambda: distributed.matmul_reduce_scatter(HALF, HALF, _shared(8, np.float16)),
        lambda: distributed.matmul_reduce_scatter(HALF[:7], HALF, _shared(1 << 20, np.float16)),
        lambda: distributed.matmul_all_reduce(HALF, HALF, _shared(1 << 20, np.float16), _shared((8, 9), np.float16)),
        lambda: distributed.matmul_all_reduce(HALF, np.zeros((9, 8), np.float16), _shared(8), _shared((8, 8))),
        lambda: distributed.all_reduce_rms_norm(_shared((2, 20_000))),
        lambda: distributed.dispatch(HALF, HALF, 4, _shared((8, 8), np.float16), _shared((2, 4), np.int32)),
        lambda: distributed.dispatch(HALF, IDS, 4, _shared((8, 9), np.float16), _shared((2, 4), np.int32)),
        lambda: distributed.dispatch(HALF[:3], IDS, 4, _shared((8, 8), np.float16), _shared((2, 4), np.int32)),
        lambda: distributed.combine(_shared((8, 8), np.int8), IDS, IDS, IDS, 4),
        lambda: distributed.combine(_shared((8, 8)), IDS, IDS, IDS, 4),
        lambda: distributed.all_reduce_rms_norm(_shared((2, 8)), np.zeros(8, np.float32)),
        lambda: distributed.all_reduce_rms_norm(_shared((2, 8)), weight=np.zeros(9, np.float32)),
        lambda: distributed.all_reduce_rms_norm(_shared((2, 8)), method="no"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_operands_that_do_not_fit(call: Any):
    with pytest.raises(LaunchError):
        weft.distributed.simulate(lambda rank: call())


@pytest.mark.parametrize("what", ["dispatch", "matmul_all_reduce"])
def test_operands_of_different_groups(monkeypatch: pytest.MonkeyPatch, what: str):
    """A simulated world has one group; here the last operand is said to be of another."""

    def on(rank: int):
        room, other = _shared((8, 8), np.float16), _shared((2, 4) if what == "dispatch" else (8, 8), np.int32)
        if what == "matmul_all_reduce":
            other = _shared((8, 8), np.float16)
        monkeypatch.setattr(operands, "group_name", lambda x: "tensor" if x is other else "data")
        if what == "dispatch":
            distributed.dispatch(HALF, IDS, 4, room, other)
        else:
            distributed.matmul_all_reduce(HALF, HALF, room, other)

    with pytest.raises(LaunchError) as found:
        weft.distributed.simulate(on)
    assert found.value.code == "kernels-ranks-group"


@pytest.mark.parametrize("method", ["one_shot", "two_shot", "pushed", None])
def test_sums_on_older_gpus(method: Any):
    """A100 has no programmatic launch."""

    def on(rank: int):
        x = weft.distributed.empty(5000, np.float32)
        x[:] = rank + 1
        return distributed.all_reduce(weft.Symmetric(x), method=method)[4999]

    with weft.simulate(target="sm_80"):
        assert weft.distributed.simulate(on) == [3, 3]


def test_dispatch_on_older_gpus():
    def on(rank: int):
        rows = weft.distributed.empty((4, 8), np.float16)
        counts = weft.distributed.empty((2, 2), np.int32)
        x, ids = np.full((2, 8), rank + 1, np.float16), np.array([[0], [1]], np.int32)
        distributed.dispatch(x, ids, 2, weft.Symmetric(rows), weft.Symmetric(counts), programs=2)
        return rows[:2, 0].tolist()

    with weft.simulate(target="sm_80"):
        assert weft.distributed.simulate(on) == [[1, 2], [1, 2]]


@pytest.mark.parametrize("method", ["two_shot", "two_shot_multicast"])
def test_sums_in_pieces(method: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collectives, "LOADED", 2048)

    def on(rank: int):
        x = weft.distributed.empty(5008, np.float32)
        x[:] = numbers(rank, 5008, np.float32)
        return distributed.all_reduce(weft.Symmetric(x), method=method).copy()

    for found in weft.distributed.simulate(on, multicast=True):
        np.testing.assert_array_equal(found, total(2, 5008, np.float32))


def test_what_a_capture_chose_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    """While a graph is captured there is no room for stores; afterwards it is made."""

    def on(rank: int):
        x = weft.distributed.empty(100_000, np.float32)
        shared = weft.Symmetric(x)
        x[:] = 1
        monkeypatch.setattr(collectives, "capturing", lambda x: True)
        distributed.all_reduce(shared)
        assert not shared.calls
        weft.distributed.barrier()
        monkeypatch.setattr(collectives, "capturing", lambda x: False)
        distributed.all_reduce(shared)
        return x[99_999], len(shared.calls)

    assert weft.distributed.simulate(on) == [(4, 1), (4, 1)]
