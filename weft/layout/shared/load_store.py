"""Plans of loads and stores of a distributed tile in shared memory, as data, and their bank conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from operator import add

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout import cost
from weft.layout.base import whole_shape
from weft.layout.distributed.layouts import DistributedLayout
from weft.layout.linear.columns import Columns, columns, combinations
from weft.layout.linear.ends import Pieces, pieces
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.homes import Homes, homes
from weft.layout.shared.layouts import Pads, SharedLayout
from weft.layout.shared.ldmatrix import ROW_BYTES, MatrixAccess, plan_matrix
from weft.layout.shared.sizes import alignment
from weft.layout.shared.vectors import VectorAccess, load_side, repeated, spell, spread, store_side, widest_vector


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """A load or store of a tile: `access` by vectors, and `matrix` by matrix instructions if they fit and cost less.

    Offsets count elements from the start of the tile in shared memory, the offset of the view included. A load fills the
    registers of `access`; register r of the tile is then the loaded one `result[r]` (itself, unless it is redundant). In a
    store, threads in the masks are inactive; in a load none are. `matrix` needs newer hardware than `access`: sm_75 for the
    `ldmatrix` of a load, sm_90 for the `stmatrix` of a store.
    """

    bits: int
    access: VectorAccess
    result: tuple[int, ...]
    matrix: MatrixAccess | None


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """A load or store by vectors of a tile whose elements lie in the memory of several blocks of a cluster.

    `access` is as in `SharedAccess`, but the last warp bits are those of the block's rank, and offsets are places
    (`weft.layout.shared.homes`), before padding. A store goes to all `copies` (XOR constants for places): lanes that hold the
    same elements divide the blocks among them."""

    access: VectorAccess
    result: tuple[int, ...]
    homes: Homes
    pads: Pads
    copies: tuple[int, ...]


@lru_cache(maxsize=4096)
def plan_remote(
    distributed: LinearLayout,
    shared: SharedLayout,
    tile_shape: tuple[int, ...],
    view_shape: tuple[int, ...],
    start: tuple[int, ...],
    bits: int,
    block_bits: int,
    store: bool = False,
) -> RemoteAccess:
    """As `plan_access`, for blocks that access each other's memory. An element that several blocks hold in memory is loaded
    from the reader's own where it can be; one that several hold in registers is stored by the first of them."""
    _check_view(distributed, view_shape)
    if distributed.is_whole:
        return _plan_remote(distributed, shared, tile_shape, start, bits, block_bits, store)
    parts = pieces(distributed)
    plans = [
        _plan_remote(parts.layout, shared, tile_shape, at, bits, block_bits, store) for at in _starts(start, parts)
    ]
    access = repeated([plan.access for plan in plans], parts.registers)
    return replace(plans[0], access=access, result=spread([plan.result for plan in plans], parts.registers))


def _plan_remote(
    distributed: LinearLayout, shared: SharedLayout, tile_shape: tuple[int, ...], start: tuple[int, ...], bits: int,
    block_bits: int, store: bool,
) -> RemoteAccess:  # fmt: skip
    found = homes(shared.to_linear(tile_shape), block_bits)
    tile = columns(_in_tile(distributed, tile_shape))
    blocks = tile.block + (0,) * (block_bits - len(tile.block))
    whole = Columns(tile.register, tile.lane, (*tile.warp, *blocks), ())
    side = (store_side if store else load_side)(whole).mapped(found.of)
    if not store:
        own = (0,) * len(tile.warp) + found.steps
        side = replace(side, warp=tuple([place ^ step for place, step in zip(side.warp, own, strict=True)]))
    pads = shared.pads_of(tile_shape)
    limit = min(_most_elements(shared, bits, pads), 1 << found.offset_bits)
    access = spell(side, widest_vector(side, limit), found.of(join(start, whole_shape(tile_shape))))
    if not store:
        return RemoteAccess(access, side.result, found, pads, (0,))
    access, steps = _divided(access, tile.lane, [step for step in found.steps if step])
    return RemoteAccess(access, side.result, found, pads, tuple(combinations(steps)))


def _divided(access: VectorAccess, columns: tuple[int, ...], steps: list[int]) -> tuple[VectorAccess, list[int]]:
    """The stores of an element to all its copies, by lanes that hold it: bits of the lane without a column choose the copy,
    as far as there are any. Returns the steps that are left."""
    lanes, mask = list(access.lane_bases), access.lane_mask
    free = [bit for bit, column in enumerate(columns) if not column and mask >> bit & 1]
    for bit, step in zip(free, steps, strict=False):
        lanes[bit], mask = step, mask & ~(1 << bit)
    return replace(access, lane_bases=tuple(lanes), lane_mask=mask), steps[len(free) :]


@lru_cache(maxsize=4096)
def stays_in_block(
    distributed: LinearLayout, shared: SharedLayout, tile_shape: tuple[int, ...], view_shape: tuple[int, ...]
) -> bool:
    """Whether every block finds the elements that it holds in its own memory."""
    _check_view(distributed, view_shape)
    linear, tile = shared.to_linear(tile_shape), _in_tile(distributed, tile_shape)
    offset = linear.columns["offset"]
    return _in_own_block(tile, linear, len(offset), Span((*offset, *linear.columns["block"])))


