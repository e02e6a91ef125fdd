"""Polls: programs, partitions and threads that wait for a value in global memory."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.kernels.harness import Viewed, frozen, poison, random, same
from tests.project import tree
from weft import language as gl

LINE = gl.BlockedLayout([2], [32], [4], [0])
# Every element is held by the threads of all four warps.
REPEATED = gl.BlockedLayout([1], [32], [4], [0])


@weft.jit
def handed_over(
    out, x, box, flag, ready: gl.constexpr, scope: gl.constexpr, timeout: gl.constexpr, layout: gl.constexpr
):
    at = gl.arange(0, 256, layout)
    if gl.program_id(0) == 0:
        gl.store(box + at, gl.load(x + at))
        gl.store(flag, ready, sem="release", scope=scope)
    elif gl.atomic_poll(flag, ready, None, scope, timeout):
        gl.store(out + at, gl.load(box + at))


@pytest.mark.parametrize("scope", [None, "gpu", "sys"])
@pytest.mark.parametrize("timeout", [None, 1_000_000_000])
def test_a_message(run, rng, scope, timeout):
    x, out = random(rng, np.float32, 256), poison(256, np.float32)
    box, flag = np.zeros(256, np.float32), np.zeros(1, np.int32)
    compiled = run(handed_over, 2, out, frozen(x), box, flag, -5, scope, timeout, LINE)
    same(out, x)
    ptx, reach = compiled.asm["ptx"], scope or "gpu"
    assert f"ld.relaxed.{reach}.global.b32" in ptx and "ld.acquire" not in ptx
    assert ptx.count(f"fence.acq_rel.{reach}") == 1 and ("globaltimer" in ptx) == (timeout is not None)


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_each_width(run, rng, kind):
    x, out, ready = random(rng, np.float32, 256), poison(256, np.float32), int(np.iinfo(kind).max) - 3
    run(handed_over, 2, out, frozen(x), np.zeros(256, np.float32), np.zeros(1, kind), ready, "gpu", None, LINE)
    same(out, x)


@weft.jit
def in_a_partition(out, box, flag, PARTITIONED: gl.constexpr):
    if PARTITIONED:
        gl.warp_specialize([(one_side, (out, box, flag)), (nothing, ())], [4])
    else:
        one_side(out, box, flag)


@weft.jit
def one_side(out, box, flag):
    if gl.program_id(0) == 0:
        gl.store(box, 42)
        gl.atomic_xchg(flag, 1, sem="release", scope="gpu")
    else:
        matched = gl.atomic_poll(flag, 1, sem="acquire", scope="gpu", timeout_ns=1_000_000_000)
        if matched:
            gl.store(out, gl.load(box))


@weft.jit
def nothing():
    pass


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_poll_in_a_partition(run, partitioned):
    out = poison(1, np.int32)
    run(in_a_partition, 2, out, np.zeros(1, np.int32), np.zeros(1, np.int32), partitioned)
    same(out, np.array([42], np.int32))


@weft.jit
def tile_of_flags(out, flags, values, timeout, size: gl.constexpr, LIMITED: gl.constexpr, layout: gl.constexpr):
    """Programs but the last one signal, each by a flag of its own; the last one polls all flags by one call."""
    me, last = gl.program_id(0), gl.num_programs(0) - 1
    at = gl.arange(0, size, layout)
    if me < last:
        gl.store(values + me, me * me)
        gl.store(flags + me, me + 1, sem="release")
    else:
        met = gl.atomic_poll(flags + at, at + 1, timeout_ns=timeout if LIMITED else None)
        gl.store(out + at, gl.load(values + at, mask=met, other=-1))


@pytest.mark.parametrize("layout", [LINE, REPEATED], ids=["each once", "held by all warps"])
@pytest.mark.parametrize("limited", [False, True])
def test_a_tile_of_flags(run, layout, limited):
    out = poison(32, np.int32)
    run(tile_of_flags, 33, out, np.zeros(32, np.int64), np.zeros(32, np.int32), 10**9, 32, limited, layout)
    same(out, (np.arange(32) ** 2).astype(np.int32))


def test_flags_that_no_program_sets_time_out_one_by_one(run):
    out = poison(64, np.int32)
    flags = np.zeros(64, np.int64)
    flags[40] = 41
    run(tile_of_flags, 21, out, flags, np.arange(64, dtype=np.int32), 300_000_000, 64, True, LINE)
    want = np.full(64, -1, np.int32)
    want[:20], want[40] = np.arange(20) ** 2, 40
    same(out, want)


@weft.jit
def read_once(out, flags, timeout):
    gl.store(out, gl.atomic_poll(flags, 1, timeout_ns=0))
    gl.store(out + 1, gl.atomic_poll(flags + 1, 1, timeout_ns=0))
    gl.store(out + 2, gl.atomic_poll(flags, 1, "relaxed", timeout_ns=timeout))


def test_no_time_is_one_load(run):
    out = poison(3, np.int32)
    run(read_once, 1, out, frozen(np.array([0, 1], np.int32)), 100)
    same(out, np.array([0, 1, 0], np.int32))


@weft.jit
def each_thread(out, flags, box):
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        box[i] = i * 3
        gl.store(flags.tile[1](i), i + 1, sem="release")
    else:
        gl.atomic_poll(flags.tile[1](i), i + 1)
        out[i] = box[i]


@weft.jit
def first_thread(out, flags, box):
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        box[i] = i * 3
        gl.barrier()
        if i == 0:
            gl.store(flags.tile[1](0), 1, sem="release")
    else:
        if i == 0:
            gl.atomic_poll(flags.ptr, 1)
        gl.barrier()
        out[i] = box[i]


@weft.jit
def lap(out, flags, box):
    """The same by loops around atomic loads, the natural form in code that is written per thread."""
    i = gl.thread_idx.x
    if gl.block_idx.x == 0:
        box[i] = i * 3
        gl.store(flags.tile[1](i), i + 1, sem="release")
    else:
        while gl.load(flags.tile[1](i), sem="acquire") != i + 1:
            pass
        out[i] = box[i]


@pytest.mark.parametrize("kernel", [each_thread, first_thread, lap])
@pytest.mark.parametrize("seed", range(4))
def test_threads(run, kernel, seed):
    out = poison(64, np.int32)
    with weft.simulate(seed=seed):
        run(kernel, 2, Viewed(out), Viewed(np.zeros(64, np.int32)), Viewed(np.zeros(64, np.int32)), block=64)
    same(out, np.arange(64, dtype=np.int32) * 3)


@weft.jit
def ring(x, flags, rounds):
    """Each block passes a number on, and waits for its turn again: all blocks have to be scheduled, in every round."""
    me, n = gl.block_idx.x, gl.grid_dim.x
    for turn in range(rounds):
        if gl.thread_idx.x == 0:
            while gl.load(flags.tile[1](me), sem="acquire") != turn + 1:
                pass
            x[0] = x[0] + me
            gl.store(flags.tile[1]((me + 1) % n), turn + 1 + (me + 1) // n, sem="release")


@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_threads_that_spin_take_turns(run, seed):
    x, flags = np.zeros(1, np.int32), np.array([1, 0, 0, 0, 0], np.int32)
    with weft.simulate(seed=seed):
        run(ring, 5, Viewed(x), Viewed(flags), 7, block=32)
    assert x[0] == 7 * 10


@weft.jit
def beyond(out, flags):
    out[gl.thread_idx.x] = gl.atomic_poll(flags.tile[1](gl.thread_idx.x), 0).to(gl.int32)


def test_a_view_is_not_read_beyond_its_bounds(run):
    out = poison(64, np.int32)
    run(beyond, 1, Viewed(out), Viewed(np.zeros(40, np.int32), masked=True), block=64)
    same(out, (np.arange(64) < 40).astype(np.int32))


SCRIPT = """
import torch
import weft
from weft import language as gl

