"""Random programs on tiles that end before a power of two: each statement does to the tile what it does to an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.effort import some
from tests.kernels.harness import poison, random, same
from tests.stress.programs import kernel_of
from weft import language as gl
from weft.errors import LayoutError
from weft.layout import DistributedLayout
from weft.layout.base import TileLayout
from weft.layout.distributed.infer import grain

Program = tuple[list[str], Callable[[np.ndarray], np.ndarray]]
LENGTH = 5


def sized(rng: np.random.Generator, power: int) -> int:
    """A power of two, or more often an odd number of eights, sixteens or thirty-twos."""
    return power if rng.random() < 0.3 else int(rng.integers(1, 6)) * 2 * 8 + 8 * int(rng.integers(1, 4))


def fits(layout: TileLayout, shape: tuple[int, int]) -> bool:
    try:
        layout.to_linear(shape)
    except LayoutError:
        return False
    return True


def some_layout(rng: np.random.Generator, shape: tuple[int, int]) -> DistributedLayout:
    """A random layout of the shape across four warps."""
    mma = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 8, 16])
    for _ in range(200):
        lanes = 1 << int(rng.integers(0, 6))
        warps = 1 << int(rng.integers(0, 3))
        own = [1 << int(bits) for bits in rng.integers(0, 4, 2)]
        order = [1, 0] if rng.random() < 0.7 else [0, 1]
        blocked = gl.BlockedLayout(own, [lanes, 32 // lanes], [warps, 4 // warps], order)
        found = [blocked, blocked, mma, gl.DotOperandLayout(0, mma, 2)][int(rng.integers(0, 4))]
        if fits(found, shape):
            return found
    own = [[0, 8 << bit] for bit in range((shape[1] - 1).bit_length() - 3)]
    own += [[8 << bit, 0] for bit in range((shape[0] - 1).bit_length() - 3)]
    lanes, whole = [[1, 0], [2, 0], [0, 1], [0, 2], [4, 0]], [1 << (size - 1).bit_length() for size in shape]
    return gl.DistributedLinearLayout(own, lanes, [[0, 4], [0, 0]], [], whole)


def some_memory(rng: np.random.Generator, shape: tuple[int, int]) -> TileLayout:
    plain = gl.SwizzledSharedLayout(1, 1, 1, [1, 0] if rng.random() < 0.7 else [0, 1])
    swizzled = gl.SwizzledSharedLayout(*(1 << int(bits) for bits in rng.integers(0, 4, 3)), [1, 0])
    widest = gl.NVMMASharedLayout.get_default_for(shape, gl.int32)
    found: Any = [plain, swizzled, widest][int(rng.integers(0, 3))]
    return found if fits(found, shape) else plain


def wrapped(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int32)


def statement(
    rng: np.random.Generator,
    shape: tuple[int, int],
    layout: list[DistributedLayout],
    number: int,
    space: dict[str, Any],
) -> Program:
    """A random statement that changes x, and what it does; `layout` holds x's own, `space` the names that statements use."""
    m, n = shape
    axis, c = int(rng.integers(0, 2)), int(rng.integers(1, 9))
    kept = "[None, :]" if axis == 0 else "[:, None]"
    at = f"gl.arange(0, {shape[axis]}, gl.SliceLayout({1 - axis}, x.type.layout))"
    at += "[:, None]" if axis == 0 else "[None, :]"
    index = np.arange(shape[axis], dtype=np.int64).reshape((-1, 1) if axis == 0 else (1, -1))
    match int(rng.integers(0, 9)):
        case 0:
            return [f"x = x * {c} + {at}"], lambda x: wrapped(x.astype(np.int64) * c + index)
        case 1:
            return [f"x = gl.where({at} < {c * 7}, x, -x)"], lambda x: np.where(index < c * 7, x, -x)
        case 2:
            layout[0] = some_layout(rng, shape)
            space[f"L{number}"] = gl.constexpr(layout[0])
            return [f"x = gl.convert_layout(x, L{number})"], lambda x: x
        case 3:
            return [f"x = x ^ gl.sum(x, {axis}){kept}"], lambda x: x ^ wrapped(x.sum(axis, keepdims=True))
        case 4:
            return [f"x = x - gl.max(x, {axis}){kept}"], lambda x: wrapped(
                x.astype(np.int64) - x.max(axis, keepdims=True)
            )
        case 5:
            return [f"x = gl.cumsum(x, {axis})"], lambda x: wrapped(np.cumsum(x, axis, dtype=np.int64))
        case 6:
            memory, layout[0] = some_memory(rng, shape), some_layout(rng, shape)
            space |= {f"L{number}": gl.constexpr(layout[0]), f"M{number}": gl.constexpr(memory)}
            lines = [
                f"held{number} = gl.allocate_shared_memory(gl.int32, [{m}, {n}], M{number})",
                f"held{number}.store(x)",
                f"x = held{number}.load(L{number})",
            ]
            return lines, lambda x: x
        case 7:
            unit = max(n & -n, 1)
            start = int(rng.integers(0, n // unit)) * unit
            if grain(layout[0], shape, 1) > unit:
                return ["x = x + 1"], lambda x: wrapped(x.astype(np.int64) + 1)
            lines = [
                f"part{number} = gl.sum(x[:, {start}:{start + unit}], 1)",
                f"x = x + gl.convert_layout(part{number}, gl.SliceLayout(1, x.type.layout))[:, None]",
            ]
            return lines, lambda x: wrapped(x.astype(np.int64) + x[:, start : start + unit].sum(1, keepdims=True))
        case _:
            return ["x = gl.permute(gl.permute(x, (1, 0)) * 3, (1, 0))"], lambda x: wrapped(x.astype(np.int64) * 3)


@pytest.mark.parametrize("seed", some(range(48), 4))
def test_programs(run, rng, seed):
    dice = np.random.default_rng(seed)
    shape = (sized(dice, 64), sized(dice, 32))
    while shape[0] * shape[1] > 8192:
        shape = (max(shape[0] // 2 // 8 * 8, 8), shape[1])
    layout = [some_layout(dice, shape)]
    place = (
        "gl.arange(0, {0}, gl.SliceLayout(1, {2}))[:, None] * {1} + gl.arange(0, {1}, gl.SliceLayout(0, {2}))[None, :]"
    )
    lines = [f"x = gl.load(source + {place.format(*shape, 'first')})"]
    values = x = random(rng, np.int32, shape)
    space: dict[str, Any] = {"first": gl.constexpr(layout[0])}
    with np.errstate(over="ignore"):
        for number in range(LENGTH):
            more, change = statement(dice, shape, layout, number, space)
            lines += more
            values = change(values)
    lines.append(f"gl.store(out + {place.format(*shape, 'x.type.layout')}, x)")
    kernel = kernel_of("@weft.jit\ndef program(out, source):\n" + "".join(f"    {line}\n" for line in lines), **space)
    out = poison(shape, np.int32)
    run(kernel, 1, out, x, spills=True)
    same(out, values.astype(np.int32))
