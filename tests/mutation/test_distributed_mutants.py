"""Mutants of the collective kernels: each signal and each wait in turn dropped, relaxed, or at scope gpu. All are reported,
and none of the kernels as they are, whichever rank is delayed."""

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
from weft.kernels import distributed
from weft.ops import arith, memory

N = 700
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


def gather(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.all_gather(np.ones(N // 2, np.float32), shared)


def scatter_sums(x: np.ndarray, shared: weft.Symmetric) -> Any:
    return distributed.reduce_scatter(shared)


KERNELS = {each.__name__: each for each in (one_shot, two_shot, gather, scatter_sums)}
SOME = ["two_shot", *(pytest.param(name, marks=pytest.mark.matrix) for name in KERNELS if name != "two_shot")]
PLACES = ["first signal", "first wait", "last signal", "last wait"]
CHANGES = ["dropped", "relaxed", "gpu"]


def host(name: str) -> Any:
    """Two rounds: the host function writes the input, the kernel runs, and another kernel takes the result."""

    def on(rank: int) -> None:
        x, y = weft.distributed.empty((RANKS, N // RANKS), np.float32), np.zeros(N, np.float32)
        shared = weft.Symmetric(x)
        for launch in range(2):
            if name != "gather":
                x[:] = rank + launch
            result = KERNELS[name](x, shared)
            consume[1](result, y, result.size, 1024, EACH)

    return on


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
        attrs = {"scope": "gpu"} if change == "gpu" else {"order": "relaxed"}
        return (out.emit(op.kind, *operands, **{**op.attrs, **attrs}),)

    return rebuild(func, rule)


@pytest.mark.parametrize(("place", "change"), [*product(PLACES, CHANGES)])
@pytest.mark.parametrize("name", SOME)
def test_a_mutant_is_reported(monkeypatch: pytest.MonkeyPatch, name: str, place: str, change: str):
    def simulated(stages: compiler.Stages) -> Func:
        return mutated(stages.tile, place, change) if stages.name == name else stages.tile

    monkeypatch.setattr(compiler.Stages, "simulated", property(simulated))
    for seed in (0, 4):
        with pytest.raises(Hazard):
            weft.distributed.simulate(host(name), RANKS, seed)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in (2, 3))])
@pytest.mark.parametrize("name", KERNELS)
def test_a_correct_kernel_is_not(name: str, seed: int):
    weft.distributed.simulate(host(name), RANKS, seed)