@weft.jit
def stuck(flag):
    gl.atomic_poll(flag, 3)

stuck[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"), debug=True)
try:
    torch.cuda.synchronize()
except RuntimeError:
    print("the kernel was stopped")
"""


@pytest.mark.gpu
def test_a_poll_without_end_in_a_debug_build(tmp_path):
    """In a process of its own: a kernel that traps takes its context with it."""
    path = tmp_path / "stuck.py"
    path.write_text(SCRIPT, encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(tree.ROOT)}
    ran = subprocess.run(
        [sys.executable, str(path)], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert "stuck.py:8: gl.atomic_poll has waited for 2 s on " in ran.stdout, ran.stderr
    assert "to become 3; it holds 0" in ran.stdout and "the kernel was stopped" in ran.stdout


@weft.jit
def met(out, box, counter, COUNT: gl.constexpr):
    at = gl.program_id(0)
    gl.store(box + at, at + 5)
    gl.atomic_add(counter, 1, sem="release", scope="gpu")
    gl.atomic_poll(counter, COUNT, sem="acquire", scope="gpu")
    gl.store(out + at, gl.load(box + (at + 1) % COUNT))


def test_all_programs_of_a_cooperative_launch_meet(run):
    out, count = poison(70, np.int32), 70
    given = out, np.zeros(count, np.int32), np.zeros(1, np.int32), count
    compiled = run(met, count, *given, launch_cooperative_grid=True)
    same(out, (np.arange(count, dtype=np.int32) + 1) % count + 5)
    assert compiled.request.options.launch_cooperative_grid


def test_more_programs_than_run_at_the_same_time():
    given = np.zeros(9, np.int32), np.zeros(9, np.int32), np.zeros(1, np.int32), 9
    with weft.simulate(max_resident=8), pytest.raises(weft.errors.LaunchError) as found:
        met[9](*given, launch_cooperative_grid=True)
    assert found.value.code == "launch-cooperative-grid" and "of its 9 programs only 8" in found.value.message
    with weft.simulate(max_resident=9, seed=3):
        compiled = met[9](*given, launch_cooperative_grid=True)
    assert compiled.report.advice == []
