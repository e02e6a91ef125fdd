"""What a type checker knows of kernels: each line asserts a type, or holds a mistake that must be reported.

Checked by user_project.py in both modes; nothing runs it. A mistake stands behind a comment that silences its report, and the
rule below makes a comment that silences nothing an error.
"""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any

import numpy as np
from typing_extensions import assert_type

import weft
from weft import language as gl

BOXED: gl.constexpr = gl.constexpr(4)
PLAIN: gl.constexpr[int] = 4


@weft.jit
def double(x: gl.tensor, factor: gl.constexpr[int] = 2) -> gl.tensor:
    return x * factor


@weft.jit
def inferred(x: gl.tensor, bias: float):
    return x + bias, x.shape


@gl.aggregate
class Pair:
    left: gl.tensor
    right: gl.shared_memory_descriptor
    size: gl.constexpr[int]

    @weft.jit
    def sum(self, x: gl.tensor) -> gl.tensor:
        return self.left + x

    @weft.jit
    def __add__(self, x: gl.tensor) -> gl.tensor:
        return self.left + x

    @staticmethod
    @weft.jit
    def make(x: gl.tensor, memory: gl.shared_memory_descriptor) -> "Pair":
        return Pair(x, memory, 3)


@weft.jit
def kernel(src: gl.tensor, n: int, scale: float, layout: gl.constexpr, BLOCK: gl.constexpr[int] = 64) -> None:
    LOCAL: gl.constexpr = BLOCK // 2
    assert_type(BLOCK // 2, int)
    assert_type(LOCAL, Any)
    assert_type(BOXED + 1, Any)
    assert_type(PLAIN + 1, int)
    pid = gl.program_id(0)
    at = pid * BLOCK + gl.arange(0, BLOCK, layout=layout)
    assert_type(at, gl.tensor)
    assert_type(gl.extra.libdevice.hypot(at, 2.0), gl.tensor)
    gl.extra.libdevice.hypot(at)  # pyright: ignore[reportCallIssue]
    assert_type(n - at, gl.tensor)
    x = gl.load(src + at, mask=at < n, other=0.0)
    assert_type(x, gl.tensor)
    assert_type(x[:, None], gl.tensor)
    assert_type((at < n) & (at >= 0), gl.tensor)
    assert_type(-x * scale, gl.tensor)
    assert_type(x.to(gl.float16).T, gl.tensor)
    assert_type(x.shape[0], int)
    assert_type(double(x), gl.tensor)
    assert_type(double(x, factor=3), gl.tensor)
    assert_type(inferred(x, 1.0), tuple[gl.tensor, list[int]])
    for i in range(n):
        assert_type(i, int)
    for i in gl.static_range(3):
        assert_type(i, int)
    while pid < n:
        pid += gl.num_programs(0)
    smem = gl.allocate_shared_memory(gl.float32, [2, BLOCK], layout)
    assert_type(smem, gl.shared_memory_descriptor)
    assert_type(smem.index(pid).load(layout), gl.tensor)
    pair = Pair(x, smem, 3)
    assert_type(pair.sum(x), gl.tensor)
    assert_type(pair + x, gl.tensor)
    assert_type(Pair.make(x, smem).size, int)
    gl.store(src + at, x, mask=at < n)

    double()  # pyright: ignore[reportCallIssue]
    double(x, factor="two")  # pyright: ignore[reportArgumentType]
    pair.sum()  # pyright: ignore[reportCallIssue]
    Pair(x, smem)  # pyright: ignore[reportCallIssue]
    x.colour = 1  # pyright: ignore[reportAttributeAccessIssue]
    gl.arange("0", 2)  # pyright: ignore[reportArgumentType]


@weft.jit
def of_threads(out: gl.LayoutTensor, x: gl.LayoutTensor) -> None:
    assert_type(gl.block.sum(x[0], block_size=32), gl.tensor)
    assert_type(gl.block.sum(block_size=32, broadcast=False)(val=x[0]), gl.tensor)
    assert_type(gl.warp.lane_group_sum(num_lanes=8)(x[0]), gl.tensor)
    gl.block.sum(x[0], 32)  # pyright: ignore[reportCallIssue]
    gl.copy_dram_to_sram(thread_layout=gl.row_major[4, 8](), num_threads=32)(out, x)
    gl.copy_dram_to_sram(out, x, gl.row_major[4, 8](), num_threads=32)
    tile, corner, offset = x.tile_with_offset[4](gl.block_idx.x)
    assert_type(tile, gl.LayoutTensor)
    out[corner[0]] = x.load(gl.Coord(0)) + x.load[4](gl.Idx[0]) + x.slice((0, 4), gl.All)[offset]
    assert_type(gl.stack_allocation_like[gl.AddressSpace.SHARED](x), gl.LayoutTensor)
    assert_type(out.min(x).exp(scale=2), gl.LayoutTensor)


def launch() -> None:
    x = np.zeros(64, np.float32)
    compiled = kernel[1](x, 64, 1.0, gl.AutoLayout(), num_warps=8)
    assert_type(compiled.asm["cuda"], str)
    assert_type(compiled.asm["cubin"], bytes)
    kernel[1](x, 64, 1.0, gl.AutoLayout(), num_warps="8")  # pyright: ignore[reportArgumentType]
