"""Plans of loads and stores of a distributed tile in shared memory, as data, and their bank conflicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout import cost
from weft.layout.distributed.layouts import DistributedLayout
from weft.layout.linear.columns import columns
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.linear.maps import LinearLayout
from weft.layout.shared.layouts import PaddedSharedLayout, Pads, SharedLayout
from weft.layout.shared.ldmatrix import ROW_BYTES, MatrixAccess, plan_matrix
from weft.layout.shared.sizes import alignment
from weft.layout.shared.vectors import Access, load_side, spell, store_side, widest_vector


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """A load or store of a tile: `access` by vectors, and `matrix` by matrix instructions if they fit and cost less.

    Offsets count elements from the start of the tile in shared memory, the offset of the view included. A load fills the
    registers of `access`; register r of the tile is then the loaded one `result[r]` (itself, unless it is redundant). In a
    store, threads in the masks are inactive; in a load none are. `matrix` needs newer hardware than `access`: sm_75 for the
    `ldmatrix` of a load, sm_90 for the `stmatrix` of a store.
    """

    bits: int
    access: Access
    result: tuple[int, ...]
    matrix: MatrixAccess | None


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
    linear = shared.to_linear(tile_shape)
    tile = _in_tile(distributed, tile_shape, view_shape)
    offset = linear.columns["offset"]
    places = Span((*offset, *linear.columns["block"]))
    _check_blocks(distributed, tile, linear, len(offset), places)
    side = (store_side if store else load_side)(columns(tile)).mapped(lambda element: solved(places, element))
    first = solved(places, join(start, tile_shape))
    pads = shared.pads if isinstance(shared, PaddedSharedLayout) else ()
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


def _in_tile(distributed: LinearLayout, tile_shape: Sequence[int], view_shape: Sequence[int]) -> LinearLayout:
    """The distributed layout with its elements numbered as the whole tile in shared memory numbers them."""
    if distributed.out_sizes != tuple(view_shape):
        raise fail(errors.CONVERT_SHAPE, src=list(view_shape), dst=list(distributed.out_sizes))
    bases = {dim: distributed.bases(dim) for dim in distributed.in_dims}
    return LinearLayout.make(bases, list(zip(distributed.out_dims, tile_shape, strict=True)))


def _check_blocks(
    distributed: LinearLayout, tile: LinearLayout, shared: LinearLayout, offset_bits: int, places: Span
) -> None:
    """Check that every block has its own elements in its own memory."""
    threads = (column for dim in ("register", "lane", "warp") for column in tile.columns[dim])
    crossing = any(solved(places, column) >> offset_bits for column in threads)
    # A layout without a basis for a bit of the block holds copies there.
    blocks = zip_longest(tile.columns["block"], shared.columns["block"], fillvalue=0)
    if crossing or any(mine != its for mine, its in blocks):
        raise fail(errors.CONVERT_BLOCKS, src=list(distributed.bases("block")), dst=list(shared.bases("block")))


def _most_elements(shared: SharedLayout, bits: int, pads: Pads) -> int:
    """Elements of the widest vector that alignment and padding keep contiguous and aligned."""
    vector_bytes = min(cost.MAX_VECTOR_BYTES, alignment(shared))
    return min([vector_bytes // cost.element_bytes(bits), *(value for pair in pads for value in pair)])
