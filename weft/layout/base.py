"""What all layout classes share: value semantics with a hash computed once, the spelling that `repr` prints, checks.

A layout class is a frozen dataclass with slots. `__post_init__` here takes every field by its annotation: lists become tuples
of integers, and what is of another kind or too large is refused. Then `_complete` of the class checks that the fields go
together, and calls `_freeze`. A layout says nothing about elements until `to_linear(shape)`, which each family defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, lru_cache
from math import prod
from operator import index
from typing import Any, ClassVar, NoReturn

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.linear.f2 import is_power_of_two, log2
from weft.layout.linear.maps import LinearLayout

WARP_SIZE = 32
WARPGROUP = 4
"""Warps that multiply together (wgmma), and that change their registers together (setmaxnreg)."""
TILE_ELEMENTS = 1 << 20
"""Elements of a tile at most, and places (registers of all threads, offsets, columns of all lanes) that a layout gives a block.

The 65,536 registers of a block hold 2**18 elements of 8 bits, its shared memory and its tensor memory about as many: four times
that leaves room for tiles that a cluster shares. Plans and simulated tiles are tables of this size, so a slip such as 2**40 is
refused in place of filling the machine's memory.
"""
CLUSTER_BLOCKS = 16
"""Blocks of a cluster at most, on any GPU."""


class TileLayout:
    """Base of distributed and shared layouts: equality by value, cached hash, a `repr` that evaluates to the layout."""

    __slots__ = ("_hash", "_key")

    _key: tuple[Any, ...]
    _hash: int
    _keywords: ClassVar[bool] = False

    @property
    def rank(self) -> int:
        """Number of dimensions of the tiles that the layout describes."""
        raise NotImplementedError

    def to_linear(self, shape: Sequence[int]) -> LinearLayout:
        """The linear layout for a tile of this shape (powers of two). Raises LayoutError where the two do not fit."""
        return _resolve(self, ints(shape, "the shape of a tile"))

    def format_tensor_view(self, shape: Sequence[int]) -> str:
        """A picture of the tile: which hardware place holds each element, in the notation `T0:0|T32:0`."""
        # The pictures are drawn from layouts, so their module imports this one.
        from weft.layout.show.text import format_tensor_view

        return format_tensor_view(self, shape)

    def format_hardware_view(self, shape: Sequence[int]) -> str:
        """A picture of the hardware: which element each place holds."""
        from weft.layout.show.text import format_hardware_view

        return format_hardware_view(self, shape)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """What each class makes of a shape of the right rank in powers of two. Ask `to_linear`, which checks and remembers."""
        raise NotImplementedError

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
        """Check that the fields go together, and `_freeze` them."""
        self._freeze()

    def _freeze(self, **changes: Any) -> None:
        """Store normalised field values; from here on the layout is its key."""
        for name, value in changes.items():
            object.__setattr__(self, name, value)
        key = tuple(getattr(self, field.name) for field in _fields(type(self)))
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_hash", hash((type(self).__name__, key)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and isinstance(other, TileLayout) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # Hashes of strings differ between processes, so a copy computes its own.
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
    if len(shape) != layout.rank:
        raise fail(errors.RANK, layout=layout, rank=layout.rank, shape=list(shape), got=len(shape))
    check_tile_shape(shape)
    linear = layout.resolve(shape)
    blocks = linear.in_size("block")
    places = 1 << (linear.total_in_bits - linear.in_bits("block"))
    if blocks > CLUSTER_BLOCKS:
        raise fail(errors.CLUSTER_BLOCKS, layout=layout, blocks=blocks, most=CLUSTER_BLOCKS)
    if places > TILE_ELEMENTS:
        raise fail(errors.PLACES, layout=layout, shape=list(shape), places=places, limit=TILE_ELEMENTS)
    return linear


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] tuples of ints, or of such tuples
        return f"[{', '.join(map(_spell, items))}]"
    return repr(value)


def ints(values: Any, what: str = "a list of a layout") -> tuple[int, ...]:
    """Integers as a tuple; anything that counts as an integer is taken. Raises LayoutError (layout-integers) on the rest."""
    try:
        return tuple(map(index, values))
    except TypeError:
        raise fail(errors.INTEGERS, what=what, value=shortened(values)) from None


def vectors(values: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    """Coordinate vectors as tuples."""
    return tuple(ints(vector, "a vector of a layout") for vector in values)


def shortened(value: object) -> str:
    """What was given, cut where it fills more than a line: powers that are no sizes have thousands of digits."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


# How the value of a field is taken, by the field's annotation: TypeError where it is of another kind, OverflowError where a
# number in it is larger than any tile.


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
    """Name, function, kind and example of each field; parents are layouts, which their owners check."""
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


def check_tile_shape(shape: Sequence[int]) -> None:
    """Tiles measure a power of two in every dimension, and have at most TILE_ELEMENTS elements."""
    sizes = ints(shape, "the shape of a tile")
    if min(sizes, default=1) > 0 and prod(sizes) > TILE_ELEMENTS:
        raise fail(errors.TILE_ELEMENTS, shape=shortened(list(sizes)), limit=TILE_ELEMENTS)
    for value in sizes:
        if not is_power_of_two(value):
            rounded = [1 << max(size - 1, 0).bit_length() for size in sizes]
            raise fail(errors.TILE_SHAPE, shape=list(sizes), found=value, rounded=rounded)


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
    """Every element of the tile has a place."""
    if not linear.is_surjective:
        total, shape = prod(linear.out_sizes), list(linear.out_sizes)
        raise fail(errors.NOT_SURJECTIVE, reached=1 << linear.rank(), total=total, shape=shape)
    return linear


def unresolved(layout: object) -> NoReturn:
    """Raise: a question that only a resolved layout can answer."""
    raise fail(errors.UNRESOLVED, layout=layout)


def tile_dims(shape: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Output dimensions dim0, dim1 and so on of a linear layout over a tile of this shape."""
    return tuple((f"dim{d}", size) for d, size in enumerate(shape))


# A step of building a tile: the input dimension that grows, the tile dimension it covers (None repeats), and how often.
Step = tuple[str, "int | None", int]


def cover(steps: Iterable[Step], shape: Sequence[int], in_dims: Sequence[str]) -> dict[str, list[list[int]]]:
    """Bases per input dimension of a tile built step by step, each dimension growing from where the last step left it.

    What lies beyond the shape becomes a zero basis, so of several steps that cover a dimension the first ones stay.
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
    """Why tensor cores cannot take what a layout places, and what to write instead."""

    reason: str
    fix: str
