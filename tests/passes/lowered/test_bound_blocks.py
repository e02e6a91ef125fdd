"""How many blocks a kernel is said to fit, and what a cap on its registers does."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from benchmarks import twin
from tests.cuda.matmuls import one_product
from tests.support import lowered, tile_kernel
from weft import language as gl
from weft import targets
from weft.ir.types import float32
from weft.layout import BlockedLayout
from weft.passes.lowered.bound_blocks import LEAST, bound_blocks
from weft.runtime import MockTensor

SM90 = targets.get("sm_90a")


def copied(registers: int, num_warps: int):
    """A lowered copy of tiles of so many registers of four bytes."""
    k = tile_kernel(num_warps=num_warps)
    size = registers * num_warps * 32
    k.output(k.input(float32, (size,), BlockedLayout([1], [32], [num_warps], [0]), np.zeros(size, "f4")))
    return lowered(k.finished())


def test_nothing_is_said_of_a_kernel_that_holds_little():
    assert bound_blocks(copied(16, 4), SM90).attrs.min_blocks is None


@pytest.mark.parametrize(("registers", "num_warps"), [(64, 4), (128, 4), (64, 8), (64, 16), (128, 16)])
def test_as_many_blocks_as_their_registers_leave_room_for(registers, num_warps):
    blocks = bound_blocks(copied(registers, num_warps), SM90).attrs.min_blocks
    threads = 32 * num_warps
    assert blocks >= 1
    assert blocks == 1 or blocks * threads * max(registers, LEAST) <= SM90.registers_per_sm
    assert (blocks + 1) * threads * (max(registers, LEAST) + 64) > SM90.registers_per_sm, "one more would fit"


@weft.jit
def hold(src, dst, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=layout)
    gl.store(dst + at, gl.load(src + at))


def compiled(**options):
    array = MockTensor("fp32")
    layout = BlockedLayout([4], [32], [4], [0])
    return hold.warmup(array, array, BLOCK=128 * 128, layout=layout, num_warps=4, grid=1, **options)


def test_all_loads_of_a_big_tile_are_in_flight_before_the_first_store():
    kernel = compiled()
    assert "__launch_bounds__(128, 3)" in kernel.asm["cuda"]
    assert re.findall(r"\b(LDG|STG)\b", kernel.asm["sass"]) == ["LDG"] * 32 + ["STG"] * 32
    assert kernel.n_spills == 0


@weft.jit
def replaced(src, dst, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout=layout)
    x = gl.load(src + at)
    if n > 0:
        gl.store(dst + at, x)
        x = gl.load(dst + BLOCK + at)
    gl.store(dst + 2 * BLOCK + at, x)


def test_a_branch_replaces_what_the_other_one_keeps():
    """The tile that one branch stores and the one that it loads then are never live together."""
    array, layout = MockTensor("fp32"), BlockedLayout([4], [32], [4], [0])
    one = hold.warmup(array, array, BLOCK=128 * 64, layout=layout, num_warps=4, grid=1)
    kernel = replaced.warmup(array, array, 5, BLOCK=128 * 64, layout=layout, num_warps=4, grid=1)
    bounds = [re.findall(r"__launch_bounds__\(128, (\d+)\)", k.asm["cuda"]) for k in (one, kernel)]
    assert bounds[0] == bounds[1] and int(bounds[0][0]) > 3
    assert kernel.n_spills == 0


@pytest.mark.parametrize("follow", ["source", "destination"])
def test_a_bound_makes_nothing_spill(follow):
    """168 registers are too few for the copy by rows from rows to columns; then the text asks for one block."""
    example, side, float32_ = twin.load("copy_opposite"), 16000, MockTensor("fp32")
    layout = (
        BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0])
        if follow == "source"
        else BlockedLayout([1, 1], [32, 1], [4, 1], [0, 1])
    )
    numbers = (side, side, side, 1, 1, side, 128, 128)
    kernel = example.copy_opposite.warmup(
        float32_, float32_, *numbers, layout, layout, num_warps=4, grid=1, target="sm_90a"
    )  # fmt: skip
    assert kernel.n_spills == 0
    assert ("__launch_bounds__(128, 1)" in kernel.asm["cuda"]) == (kernel.n_regs > 168)
    assert kernel.front.machine_code.n_regs == kernel.n_regs


def test_a_cap_on_registers_holds():
    free, capped = compiled(), compiled(maxnreg=64)
    assert free.n_regs > 64
    assert capped.n_regs <= 64
    assert "__maxnreg__(64)" in capped.asm["cuda"]


@pytest.mark.parametrize("pointer", [MockTensor, "*{}".format], ids=["aligned", "elements one by one"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("shape", "num_warps"), [((128, 128, 128), 8), ((64, 128, 128), 4)], ids=str)
def test_left_operands_of_products_in_registers(shape, num_warps, dtype, pointer):
    """Products have words made of them; and an element that comes alone takes a register, however short it is."""
    more = (float32, True, None)
    arguments = (MockTensor("fp32"), pointer(dtype), pointer(dtype), *shape, *more)
    kernel = one_product.warmup(*arguments, num_warps=num_warps, target="sm_90a")
    assert kernel.n_spills == 0
    assert "HGMMA" in kernel.asm["sass"]
    assert re.findall(r"C75\d\d", kernel.front.machine_code.log) == []
