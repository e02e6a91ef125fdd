"""Sums of the rows of a matrix: the layout decides the cost of the reduction.

With the lanes across a row, loads are coalesced and the reduction ends in shuffles and, between warps, in shared memory. With
one row per thread nothing is exchanged, but each lane loads from another row. The kernel is the same: a program adds
tiles of ROWS x COLS elementwise along its rows, and reduces once, at the end.

    python examples/row_sum.py [--plot FILE] [--sim]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import workbench
from workbench import Place

import weft
from weft import language as gl


@weft.jit
def row_sum(src, dst, rows, cols, stride, ROWS: gl.constexpr, COLS: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
    col = gl.arange(0, COLS, layout=gl.SliceLayout(0, layout))
    present = row < rows
    total = gl.zeros([ROWS, COLS], gl.float32, layout=layout)
    for start in range(0, cols, COLS):
        mask = present[:, None] & (start + col < cols)[None, :]
        total += gl.load(src + (row * stride)[:, None] + (start + col)[None, :], mask=mask, other=0.0)
    gl.store(dst + row, gl.sum(total, axis=1), mask=present)


def lanes_across(num_warps: int = 4, vec: int = 1) -> gl.BlockedLayout:
    """Lanes and warps side by side in a row."""
    return gl.BlockedLayout([1, vec], [1, 32], [1, num_warps], [1, 0])


def row_per_thread(num_warps: int = 4, vec: int = 4) -> gl.BlockedLayout:
    """Each thread holds whole rows of the tile."""
    return gl.BlockedLayout([1, vec], [32, 1], [num_warps, 1], [1, 0])


def run(src: Any, dst: Any, layout: gl.BlockedLayout, ROWS: int, COLS: int, num_warps: int = 4) -> Any:
    """Sum each row of `src`; returns the compiled kernel."""
    rows, cols = src.shape
    stride = workbench.strides(src)[0]
    return row_sum[(weft.cdiv(rows, ROWS),)](src, dst, rows, cols, stride, ROWS, COLS, layout, num_warps=num_warps)


CASES: tuple[tuple[str, gl.BlockedLayout, int, int], ...] = (
    ("lanes across", lanes_across(), 1, 2048),
    ("lanes across, 4 elements wide", lanes_across(vec=4), 1, 4096),
    ("one row per thread", row_per_thread(), 128, 32),
)


def row(place: Place, name: str, layout: gl.BlockedLayout, ROWS: int, COLS: int) -> dict[str, Any]:
    """One line of the table: add, check, measure."""
    from weft.layout import plan_reduction
    from weft.layout.cost import coalescing

    rows, cols = place.size(16000, 150), place.size(16000, 1000)
    src, dst = abs(place.random(rows, cols)), place.poisoned(rows)
    run(src, dst, layout, ROWS, COLS)
    place.check(dst, src.sum(axis=1, dtype=_double(place)), relative=1e-5)
    linear = layout.to_linear([ROWS, COLS])
    warp = coalescing(linear, [ROWS, COLS], workbench.strides(src), 4)
    plan = plan_reduction(linear, 1)
    return {
        "layout": name,
        "programs": weft.cdiv(rows, ROWS),
        "sectors per load": warp.sectors // warp.requests,
        "useful bytes": f"{warp.efficiency:.0%}",
        "shuffles": len(plan.lane_steps),
        "shared bytes": 4 * plan.scratch_elements,
        "TB/s": place.throughput(lambda: run(src, dst, layout, ROWS, COLS), rows * cols * 4),
    }


def _double(place: Place) -> Any:
    if place.gpu:
        import torch

        return torch.float64
    return "float64"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the table."""
    given = workbench.options(__doc__, argv)
    rows = [row(given.place, *case) for case in CASES]
    workbench.report("Row sums", rows, given.place, given.plot, "sectors per load")


if __name__ == "__main__":
    main()
