"""TMA of chosen rows as text, and the requests that become of it."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, needs_nvrtc, pointer, text_of
from tests.cuda.rules.test_async import barriers, descriptor, room, sass
from weft.cuda.text.names import Names
from weft.ir.core import Func
from weft.ir.types import float16, int32
from weft.ops import arith, regs, tma

ARCH = "sm_100a"


def gathered(rows: int, parts: int = 1, on: bool = False) -> Func:
    """So many rows of parts of 64 halves each, to shared memory and out again."""
    k = Kernel(("p", pointer(int32)), ("column", int32))
    desc = descriptor(k, "desc", (1, 64 * parts))
    (bar,), smem = barriers(k), room(k, float16, rows * 64 * parts, 1024, "smem")
    numbers = k.load(k.params[0], rows, vec=4, name="rows")
    pred = k.emit(arith.cmp, k.params[1], k.number(3), predicate="lt", name="on") if on else None
    steps = tuple([(4 * i, 64 * j, 512 * i + 128 * rows * j) for j in range(parts) for i in range(rows // 4)])
    k.emit(tma.gather4, desc, bar, smem, pred, numbers, k.params[1], steps=steps)
    k.emit(tma.scatter4, desc, smem, numbers, k.params[1], steps=steps)
    k.emit(tma.store_wait, pendings=0)
    return k.done()


def test_requests_read_well():
    text = re.sub(r" *#line.*\n", "", text_of(gathered(16, on=True), ARCH))
    four = "rows[4 * r], rows[4 * r + 1], rows[4 * r + 2], rows[4 * r + 3]"
    assert (
        text[text.index("  if (") :]
        == f"""\
  if (warp == 0 && on && elect_one()) {{
    #pragma unroll
    for (int r = 0; r < 4; ++r) tma_gather4(smem + 512 * r, &desc, bars, column, {four});
  }}
  if (warp == 0 && elect_one()) {{
    #pragma unroll
    for (int r = 0; r < 4; ++r) tma_scatter4(&desc, smem + 512 * r, column, {four});
    bulk_commit(); bulk_wait_read<0>();
  }}
}}
"""
    )


@pytest.mark.parametrize("parts", [1, 2])
def test_wide_rows_take_several_requests(parts):
    text = text_of(gathered(8, parts), ARCH)
    column = "column + 64 * (r / 2)" if parts == 2 else "column"
    assert f"bars, {column}, rows[" in text and f", {column}, rows[" in text[text.index("tma_scatter4(") :]


@needs_nvrtc
@pytest.mark.parametrize("rows", [4, 8, 64])
def test_requests(rows):
    """One for four rows, by one thread, without a loop over lanes or an array in memory. Stores of negative rows are undefined,
    so these go behind the last row."""
    text = sass(gathered(rows, parts=2), ARCH)
    assert len(re.findall(r"SEL \S+, \S+, 0x7fffffff", text)) == rows
    assert text.count("UTMALDG.2D.GATHER4") == text.count("UTMASTG.2D.SCATTER4") == rows // 2
    assert "VOTE" not in text and text.count("UTMACMDFLUSH") == 1


@needs_nvrtc
def test_one_number_for_all_rows():
    """Registers that have no array: a number that is the same in each."""
    k = Kernel(("row", int32))
    desc = descriptor(k, "desc", (1, 64))
    (bar,), smem = barriers(k), room(k, float16, 256, 1024, "smem")
    rows = k.emit(regs.splat, k.params[0], count=4)
    k.emit(tma.gather4, desc, bar, smem, None, rows, k.number(32), steps=((0, 64, 0),))
    func = k.done()
    assert "if (warp == 0 && elect_one()) tma_gather4(smem, &desc, bars, 96, row, row, row, row);" in text_of(
        func, ARCH
    )
    assert sass(func, ARCH).count("UTMALDG.2D.GATHER4") == 1


def test_names_of_functions_are_taken():
    names = Names(frozenset())
    for name in ("tma_gather4", "tma_load_pair_2d", "tmem_load_32x32b_x1_f32", "tcgen05_commit", "clc_try_cancel"):
        assert names.fresh(name) == f"my_{name}"