def stays_in_block_along(indices: LinearLayout, shared: LinearLayout, axis: int, store: bool = False) -> bool:
    """Whether every block finds the elements that its indices along an axis can name in its own memory; for a `store` no other
    block may have copies of them, unless it has the same indices."""
    pairs = zip_longest(indices.bases("block"), shared.bases("block"), fillvalue=(0,) * len(shared.out_sizes))
    apart = any(mine[:axis] + mine[axis + 1 :] != its[:axis] + its[axis + 1 :] or its[axis] for mine, its in pairs)
    return not apart and not (store and any(basis[axis] for basis in indices.bases("block")))


@lru_cache(maxsize=4096)
def plan_access(
    distributed: LinearLayout,
    shared: SharedLayout,
    tile_shape: tuple[int, ...],
    view_shape: tuple[int, ...],
    start: tuple[int, ...],
    bits: int,
    store: bool = False,
) -> SharedAccess:
    """The plan to load or store a distributed tile of `view_shape` at `start` of a tile of `tile_shape` in shared memory.

    `distributed` maps register, lane, warp and block to the view; `bits` is the element's width. Starts of the view are
    multiples of its lengths, so an offset is that of the start XORed with the element's own. Raises LayoutError if layout and
    shape do not fit, or if a block would need the memory of another (convert-blocks).
    """
    _check_view(distributed, view_shape)
    if distributed.is_whole:
        return _plan_access(distributed, shared, tile_shape, start, bits, store)
    parts = pieces(distributed)
    plans = [_plan_access(parts.layout, shared, tile_shape, at, bits, store) for at in _starts(start, parts)]
    access = repeated([plan.access for plan in plans], parts.registers)
    matrices = [plan.matrix for plan in plans if plan.matrix is not None]
    matrix = None
    if len(matrices) == len(plans):
        matrix = replace(matrices[0], rows=repeated([each.rows for each in matrices], parts.registers))
    return SharedAccess(bits, access, spread([plan.result for plan in plans], parts.registers), matrix)


def _plan_access(
    distributed: LinearLayout, shared: SharedLayout, tile_shape: tuple[int, ...], start: tuple[int, ...], bits: int,
    store: bool,
) -> SharedAccess:  # fmt: skip
    linear, tile = shared.to_linear(tile_shape), _in_tile(distributed, tile_shape)
    offset = linear.columns["offset"]
    places = Span((*offset, *linear.columns["block"]))
    if not _in_own_block(tile, linear, len(offset), places):
        raise fail(errors.CONVERT_BLOCKS, src=list(distributed.bases("block")), dst=list(linear.bases("block")))
    side = (store_side if store else load_side)(columns(tile)).mapped(lambda element: solved(places, element))
    first = solved(places, join(start, linear.out_sizes))
    pads = shared.pads_of(tile_shape)
    access = spell(side, widest_vector(side, _most_elements(shared, bits, pads)), first, pads)
    matrix = plan_matrix(side, bits, first, pads) if alignment(shared) >= ROW_BYTES else None
    cheaper = matrix and matrix.rows.quarters(bits) < access.quarters(bits)
    return SharedAccess(bits, access, side.result, matrix if cheaper else None)


def bank_conflicts(
    distributed: DistributedLayout,
    shape: Sequence[int],
    shared: SharedLayout,
    bits: int,
    tile_shape: Sequence[int] | None = None,
) -> int:
    """Additional wavefronts per wavefront of a vector access because of bank conflicts; 0 means none.

    A warp's access of 16 bytes per lane takes four wavefronts, of 8 bytes two, of fewer one. The tile in shared memory may be
    larger than the accessed `shape`; then its first part is assumed. Raises as `plan_access` does.
    """
    view = tuple(shape)
    tile = view if tile_shape is None else tuple(tile_shape)
    access = plan_access(distributed.to_linear(view), shared, tile, view, (0,) * len(view), bits).access
    return max(access.phase_wavefronts(bits)) - 1


def _check_view(distributed: LinearLayout, view_shape: Sequence[int]) -> None:
    if distributed.sizes != tuple(view_shape):
        raise fail(errors.CONVERT_SHAPE, src=list(view_shape), dst=list(distributed.sizes))


def _starts(start: tuple[int, ...], parts: Pieces) -> list[tuple[int, ...]]:
    """The first coordinates in memory of the pieces of a view that begins at `start`."""
    return [tuple(map(add, start, at)) for at in parts.starts]


def _in_tile(distributed: LinearLayout, tile_shape: Sequence[int]) -> LinearLayout:
    """The distributed layout with its elements numbered as the whole tile in shared memory numbers them."""
    bases = {dim: distributed.bases(dim) for dim in distributed.in_dims}
    return LinearLayout.make(bases, list(zip(distributed.out_dims, whole_shape(tile_shape), strict=True)))


def _in_own_block(tile: LinearLayout, shared: LinearLayout, offset_bits: int, places: Span) -> bool:
    """Whether every block has its own elements in its own memory."""
    threads = (column for dim in ("register", "lane", "warp") for column in tile.columns[dim])
    crossing = any(solved(places, column) >> offset_bits for column in threads)
    # A layout without a basis for a bit of the block holds copies there.
    blocks = zip_longest(tile.columns["block"], shared.columns["block"], fillvalue=0)
    return not crossing and all(mine == its for mine, its in blocks)


def _most_elements(shared: SharedLayout, bits: int, pads: Pads) -> int:
    """Elements of the widest vector that alignment and padding keep contiguous and aligned."""
    vector_bytes = min(cost.MAX_VECTOR_BYTES, alignment(shared))
    return min([vector_bytes // cost.element_bytes(bits), *(value & -value for pair in pads for value in pair)])
