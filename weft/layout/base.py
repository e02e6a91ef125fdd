"""The base of all layout classes: value semantics with a hash computed once, a `repr` that evaluates back, validation.

A layout class is a frozen dataclass with slots. `__post_init__` here normalises every field by its annotation: lists become
tuples of integers, and values of another type or too large are rejected. Then `_complete` of the class checks that the fields
are consistent, and calls `_freeze`. `to_linear(shape)`, which each family defines, gives the layout its meaning for a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, lru_cache
from math import prod
from operator import index
from typing import Any, ClassVar, NoReturn, cast

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.linear.ends import piece_shape
from weft.layout.linear.f2 import is_power_of_two, log2, next_power_of_two
from weft.layout.linear.maps import LinearLayout

WARP_SIZE = 32
WARPGROUP = 4
"""Warps of a warpgroup: the unit that executes wgmma and setmaxnreg."""
TILE_ELEMENTS = 1 << 20
"""The limit of a tile's elements, and of the places (registers of all threads, offsets, columns of all lanes) of a block.

The 65,536 registers of a block hold 2**18 elements of 8 bits, and its shared memory and its tensor memory about as many. Four
times that leaves room for tiles that a cluster shares. Plans and simulated tiles are tables of this size, so a typo such as
2**40 is rejected instead of exhausting the memory of the machine.
"""
CLUSTER_BLOCKS = 16
"""The largest cluster, in blocks, of any GPU."""
LEAST_PIECE = 8
"""Sizes of tiles are powers of two or multiples of this: the columns of the smallest tensor core instruction."""


class TileLayout:
    """Base of distributed and shared layouts: equality by value, cached hash, a `repr` that evaluates to the layout."""

    __slots__ = ("_hash", "_key")

    _key: tuple[Any, ...]
    _hash: int
    _keywords: ClassVar[bool] = False
    ENDS: ClassVar[str] = ""
    """The input dimension in which a tile may end before a power of two: its indices beyond the end do not exist."""

    @property
    def rank(self) -> int:
        """Number of dimensions of the tiles that the layout describes."""
        raise NotImplementedError

    def to_linear(self, shape: Sequence[int]) -> LinearLayout:
        """The linear layout for a tile of this shape; where a size is no power of two, that of the next ones, with the tile's
        `sizes` (`weft.layout.linear.ends`). Raises LayoutError where the two do not fit."""
        return _resolve(self, ints(shape, "the shape of a tile"))

    def format_tensor_view(self, shape: Sequence[int]) -> str:
        """A picture of the tile: the registers or offsets that hold each element, in the notation `T0:0|T32:0`."""
        # Imported here because the module that draws layouts imports this one.
        from weft.layout.show.text import format_tensor_view

        return format_tensor_view(self, shape)

    def format_hardware_view(self, shape: Sequence[int]) -> str:
        """A picture of the hardware: the element that each register or offset holds."""
        from weft.layout.show.text import format_hardware_view

        return format_hardware_view(self, shape)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """The linear layout for a shape of the right rank in powers of two. Call `to_linear`, which checks and caches."""
        raise NotImplementedError

    def check_end(self, shape: tuple[int, ...]) -> None:
        """Raise where the layout has a reason of its own against a tile of this shape that ends before a power of two."""

    def __post_init__(self) -> None:
        for name, take, kind, example in _takers(type(self)):
            value = getattr(self, name)
            given: dict[str, Any] = {"layout": type(self).__name__, "field": name}
            try:
                object.__setattr__(self, name, take(value))
            except (TypeError, ValueError):
                raise fail(errors.FIELD, value=shortened(value), kind=kind, example=example, **given) from None
            except OverflowError:
                raise fail(errors.FIELD_LIMIT, value=shortened(value), limit=TILE_ELEMENTS, **given) from None
        self._complete()

    def _complete(self) -> None:
        """Check that the fields are consistent, and `_freeze` them."""
        self._freeze()

    def _freeze(self, **changes: Any) -> None:
        """Store normalised field values, and the key by which the layout compares and hashes."""
        for name, value in changes.items():
            object.__setattr__(self, name, value)
        key = tuple(getattr(self, field.name) for field in _fields(type(self)))
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash((type(self).__name__, key)))

    def check_sizes(self, shape: Sequence[int]) -> None:
        """Raise LayoutError (layout-tile-shape, layout-tile-elements) where no tile has this shape."""
        check_tile_shape(shape)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and isinstance(other, TileLayout) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Python randomises the hash of strings per process, so an unpickled copy computes its own.
        return type(self), self._key

    def __repr__(self) -> str:
        parts: list[str] = []
        for field, value in zip(_fields(type(self)), self._key, strict=True):
            required = field.default is MISSING
            if required or value != field.default:
                named = self._keywords or not required
                parts.append(f"{field.name}={_spell(value)}" if named else _spell(value))
        return f"{type(self).__name__}({', '.join(parts)})"


@cache
def _fields(cls: Any) -> tuple[Any, ...]:
    return fields(cls)


@lru_cache(maxsize=1 << 16)
def _resolve(layout: TileLayout, shape: tuple[int, ...]) -> LinearLayout:
    check_shape_for(layout, shape)
    linear = layout.resolve(whole_shape(shape))
    check_places(layout, shape, linear.in_size("block"), 1 << (linear.total_in_bits - linear.in_bits("block")))
    if linear.out_sizes == shape:
        return linear
    layout.check_end(shape)
    _check_end(layout, shape, linear)
    return linear.ending(shape)


def whole_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with each size rounded up to a power of two."""
    return tuple(map(next_power_of_two, shape))


