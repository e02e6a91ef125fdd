"""Tiles of layouts and layouts of tiles: divide and product of nested layouts.

*Dividing* a layout by a tile gives a layout of (tile, rest): the elements of one tile, and the positions of the tiles. The
*product* of a block with a tiler gives (block, tiler): copies of the block arranged by the tiler. The variants hold the same
elements and differ in how they group the modes, for a tile of modes (M, N) of a layout of modes (M, N, L):

    logical    ((TileM, RestM), (TileN, RestN), L)
    zipped     ((TileM, TileN), (RestM, RestN, L))
    tiled      ((TileM, TileN), RestM, RestN, L)
    flat       (TileM, TileN, RestM, RestN, L)

Dividing a plain mode by an int works with UNKNOWN sizes and strides; everything else raises LayoutError for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import fail
from weft.errors import nested as errors
from weft.layout.nested import int_tuple
from weft.layout.nested.algebra import (
    Tiler,
    as_layout,
    by_mode,
    coalesce,
    complement,
    composition,
    make_ordered_layout,
    require,
    whole_complement,
)
from weft.layout.nested.int_tuple import IntTuple
from weft.layout.nested.layouts import Layout, make_layout

WHOLE = Layout(1, 0)  # what is left beside a mode that is taken whole


def logical_divide(layout: Layout, tiler: Tiler) -> Layout:
    """The layout of (tile, rest), mode by mode for a tuple of tilers. Modes without a tiler stay; None takes a whole mode.

    If the tile does not divide the layout, the last tile extends beyond it. A tile whose repetitions leave elements out is an
    error.

    >>> logical_divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2))
    (((2, 2), (2, 3)):((4, 1), (2, 8)))
    >>> logical_divide(Layout((8, 16), (16, 1)), (4, 8))
    (((4, 2), (8, 2)):((16, 64), (1, 8)))
    """
    if tiler is None:
        return make_layout(layout, WHOLE)
    if int_tuple.is_tuple(tiler):
        return by_mode(logical_divide, layout, tiler)
    if isinstance(tiler, int) and not int_tuple.is_tuple(layout.shape) and not layout.all_dims_known:
        rest = int_tuple.ceil_div(layout.shape, tiler)
        return Layout((tiler, rest), (layout.stride, int_tuple.times(layout.stride, tiler)))
    tile = as_layout(tiler)
    return composition(layout, make_layout(tile, whole_complement(tile, require(layout, "logical_divide").size())))


def zipped_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`logical_divide` with the tile's modes first and the rest second.

    >>> zipped_divide(Layout((8, 16), (16, 1)), (4, 8))
    (((4, 8), (2, 2)):((16, 1), (64, 8)))
    """
    return _zipped(logical_divide(layout, tiler), tiler)


