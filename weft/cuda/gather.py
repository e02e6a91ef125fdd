"""TMA of chosen rows: four of a matrix in one request, by the elected thread, which holds all their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.globals import plus
from weft.cuda.prelude import Piece
from weft.cuda.reduce import member
from weft.cuda.refs import Index
from weft.cuda.rules import Repeated, elects
from weft.cuda.tma import commit, moved
from weft.ir.core import Op, Value
from weft.ops import tma

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter

_GATHER = Piece(
    "// parts of four rows from column x on, one below the other\n"
    "DEV void tma_gather4(u32 to, const CUtensorMap* desc, u32 bar, int x, int y0, int y1, int y2, int y3) {\n"
    '  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"\n'
    '    " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"\n'
    '    :: "r"(to), "l"(desc), "r"(bar), "r"(x), "r"(y0), "r"(y1), "r"(y2), "r"(y3) : "memory"); }',
    ("CUtensorMap",),
)
_SCATTER = Piece(
    "DEV void tma_scatter4(const CUtensorMap* desc, u32 from, int x, int y0, int y1, int y2, int y3) {\n"
    '  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group"\n'
    '    " [%0, {%2, %3, %4, %5, %6}], [%1];"\n'
    '    :: "l"(desc), "r"(from), "r"(x), "r"(y0), "r"(y1), "r"(y2), "r"(y3) : "memory"); }',
    ("CUtensorMap",),
)