def _check_end(layout: TileLayout, shape: tuple[int, ...], linear: LinearLayout) -> None:
    """Beyond a tile's pieces, each bit of a coordinate is that of a register (or offset) that moves along nothing else."""
    for axis, (size, piece) in enumerate(zip(shape, piece_shape(shape), strict=True)):
        if is_power_of_two(size):
            continue
        if not layout.ENDS:
            raise fail(errors.TILE_WHOLE, layout=layout, shape=list(shape), axis=axis, size=size)
        step = 1
        for dim in linear.in_dims:
            for basis in linear.bases(dim):
                pure = dim == layout.ENDS and is_power_of_two(basis[axis]) and not any(_without(basis, axis))
                step = step if pure else max(step, 1 << basis[axis].bit_length())
        if step > piece:
            below, above = size // step * step, -(-size // step) * step
            near = " or ".join(str(each) for each in (below, above) if each)
            raise fail(errors.TILE_END, layout=layout, shape=list(shape), axis=axis, size=size, step=step, near=near)


def _without(basis: Sequence[int], axis: int) -> Sequence[int]:
    return (*basis[:axis], *basis[axis + 1 :])


def check_shape_for(layout: TileLayout, shape: tuple[int, ...]) -> None:
    """The shape is that of a tile, of the layout's rank."""
    if len(shape) != layout.rank:
        raise fail(errors.RANK, layout=layout, rank=layout.rank, shape=list(shape), got=len(shape))
    layout.check_sizes(shape)


def check_places(layout: TileLayout, shape: tuple[int, ...], blocks: int, places: int) -> None:
    """A tile of this shape takes no more blocks than a cluster has, and no more places in a block than the limit."""
    if blocks > CLUSTER_BLOCKS:
        raise fail(errors.CLUSTER_BLOCKS, layout=layout, blocks=blocks, most=CLUSTER_BLOCKS)
    if places > TILE_ELEMENTS:
        raise fail(errors.PLACES, layout=layout, shape=list(shape), places=places, limit=TILE_ELEMENTS)


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] tuples of ints, or of such tuples
        return f"[{', '.join(map(_spell, items))}]"
    return repr(value)


