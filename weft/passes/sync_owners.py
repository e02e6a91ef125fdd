"""Which thread accesses which bytes, where a whole tile goes between registers and one of an allocation's own tiles.

Two such accesses that spread the tile over the threads alike never meet: each byte is one thread's own, and a thread's accesses
happen in the order of the program. In tensor memory it is a warp that accesses the elements of its threads' own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.ir.core import Op, Value
from weft.ir.define import OpDef
from weft.ir.types import SharedType, TensorType, TileType
from weft.layout import LinearLayout, plan_access
from weft.layout.linear.columns import columns
from weft.layout.shared.vectors import store_side
from weft.ops import async_copy, shared, tensor_memory

_TILES: dict[OpDef, Callable[[Op], Value | None]] = {
    shared.load: lambda op: op.result,
    shared.store: lambda op: op.operand("value"),
    async_copy.global_to_shared: lambda op: op.operand("ptr"),
    tensor_memory.load: lambda op: op.result,
    tensor_memory.store: lambda op: op.operand("value"),
}
"""What holds the elements, or their addresses."""


@dataclass(frozen=True, slots=True)
class Owners:
    """`spread` maps register, lane and warp to the elements of a whole tile of type `memory`; each has one thread."""

    memory: SharedType | TensorType
    spread: LinearLayout


def owners(op: Op) -> Owners | None:
    """Who accesses which element; None where a thread accesses what another one holds, or several hold the same.

    Matrix instructions are among these: lanes read and write for each other.
    """
    held, handle = _TILES.get(op.kind, lambda _: None)(op), op.operands[0] if op.operands else None
    if held is None or handle is None:
        return None
    tile, memory = held.type, handle.type
    if not isinstance(tile, TileType) or not isinstance(memory, SharedType | TensorType) or tile.linear is None:
        return None
    if memory.shape != memory.alloc_shape or tile.linear.in_size("block") > 1:
        return None
    side = store_side(columns(tile.linear))
    if side.lane_mask or side.warp_mask:
        return None
    matrices = isinstance(memory, SharedType) and _by_matrices(op, tile.linear, memory)
    return None if matrices else Owners(memory, tile.linear)


def _by_matrices(op: Op, spread: LinearLayout, memory: SharedType) -> bool:
    if op.kind is async_copy.global_to_shared:
        return False
    start = (0,) * len(memory.shape)
    store = op.kind is shared.store
    shape = memory.shape
    return plan_access(spread, memory.layout, shape, shape, start, memory.element.bits, store).matrix is not None
