"""Addresses. The rest of the family is gone after `lower_tiles`; what it becomes is in `weft.cuda.globals`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cuda.rules import spells
from weft.ir.core import Op
from weft.ops import memory

if TYPE_CHECKING:
    from weft.cuda.emitter import Emitter


@spells(memory.addptr)
def _addptr(e: Emitter, op: Op, ptr: str, offset: str) -> str:
    return f"{ptr} + {offset}"
