"""Which accesses of the author's to shared memory reach that of other blocks of the cluster."""

from __future__ import annotations

from functools import lru_cache

from weft.ir.core import Op
from weft.ir.types import SharedType, TileType
from weft.layout.shared.load_store import stays_in_block, stays_in_block_along
from weft.ops import cluster, shared

WHOLE = (shared.load, shared.store, shared.async_store)
BY_RANK = (cluster.load, cluster.store, cluster.async_store)
CHOSEN = (shared.gather, shared.scatter, shared.atomic)


@lru_cache(maxsize=4096)
def reaches_blocks(op: Op) -> bool:
    """Whether blocks access each other's shared memory in an operation of tile IR: by rank, or because the tile, or the
    elements that its indices can name, lie otherwise over the blocks than the buffer."""
    if op.kind in BY_RANK:
        return True
    if op.kind not in WHOLE and op.kind not in CHOSEN:
        return False
    handle = op.operands[0]
    held = op.result if op.kind is shared.load else op.operands[1] if op.kind in WHOLE else op.operands[-1]
    assert handle is not None and held is not None
    t, tile = handle.type, held.type
    assert isinstance(t, SharedType) and isinstance(tile, TileType) and tile.linear is not None
    if op.kind in WHOLE:
        return not stays_in_block(tile.linear, t.layout, t.alloc_shape, t.shape)
    shared_linear, store = t.layout.to_linear(t.alloc_shape), op.kind is not shared.gather
    return not stays_in_block_along(tile.linear, shared_linear, op.attrs["axis"], store)