def ints(values: Any, what: str = "a list of a layout") -> tuple[int, ...]:
    """Integers, of any type with `__index__`, as a tuple. Raises LayoutError (layout-integers) on anything else."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise fail(errors.INTEGERS, what=what, value=shortened(values)) from None


def vectors(values: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    """Coordinate vectors as tuples."""
    return tuple(ints(vector, "a vector of a layout") for vector in values)


class Listed(tuple[Any, ...]):
    """A tuple that equals a list of the same items and can be added to one: Gluon's layouts have lists, and code compares and
    extends them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(cast("list[Any]", other)) if isinstance(other, list) else other)

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __add__(self, other: Any) -> Listed:
        return Listed((*self, *other))

    def __radd__(self, other: Any) -> Listed:
        return Listed((*other, *self))


def listed(vectors: Iterable[Iterable[int]]) -> Listed:
    """Vectors that compare with lists."""
    return Listed(map(Listed, vectors))


def shortened(value: object) -> str:
    """The `repr` of an argument, truncated for a message: a mistyped power can have thousands of digits."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


# Conversions of field values, by the field's annotation. They raise TypeError for a value of another type, OverflowError for
# a number larger than any tile.


def _int(value: Any) -> int:
    number = index(value)
    if abs(number) > TILE_ELEMENTS:
        raise OverflowError
    return number


def _bool(value: Any) -> bool:
    if value not in (0, 1):
        raise TypeError
    return bool(value)


def _list(value: Any) -> tuple[int, ...]:
    return tuple(map(_int, value))


def _vectors(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(map(_list, value))


def _list_or_vectors(value: Any) -> tuple[Any, ...]:
    given = tuple(value)
    return _list(given) if all(hasattr(item, "__index__") for item in given) else _vectors(given)


_Taker = Callable[[Any], Any]
_KINDS: dict[str, tuple[_Taker, str, str]] = {
    "int": (_int, "an integer", "an integer"),
    "bool": (_bool, "True or False", "True or False"),
    "Sequence[int]": (_list, "a list of integers", "a list such as [1, 4]"),
    "Sequence[Sequence[int]]": (_vectors, "a list of lists of integers", "lists in a list, such as [[0, 1], [1, 0]]"),
    "Sequence[int] | Sequence[Sequence[int]]": (
        _list_or_vectors,
        "a list of integers, or of lists of integers",
        "a list such as [1, 2], or lists in a list, such as [[1, 0]]",
    ),
}


def _or_none(take: _Taker) -> _Taker:
    return lambda value: None if value is None else take(value)


@cache
def _takers(cls: Any) -> tuple[tuple[str, _Taker, str, str], ...]:
    """Name, conversion, type and example of each field, without parent layouts, which the classes check themselves."""
    found: list[tuple[str, _Taker, str, str]] = []
    for field in _fields(cls):
        kind = str(field.type)
        if kind == "DistributedLayout":
            continue
        take, what, example = _KINDS[kind.removesuffix(" | None")]
        found.append((field.name, _or_none(take) if kind.endswith(" | None") else take, what, example))
    return tuple(found)


def check_powers_of_two(what: str, values: Sequence[int]) -> None:
    """Every entry is 1, 2, 4 and so on."""
    for value in values:
        if not is_power_of_two(value):
            raise fail(errors.POWER_OF_TWO, what=what, value=list(values), found=value)


def is_tile_size(size: int) -> bool:
    """Whether a dimension of a tile can have this size: a power of two, or a multiple of LEAST_PIECE."""
    return size > 0 and (is_power_of_two(size) or size % LEAST_PIECE == 0)


def is_tile_part(start: int, length: int) -> bool:
    """Whether so many elements from `start` on can be a part of a dimension of a tile in memory: bits of coordinates within the
    part are none of those of its start."""
    return is_tile_size(length) and start % next_power_of_two(length) == 0


def check_tile_shape(shape: Sequence[int]) -> None:
    """Every size of a tile is a power of two or a multiple of 8, and a tile has at most TILE_ELEMENTS elements."""
    _check_sizes(shape, is_tile_size)


def check_reshaped(shape: Sequence[int]) -> None:
    """The same of a tile that may be another one reshaped, whose sizes are any positive ones: 192 columns are 12 of 16, say.
    Which shapes go together says `end_alike`."""
    _check_sizes(shape, lambda size: size > 0)


def _check_sizes(shape: Sequence[int], is_size: Callable[[int], bool]) -> None:
    sizes = ints(shape, "the shape of a tile")
    if min(sizes, default=1) > 0 and prod(sizes) > TILE_ELEMENTS:
        raise fail(errors.TILE_ELEMENTS, shape=shortened(list(sizes)), limit=TILE_ELEMENTS)
    for value in sizes:
        if not is_size(value):
            rounded = [1 << max(size - 1, 0).bit_length() for size in sizes]
            raise fail(errors.TILE_SHAPE, shape=list(sizes), found=value, least=LEAST_PIECE, rounded=rounded)


def check_ranks(layout: str, **named: Sequence[int]) -> None:
    """All fields have as many entries as the first."""
    (reference, first), *others = named.items()
    for field, values in others:
        if len(values) != len(first):
            raise fail(
                errors.FIELD_RANK, layout=layout, field=field, got=len(values), reference=reference, rank=len(first)
            )


def check_order(field: str, order: Sequence[int], rank: int) -> None:
    """`order` names each dimension once."""
    if sorted(order) != list(range(rank)):
        example = list(reversed(range(rank)))
        raise fail(errors.ORDER, field=field, order=list(order), last=rank - 1, example=example)


def check_bases(field: str, bases: Iterable[Sequence[int]], shape: Sequence[int]) -> None:
    """Every basis is a coordinate of a tile of this shape."""
    for basis in bases:
        if len(basis) != len(shape) or not all(0 <= v < size for v, size in zip(basis, shape, strict=True)):
            raise fail(errors.BASES, field=field, basis=list(basis), shape=list(shape))


def check_onto(linear: LinearLayout) -> LinearLayout:
    """The layout is surjective: every element of the tile has a place."""
    if not linear.is_surjective:
        total, shape = prod(linear.out_sizes), list(linear.out_sizes)
        raise fail(errors.NOT_SURJECTIVE, reached=1 << linear.rank(), total=total, shape=shape)
    return linear


def unresolved(layout: object) -> NoReturn:
    """Raise layout-unresolved: only a resolved layout has this property."""
    raise fail(errors.UNRESOLVED, layout=layout)


def tile_dims(shape: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Output dimensions dim0, dim1 and so on of a linear layout over a tile of this shape."""
    return tuple((f"dim{d}", size) for d, size in enumerate(shape))


# A step of building a tile: the input dimension that grows, the tile dimension it covers (None for broadcast), and its factor.
Step = tuple[str, "int | None", int]


def cover(steps: Iterable[Step], shape: Sequence[int], in_dims: Sequence[str]) -> dict[str, list[list[int]]]:
    """Bases per input dimension of a tile built step by step. Each step extends its tile dimension from the previous steps.

    A basis beyond the shape becomes a zero basis, so if several steps cover a dimension the earlier ones take precedence.
    """
    bases: dict[str, list[list[int]]] = {d: [] for d in in_dims}
    reached = [1] * len(shape)
    for level, dim, size in steps:
        for _ in range(log2(size)):
            basis = [0] * len(shape)
            if dim is not None:
                basis[dim] = reached[dim] if reached[dim] < shape[dim] else 0
                reached[dim] *= 2
            bases[level].append(basis)
    return bases


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The reason why tensor cores cannot read an operand in a layout, and the fix."""

    reason: str
    fix: str
