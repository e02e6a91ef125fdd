"""Tensor memory in the simulator: tiles in and out in any layout of registers, views, and the kernel's columns when lowered."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.sim.both import results, verdict
from tests.sim.build import Kernel, pointer, run
from tests.sim.tensor_kernels import blackwell  # noqa: F401
from weft import language as gl
from weft.errors import hazard
from weft.ir.core import Func, Value
from weft.ir.types import int32, uint32
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    tcgen05_fence,
)
from weft.ops import program, regs, shared, tensor_memory

ELEMENTS = {
    gl.float32: np.float32, gl.int32: np.int32, gl.float16: np.float16, gl.bfloat16: ml_dtypes.bfloat16, gl.uint8: np.uint8,
}  # fmt: skip


def random(element: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits but those of NaNs."""
    kind = np.dtype(ELEMENTS[element])
    return np.random.default_rng(0).integers(0, 100, shape).astype(kind)


@weft.jit
def at(rows: gl.constexpr, columns: gl.constexpr, layout: gl.constexpr):
    i = gl.arange(0, rows, gl.SliceLayout(1, layout))
    return i[:, None] * columns + gl.arange(0, columns, gl.SliceLayout(0, layout))[None, :]


@weft.jit
def there_and_back(
    x, out, m: gl.constexpr, n: gl.constexpr, layout: gl.constexpr, written: gl.constexpr, read: gl.constexpr
):
    memory = allocate_tensor_memory(x.dtype.element_ty, [m, n], layout)
    stored: gl.constexpr = memory.get_reg_layout(instr_variant=written)
    memory.store(gl.load(x + at(m, n, stored)))
    loaded: gl.constexpr = memory.get_reg_layout(instr_variant=read)
    gl.store(out + at(m, n, loaded), memory.load(loaded))


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    ("element", "m", "n", "stride"),
    [
        (gl.float32, 128, 64, 1), (gl.int32, 64, 32, 1), (gl.float16, 128, 64, 1), (gl.bfloat16, 128, 32, 2),
        (gl.float32, 256, 16, 1), (gl.uint8, 128, 64, 1), (gl.float16, 64, 64, 2),
    ],
)  # fmt: skip
def test_tiles_come_back(element, m, n, stride, warps):
    x = random(element, (m, n))
    layout = TensorMemoryLayout([min(m, 128), n], col_stride=stride)
    variants = "32x32b", "32x32b"
    (out,) = results(
        there_and_back,
        lambda: (x.copy(), np.zeros_like(x), m, n, layout, *variants),
        lambda *a: [a[1]],
        num_warps=warps,
    )
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("read", ["16x64b", "16x128b", "16x256b", "32x32b_splitn", "16x32bx2"])
@pytest.mark.parametrize("rows", [64, 128])
def test_instructions_of_all_shapes(read, rows):
    if (rows, read) in ((64, "32x32b_splitn"), (128, "16x32bx2")):
        read = "16x64b"
    x = random(gl.float32, (rows, 64))
    layout = TensorMemoryLayout([rows, 64], col_stride=1)
    (out,) = results(
        there_and_back, lambda: (x.copy(), np.zeros_like(x), rows, 64, layout, "32x32b", read), lambda *a: [a[1]]
    )
    np.testing.assert_array_equal(out, x)


@weft.jit
def views(x, out, halves, half: gl.constexpr, bits: gl.constexpr):
    parts = allocate_tensor_memory(gl.float32, [3, 128, 64], half)
    registers: gl.constexpr = parts.index(0).get_reg_layout()
    for i in gl.static_range(3):
        parts.index(i).store(gl.load(x + i * 128 * 64 + at(128, 64, registers)))
    right = parts.slice(1, 2, dim=0).index(1).slice(32, 32)
    loaded: gl.constexpr = right.get_reg_layout()
    gl.store(out + at(128, 32, loaded), right.load())
    # The same columns as pairs of 16 bits.
    pairs = right._reinterpret(gl.float16, [128, 64], bits)
    again: gl.constexpr = pairs.get_reg_layout()
    gl.store(halves + at(128, 64, again), pairs.load())


def test_views():
    x = random(gl.float32, (3, 128, 64))
    half = TensorMemoryLayout([128, 64], col_stride=1)

    def arguments() -> tuple[Any, ...]:
        return x.copy(), np.zeros((128, 32), np.float32), np.zeros((128, 64), np.float16), half, half

    out, halves = results(views, arguments, lambda *a: [a[1], a[2]])
    np.testing.assert_array_equal(out, x[2, :, 32:])
    np.testing.assert_array_equal(halves.view(np.uint16), np.ascontiguousarray(x[2, :, 32:]).view(np.uint16))


@weft.jit
def kept_scales(x, out, rows: gl.constexpr, columns: gl.constexpr):
    memory = allocate_tensor_memory(gl.uint8, [rows, columns], TensorMemoryScalesLayout())
    layout: gl.constexpr = memory.get_reg_layout()
    memory.store(gl.load(x + at(rows, columns, layout)))
    gl.store(out + at(rows, columns, layout), memory.load(layout))


