"""TMA gather and scatter: four rows of a matrix per instruction, issued by the elected thread, which holds all row indices."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects
from weft.cuda.rules.tma.copies import bulk_commit, column, moved, receiving
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.ir.core import Op
from weft.ops import tma

# `.shared::cta` as a destination was introduced with `.tile::gather4`, in PTX ISA 8.6. The tiled loads of `weft.cuda.rules.tma`
# name `.shared::cluster`, which Hopper's toolchains know too.
_GATHER = Piece(
    "// a part of four rows, from column x\n"
    "DEV void tma_gather4(u32 to, const CUtensorMap* desc, u32 bar, int x, int y0, int y1, int y2, int y3) {\n"
    '  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"\n'
    '    " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"\n'
    '    :: "r"(to), "l"(desc), "r"(bar), "r"(x), "r"(y0), "r"(y1), "r"(y2), "r"(y3) : "memory"); }',
    ("CUtensorMap",),
)
_MULTICAST = Piece(
    "// a part of four rows, from column x, for several blocks\n"
    "DEV void tma_gather4_multicast(u32 to, const CUtensorMap* desc, u32 bar, int x, int y0, int y1, int y2, int y3,\n"
    "                               u16 blocks) {\n"
    '  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"\n'
    '    ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;"\n'
    '    :: "r"(to), "l"(desc), "r"(bar), "r"(x), "r"(y0), "r"(y1), "r"(y2), "r"(y3), "h"(blocks) : "memory"); }',
    ("CUtensorMap",),
)
# The coordinates of a copy to global memory must be non-negative (PTX ISA, "Restriction on Tensor Copy instructions"). As an
# unsigned number a negative row exceeds 0x7fffffff, and TMA skips the row at that index as it skips any row past the end.
_SCATTER = Piece(
    "// scatter has no negative row indices: a row before the first becomes one past the last\n"
    "DEV void tma_scatter4(const CUtensorMap* desc, u32 from, int x, int y0, int y1, int y2, int y3) {\n"
    "  const u32 y[4] = {min((u32)y0, 0x7fffffffu), min((u32)y1, 0x7fffffffu), min((u32)y2, 0x7fffffffu),\n"
    "                    min((u32)y3, 0x7fffffffu)};\n"
    '  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"\n'
    '    " [%0, {%2, %3, %4, %5, %6}], [%1];"\n'
    '    :: "l"(desc), "r"(from), "r"(x), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]) : "memory"); }',
    ("CUtensorMap",),
)


def _request(e: Emitter, op: Op, index: Index) -> tuple[str, list[str]]:
    """The shared memory address of an instruction's rows, and their coordinates."""
    desc, handle, rows, first = (op.operand(name) for name in ("desc", "handle", "rows", "column"))
    assert desc is not None and handle is not None and rows is not None
    firsts, columns, offsets = zip(*op.attrs["steps"], strict=True)
    at = [e.at(rows, e.entry(tuple([first + row for first in firsts]), index)) for row in range(tma.GATHERED)]
    return moved(e, handle, offsets, index), [column(desc, moved(e, first, columns, index)), *at]


@elects(tma.gather4)
def _gather(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc, bar, *_ = op.operands
    assert desc is not None and bar is not None
    blocks = [receiving(e, bits)] if (bits := op.attrs["receivers"]) else []
    piece = ("tma_gather4_multicast", _MULTICAST) if blocks else ("tma_gather4", _GATHER)
    name = e.pieces.define(*piece)

    def text(index: Index) -> str:
        to, coordinates = _request(e, op, index)
        return f"{name}({', '.join([to, e.at(desc), e.at(bar), *coordinates, *blocks])});"

    return [(len(op.attrs["steps"]), text)]


@elects(tma.scatter4)
def _scatter(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc = op.operands[0]
    assert desc is not None
    name = e.pieces.define("tma_scatter4", _SCATTER)

    def text(index: Index) -> str:
        start, coordinates = _request(e, op, index)
        return f"{name}({', '.join([e.at(desc), start, *coordinates])});"

    return [(len(op.attrs["steps"]), text), bulk_commit(e)]
