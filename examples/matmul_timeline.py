"""Timelines of the matmul kernels of this folder, drawn as SVG: which multiprocessor computes which tile, and when.

For each tile the kernel records three values of the GPU's clock: at the start of its mainloop, when its MMAs are complete,
and after the store of its result was issued. In the picture a row is a multiprocessor; a dark bar is the mainloop of a tile,
and the light bar after it the epilogue. The simulator has no time: its clock counts events.

    python examples/matmul_timeline.py [--svg FOLDER] [--sim]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import matmul_ladder as ladder
import matmul_warp_specialized as specialised
import numpy as np
import workbench
from workbench import Place

import weft
from weft import language as gl

FIELDS = ("multiprocessor", "row", "column", "begun", "summed", "stored")
"""The fields of a tile's record."""
_ticks = count()


def _count_events(_program: Any) -> Any:
    """The simulator's clock."""
    return np.int64(next(_ticks))


def _own_multiprocessor(program: Any) -> Any:
    """In the simulator every program runs on its own multiprocessor."""
    return program


@weft.jit
def stamp(log, idx, pid_m, pid_n, event: gl.constexpr):
    # The record of tile `idx` of this program; in records, all first tiles come first, then all second ones.
    program = gl.program_id(0) + gl.program_id(1) * gl.num_programs(0)
    record = log + (idx * gl.num_programs(0) * gl.num_programs(1) + program).to(gl.int64) * 6
    if event == 0:
        where = gl.inline_asm_elementwise(
            "mov.u32 $0, %smid;", "=r,r", [program], dtype=gl.int32, is_pure=False, pack=1, sim=_own_multiprocessor
        )
        gl.store(record, where.to(gl.int64))
        gl.store(record + 1, pid_m.to(gl.int64))
        gl.store(record + 2, pid_n.to(gl.int64))
    now = gl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,r", [program], dtype=gl.int64, is_pure=False, pack=1, sim=_count_events
    )
    gl.store(record + 3 + event, now)


@dataclass(frozen=True, slots=True)
class Bar:
    """A tile: its multiprocessor, its position, and its times since the first of all, in nanoseconds (or simulator events)."""

    multiprocessor: int
    row: int
    column: int
    begun: int
    summed: int
    stored: int


KERNELS: dict[str, tuple[Any, tuple[int, int]]] = {
    "pipelined": (partial(ladder.matmul_pipelined, num_buffers=3, num_warps=8), (128, 256)),
    "persistent": (
        partial(ladder.persistent_matmul, num_buffers=3, num_warps=8, SchedulerImpl=ladder.PersistentTileScheduler),
        (128, 256),
    ),
    "persistent, pipelined": (
        partial(
            ladder.persistent_matmul_pipelined, num_buffers=3, num_warps=8, SchedulerImpl=ladder.PersistentTileScheduler
        ),
        (128, 256),
    ),
    "cooperative": (specialised.matmul_cooperative, (128, 256)),
    "ping-pong": (specialised.matmul_ping_pong, (128, 128)),
}
"""The function that computes A @ B, and the tile of C of a record."""


def trace(place: Place, name: str, M: int, N: int, K: int) -> list[Bar]:
    """Run a kernel on random float16 matrices, after a warm-up run, and return its tiles. The result is checked."""
    function, (rows, columns) = KERNELS[name]
    tile = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": 64} if isinstance(function, partial) else {}
    A, B = place.random(M, K, dtype="float16"), place.random(K, N, dtype="float16")
    C = place.poisoned(M, N, dtype="float16")
    tiles = weft.cdiv(M, rows) * weft.cdiv(N, columns)
    # Programs with fewer tiles than others leave records empty.
    records = tiles + workbench.multiprocessors(C)
    log = place.zeros(records * len(FIELDS))
    if place.gpu:
        function(A, B, C, **tile, trace=stamp, log=log)
    function(A, B, C, **tile, trace=stamp, log=log)
    place.check_product(C, A, B)
    found = (log.cpu().numpy() if place.gpu else log).reshape(records, len(FIELDS))
    found = found[found[:, FIELDS.index("stored")] > 0]
    assert len(found) == tiles, f"{len(found)} tiles of {tiles} left a record"
    found[:, 3:] -= found[:, 3].min()
    return [Bar(*map(int, record)) for record in found]


# The picture

LABEL, WIDTH, HEIGHT, MARGIN, HEAD = 46, 900, 16, 12, 40
"""Sizes in pixels: the width of a row's label and of its bars, its height, the margin, and the height of the title."""
HUES = 12


