"""What all layout classes share: value semantics with a hash computed once, the spelling that `repr` prints, checks.

A layout class is a frozen dataclass with slots whose `__post_init__` turns lists into tuples, checks them and calls
`_freeze`. It says nothing about elements until `to_linear(shape)`, which each family defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from math import prod
from operator import index
from typing import Any, ClassVar, NoReturn

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.f2 import is_power_of_two, log2
from weft.layout.linear import LinearLayout

WARP_SIZE = 32
WARPGROUP = 4
"""Warps that multiply together (wgmma), and that change their registers together (setmaxnreg)."""


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
        return _resolve(self, tuple(shape))

    def format_tensor_view(self, shape: Sequence[int]) -> str:
        """A picture of the tile: which hardware place holds each element, in the notation `T0:0|T32:0`."""
        # The pictures are drawn from layouts, so their module imports this one.
        from weft.layout.show import format_tensor_view

        return format_tensor_view(self, shape)

    def format_hardware_view(self, shape: Sequence[int]) -> str:
        """A picture of the hardware: which element each place holds."""
        from weft.layout.show import format_hardware_view

        return format_hardware_view(self, shape)

    def resolve(self, shape: tuple[int, ...]) -> LinearLayout:
        """What each class makes of a shape of the right rank in powers of two. Ask `to_linear`, which checks and remembers."""
        raise NotImplementedError

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
    return layout.resolve(shape)


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] tuples of ints, or of such tuples
        return f"[{', '.join(map(_spell, items))}]"
    return repr(value)


def ints(values: Iterable[Any]) -> tuple[int, ...]:
    """Integers as a tuple; anything that counts as an integer is taken."""
    return tuple(map(index, values))


def vectors(values: Iterable[Iterable[Any]]) -> tuple[tuple[int, ...], ...]:
    """Coordinate vectors as tuples."""
    return tuple(map(ints, values))


def check_powers_of_two(what: str, values: Sequence[int]) -> None:
    """Every entry is 1, 2, 4 and so on."""
    for value in values:
        if not is_power_of_two(value):
            raise fail(errors.POWER_OF_TWO, what=what, value=list(values), found=value)


def check_tile_shape(shape: Sequence[int]) -> None:
    """Tiles measure a power of two in every dimension."""
    for value in shape:
        if not is_power_of_two(value):
            rounded = [1 << max(size - 1, 0).bit_length() for size in shape]
            raise fail(errors.TILE_SHAPE, shape=list(shape), found=value, rounded=rounded)


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
