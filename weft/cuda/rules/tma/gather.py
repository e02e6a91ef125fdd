"""TMA gather and scatter: four rows of a matrix per instruction, issued by the elected thread, which holds all row indices."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects
from weft.cuda.rules.tma.copies import (
    Pair,
    barrier_of,
    bulk_commit,
    column,
    moved,
    named,
    paired,
    policy_operand,
    received,
    receiving,
)  # fmt: skip
from weft.cuda.text.accesses import HINT
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.ir.core import Op
from weft.ops import tma
from weft.ops.memory import L2Policy


def _gather_piece(name: str, multicast: bool, pair: Pair, l2: L2Policy) -> Piece:
    """`tma_gather4(to, desc, bar, x, y0, y1, y2, y3)`, and with `multicast` the mask of the CTAs that receive the rows."""
    # `.shared::cta` as a destination was introduced with `.tile::gather4`, in PTX ISA 8.6. The tiled loads of
    # `weft.cuda.rules.tma` name `.shared::cluster`, which Hopper's toolchains know too.
    space = "cluster" if multicast or pair else "cta"
    sends = ".multicast::cluster" * multicast + ".cta_group::2" * bool(pair)
    about, blocks = (", for several blocks", f",\n{' ' * (len(name) + 10)}u16 blocks") if multicast else ("", "")
    last = ", %8" * multicast + (f", %{8 + multicast}" if l2 else "")
    tail = f'{sends}{HINT * bool(l2)}"\n    " [%0]' if not multicast else f'"\n    "{sends}{HINT * bool(l2)} [%0]'
    return Piece(
        f"// a part of four rows, from column x{about}\n"
        f"DEV void {name}(u32 to, const CUtensorMap* desc, u32 bar, int x, int y0, int y1, int y2, int y3{blocks}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.2d.shared::{space}.global.tile::gather4.mbarrier::complete_tx::bytes{tail}'
        f', [%1, {{%3, %4, %5, %6, %7}}], [%2]{last};"\n'
        f'    :: "r"(to), "l"(desc), {barrier_of(pair)}, "r"(x), "r"(y0), "r"(y1), "r"(y2), "r"(y3)'
        f"""{', "h"(blocks)' * multicast}{policy_operand(l2)} : "memory"); }}""",
        ("CUtensorMap",),
    )


def _scatter_piece(name: str, l2: L2Policy) -> Piece:
    """`tma_scatter4(desc, from, x, y0, y1, y2, y3)`."""
    # The coordinates of a copy to global memory must be non-negative (PTX ISA, "Restriction on Tensor Copy instructions"). As
    # an unsigned number a negative row exceeds 0x7fffffff, and TMA skips the row at that index as it skips any row past the
    # end.
    return Piece(
        "// scatter has no negative row indices: a row before the first becomes one past the last\n"
        f"DEV void {name}(const CUtensorMap* desc, u32 from, int x, int y0, int y1, int y2, int y3) {{\n"
        "  const u32 y[4] = {min((u32)y0, 0x7fffffffu), min((u32)y1, 0x7fffffffu), min((u32)y2, 0x7fffffffu),\n"
        "                    min((u32)y3, 0x7fffffffu)};\n"
        f'  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group{HINT * bool(l2)}"\n'
        f'    " [%0, {{%2, %3, %4, %5, %6}}], [%1]{", %7" * bool(l2)};"\n'
        '    :: "l"(desc), "r"(from), "r"(x), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3])'
        f'{policy_operand(l2)} : "memory"); }}',
        ("CUtensorMap",),
    )


def _request(e: Emitter, op: Op, index: Index) -> tuple[str, list[str]]:
    """The shared memory address of an instruction's rows, and their coordinates."""
    desc, rows, first = (op.operand(name) for name in ("desc", "rows", "column"))
    assert desc is not None and rows is not None
    firsts, columns, offsets = zip(*op.attrs["steps"], strict=True)
    at = [e.at(rows, e.entry(tuple([first + row for first in firsts]), index)) for row in range(tma.GATHERED)]
    return received(e, op, offsets, index), [column(desc, moved(e, first, columns, index)), *at]


@elects(tma.gather4)
def _gather(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc, bar, *_ = op.operands
    assert desc is not None and bar is not None
    blocks = [receiving(e, op, bits)] if (bits := op.attrs["receivers"]) else []
    pair, way = paired(op)
    name = named(e, "_".join(["tma_gather4", *["multicast"] * bool(blocks), *[way[:-1]] * bool(way)]), op.attrs["l2"])
    e.pieces.define(name, _gather_piece(name, bool(blocks), pair, op.attrs["l2"]))

    def text(index: Index) -> str:
        to, coordinates = _request(e, op, index)
        return f"{name}({', '.join([to, e.at(desc), e.at(bar), *coordinates, *blocks])});"

    return [(len(op.attrs["steps"]), text)]


@elects(tma.scatter4)
def _scatter(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc = op.operands[0]
    assert desc is not None
    name = named(e, "tma_scatter4", op.attrs["l2"])
    e.pieces.define(name, _scatter_piece(name, op.attrs["l2"]))

    def text(index: Index) -> str:
        start, coordinates = _request(e, op, index)
        return f"{name}({', '.join([e.at(desc), start, *coordinates])});"

    return [(len(op.attrs["steps"]), text), bulk_commit(e)]