def draw(title: str, bars: Sequence[Bar], most: int = 16, unit: str = "us") -> str:
    """The first `most` multiprocessors as an SVG document, one row each; tooltips show the tile and its times."""
    shown = sorted({bar.multiprocessor for bar in bars})[:most]
    end = max(bar.stored for bar in bars)
    height = HEAD + (len(shown) + 1) * HEIGHT + 2 * MARGIN
    width = LABEL + WIDTH + 2 * MARGIN
    scale = 1000 if unit == "us" else 1
    body = [part for y, number in enumerate(shown) for part in _row(number, y, bars, end, scale, unit)]
    left, base = MARGIN + LABEL, HEAD + (len(shown) + 0.8) * HEIGHT
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>',
            f"<title>{escape(title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="{MARGIN}" y="{MARGIN + 11}" fill="#202020" font-weight="bold">{escape(title)}</text>',
            *body,
            _label(left, base, "0", "start"),
            _label(left + WIDTH, base, f"{end / scale:.1f} {unit}", "end"),
            "</svg>\n",
        ]
    )


def _row(number: int, y: int, bars: Sequence[Bar], end: int, scale: int, unit: str) -> Iterator[str]:
    """A multiprocessor's label and bars; tiles that overlap in time are drawn below each other."""
    top, left = HEAD + y * HEIGHT, MARGIN + LABEL
    yield _label(left - 6, top + 11, f"SM {number}", "end")
    lanes = _lanes([bar for bar in bars if bar.multiprocessor == number])
    height = (HEIGHT - 2) / len(lanes)
    for lane, bar in ((lane, bar) for lane, own in enumerate(lanes) for bar in own):
        hue = (bar.row % HUES) * 360 // HUES
        begun, summed, stored = (left + time * WIDTH / end for time in (bar.begun, bar.summed, bar.stored))
        times = ", ".join(f"{time / scale:.2f}" for time in (bar.begun, bar.summed, bar.stored))
        yield f"<g><title>tile {bar.row}, {bar.column}: {times} {unit}</title>"
        yield _box(begun, top + lane * height, summed - begun, height, f"hsl({hue},60%,55%)")
        yield _box(summed, top + lane * height, stored - summed, height, f"hsl({hue},60%,82%)")
        if summed - begun > 34 and len(lanes) == 1:
            yield _label((begun + summed) / 2, top + 11, f"{bar.row},{bar.column}", "middle", "#101010")
        yield "</g>"


def _lanes(bars: Sequence[Bar]) -> list[list[Bar]]:
    """The bars in the fewest lanes in which they do not overlap."""
    lanes: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: bar.begun):
        free = next((lane for lane in lanes if lane[-1].stored <= bar.begun), None)
        if free is None:
            lanes.append([bar])
        else:
            free.append(bar)
    return lanes


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.2f}" y="{y:g}" width="{max(width, 0.3):.2f}" height="{height:g}" fill="{fill}"/>'


def _label(x: float, y: float, text: str, anchor: str, fill: str = "#808080") -> str:
    return f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'


def row(place: Place, name: str, folder: Path | None) -> dict[str, Any]:
    """One line of the table: trace, check, and draw into `folder` if one is given."""
    M, N, K = place.size(8192, 400), place.size(8192, 520), place.size(512, 136)
    bars = trace(place, name, M, N, K)
    unit, scale = ("us", 1000) if place.gpu else ("events", 1)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"schedule-{name.replace(', ', '-')}.svg"
        file.write_text(draw(f"{name}: {M} x {N} x {K}, fp16", bars, unit=unit), encoding="utf-8")
    end, used = max(bar.stored for bar in bars), len({bar.multiprocessor for bar in bars})
    busy = sum(bar.summed - bar.begun for bar in bars) / (end * used)
    return {
        "kernel": name,
        "tiles": len(bars),
        "multiprocessors": used,
        unit: f"{end / scale:.1f}",
        "tiles in flight": f"{busy:.2f}",
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table, and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--svg", metavar="FOLDER", type=Path, help="folder for the pictures")
    parser.add_argument("--sim", action="store_true", help="run in the simulator even where there is a GPU")
    given = parser.parse_args(argv)
    place = workbench.place_of(simulated=given.sim)
    rows = [row(place, name, given.svg) for name in KERNELS]
    workbench.report("Tiles of matmuls over time, fp16", rows, place, None, "")


if __name__ == "__main__":
    main()