@pytest.mark.parametrize(("rows", "columns"), [(128, 4), (64, 8), (256, 4)])
def test_scales_come_back(rows, columns):
    x = random(gl.uint8, (rows, columns))
    (out,) = results(kept_scales, lambda: (x.copy(), np.zeros_like(x), rows, columns), lambda *a: [a[1]])
    np.testing.assert_array_equal(out, x)


@weft.jit
def conditional(x, out, half: gl.constexpr, holds):
    memory = allocate_tensor_memory(gl.float32, [128, 64], half)
    layout: gl.constexpr = memory.get_reg_layout()
    memory.store(gl.full([128, 64], 3.0, gl.float32, layout))
    memory.store(gl.load(x + at(128, 64, layout)), pred=holds == 1)
    gl.store(out + at(128, 64, layout), memory.load())


@pytest.mark.parametrize("holds", [0, 1])
def test_stores_where_a_condition_holds(holds):
    x = random(gl.float32, (128, 64))
    half = TensorMemoryLayout([128, 64], col_stride=1)
    (out,) = results(conditional, lambda: (x.copy(), np.zeros_like(x), half, holds), lambda *a: [a[1]])
    np.testing.assert_array_equal(out, x if holds else np.full_like(x, 3))


@weft.jit(sync="none")
def meeting(x, out, half: gl.constexpr, other: gl.constexpr, fault: gl.constexpr):
    memory = allocate_tensor_memory(gl.float32, [128, 64], half)
    one: gl.constexpr = memory.get_reg_layout()
    memory.store(gl.load(x + at(128, 64, one)))
    if fault != "no before":
        tcgen05_fence(before=True)
    if fault != "no barrier":
        gl.barrier()
    if fault != "no after":
        tcgen05_fence(before=False)
    found: gl.constexpr = memory.get_reg_layout(instr_variant=other)
    gl.store(out + at(128, 64, found), memory.load(found))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("", ""), ("no barrier", "hazard-tensor-race"), ("no before", "hazard-tensor-fence-before"),
        ("no after", "hazard-tensor-fence-after"),
    ],
)  # fmt: skip
def test_warps_that_reach_the_same_lanes(fault, code):
    x, half = random(gl.float32, (128, 64)), TensorMemoryLayout([128, 64], col_stride=1)

    def arguments(other: str) -> tuple[Any, ...]:
        return x.copy(), np.zeros_like(x), half, other, fault

    found = verdict(meeting, lambda: arguments("32x32b_splitn"), num_warps=8)
    assert (found.code if found else "") == code, str(found)
    # What each warp has written itself it may read at once.
    assert verdict(meeting, lambda: arguments("32x32b"), num_warps=8) is None


# The lowered stage alone


class Lowered(Kernel):
    """A lowered kernel that has 32 columns; `own` is the address from which a warp reaches its lanes."""

    def __init__(self) -> None:
        super().__init__(("out", pointer(int32)), stage="lowered", target="sm_100a")
        room = self.emit(shared.scratch, dtype=uint32, count=1, tag=1)
        self.base = self.at(2).emit(tensor_memory.reserve, room, columns=32, two_ctas=False)

    def own(self) -> Value:
        warp = self.emit(program.warp_id)
        return self.add(self.base, self.mul(warp, self.number(32 << 16)))

    def put(self, address: Value, column: int = 0) -> None:
        value = self.emit(regs.splat, self.number(7), count=1)
        self.at(10).emit(
            tensor_memory.store_regs, address, value, None, variant="32x32b", repeat=1, offsets=(column,),
            registers=((0,),),
        )  # fmt: skip

    def get(self, address: Value, column: int = 0) -> Value:
        return self.at(20).emit(
            tensor_memory.load_regs, address, element=int32, variant="32x32b", repeat=1, offsets=(column,),
            registers=((0,),),
        )  # fmt: skip

    def release(self) -> None:
        self.at(30).emit(tensor_memory.release, self.base, columns=32, two_ctas=False)


def ran(func: Func) -> np.ndarray:
    out = np.zeros(128, np.int32)
    run(func, out)
    return out


def test_a_kernel_gives_its_columns_back():
    k = Lowered()
    k.put(k.own(), 31)
    k.get(k.own(), 31)
    k.release()
    ran(k.done())


def test_columns_that_are_kept():
    k = Lowered()
    with pytest.raises(hazard.TensorMemoryKept) as found:
        ran(k.done())
    assert found.value.code == "hazard-tensor-kept"
    assert "32 columns" in str(found.value)


def test_warps_reach_their_own_lanes():
    k = Lowered()
    k.put(k.base)
    k.release()
    with pytest.raises(hazard.TensorMemoryLanes) as found:
        ran(k.done())
    assert found.value.code == "hazard-tensor-memory-lanes"
    assert "warp 1 accesses lane 0" in str(found.value)
    assert "can access lanes 32 to 63" in str(found.value)


def test_columns_that_the_kernel_does_not_have():
    k = Lowered()
    k.put(k.own(), 32)
    k.release()
    with pytest.raises(hazard.OutOfBounds) as found:
        ran(k.done())
    assert found.value.code == "hazard-tensor-memory-range"


def test_columns_that_were_given_back():
    k = Lowered()
    own = k.own()
    k.release()
    k.put(own)
    with pytest.raises(hazard.OutOfBounds) as found:
        ran(k.done())
    assert "given them back" in str(found.value)
