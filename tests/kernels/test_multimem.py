"""Multimem accesses on simulated ranks, in both stages, and their machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.distributed.worlds import EACH, LINE, stage
from weft import language as gl
from weft.errors import CompilationError, Hazard

HALVES = gl.BlockedLayout([8], [32], [4], [0])
BF16 = np.dtype(ml_dtypes.bfloat16)
N = 256


@weft.jit
def everything(x: gl.symmetric, y: gl.symmetric, z: gl.symmetric, out, n, OP: gl.constexpr, LINE: gl.constexpr,
               EACH: gl.constexpr):  # fmt: skip
    """out = x of all ranks, combined; y = 3 everywhere, stored by the last rank; z = all ranks' numbers, combined."""
    ranks, at = gl.arange(0, x.world_size, EACH), gl.arange(0, 256, LINE)
    gl.signal(x, ranks)
    gl.wait_signal(x, ranks)
    gl.store(out + at, gl.multimem_ld_reduce(x.multicast + at, at < n, 0, op=OP), at < n)
    if x.rank == x.world_size - 1:
        gl.multimem_st(y.multicast + at, 3, at < n)
    gl.multimem_red(z.multicast + at, gl.load(x.local + at), at < n, op=OP)
    gl.signal(x, ranks)
    gl.wait_signal(x, ranks)


def combined(parts: list[np.ndarray], op: str) -> np.ndarray:
    how = {"add": np.add, "max": np.maximum, "xor": np.bitwise_xor}[op]
    wide = [part.astype(np.float32) if part.dtype == BF16 else part for part in parts]
    return np.asarray(how.reduce(wide)).astype(parts[0].dtype)


CASES = [(np.float32, "add", LINE), (BF16, "add", HALVES), (np.int32, "xor", EACH), (np.float16, "max", HALVES)]
KINDS = {np.dtype(np.float32): "f32", BF16: "bf16x2", np.dtype(np.int32): "b32", np.dtype(np.float16): "f16x2"}


@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize(("dtype", "op", "layout"), CASES)
def test_multimem_accesses_reach_all_ranks(dtype: Any, op: str, layout: Any, of: str):
    ranks, n, made = 2, 240, []
    rng = np.random.default_rng(1)
    # Small integers: sums of any order are exact.
    given = [rng.integers(-9, 9, N).astype(dtype) for _ in range(ranks)]

    def on(rank: int):
        x, y, z = (weft.distributed.empty(N, dtype) for _ in range(3))
        x[:], y[:], z[:] = given[rank], 1, 0
        out = np.full(N, 7, dtype)
        made.append(everything[1](*map(weft.Symmetric, (x, y, z)), out, n, op, layout, EACH))
        return out, y, z

    with stage(of), weft.simulate(target="sm_90a"):
        results = weft.distributed.simulate(on, ranks, 3, multicast=True)
    wanted = combined(given, op)
    for out, y, z in results:
        np.testing.assert_array_equal(out, np.where(np.arange(N) < n, wanted, 7))
        np.testing.assert_array_equal(y, np.where(np.arange(N) < n, 3, 1))
        z_wanted = combined([np.zeros(N, dtype), *given], op)
        np.testing.assert_array_equal(z, np.where(np.arange(N) < n, z_wanted, 0))
    kind = KINDS[np.dtype(dtype)]
    accurate = ".acc::f32" if (kind, op) == ("bf16x2", "add") else ""
    vector = ".v4" if layout is not EACH else ""
    text = made[0].asm["cuda"]
    assert f"multimem.ld_reduce.global.{op}{accurate}{vector}.{kind} " in text
    assert f"multimem.st.global{vector}.{kind} " in text
    assert f"multimem.red.relaxed.sys.global.{op}{vector}.{kind} " in text
    if of == "tile":
        sass = made[0].asm["sass"]
        assert "LDGMC" in sass or "MULTIMEM" in sass, sass


@weft.jit
def odd(x: gl.symmetric, n, LINE: gl.constexpr):
    at = gl.arange(0, 256, LINE)
    gl.multimem_st(x.multicast + at, 1.0, at < n)


def test_single_elements_of_16_bits_are_refused():
    def on(rank: int):
        odd[1](weft.Symmetric(weft.distributed.empty(N, np.float16)), 255, HALVES)

    with pytest.raises(CompilationError) as found:
        weft.distributed.simulate(on, 2, multicast=True)
    assert found.value.code == "multimem-pairs"


@weft.jit
def wrong_address(x: gl.symmetric, LINE: gl.constexpr, ORDINARY: gl.constexpr):
    at = gl.arange(0, 256, LINE)
    if ORDINARY:
        # BUG: an ordinary access by a multicast address.
        gl.store(x.multicast + at, 1.0)
    else:
        # BUG: a multimem access by the address of one rank.
        gl.multimem_st(x.local + at, 1.0)


@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize(("ordinary", "code"), [(True, "hazard-multicast-address"), (False, "hazard-multimem-address")])
def test_addresses_of_the_wrong_kind(ordinary: bool, code: str, of: str):
    def on(rank: int):
        wrong_address[1](weft.Symmetric(weft.distributed.empty(N, np.float32)), LINE, ordinary)

    with stage(of), pytest.raises(Hazard) as found:
        weft.distributed.simulate(on, 2, multicast=True)
    assert found.value.code == code
    assert found.value.loc is not None


@weft.jit
def each_thread(x: gl.symmetric, y):
    """Thread t of rank r adds word t of all ranks, stores it on all ranks, and adds one."""
    t = gl.thread_idx.x
    if t < x.world_size:
        gl.signal(x, t)
        gl.wait_signal(x, t)
    gl.syncwarp()
    if t % x.world_size == x.rank:
        gl.multimem_st(x.multicast + t, gl.multimem_ld_reduce(x.multicast + t, t < 20, 100))
        gl.multimem_red(x.multicast + t, 1, t < 20)
    gl.syncwarp()
    if t < x.world_size:
        gl.signal(x, t, 1)
        gl.wait_signal(x, t, 1)


@pytest.mark.parametrize("of", ["tile", "lowered"])
def test_threads_use_multicast_addresses(of: str):
    ranks = 2

    def on(rank: int):
        x = weft.distributed.empty(32, np.int32)
        x[:] = 10 * rank + np.arange(32)
        each_thread[1](weft.Symmetric(x), np.zeros(1, np.int32), block=32)
        return x

    with stage(of):
        results = weft.distributed.simulate(on, ranks, multicast=True)
    for x in results:
        np.testing.assert_array_equal(x, np.where(np.arange(32) < 20, 2 * np.arange(32) + 11, 100))
