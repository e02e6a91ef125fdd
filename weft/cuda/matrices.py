"""Matrices in shared memory, as instructions of the tensor cores find them: by descriptors of 64 bits.

A descriptor is formed of two 32-bit halves, of which only the lower one depends on where the matrix lies, from values that
the warps of a warpgroup share: so both stay in uniform registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.globals import plus
from weft.cuda.prelude import Piece
from weft.cuda.refs import Index
from weft.cuda.tables import Table

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter

_START = Piece(
    "// where a matrix begins, as descriptors say it\n"
    "DEV u32 matrix_start(u32 address) { return address >> 4 & 0x3fffu; }"
)
_DESCRIPTOR = Piece("DEV u64 matrix(u32 high, u32 low) { return (u64)high << 32 | low; }")


class Matrix:
    """An operand at `address`: `fields` are the bits of its descriptors but for that, `offsets` where in it each matrix begins.

    `start` is the statement that finds where the operand begins; it comes before what uses descriptors."""

    def __init__(self, e: Emitter, name: str, address: str, fields: int, offsets: Table) -> None:
        self.emitter, self.name, self.high = e, e.names.fresh(name), f"{fields >> 32:#x}u"
        # The other fields of the lower half are added together with the steps, at no cost.
        self.low, self.steps = f"{fields & 0xFFFFFFFF:#x}u", tuple([offset >> 4 for offset in offsets])
        e.pieces.define("matrix", _DESCRIPTOR)
        self.start = f"const u32 {self.name} = {e.pieces.define('matrix_start', _START)}({address});"

    def at(self, index: Index) -> str:
        """The descriptor of a step."""
        return f"matrix({self.high}, {self.low} + {plus(self.name, self.emitter.entry(self.steps, index))})"
