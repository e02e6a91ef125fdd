"""Right uses of tensor memory, its products, cluster launch control and gathered rows, of which tests get one thing wrong."""

from __future__ import annotations

from typing import Any

from tests.language.support import Kernel
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_scaled,
    tma,
)

ACC = TensorMemoryLayout([128, 64], col_stride=1)
PAIR = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
SCALES = TensorMemoryScalesLayout()
COLUMNS = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [0])
ROWS = gl.NVMMASharedLayout.get_default_for([8, 64], gl.float16)


def named(x: Any, name: str) -> Any:
    x.handle.name = name
    return x


def smem(shape: Any, element: Any = gl.float16, layout: Any = None, name: str = "smem") -> Any:
    layout = layout or gl.NVMMASharedLayout.get_default_for(shape[-2:], element)
    return named(gl.allocate_shared_memory(element, shape, layout), name)


def tmem(shape: Any = (128, 64), element: Any = gl.float32, layout: Any = ACC, name: str = "acc") -> Any:
    return named(allocate_tensor_memory(element, shape, layout), name)


def bar() -> Any:
    return named(mbarrier.allocate_mbarrier(), "bar")


def product(**wrong: Any) -> Any:
    """A product that is right, but for what is given."""
    operands = [wrong.pop(name, None) for name in ("a", "b", "acc")]
    made = [smem([128, 64]), smem([64, 64]), tmem()]
    return tcgen05_mma(*(new if x is None else x for x, new in zip(operands, made, strict=True)), **wrong)


def scaled(**wrong: Any) -> Any:
    """A product of fp8 with scales that is right, but for what is given."""
    right = {
        "a": smem([128, 128], gl.float8e4nv), "b": smem([64, 128], gl.float8e4nv).permute([1, 0]), "acc": tmem(),
        "a_scale": tmem((128, 4), gl.uint8, SCALES), "b_scale": tmem((64, 4), gl.uint8, SCALES), "a_type": "e4m3",
        "b_type": "e4m3",
    }  # fmt: skip
    return tcgen05_mma_scaled(**{**right, **wrong})


def gather(k: Kernel, rows: Any = None, memory: Any = None, block: Any = (1, 64), column: Any = 0) -> Any:
    """Eight rows gathered, as they should be but for what is given."""
    rows = k.tile(gl.int32, (8,), name="rows") if rows is None else rows
    memory = smem([8, 64], layout=ROWS) if memory is None else memory
    return tma.async_gather(k.descriptor(block=block, layout=ROWS), rows, column, bar(), memory)
