"""Mutants of the kernels between ranks: signals and waits in turn dropped, relaxed, at scope gpu, sent to the wrong place, or
taken before they are due. All are reported, and none of the kernels as they are, whichever rank is delayed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import weft
from tests.distributed.worlds import EACH
from weft import compiler
from weft import language as gl
from weft.errors import Hazard
from weft.ir.core import Func, Op, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.kernels import MatmulConfig, distributed
from weft.kernels.distributed import collectives, products
from weft.ops import arith, memory

N = 704
RANKS = 2


@weft.jit
def consume(x, y, n, BLOCK: gl.constexpr, EACH: gl.constexpr):
    """What a rank does with the result: it orders nothing."""
    at = gl.arange(0, BLOCK, EACH)
    gl.store(y + at, gl.load(x + at, at < n, 0), at < n)


def one_shot(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.all_reduce(shared, method="one_shot")


def two_shot(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.all_reduce(shared, method="two_shot")


def pushed_shares(x: np.ndarray, shared: weft.Symmetric) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "_has_words", lambda x, line: False)
        return distributed.all_reduce(shared, method="pushed")


def two_shot_multicast(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.all_reduce(shared, method="two_shot_multicast")


def gather(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.all_gather(np.ones(N // 2, np.float32), shared)


def scatter_sums(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.reduce_scatter(shared)


def symmetric(*shape: int, dtype: Any = np.float32) -> weft.Symmetric:
    return weft.Symmetric(weft.distributed.empty(shape, dtype))


def of_line(run: Any) -> Any:
    """Two rounds: the host function writes the input, the kernel runs, and another kernel takes the result."""

    def on(rank: int) -> None:
        x, y = weft.distributed.empty((RANKS, N // RANKS), np.float32), np.zeros(N, np.float32)
        shared = weft.Symmetric(x)
        for launch in range(2):
            if run is not gather:
                x[:] = rank + launch
            result = run(x, shared)
            consume[1](result, y, result.size, 1024, EACH)

    return on


def normalised(rank: int) -> None:
    x, y = symmetric(3, 40), np.zeros(120, np.float32)
    for launch in range(2):
        x.tensor[:] = rank + launch
        result = distributed.all_reduce_rms_norm(x, np.ones((3, 40), np.float32), method="two_shot")
        consume[1](result, y, 120, 128, EACH)


TILES = MatmulConfig(block_m=128, block_n=64, block_k=32, programs=1, stages=3)


def summed(scatter: bool) -> Any:
    """Two tiles for each rank, on one program, with one `work` for both kinds of sums."""

    def on(rank: int) -> None:
        ones = np.ones((16, 64), np.float16)
        a, y = np.ones((RANKS * 130, 16), np.float16), np.zeros(8192, np.float16)
        work = symmetric(distributed.work_elements(RANKS * 130, 64, RANKS), dtype=np.float16)
        out = symmetric(RANKS * 130, 64, dtype=np.float16)
        for _ in range(2):
            result = distributed.matmul_reduce_scatter(a, ones, work, config=TILES)
            if not scatter:
                result = distributed.matmul_all_reduce(a, ones, work, out, config=TILES)
            # Of an all-reduce, what another rank has stored: the first rows are the first rank's.
            consume[1](result if scatter or rank else result[132:], y, 8192, 8192, EACH)

    return on


def gathered(rank: int) -> None:
    a, b = symmetric(RANKS, 128, 32, dtype=np.float16), np.ones((32, 64), np.float16)
    y = np.zeros(1024, np.float16)
    for launch in range(2):
        a.tensor[rank] = launch
        result = distributed.all_gather_matmul(a, b, chunk=64, config=TILES)
        consume[1](result, y, 1024, 1024, EACH)


def exchanged(rank: int) -> None:
    """Every token goes to both ranks."""
    rows, counts = symmetric(2 * RANKS, 40), symmetric(RANKS, RANKS, dtype=np.int32)
    x, ids = np.ones((2, 40), np.float32), np.array([[0, 1], [1, 0]], np.int32)
    y = np.zeros(120, np.float32)
    for _ in range(2):
        distributed.dispatch(x, ids, RANKS, rows, counts, programs=1)
        consume[1](rows.tensor, y, 120, 128, EACH)


def combined(rank: int) -> None:
    rows, ids, places = symmetric(4, 40), np.array([[0, 1], [1, 0]], np.int32), np.array([[0, 1], [2, 3]], np.int32)
    for launch in range(2):
        rows.tensor[:] = launch
        distributed.combine(rows, ids, places, np.ones((2, 2), np.float32), RANKS, programs=1)


KERNELS = {
    each.__name__: of_line(each)
    for each in (one_shot, two_shot, pushed_shares, two_shot_multicast, gather, scatter_sums)
}
FUSED = {
    "two_shot_norm": (normalised,), "meeting": (summed(True), summed(False)), "expect_chunks": (gathered,),
    "dispatch": (exchanged,), "combine": (combined,),
}  # fmt: skip
HOSTS = {**{name: (on,) for name, on in KERNELS.items()}, **FUSED}
SOME = [
    "pushed_shares",
    "dispatch",
    *(pytest.param(name, marks=pytest.mark.matrix) for name in HOSTS if name not in ("pushed_shares", "dispatch")),
]
PLACES = ["first signal", "first wait", "last signal", "last wait"]
CHANGES = ["dropped", "relaxed", "gpu", "wrong"]
OTHERS = ["dropped", *(pytest.param(change, marks=pytest.mark.matrix) for change in CHANGES[1:])]


def mutated(func: Func, place: str, change: str) -> Func:
    """The function with one signal or wait changed."""
    signals = [op for op in walk(func.body) if op.kind is memory.atomic and op.attrs["order"] == "release"]
    waits = [op for op in walk(func.body) if op.kind is memory.poll]
    which, what = place.split()
    target = (signals if what == "signal" else waits)[0 if which == "first" else -1]

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op is not target:
            return None
        if change == "dropped":
            (value,) = operands[1:2]
            return (value,) if what == "signal" else (out.emit(arith.cmp, value, value, predicate="eq"),)
        if change == "wrong" and what == "wait":
            # Any signal will do, as with a flag that is used again and not counted.
            return (
                out.emit(
                    op.kind, operands[0], out.emit(arith.sub, operands[1], operands[1]), *operands[2:], **op.attrs
                ),
            )
        if change == "wrong":
            # The word beside it is that of another sender.
            moved = out.emit(memory.addptr, operands[0], operands[1])
            return (out.emit(op.kind, moved, *operands[1:], **op.attrs),)
        attrs = {"scope": "gpu"} if change == "gpu" else {"order": "relaxed"}
        return (out.emit(op.kind, *operands, **{**op.attrs, **attrs}),)

    return rebuild(func, rule)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.parametrize("name", SOME)
def test_a_mutant_is_reported(monkeypatch: pytest.MonkeyPatch, name: str, place: str, change: str):
    def simulated(stages: compiler.Stages) -> Func:
        return mutated(stages.tile, place, change) if stages.name == name else stages.tile

    monkeypatch.setattr(compiler.Stages, "simulated", property(simulated))
    for on, seed in product(HOSTS[name], (0, 4)):
        with weft.simulate(target="sm_90a"), pytest.raises(Hazard):
            weft.distributed.simulate(on, RANKS, seed, multicast=True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_mutant_of_the_wait_for_rows_is_reported(monkeypatch: pytest.MonkeyPatch, change: str):
    def simulated(stages: compiler.Stages) -> Func:
        return mutated(stages.tile, "first wait", change) if stages.name == "matmul_cooperative" else stages.tile

    monkeypatch.setattr(compiler.Stages, "simulated", property(simulated))
    for seed in (0, 4):
        with weft.simulate(target="sm_90a"), pytest.raises(Hazard):
            weft.distributed.simulate(gathered, RANKS, seed)


def early(sends: list[Any]) -> list[Any]:
    return [send for pair in zip(sends[1::2], sends[::2], strict=True) for send in pair]


def dropped(sends: list[Any]) -> list[Any]:
    return sends[:-1]


def last_early(sends: list[Any]) -> list[Any]:
    return [*sends[:-2], sends[-1], sends[-2]]


@pytest.mark.parametrize("mutant", [early, dropped, last_early])
def test_a_mutant_of_the_sends_is_reported(monkeypatch: pytest.MonkeyPatch, mutant: Any):
    def sent(gathering: Any) -> None:
        for send in mutant(list(gathering.sends)):
            send()

    monkeypatch.setattr(products._Gathering, "_send", sent)  # pyright: ignore[reportPrivateUsage]
    for seed in (0, 4):
        with weft.simulate(target="sm_90a"), pytest.raises(Hazard):
            weft.distributed.simulate(gathered, RANKS, seed)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in (1, 2, 3))])
@pytest.mark.parametrize("name", HOSTS)
def test_a_correct_kernel_is_not(name: str, seed: int):
    for on in HOSTS[name]:
        with weft.simulate(target="sm_90a"):
            weft.distributed.simulate(on, RANKS, seed, multicast=True)