def tiled_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_divide` with the modes of the rest at top level.

    >>> tiled_divide(Layout((8, 16), (16, 1)), (4, 8))
    (((4, 8), 2, 2):((16, 1), 64, 8))
    """
    return _tiled(zipped_divide(layout, tiler))


def flat_divide(layout: Layout, tiler: Tiler) -> Layout:
    """`zipped_divide` with all modes at top level.

    >>> flat_divide(Layout((8, 16), (16, 1)), (4, 8))
    ((4, 8, 2, 2):(16, 1, 64, 8))
    """
    return _flat(zipped_divide(layout, tiler))


def zipped_divide_by_shape(layout: Layout, tiler: Layout | IntTuple) -> Layout:
    """`zipped_divide` by a tile's shape, mode by mode. The strides of a tiler that is a layout do not matter.

    This is what Mojo calls `zipped_divide` by a layout; in CuTe, and here, that names the elements `tiler(0)`, `tiler(1)`, ...
    A nested mode of the tile divides a nested mode of the layout one by one, and takes neighbours of a plain mode.

    >>> zipped_divide_by_shape(Layout((8, 16), (16, 1)), Layout((4, 8), (8, 1)))
    (((4, 8), (2, 2)):((16, 1), (64, 8)))
    >>> zipped_divide_by_shape(Layout(((4, 4), 8), ((1, 32), 4)), ((2, 2), 8))
    ((((2, 2), 8), ((2, 2), 1)):(((1, 32), 4), ((2, 64), 0)))
    """
    shape = tiler.shape if isinstance(tiler, Layout) else int_tuple.nested(tiler)
    return zipped_divide(layout, _tiler_of_shape(layout, shape))


def _tiler_of_shape(layout: Layout, shape: IntTuple) -> Tiler:
    """The tiler that pairs the modes of a shape with those of a layout, as deep as both are nested."""
    if not int_tuple.is_tuple(shape):
        return shape
    if layout.rank() == 1 and len(shape) > 1:
        return Layout(shape)
    return *map(_tiler_of_shape, layout, shape), *shape[layout.rank() :]


def logical_product(block: Layout, tiler: Tiler) -> Layout:
    """The layout of (block, tiler): copies of `block`, adjacent in memory, arranged by `tiler`. Gaps of a block, such as those
    of padded rows, stay where no copy fits into them.

    With a tuple of tilers each mode is repeated independently of the others; to repeat a block of several modes, see
    `blocked_product`.

    >>> logical_product(Layout((2, 2), (4, 1)), Layout(6))
    (((2, 2), (2, 3)):((4, 1), (2, 8)))
    """
    if tiler is None:
        return make_layout(block, WHOLE)
    if int_tuple.is_tuple(tiler):
        return by_mode(logical_product, block, tiler)
    copies = require(as_layout(tiler), "logical_product")
    require(block, "logical_product")
    # The block's cosize, not its size: with gaps, room for that many elements may hold no second copy, and what lies between
    # its elements would be counted on past them.
    return make_layout(block, composition(complement(block, block.cosize() * copies.cosize()), copies))


def zipped_product(block: Layout, tiler: Tiler) -> Layout:
    """`logical_product` with the block's modes first and the tiler's second.

    >>> zipped_product(Layout((2, 5), (1, 100)), (3, 4))
    (((2, 5), (3, 4)):((1, 100), (2, 1)))
    """
    return _zipped(logical_product(block, tiler), tiler)


def tiled_product(block: Layout, tiler: Tiler) -> Layout:
    """`zipped_product` with the tiler's modes at top level."""
    return _tiled(zipped_product(block, tiler))


def flat_product(block: Layout, tiler: Tiler) -> Layout:
    """`zipped_product` with all modes at top level."""
    return _flat(zipped_product(block, tiler))


def blocked_product(block: Layout, tiler: Layout, coalesce_output: bool = False) -> Layout:
    """A tensor made of blocks: mode i runs through mode i of the block, then through mode i of the tiler.

    >>> blocked_product(Layout((2, 2), (2, 1)), Layout((2, 2), (2, 1)))
    (((2, 2), (2, 2)):((2, 8), (1, 4)))
    """
    result = make_layout(*map(make_layout, *_product_modes(block, tiler)))
    return coalesce(result, keep_rank=True) if coalesce_output else result


def raked_product(block: Layout, tiler: Layout, coalesce_output: bool = False) -> Layout:
    """A tensor made of interleaved blocks: mode i runs through mode i of the tiler, then through mode i of the block.

    >>> raked_product(Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3)))
    (((3, 2), (4, 5)):((10, 5), (30, 1)))
    """
    block_modes, tiler_modes = _product_modes(block, tiler)
    result = make_layout(*map(make_layout, tiler_modes, block_modes))
    return coalesce(result, keep_rank=True) if coalesce_output else result


def tile_to_shape(block: Layout, shape: IntTuple, order: Sequence[int] | None = None) -> Layout:
    """The layout of `shape` made of copies of `block`, those along the mode of order 0 first (the first mode if None).

    Each mode has the nested modes (block, copies); where `shape` is nested itself, its own.

    >>> tile_to_shape(Layout((2, 2), (2, 1)), (4, 6))
    (((2, 2), (2, 3)):((2, 4), (1, 8)))
    >>> tile_to_shape(Layout((2, 2), (2, 1)), (4, 6), order=(1, 0))
    (((2, 2), (2, 3)):((2, 12), (1, 4)))

    Raises LayoutError where the block does not divide the shape.
    """
    target = [*Layout(shape)]
    tile = _padded(block, len(target))
    if len(tile) > len(target):
        raise fail(errors.TILER, count=len(tile), layout=int_tuple.show(shape), rank=len(target))
    for mode, whole in zip(tile, target, strict=True):
        if whole.size() % mode.size():
            fields = {"size": whole.size(), "tile": mode.size()}
            raise fail(errors.TILE_TO_SHAPE, block=int_tuple.show(block.shape), target=int_tuple.show(shape), **fields)
    counts = tuple(whole.size() // mode.size() for mode, whole in zip(tile, target, strict=True))
    copies = make_ordered_layout(counts, range(len(counts)) if order is None else order)
    profile = tuple(Layout(mode.shape) if int_tuple.is_tuple(mode.shape) else None for mode in target)
    return composition(blocked_product(make_layout(*tile), copies), profile)


def _zipped(divided: Layout, tiler: Tiler) -> Layout:
    """Modes of (tile, rest), zipped to a tile of modes and a rest of modes. Without a tuple of tilers it already is one."""
    if not int_tuple.is_tuple(tiler):
        return divided
    pairs = [_zipped(mode, part) for mode, part in zip(divided, tiler, strict=False)]
    rest = divided[len(pairs) :]
    return make_layout(make_layout(*(pair[0] for pair in pairs)), make_layout(*(pair[1] for pair in pairs), *rest))


def _tiled(zipped: Layout) -> Layout:
    return make_layout(zipped[0], *zipped[1])


def _flat(zipped: Layout) -> Layout:
    return make_layout(*zipped[0], *zipped[1])


def _product_modes(block: Layout, tiler: Layout) -> tuple[list[Layout], list[Layout]]:
    """The modes of a product's block and of its tiler, as many of each."""
    rank = max(block.rank(), tiler.rank())
    product = logical_product(make_layout(*_padded(block, rank)), make_layout(*_padded(tiler, rank)))
    return [*product[0]], [*product[1]]


def _padded(layout: Layout, rank: int) -> list[Layout]:
    """The modes of a layout, with modes of size 1 up to this rank."""
    return [*layout, *[WHOLE] * (rank - layout.rank())]
