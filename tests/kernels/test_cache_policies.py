"""Cache policies change no value: every access that takes one, with parts of one, through both stages and NVRTC."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.kernels.harness import Described, kept_poison, poison, random, same
from weft import language as gl
from weft.errors import CompilationError
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.blackwell import tma as rows_tma
from weft.language.nvidia.hopper import CachePolicy, FractionalEvictionPolicy, fence_async_shared, mbarrier, tma

LINE = gl.BlockedLayout([4], [32], [4], [0])
SMEM = gl.SwizzledSharedLayout(1, 1, 1, [0])
TILES = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
FIRST = FractionalEvictionPolicy("evict_first", 1.0)
POLICIES = [
    CachePolicy(l2=FIRST),
    CachePolicy(l1="no_allocate", l2=FractionalEvictionPolicy("evict_last", 0.25)),
    CachePolicy(l1="evict_unchanged", l2=FractionalEvictionPolicy("evict_normal", 0.5, "evict_first")),
    CachePolicy("cg", l2=FractionalEvictionPolicy("evict_unchanged", 1 / 3)),
    CachePolicy(l1="evict_normal"),
    CachePolicy(".cs"),
]


@weft.jit
def double(out, x, n, policy: gl.constexpr, prefetch: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    some: gl.constexpr = CachePolicy(policy.cache_modifier, policy.l1, policy.l2, prefetch)
    value = gl.load(x + at, at < n, 0, cache_policy=some)
    gl.store(out + at, value + gl.load(x + at, at < n, cache_policy=policy), at < n, cache_policy=policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_loads_and_stores(run, rng, policy, dtype):
    n = 1013
    x, out = random(rng, dtype, n), poison(n + 8, dtype)
    compiled = run(double, 2, out, x, n, policy, 128, 512, LINE)
    same(out[:n], (x + x).astype(dtype))
    kept_poison(out, n)
    text = compiled.asm["cuda"]
    assert ".L2::128B" in text
    assert (".L2::cache_hint" in text) == (policy.l2 is not None)
    assert text.count("createpolicy.fractional") == (policy.l2 is not None)


@weft.jit
def staged(out, x, n, policy: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout)
    buffer = gl.allocate_shared_memory(gl.float32, [BLOCK], smem)
    async_copy.async_copy_global_to_shared(buffer, x + at, at < n, cache_policy=policy)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(out + at, buffer.load(layout), at < n)


@pytest.mark.parametrize(
    "policy",
    [CachePolicy(l2=FIRST, l2_prefetch_size=256), CachePolicy("ca", l2=FIRST), CachePolicy(l2_prefetch_size=64)],
)
def test_asynchronous_copies(run, rng, policy):
    n = 1004
    x, out = random(rng, np.float32, n), poison(n + 8, np.float32)
    run(staged, 2, out, x, n, policy, 512, LINE, SMEM)
    same(out[:n], x)
    kept_poison(out, n)


@weft.jit
def in_turns(out, x, count, policy: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    buffers = gl.allocate_shared_memory(gl.float32, [2, BLOCK], smem)
    for i in range(count):
        async_copy.async_copy_global_to_shared(buffers.index(i & 1), x + i * BLOCK + at, cache_policy=policy)
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(out + i * BLOCK + at, buffers.index(i & 1).load(layout))


def test_asynchronous_copies_to_slots(run, rng):
    """An address with a uniform part and a policy together: ptxas 13.0 took an odd uniform register for the policy, and the GPU
    reported an illegal instruction."""
    x, out = random(rng, np.float32, 3 * 512), poison(3 * 512 + 8, np.float32)
    compiled = run(in_turns, 1, out, x, 3, POLICIES[0], 512, LINE, SMEM)
    same(out[: 3 * 512], x)
    kept_poison(out, 3 * 512)
    copies = [line for line in compiled.asm["sass"].splitlines() if "LDGSTS" in line]
    assert copies and not any(re.search(r"\+UR\d|desc\[UR\d*[13579]\]", line) for line in copies), copies


@weft.jit
def through_tma(out, x, policy: gl.constexpr, how: gl.constexpr):
    buffer = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    row = gl.program_id(0) * x.block_shape[0]
    tma.async_load(x, [row, 0], bar, buffer, cache_policy=policy)
    mbarrier.wait(bar, 0)
    if how == "store":
        tma.async_store(out, [row, 0], buffer, cache_policy=policy)
    else:
        tma.async_atomic_add(out, [row, 0], buffer, cache_policy=policy)
    tma.store_wait(0)


@pytest.mark.parametrize("how", ["store", "add"])
@pytest.mark.parametrize(
    "policy", [POLICIES[0], CachePolicy(l2=FractionalEvictionPolicy("evict_last", 0.5, "evict_first"))]
)
def test_tma(run, rng, how, policy):
    x = random(rng, np.float32, (37, 28))
    out = poison((37, 28), np.float32) if how == "store" else np.ones((37, 28), np.float32)
    wanted = x if how == "store" else x + np.float32(1)
    compiled = run(through_tma, 3, Described(out, [16, 32], TILES), Described(x, [16, 32], TILES), policy, how)
    same(out, wanted)
    assert compiled.asm["cuda"].count(".L2::cache_hint") == 2


@weft.jit
def permuted(out, x, order, policy: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr):
    numbers = gl.load(order + gl.arange(0, 16, layout))
    buffer = gl.allocate_shared_memory(x.dtype, [16, 32], smem)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 16 * 32 * 4)
    rows_tma.async_gather(x, numbers, 0, bar, buffer, cache_policy=policy)
    mbarrier.wait(bar, 0)
    fence_async_shared()
    rows_tma.async_scatter(out, gl.arange(0, 16, layout), 0, buffer, cache_policy=policy)
    tma.store_wait(0)


def test_rows(run, rng, blackwell):
    x, out = random(rng, np.float32, (20, 32)), poison((16, 32), np.float32)
    order = rng.permutation(20).astype(np.int32)[:16]
    row = gl.NVMMASharedLayout.get_default_for([1, 32], gl.float32)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    compiled = run(
        permuted, 1, Described(out, [1, 32], row), Described(x, [1, 32], row), order, CachePolicy(l2=FIRST), layout, row
    )
    same(out, x[order])
    assert compiled.asm["cuda"].count(".L2::cache_hint") == 2


@weft.jit
def by_either(
    out, x, policy: gl.constexpr, plain: gl.constexpr, BLOCK: gl.constexpr, layout: gl.constexpr, smem: gl.constexpr
):
    at = gl.arange(0, BLOCK, layout)
    buffer = gl.allocate_shared_memory(gl.float32, [BLOCK], smem)
    async_copy.async_copy_global_to_shared(buffer, x + at, cache_policy=plain)
    async_copy.commit_group()
    async_copy.wait_group(0)
    value = buffer.load(layout) + gl.load(x + at, cache_policy=gl.CachePolicy(policy.cache_modifier, "evict_normal"))
    gl.store(out + at, value, cache_policy=policy)


@pytest.mark.parametrize(
    ("modifier", "eviction"), [("cg", "evict_normal"), ("none", "evict_first"), ("none", "evict_normal")]
)
def test_policies_for_every_vendor(run, rng, modifier, eviction):
    x, out = random(rng, np.float32, 512), poison(512, np.float32)
    policy, plain = gl.CachePolicy(modifier, eviction), gl.CachePolicy(eviction_policy=eviction)
    compiled = run(by_either, 1, out, x, policy, plain, 512, LINE, SMEM)
    same(out, x + x)
    text = compiled.asm["cuda"]
    assert ("ld.global.cg" in text and "st.global.cg" in text) == (modifier == "cg")
    # An eviction priority is one of L1 where the access has one, and of L2 where it has not.
    assert ("L1::evict_first" in text) == (".L2::cache_hint" in text) == (eviction == "evict_first")


def test_policies_that_are_none():
    for wrong in ({"cache_modifier": "cx"}, {"eviction_policy": "evict_unchanged"}, {"cache_modifier": None}):
        with pytest.raises(CompilationError) as caught:
            gl.CachePolicy(**wrong)
        assert caught.value.code == "language-cache-policy"


@weft.jit
def made_inside(out, layout: gl.constexpr):
    fraction: gl.constexpr = 0.5
    policy: gl.constexpr = CachePolicy(l2=FractionalEvictionPolicy("evict_last", fraction))
    at = gl.arange(0, 128, layout)
    gl.store(out + at, gl.load(out + at, cache_policy=policy) + 1, cache_policy=gl.constexpr(policy))


def test_a_policy_made_in_a_kernel(run):
    out = np.arange(128, dtype=np.int32)
    run(made_inside, 1, out, LINE)
    same(out, np.arange(128, dtype=np.int32) + 1)
