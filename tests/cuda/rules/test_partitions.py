"""Partitions in the text: one branch for each, threads and barriers of their own, registers that move between warpgroups."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import ARCHITECTURES, Kernel, compiled, needs_nvrtc, pointer, text_of
from weft import targets
from weft.cuda.emitter import Emitter, elected_condition
from weft.ir.core import FuncAttrs
from weft.ir.types import RegsType, ScalarType, float32, int32
from weft.ops import arith, control, memory, program, sync
from weft.passes.lowered.assign_registers import assign_registers
from weft.runtime.sass import disassemble

HOPPER = ("sm_90a", "sm_100a")


def work(k: Kernel, count: int, barriers=()):
    """A region that adds up `count` registers of each thread in a loop, between barriers of the block."""
    ptr, n = k.params
    with k.region() as region:
        k.emit(sync.block_barrier)
        at = k.emit(memory.addptr, ptr, k.emit(program.thread_id, name="thread"))
        tile = k.load(at, count, name="tile")
        with k.region([ScalarType(int32), RegsType(float32, count)], ["i", "acc"]) as body:
            for kind, attrs in barriers:
                k.emit(kind, **attrs)
            k.emit(control.yield_, k.emit(arith.mul, body.args[1], tile))
        bounds = k.number(0), n, k.number(1)
        total = k.emit(control.for_, *bounds, tile, descending=False, regions=(body.done,))
        k.store(at, total)
        k.emit(sync.block_barrier)
        k.emit(control.yield_)
    return region.done


def idle(k: Kernel):
    with k.region() as region:
        k.emit(sync.block_barrier)
        k.emit(sync.block_barrier)
        k.emit(control.yield_)
    return region.done


def partitioned(num_regs=(0, 0, 0, 0), **attrs):
    """A default partition of 4 warps, workers of 1 and 4, and 3 warps that fill the last warpgroup."""
    k = Kernel(
        ("out", pointer(float32)),
        ("n", int32),
        name="partitioned",
        total_warps=12,
        min_blocks=1,
        registers=168,
        **attrs,
    )
    regions = (
        work(k, 4, [(sync.barrier, {})]),
        work(k, 2, [(sync.barrier, {}), (sync.named_barrier, {"number": 4, "warps": 5, "arrive": True})]),
        work(k, 8, [(sync.barrier, {}), (sync.named_barrier, {"number": 4, "warps": 5})]),
        idle(k),
    )
    k.at(9).emit(
        control.partitions, regions=regions, first_warps=(0, 8, 4, 9), num_warps=(4, 1, 4, 3), num_regs=num_regs
    )
    return k.done()


def test_a_branch_for_each_partition(golden):
    golden(text_of(partitioned()), ".cu")


def test_a_branch_for_each_warpgroup_that_changes_registers(golden):
    golden(text_of(partitioned((232, 40, 168, 40))), ".cu")


def test_a_cap_on_registers_goes_to_ptxas():
    text = text_of(partitioned((144, 40, 104, 40), maxnreg=96))
    assert "__maxnreg__(96)" in text
    assert "__launch_bounds__" not in text


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_partitions_compile(arch):
    made = compiled(partitioned(), arch)
    assert "USETMAXREG" not in disassemble(made.cubin)


@needs_nvrtc
@pytest.mark.parametrize("arch", HOPPER)
@pytest.mark.parametrize("attrs", [{}, {"maxnreg": 168}])
def test_registers_move(arch, attrs):
    made = compiled(partitioned((232, 40, 240, 40), **attrs), arch)
    changes = re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL\s+(?:UP\d+, )?(0x\w+)", disassemble(made.cubin))
    assert sorted(changes) == [("DEALLOC", hex(40)), ("TRY_ALLOC", hex(232)), ("TRY_ALLOC", hex(240))]
    assert "C7508" not in made.log
    assert made.n_regs == 168


def heavy(num_regs):
    """Partitions of 4 warps each that hold many and few registers."""
    k = Kernel(("out", pointer(float32)), ("n", int32), name="heavy", total_warps=12, min_blocks=1, registers=168)
    regions = work(k, 100), work(k, 100), work(k, 1)
    k.at(9).emit(control.partitions, regions=regions, first_warps=(0, 4, 8), num_warps=(4, 4, 4), num_regs=num_regs)
    k.emit(control.return_)
    return assign_registers(k.func(k.name, k.params, FuncAttrs(**k.attrs)))


@needs_nvrtc
@pytest.mark.parametrize("arch", HOPPER)
def test_a_partition_uses_the_registers_that_it_took(arch):
    """200 registers are live in two partitions: they spill in the 168 that threads begin with, not in 240."""
    assert compiled(heavy((0, 0, 0)), arch).n_spills > 0
    made = compiled(heavy((240, 240, 24)), arch)
    assert made.n_spills == 0
    assert "C7508" not in made.log


@pytest.mark.parametrize(
    ("arch", "num_warps", "found"),
    [("sm_90a", 4, "warp == 0 && elect_one()"), ("sm_90a", 1, "elect_one()"), ("sm_80", 4, "threadIdx.x == 0")],
)
def test_the_elected_thread_of_a_block(arch, num_warps, found):
    k = Kernel(num_warps=num_warps)
    assert elected_condition(Emitter(k.done(), targets.get(arch))) == found


def test_fences(golden):
    k = Kernel(name="fences")
    k.emit(sync.fence_async)
    k.emit(sync.fence_async, cluster=True)
    k.emit(sync.fence_async_global)
    k.emit(sync.fence)
    k.emit(sync.fence, order="sc", scope="sys")
    golden(text_of(k.done()), ".cu")


@needs_nvrtc
@pytest.mark.parametrize("arch", HOPPER)
def test_fences_compile(arch):
    k = Kernel(name="fences")
    k.emit(sync.fence_async)
    k.emit(sync.fence_async, cluster=True)
    k.emit(sync.fence_async_global)
    assert "FENCE" in disassemble(compiled(k.done(), arch).cubin)
