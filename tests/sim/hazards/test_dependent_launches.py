"""Chains of launches with `launch_pdl=True`: what a launch may do before its `gdc_wait`, and for whom it waits."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import weft
from weft import language as gl
from weft import simulation
from weft.errors import CompilationError, LaunchError, hazard
from weft.language.extra.cuda import gdc_launch_dependents, gdc_wait
from weft.language.nvidia.hopper import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

LINE = gl.BlockedLayout([1], [32], [4], [0])
SMEM = gl.NVMMASharedLayout.get_default_for([16, 32], gl.float32)
TILE = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
N = 300


def line(value: float = 1.0) -> np.ndarray:
    return np.full(N, value, np.float32)


@weft.jit
def add(x, y, out, n, early: gl.constexpr, layout: gl.constexpr):
    """out = x + y. Reads `x` before it waits."""
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    if early:
        gdc_launch_dependents()
    first = gl.load(x + at, at < n)
    gdc_wait()
    gl.store(out + at, first + gl.load(y + at, at < n), at < n)


def launch(x: np.ndarray, y: np.ndarray, out: np.ndarray, *, early: bool = False, pdl: bool = True) -> None:
    add[3](x, y, out, N, early, LINE, launch_pdl=pdl)


def code(found: pytest.ExceptionInfo[Any]) -> str:
    return found.value.code


def test_what_no_launch_writes_may_be_read_ahead():
    x, weights, y = line(), line(2), line(0)
    launch(x, weights, y, pdl=False)
    launch(weights, y, x)
    launch(weights, x, y)
    np.testing.assert_array_equal(y, line(7))


@pytest.mark.parametrize("early", [True, False])
def test_a_read_ahead_of_the_wait(early):
    x, y, z = line(), line(0), line(0)
    launch(x, x, y, early=early, pdl=False)
    with pytest.raises(hazard.DependentLaunch) as found:
        launch(y, x, z)
    assert code(found) == "hazard-dependent-launch"
    assert "reads x[0] before gdc_wait, but add, which was launched before" in found.value.message
    assert found.value.buffer == "x"
    assert found.value.first.line > found.value.second.line  # the store of the launch before, the load of this one


def test_elements_count_not_arrays():
    """Halves of one array, and a slice of it that is an argument of its own."""
    x, both = line(), np.zeros(2 * N, np.float32)
    launch(x, x, both[:N], pdl=False)
    launch(both[N:], both[:N], both[N:])
    launch(x, x, both[N:])
    with pytest.raises(hazard.DependentLaunch) as found:
        launch(both[N - 1 : 2 * N - 1], x, line())
    assert "reads x[1]" in found.value.message


@weft.jit
def clear(out, src, n, when: gl.constexpr, layout: gl.constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, layout)
    if when == "before":
        gl.store(out + at, 0.0, at < n)
    if when == "atomic":
        gl.atomic_add(out + at, 1.0, at < n)
    gdc_wait()
    if when == "after":
        gl.store(out + at, 0.0, at < n)


@pytest.mark.parametrize("when", ["before", "atomic", "after"])
@pytest.mark.parametrize("which", ["read", "written"])
def test_a_write_ahead_of_the_wait(when, which):
    """Of what the launch before has written, or only reads."""
    x, y = line(), line(0)
    launch(x, x, y, pdl=False)
    out = x if which == "read" else y
    if when == "after":
        clear[3](out, x, N, when, LINE, launch_pdl=True)
        return
    with pytest.raises(hazard.DependentLaunch) as found:
        clear[3](out, x, N, when, LINE, launch_pdl=True)
    assert ("updates" if when == "atomic" else "writes") + " out[0] before gdc_wait" in found.value.message
    assert ("read it" if which == "read" else "wrote it") in found.value.message


def test_launches_that_are_not_dependent_wait_for_all():
    x, y, z = line(), line(0), line(0)
    launch(x, x, y, pdl=False)
    launch(y, x, z, pdl=False)
    launch(z, x, y, pdl=False)
    np.testing.assert_array_equal(y, line(4))


@pytest.mark.parametrize("early", [True, False])
def test_how_far_back_a_launch_may_overlap(early):
    """If the launch between releases its dependents before its own wait, the first one may still run beside the third."""
    x, y, z = line(), line(0), line(0)
    launch(x, x, y, pdl=False)
    launch(x, x, z, early=early)
    if not early:
        launch(y, x, line())
        return
    with pytest.raises(hazard.DependentLaunch):
        launch(y, x, line())


def test_a_plain_launch_between_ends_the_overlap():
    x, y, z = line(), line(0), line(0)
    launch(x, x, y, pdl=False)
    launch(x, x, z, pdl=False)
    launch(y, x, line())


@weft.jit
def sometimes(flag, out):
    gdc_launch_dependents()
    if gl.load(flag) == 1:
        gdc_wait()
        gl.store(out, 1.0)


def test_a_launch_that_never_waits():
    x, y, out = line(), line(0), line()
    flag = np.zeros(1, np.int32)
    launch(x, x, y, pdl=False)
    with pytest.raises(hazard.DependentLaunch) as found:
        sometimes[2](flag, out, launch_pdl=True)
    assert code(found) == "hazard-dependent-never-waits"
    flag[:] = 1
    launch(x, x, y, pdl=False)
    sometimes[1](flag, out, launch_pdl=True)
    flag[:] = 0
    sometimes[2](flag, out)


def test_a_hazard_ends_the_chain_and_may_be_collected():
    x, y, z = line(), line(0), line(0)
    launch(x, x, y, pdl=False)
    with weft.simulate(keep_going=True):
        found = add[3](y, y, z, N, False, LINE, launch_pdl=True).report
    assert [type(each) for each in found.hazards] == [hazard.DependentLaunch]
    assert found.hazards[0].times == 3
    launch(x, x, y, pdl=False)
    with weft.simulate(hazards=False):
        launch(y, y, z)
    launch(y, y, z)


def test_memory_that_is_free_is_no_launchs():
    """An array may get the address of one that the launch before wrote, and that is not there any more."""
    memory = (ctypes.c_float * N)()
    x, y = line(), np.frombuffer(memory, np.float32)
    launch(x, x, y, pdl=False)
    with pytest.raises(hazard.DependentLaunch):
        launch(np.frombuffer(memory, np.float32), x, line())
    launch(x, x, y, pdl=False)
    del y
    launch(np.frombuffer(memory, np.float32), x, line())


def test_a_launch_that_is_repeated_is_one_launch():
    """As under `python -m weft check`: the second run of a launch does not follow the first."""

    def twice(name: str, arguments: Any, run: Any) -> Any:
        run()
        return run()

    x, y, z = line(), line(0), line(0)
    with simulation.supervised(twice):
        launch(x, x, y, pdl=False)
        launch(x, y, z)
        launch(x, z, y)
        with pytest.raises(hazard.DependentLaunch):
            launch(y, z, x)


@weft.jit
def consume(bar, out, layout: gl.constexpr):
    mbarrier.wait(bar, 0)
    at = gl.arange(0, 128, layout)
    gl.store(out + at, gl.load(out + at) + 1)


@weft.jit
def signal(bar, waits: gl.constexpr):
    if waits:
        gdc_wait()
    mbarrier.arrive(bar)
    if not waits:
        gdc_wait()


@weft.jit
def handed_over(out, waits: gl.constexpr, layout: gl.constexpr):
    """One partition waits for the launch before and tells the other one."""
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    gl.warp_specialize([(consume, (bar, out, layout)), (signal, (bar, waits))], [4], [32])


def test_a_wait_of_another_partition():
    x, y = line(), line(0)
    launch(x, x, y, pdl=False)
    handed_over[1](y, True, LINE, launch_pdl=True)
    assert y[0] == 3
    launch(x, x, y, pdl=False)
    with pytest.raises(hazard.DependentLaunch):
        handed_over[1](y, False, LINE, launch_pdl=True)


@weft.jit
def through_tma(src, dst, ahead: gl.constexpr, layout: gl.constexpr):
    smem = gl.allocate_shared_memory(src.dtype, src.block_shape, src.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.nbytes_per_cta)
    if ahead != "load":
        gdc_wait()
    tma.async_load(src, [0, 0], bar, smem)
    if ahead == "load":
        gdc_wait()
    mbarrier.wait(bar, 0)
    tma.async_store(dst, [0, 0], smem)
    tma.store_wait(0)


@weft.jit
def fill(out, layout: gl.constexpr):
    rows, columns = gl.arange(0, 16, gl.SliceLayout(1, layout)), gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(out + rows[:, None] * 32 + columns[None, :], gl.full([16, 32], 3.0, gl.float32, layout))


@pytest.mark.parametrize("ahead", ["", "load"])
@pytest.mark.parametrize("schedule", ["early", "late"])
def test_a_tma_load_ahead_of_the_wait(ahead, schedule):
    """It is judged where it is issued, not where its data arrive."""
    x, out = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    fill[1](x, TILE)
    src, dst = (TensorDescriptor.from_tensor(a, [16, 32], SMEM) for a in (x, out))
    with weft.simulate(schedule=schedule):
        if not ahead:
            through_tma[1](src, dst, ahead, TILE, launch_pdl=True)
            np.testing.assert_array_equal(out, x)
            return
        with pytest.raises(hazard.DependentLaunch) as found:
            through_tma[1](src, dst, ahead, TILE, launch_pdl=True)
    assert "reads src[0]" in found.value.message


@weft.jit
def no_wait(out):
    gdc_launch_dependents()
    gl.store(out, 1.0)


def test_kernels_and_targets_that_cannot_be_dependent():
    no_wait[1](line())
    with pytest.raises(CompilationError) as found:
        no_wait[1](line(), launch_pdl=True)
    assert code(found) == "launch-pdl-never-waits"
    assert "no_wait is launched with launch_pdl=True" in found.value.message
    with weft.simulate(target="sm_80"), pytest.raises(LaunchError) as refused:
        no_wait[1](line(), launch_pdl=True)
    assert code(refused) == "launch-pdl-target"
