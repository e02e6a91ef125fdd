"""Random layouts and shapes."""

from __future__ import annotations

from math import prod

from hypothesis import assume, reject
from hypothesis import strategies as st

from weft.errors import LayoutError
from weft.layout import (
    BlockedLayout,
    DistributedLinearLayout,
    DotOperandLayout,
    LinearLayout,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    PaddedSharedLayout,
    SharedLinearLayout,
    SliceLayout,
    SwizzledSharedLayout,
)
from weft.layout.linear import f2


def powers(high: int, low: int = 0) -> st.SearchStrategy[int]:
    """Powers of two from 2 ** low to 2 ** high."""
    return st.integers(low, high).map(lambda bit: 1 << bit)


@st.composite
def shares(draw, total: int, rank: int) -> list[int]:
    """`rank` powers of two that multiply to `total`."""
    out = [1] * rank
    for _ in range(f2.log2(total)):
        out[draw(st.integers(0, rank - 1))] *= 2
    return out


def shapes(rank: int, numel: int = 1 << 12) -> st.SearchStrategy[list[int]]:
    """Tile shapes of at most `numel` elements."""
    return st.lists(powers(7), min_size=rank, max_size=rank).filter(lambda s: f2.log2(numel) >= sum(map(f2.log2, s)))


@st.composite
def blocked(draw, rank: int | None = None, warps: int | None = None) -> BlockedLayout:
    """A BlockedLayout of rank 1 to 3."""
    rank = draw(st.integers(1, 3)) if rank is None else rank
    warps = draw(powers(3)) if warps is None else warps
    sizes = draw(st.lists(powers(2), min_size=rank, max_size=rank))
    order = draw(st.permutations(range(rank)))
    return BlockedLayout(sizes, draw(shares(32, rank)), draw(shares(warps, rank)), order)


@st.composite
def tensor_core(draw) -> NVMMADistributedLayout | DotOperandLayout:
    """An accumulator or operand of a tensor core instruction."""
    if draw(st.booleans()):
        n = draw(powers(5, 3))
        return NVMMADistributedLayout([3, 0], draw(st.sampled_from([[4, 1], [4, 2], [8, 1]])), [16, n, 16])
    mma = NVMMADistributedLayout([2, 0], draw(shares(4, 2)), [16, 8])
    if draw(st.booleans()):
        return mma
    return DotOperandLayout(draw(st.integers(0, 1)), mma, draw(st.sampled_from([1, 2, 4])))


@st.composite
def linear_tiles(
    draw, rank: int | None = None, shape: list[int] | None = None
) -> tuple[DistributedLinearLayout, list[int]]:
    """A linear layout whose bits are mixed at random, some of them repeating elements."""
    rank = draw(st.integers(1, 3)) if rank is None else rank
    shape = draw(shapes(rank, 1 << 9)) if shape is None else shape
    warps = draw(st.integers(0, 2))
    bits = sum(map(f2.log2, shape))
    inputs = max(bits, 5 + warps) + draw(st.integers(0, 2))
    # A random invertible change of the element's bits, then random places for them.
    columns = [1 << bit for bit in range(bits)]
    for _ in range(draw(st.integers(0, 4)) if bits > 1 else 0):
        target, source = draw(st.permutations(range(bits)))[:2]
        columns[target] ^= columns[source]
    columns += [draw(st.sampled_from([0, 0, *columns])) for _ in range(inputs - bits)]
    columns = draw(st.permutations(columns))
    whole = LinearLayout.identity(1 << bits, "i", "o").reshape_outs([(f"dim{d}", n) for d, n in enumerate(shape)])
    bases = [list(whole.coordinates(column)) for column in columns]
    lanes, rest = bases[:5], bases[5:]
    return DistributedLinearLayout(rest[warps:], lanes, rest[:warps], [], shape), shape


@st.composite
def tiles(draw, rank: int | None = None):
    """A distributed layout of any kind, and the shape of a tile for it."""
    kinds = ["blocked", "slice", "linear", "fma"] + (["tensor core"] if rank in (None, 2) else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "linear":
        return draw(linear_tiles(rank))
    if kind == "tensor core":
        return draw(tensor_core()), draw(shapes(2))
    own = draw(st.integers(1, 2)) if rank is None else rank
    if kind == "slice":
        # Some tests make tiles of the parent, so that may not have more places than a tile can have.
        return SliceLayout(draw(st.integers(0, own)), draw(blocked(own + 1))), draw(shapes(own, 1 << 9))
    if kind == "fma" and own == 2:
        return DotOperandLayout(draw(st.integers(0, 1)), draw(blocked(2)), 0), draw(shapes(2, 1 << 9))
    return draw(blocked(own)), draw(shapes(own))


@st.composite
def ending_tiles(draw, rank: int = 2):
    """A distributed layout, and the shape of a tile that ends before a power of two along at least one dimension."""
    layout, shape = draw(tiles(rank)) if draw(st.booleans()) else draw(linear_tiles(rank))
    assume(layout.rank == rank)
    ends = list(shape)
    for dim in draw(st.sets(st.integers(0, rank - 1), min_size=1)):
        if not isinstance(layout, DistributedLinearLayout):
            ends[dim] = 8 * draw(st.integers(3, 20))
        elif shape[dim] >= 16:
            ends[dim] = shape[dim] - 8 * draw(st.integers(1, shape[dim] // 16))
    assume(any(not f2.is_power_of_two(size) for size in ends) and prod(ends) <= 1 << 12)
    try:
        layout.to_linear(ends)
    except LayoutError:
        reject()
    return layout, ends


@st.composite
def shared_layouts(draw, shape: list[int], bits: int):
    """A shared layout of any kind for a tile of this shape."""
    rank = len(shape)
    match draw(st.sampled_from(["swizzled", "nvmma", "padded", "linear"])):
        case "swizzled":
            return SwizzledSharedLayout(*(draw(powers(3)) for _ in range(3)), draw(st.permutations(range(rank))))
        case "nvmma":
            transposed = draw(st.booleans())
            widest = NVMMASharedLayout(0, bits, rank, transposed).widest(shape)
            widths = [width for width in NVMMASharedLayout.WIDTHS if width <= widest]
            return NVMMASharedLayout(draw(st.sampled_from(widths)), bits, rank, transposed)
        case "padded":
            pairs = draw(st.lists(st.tuples(powers(7), powers(4)), max_size=2, unique_by=lambda pair: pair[0]))
            return PaddedSharedLayout.with_identity_for(pairs, shape, draw(st.permutations(range(rank))))
        case _:
            columns = [1 << bit for bit in range(sum(map(f2.log2, shape)))]
            for _ in range(draw(st.integers(0, 4)) if len(columns) > 1 else 0):
                target, source = draw(st.permutations(range(len(columns))))[:2]
                columns[target] ^= columns[source]
            whole = (
                LinearLayout.zeros(1, "i", "o") if not columns else LinearLayout.identity(1 << len(columns), "i", "o")
            )
            whole = whole.reshape_outs([(f"dim{d}", n) for d, n in enumerate(shape)])
            bases = [whole.coordinates(column) for column in draw(st.permutations(columns))]
            return SharedLinearLayout(bases or [[0] * rank], [], draw(powers(7, 4)))


@st.composite
def shared_tiles(draw, rank: int | None = None):
    """A shared layout of any kind, the shape of a tile for it, and bits of its elements."""
    shape = draw(shapes(draw(st.integers(1, 4)) if rank is None else rank, 1 << 10))
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    return draw(shared_layouts(shape, bits)), shape, bits
