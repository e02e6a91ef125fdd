"""Functions of CUDA's device library. `weft.ops.libdevice` has the spelling of each."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, spells
from weft.cuda.text.prelude import PIECES
from weft.ir.core import Op
from weft.ops import libdevice
from weft.ops.check import dtype_of


@spells(libdevice.call)
def _call(e: Emitter, op: Op, *operands: str) -> str:
    overload = libdevice.FUNCTIONS[op.attrs["fn"]].overload(tuple(map(dtype_of, op.uses)))
    assert overload is not None
    if overload.cuda in PIECES:  # NVRTC links the library, but declares not all of its functions
        return e.call(overload.cuda, *operands)
    return f"{overload.cuda}({', '.join(operands)})"
