"""The registers in which a thread holds its part of a tile, as coordinates along the tile's dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from weft.layout.f2 import Span, is_power_of_two
from weft.layout.linear import LinearLayout
from weft.layout.strided import Layout
from weft.layout.strided_linear import from_linear

Table = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegisterView:
    """`layout` maps a thread's coordinates along each dimension to the numbers of its elements, which are in register order.

    Registers that only repeat others have no number: element i is in register `first[i]`, and register r holds element
    `number[r]`. `coordinates[i]` are those of element i. Where registers do not count along dimensions, as in swizzled
    layouts, there is one dimension, of all elements.
    """

    layout: Layout
    first: Table
    number: Table
    coordinates: tuple[Table, ...]


@lru_cache(maxsize=1024)
def register_view(linear: LinearLayout) -> RegisterView:
    """The registers of a tile's layout.

    >>> from weft.layout import BlockedLayout
    >>> register_view(BlockedLayout([2, 4], [8, 4], [4, 1], [1, 0]).to_linear((64, 32))).layout
    ((2, (4, 2)):(4, (1, 8)))
    """
    span = Span()
    bases, kept = linear.bases("register"), [0]
    moves: list[tuple[int, ...]] = []
    at = [(0,) * len(linear.out_dims)]
    for bit, column in enumerate(linear.columns["register"]):
        if span.add(column):
            kept += [register | 1 << bit for register in kept]
            moves.append(bases[bit])
        at += [tuple([a ^ b for a, b in zip(each, bases[bit], strict=True)]) for each in at]
    seen = {at[register]: number for number, register in enumerate(kept)}
    layout = _layout(moves, len(linear.out_dims))
    sizes = [range(layout[axis].size()) for axis in range(layout.rank())]
    places = {sum(layout[axis](i) for axis, i in enumerate(each)): each for each in product(*sizes)}
    coordinates = tuple([places[number] for number in range(len(kept))])
    return RegisterView(layout, tuple(kept), tuple([seen[each] for each in at]), coordinates)


def _layout(moves: list[tuple[int, ...]], rank: int) -> Layout:
    """Along each dimension the bits of an element's number, from the one that moves least along it up."""
    single = all(sum(entry != 0 for entry in move) == 1 and is_power_of_two(sum(move)) for move in moves)
    if not single:
        return Layout(1 << len(moves), 1)
    numbers = {move: [1 << bit] for bit, move in enumerate(moves)}
    along = {f"dim{d}": [numbers[move] for move in sorted(moves) if move[d]] for d in range(rank)}
    return from_linear(LinearLayout.make(along, [("offset", 1 << len(moves))]))
