"""The front half of the compiler, Python source to CUDA text, stays within its budget."""

from __future__ import annotations

from tests.effort import calls
from weft import cuda, targets
from weft import language as gl
from weft.ir.core import Func, walk
from weft.ir.types import Pointer, float32, int32
from weft.lang import ConstexprParam, RuntimeParam, build_kernel
from weft.layout import BlockedLayout
from weft.passes import pipeline

OPERATIONS = 500
CALLS = 800
"""For an operation, from its Python to its CUDA text."""
TARGET = targets.get("sm_90a")


def long_kernel(src, dst, n, BLOCK: gl.constexpr, STEPS: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    a = gl.load(src + offsets, mask=mask, other=0.0)
    b = a + 1.0
    for step in gl.static_range(STEPS):
        a = a * b + step
        b = gl.where(a > b, a - b, gl.maximum(a, b * 0.5))
    gl.store(dst + offsets, a + b, mask=mask)


PARAMS = {
    "src": RuntimeParam(Pointer(float32), 16),
    "dst": RuntimeParam(Pointer(float32), 16),
    "n": RuntimeParam(int32, 16),
    "BLOCK": ConstexprParam(1024),
    "STEPS": ConstexprParam(72),
    "layout": ConstexprParam(BlockedLayout([8], [32], [4], [0])),
}


def read() -> Func:
    return build_kernel(long_kernel, PARAMS, num_warps=4, target=TARGET).func


def front_half() -> str:
    func = pipeline.tile_pipeline(read(), TARGET)
    return cuda.emit(pipeline.lower_pipeline(func, TARGET), TARGET)


def test_front_half_of_a_long_kernel():
    count = sum(1 for _ in walk(read().body))
    assert count >= OPERATIONS
    assert "long_kernel" in front_half()
    assert calls(front_half) <= CALLS * count
