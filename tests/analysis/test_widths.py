"""How wide a load is: of a row of fp32, four neighbours each thread, it moves 16 bytes a thread wherever that is provable.

Each kernel finds the first element of its row another way. The width is read off the lowered IR and off the machine code.
"""

from __future__ import annotations

import re

import pytest

import weft
from tests.cuda.build import needs_nvrtc
from tests.effort import some
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])


@weft.jit
def row(x, y, first):
    at = first + gl.arange(0, 512, LINE)
    gl.store(y + at, gl.load(x + at) + 1.0)


@weft.jit
def shifted_left(x, y, n, m):
    row(x, y, gl.program_id(0) << 9)


@weft.jit
def shifted_right(x, y, n, m):
    row(x, y, (gl.program_id(0) * 2048) >> 2)


@weft.jit
def divided(x, y, n, m):
    row(x, y, gl.program_id(0) * 2048 // 4)


@weft.jit
def remainder(x, y, n, m):
    row(x, y, (gl.program_id(0) * 512) % 4096)


@weft.jit
def masked(x, y, n, m):
    row(x, y, m & ~3)


@weft.jit
def disjoint_bits(x, y, n, m):
    row(x, y, (gl.program_id(0) * 512) | 256)


@weft.jit
def smaller(x, y, n, m):
    row(x, y, gl.minimum(gl.program_id(0) * 512, n))


@weft.jit
def larger(x, y, n, m):
    row(x, y, gl.maximum(gl.program_id(0) * 512, n))


@weft.jit
def chosen(x, y, n, m):
    row(x, y, gl.where(m > 7, gl.program_id(0) * 512, n))


@weft.jit
def branches(x, y, n, m):
    if m > 7:
        first = gl.program_id(0) * 512
    else:
        first = n + 64
    row(x, y, first)


@weft.jit
def while_loop(x, y, n, m):
    first = gl.program_id(0) * 1024
    while first < m:
        row(x, y, first)
        first += 512


@weft.jit
def for_loop(x, y, n, m):
    for first in range(n, m, 512):
        row(x, y, first)


@weft.jit
def carried_by_for(x, y, n, m):
    first = n * 0 + 16
    for _ in range(m):
        row(x, y, first)
        first += 512


@weft.jit
def nested_loops(x, y, n, m):
    for i in range(m):
        first = i * 64
        for _ in range(n):
            row(x, y, first)
            first = first + n


@weft.jit
def carried_pointer(x, y, n, m):
    for _ in range(m):
        at = gl.arange(0, 512, LINE)
        gl.store(y + at, gl.load(x + at) + 1.0)
        x += 512
        y += n


@weft.jit
def carried_tile_of_pointers(x, y, n, m):
    at = gl.arange(0, 512, LINE)
    source, target = x + at, y + at
    for _ in range(m):
        gl.store(target, gl.load(source) + 1.0)
        source += n
        target += 512


@weft.jit
def quarter(number):
    return number // 4 * 4


@weft.jit
def of_a_function(x, y, n, m):
    row(x, y, quarter(m))


@gl.aggregate
class Place:
    first: gl.tensor
    other: gl.tensor

    @gl.constexpr_function
    def __init__(self, first, other):
        self.first = first
        self.other = other


@weft.jit
def of_an_aggregate(x, y, n, m):
    place = Place(gl.program_id(0) * 512, m)
    for _ in range(m):
        row(x, y, place.first)
        place = Place(place.first + n, place.other + 1)


@weft.jit
def pair(n):
    return n * 8, n


@weft.jit
def of_a_tuple(x, y, n, m):
    first, _ = pair(m)
    row(x, y, first)


@weft.jit
def wide_numbers(x, y, n, m):
    row(x, y, (gl.program_id(0).to(gl.int64) << 40) + n)


@weft.jit
def row_stride(x, y, n, m):
    row(x, y, gl.program_id(0) * n)


@weft.jit
def hinted(x, y, n, m):
    row(x, y, gl.multiple_of(m, 4))


@weft.jit
def hinted_runs(x, y, n, m):
    at = gl.load(m + gl.arange(0, 512, LINE))
    at = gl.max_contiguous(gl.multiple_of(at, 4), 4)
    gl.store(y + at, gl.load(x + at) + 1.0)


@weft.jit
def assumed(x, y, n, m):
    gl.assume(m % 4 == 0)
    row(x, y, m)


@weft.jit
def by_a_pattern(x, y, n, m):
    at = gl.arange(0, 512, LINE)
    at = (at // 8) * 16 + at % 8 + gl.program_id(0) * 1024
    gl.store(y + at, gl.load(x + at) + 1.0)


@weft.jit
def exclusive_or(x, y, n, m):
    row(x, y, 0)
    at = gl.arange(0, 512, LINE) ^ ((m & 7) * 4)
    gl.store(y + at, gl.load(x + at) + 1.0)


WIDE = (
    shifted_left, shifted_right, divided, remainder, masked, disjoint_bits, smaller, larger, chosen, branches, while_loop,
    for_loop, carried_by_for, nested_loops, carried_pointer, carried_tile_of_pointers, of_a_function, of_an_aggregate,
    of_a_tuple, wide_numbers, row_stride, hinted, assumed, by_a_pattern, exclusive_or,
)  # fmt: skip


def compiled(kernel, m="i32"):
    return kernel.warmup("*fp32:16", "*fp32:16", "i32:16", m, target="sm_90a")


def widths(kernel, **given) -> set[int]:
    """Bytes that a thread moves by each access of `x` and `y`."""
    text = compiled(kernel, **given).asm["lowered"]
    found = re.findall(r"memory\.(?:load|store)_regs .*?vec = (\d+)", text)
    assert found, text
    return {int(width) * 4 for width in found}


@pytest.mark.parametrize("kernel", WIDE, ids=lambda kernel: kernel.__name__)
def test_rows_move_16_bytes_a_thread(kernel):
    assert widths(kernel) == {16}


def test_promises_about_offsets_that_were_loaded():
    text = compiled(hinted_runs, "*i32:16").asm["lowered"]
    assert set(re.findall(r"memory\.(?:load|store)_regs .*?vec = (\d+)", text)) == {"4"}


@needs_nvrtc
@pytest.mark.parametrize("kernel", some(WIDE, 4), ids=lambda kernel: kernel.__name__)
def test_so_does_the_machine_code(kernel):
    found = re.findall(r"\b(?:LDG|STG)[.\w]*", compiled(kernel).asm["sass"])
    assert found and all(".128" in each for each in found), found
