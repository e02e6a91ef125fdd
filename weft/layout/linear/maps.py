"""Linear layouts: linear maps over F2 between named dimensions, the one meaning behind every layout of weft.

A distributed layout maps (register, lane, warp, block) to the coordinates of a tile element; a shared one maps
(offset, block). Every size is a power of two and every index a string of bits. The map is linear under XOR, so it is
determined by its *bases*, the images of the single input bits: f(a ^ b) = f(a) ^ f(b), f(0) = 0. Two bits with equal images
repeat elements; a zero basis repeats them all (broadcasting). Names and operations follow the paper "Linear Layouts"
(arXiv 2505.23819).

Input dimensions are ordered from the least significant one (registers) up. Output dimensions are ordered as in a shape,
the last one running fastest: coordinates (i, j) in a shape (M, N) have the *flat* index i * N + j, and because sizes are
powers of two the flat index concatenates the bits of the coordinates. Bases are stored in this form: one integer each.

A tile may end before the powers of two of its map: then `sizes` are smaller than `out_sizes`, and the inputs that lead beyond
them do not exist (`weft.layout.linear.ends`). All else here is about the whole map; what derives from one has no such ends.

Layouts are interned: equal ones are the same object, so the frequent comparisons and hashes of a compiler are free. This
module knows no hardware, and no array library (a map applies to any integer array).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from threading import Lock
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from weft.errors import fail
from weft.errors import layout as errors
from weft.layout.linear import f2
from weft.layout.linear.flat import join, pack, placer, xor

DimColumns = tuple[tuple[str, tuple[int, ...]], ...]
Outs = tuple[tuple[str, int], ...]


class LinearLayout:
    """A linear map over F2, immutable. Make one with `make`, `identity`, `zeros`, or from others.

    Attributes: `in_dims` (least significant first), `out_dims` and `out_sizes` (as in a shape, last fastest), `columns` (per
    input dimension the flat image of each of its bits), `sizes` (of the tile: `out_sizes`, or less where it ends before them).
    """

    __slots__ = ("__weakref__", "_shifts", "columns", "in_dims", "out_dims", "out_sizes", "sizes")

    columns: Mapping[str, tuple[int, ...]]
    in_dims: tuple[str, ...]
    out_dims: tuple[str, ...]
    out_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    _shifts: tuple[int, ...]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a LinearLayout cannot be changed (setting {name!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return intern, (tuple(self.columns.items()), self.outs, self.sizes)

    # Making one

    @staticmethod
    def make(bases: Mapping[str, Sequence[Sequence[int]]], out: Sequence[tuple[str, int]]) -> LinearLayout:
        """The layout with these bases: per input dimension one coordinate vector per bit, lowest bit first.

        `out` lists the output dimensions with their sizes (powers of two), slowest first. Raises LayoutError where a basis
        lies outside.
        """
        outs = tuple((name, int(size)) for name, size in out)
        sizes = tuple(size for _, size in outs)
        if not all(f2.is_power_of_two(size) for size in sizes):
            odd = next(size for size in sizes if not f2.is_power_of_two(size))
            raise fail(errors.POWER_OF_TWO, what="the shape of a linear layout", value=sizes, found=odd)
        columns = tuple((d, tuple(pack(d, vector, sizes) for vector in vectors)) for d, vectors in bases.items())
        return intern(columns, outs)

    @staticmethod
    def identity(size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """Index i of `in_dim` is coordinate i of `out_dim`."""
        return intern(((in_dim, tuple(1 << bit for bit in range(f2.log2(size)))),), ((out_dim, size),))

    @staticmethod
    def zeros(size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """Every index of `in_dim` is coordinate 0 of `out_dim`, which has size 1: a broadcast."""
        return intern(((in_dim, (0,) * f2.log2(size)),), ((out_dim, 1),))

    def ending(self, sizes: Sequence[int]) -> LinearLayout:
        """The same map for a tile of these sizes, each at most that of its output dimension."""
        assert all(0 < size <= whole for size, whole in zip(sizes, self.out_sizes, strict=True))
        return intern(tuple(self.columns.items()), self.outs, tuple(sizes))

    # Looking at it

    @property
    def is_whole(self) -> bool:
        """Whether the tile has every element that the map reaches."""
        return self.sizes == self.out_sizes

    @property
    def outs(self) -> Outs:
        """Output dimensions with their sizes, as `make` takes them."""
        return tuple(zip(self.out_dims, self.out_sizes, strict=True))

    @property
    def flat_columns(self) -> tuple[int, ...]:
        """The images of all input bits, dimension after dimension."""
        return tuple(column for d in self.in_dims for column in self.columns[d])

    @property
    def total_in_bits(self) -> int:
        """Number of input bits over all dimensions."""
        return sum(len(columns) for columns in self.columns.values())

    @property
    def total_out_bits(self) -> int:
        """Number of output bits over all dimensions."""
        return f2.log2(prod(self.out_sizes))

    def bases(self, in_dim: str) -> tuple[tuple[int, ...], ...]:
        """One coordinate vector per bit of `in_dim`, lowest bit first."""
        return tuple(self.coordinates(column) for column in self._columns_of(in_dim))

    def in_bits(self, in_dim: str) -> int:
        """Number of bits of an input dimension."""
        return len(self._columns_of(in_dim))

    def in_size(self, in_dim: str) -> int:
        """Size of an input dimension."""
        return 1 << self.in_bits(in_dim)

    def out_size(self, out_dim: str) -> int:
        """Size of an output dimension."""
        return self.out_sizes[self._out_index(out_dim)]

    def coordinates(self, flat: Any) -> tuple[Any, ...]:
        """A flat index (int or integer array) as one coordinate per output dimension."""
        pairs = zip(self._shifts, self.out_sizes, strict=True)
        return tuple(flat >> shift & (size - 1) for shift, size in pairs)

    # Applying it

    def flat(self, **inputs: Any) -> Any:
        """Row-major flat index of the element at these inputs (ints or integer arrays that broadcast; missing ones are 0).

        Bits beyond an input's size are ignored. Arrays need an integer type that can hold the result.
        """
        out: Any = 0
        for name, value in inputs.items():
            for bit, column in enumerate(self._columns_of(name)):
                out = out ^ (value >> bit & 1) * column
        return out

    def __call__(self, **inputs: Any) -> tuple[Any, ...]:
        """Coordinates of the element at these inputs, as `flat` takes them."""
        return self.coordinates(self.flat(**inputs))

    def table(self, in_dim: str) -> tuple[int, ...]:
        """Flat images of every index of `in_dim`, the other inputs being 0. Images of several inputs XOR together."""
        out = [0]
        for column in self._columns_of(in_dim):
            out += [value ^ column for value in out]
        return tuple(out)

    # Composing and inverting

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """`outer` after this map. Its inputs are this map's outputs, by name, of the same sizes."""
        inner = dict(self.outs)
        taken = {d: outer.in_size(d) for d in outer.in_dims}
        if inner != taken:
            raise fail(errors.LINEAR_COMPOSE, inner=inner, outer=taken)

        def image(column: int) -> int:
            coordinates = zip(self.out_dims, self.coordinates(column), strict=True)
            return xor(f2.apply(outer.columns[d], value) for d, value in coordinates)

        return intern(self._mapped(image), outer.outs)

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """The product: side by side, this map in the low bits of shared dimensions and `other` in the high ones.

        Dimensions keep this map's order; those of `other` alone follow.
        """
        low, high = dict(self.outs), dict(other.outs)
        outs = tuple((d, low.get(d, 1) * high.get(d, 1)) for d in {**low, **high})
        ins = tuple({**self.columns, **other.columns})
        place_low = placer(self.outs, outs, {})
        place_high = placer(other.outs, outs, low)
        columns = tuple(
            (d, (*map(place_low, self.columns.get(d, ())), *map(place_high, other.columns.get(d, ())))) for d in ins
        )
        return intern(columns, outs)

    def divide_left(self, other: LinearLayout) -> LinearLayout | None:
        """The map q with `other * q` equal to this map, up to the order of dimensions; None if there is none.

        q keeps all dimensions of this map; those that `other` uses up have size 1.
        """
        return self._divide(other, low=True)

    def divide_right(self, other: LinearLayout) -> LinearLayout | None:
        """The map q with `q * other` equal to this map, up to the order of dimensions; None if there is none."""
        return self._divide(other, low=False)

    def invert(self) -> LinearLayout:
        """The inverse of an invertible map; its inputs are this map's outputs, in the same order."""
        if not self.is_invertible:
            bits = (self.total_in_bits, self.total_out_bits)
            raise fail(errors.NOT_INVERTIBLE, rank=self.rank(), inputs=bits[0], outputs=bits[1])
        return self.pseudo_invert()

    def pseudo_invert(self) -> LinearLayout:
        """A right inverse of a surjective map: where each element lies, at the lowest inputs that hold it.

        If several inputs hold an element, inputs of later dimensions (such as warps) are 0.
        """
        self._require_surjective()
        whole = LinearLayout.identity(prod(self.out_sizes), "flat", "flat").reshape_outs(self.outs)
        found = whole.invert_and_compose(self)
        columns = found.columns["flat"]
        ins = tuple(
            (d, columns[shift : shift + f2.log2(n)]) for (d, n), shift in zip(self.outs, self._shifts, strict=True)
        )
        return intern(ins, found.outs)

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """The map C from this map's inputs to those of `other` with `C.compose(other)` equal to this map.

        Where `other` repeats elements, C leads to the lowest inputs that hold them. Raises where `other` lacks an element.
        """
        if dict(self.outs) != dict(other.outs):
            raise fail(errors.LINEAR_COMPOSE, inner=dict(self.outs), outer=dict(other.outs))
        span = f2.Span(other.permute_outs(self.out_dims).flat_columns)
        # Combinations number the inputs of `other` from its first dimension up; as a flat index the last runs fastest.
        outs = tuple((d, other.in_size(d)) for d in other.in_dims)

        def source(column: int) -> int:
            rest, combination = span.reduce(column)
            if rest:
                raise fail(errors.NO_FACTOR)
            flat = 0
            for _, size in outs:
                flat = flat * size | combination & (size - 1)
                combination //= size
            return flat

        return intern(self._mapped(source), outs)

    # Parts and properties

    def sublayout(self, in_dims: Iterable[str], out_dims: Iterable[str]) -> LinearLayout:
        """The map restricted to some inputs (the others 0) and projected to some outputs, in the order given."""
        indices = [self._out_index(d) for d in out_dims]
        sizes = tuple(self.out_sizes[index] for index in indices)

        def project(column: int) -> int:
            coordinates = self.coordinates(column)
            return join((coordinates[index] for index in indices), sizes)

        columns = tuple((d, tuple(project(column) for column in self._columns_of(d))) for d in in_dims)
        return intern(columns, tuple((self.out_dims[index], self.out_sizes[index]) for index in indices))

    def free_variables(self) -> dict[str, int]:
        """Per input dimension the mask of free bits: those that reach no new element, given the bits before them.

        With these bits 0, each element has exactly one place.
        """
        fresh = f2.independent(self.flat_columns)
        out: dict[str, int] = {}
        for d in self.in_dims:
            mask = self.in_size(d) - 1
            out[d] = ~fresh & mask
            fresh >>= self.in_bits(d)
        return out

    def rank(self) -> int:
        """Number of independent bases: 2 ** rank elements are reached."""
        return f2.rank(self.flat_columns)

    @property
    def is_injective(self) -> bool:
        """No element lies in two places."""
        return self.rank() == self.total_in_bits

    @property
    def is_surjective(self) -> bool:
        """Every element has a place."""
        return self.rank() == self.total_out_bits

    @property
    def is_invertible(self) -> bool:
        """Every element has exactly one place."""
        return self.total_in_bits == self.total_out_bits == self.rank()

    # Renaming and reordering

    def reshape_outs(self, outs: Sequence[tuple[str, int]]) -> LinearLayout:
        """The same flat indices read in another shape of as many elements."""
        new = tuple((name, int(size)) for name, size in outs)
        old_total, new_total = prod(self.out_sizes), prod(size for _, size in new)
        if old_total != new_total:
            raise fail(errors.LINEAR_RESHAPE, old=old_total, new=new)
        return intern(tuple(self.columns.items()), new)

    def permute_outs(self, order: Sequence[str]) -> LinearLayout:
        """The same map with its output dimensions listed in another order."""
        if tuple(order) == self.out_dims:
            return self
        if sorted(order) != sorted(self.out_dims):
            raise fail(errors.LINEAR_COMPOSE, inner=self.out_dims, outer=tuple(order))
        return self.sublayout(self.in_dims, order)

    def permute_ins(self, order: Sequence[str]) -> LinearLayout:
        """The same map with its input dimensions listed in another order."""
        if sorted(order) != sorted(self.in_dims):
            raise fail(errors.LINEAR_COMPOSE, inner=self.in_dims, outer=tuple(order))
        return intern(tuple((d, self.columns[d]) for d in order), self.outs)

    def rename_ins(self, names: Mapping[str, str]) -> LinearLayout:
        """The same map with other names for some input dimensions."""
        return intern(tuple((names.get(d, d), columns) for d, columns in self.columns.items()), self.outs)

    def rename_outs(self, names: Mapping[str, str]) -> LinearLayout:
        """The same map with other names for some output dimensions."""
        return intern(tuple(self.columns.items()), tuple((names.get(d, d), size) for d, size in self.outs))

    def with_columns(self, in_dim: str, columns: Iterable[int]) -> LinearLayout:
        """The same map with other flat images for the bits of one input dimension."""
        self._columns_of(in_dim)
        return intern(tuple({**self.columns, in_dim: tuple(columns)}.items()), self.outs)

    def remove_zero_bases(self, in_dim: str) -> LinearLayout:
        """The same map without the bits of `in_dim` whose image is 0."""
        return self.with_columns(in_dim, (column for column in self._columns_of(in_dim) if column))

    def __repr__(self) -> str:
        """Bases per input dimension, then the output shape: `register: 1->(0, 1), 2->(1, 0); ... -> dim0 64, dim1 16`."""
        ins = "; ".join(f"{d}: {self._repr_bases(d)}" for d in self.in_dims)
        outs = ", ".join(f"{d} {size}" for d, size in zip(self.out_dims, self.sizes, strict=True))
        return f"LinearLayout({ins} -> {outs})"

    def _repr_bases(self, in_dim: str) -> str:
        return ", ".join(f"{1 << bit}->{vector}" for bit, vector in enumerate(self.bases(in_dim))) or "none"

    def _columns_of(self, in_dim: str) -> tuple[int, ...]:
        columns = self.columns.get(in_dim)
        if columns is None:
            raise fail(errors.LINEAR_DIM, side="input", dim=in_dim, known=self.in_dims)
        return columns

    def _out_index(self, out_dim: str) -> int:
        if out_dim not in self.out_dims:
            raise fail(errors.LINEAR_DIM, side="output", dim=out_dim, known=self.out_dims)
        return self.out_dims.index(out_dim)

    def _mapped(self, image: Callable[[int], int]) -> DimColumns:
        return tuple((d, tuple(image(column) for column in columns)) for d, columns in self.columns.items())

    def _require_surjective(self) -> None:
        if not self.is_surjective:
            raise fail(
                errors.NOT_SURJECTIVE, reached=1 << self.rank(), total=prod(self.out_sizes), shape=list(self.out_sizes)
            )

    def _divide(self, other: LinearLayout, low: bool) -> LinearLayout | None:
        sizes = dict(other.outs)
        outs = tuple((d, size // sizes.get(d, 1)) for d, size in self.outs)
        if not (sizes.keys() <= set(self.out_dims) and other.columns.keys() <= self.columns.keys()):
            return None
        if not all(size for _, size in outs):
            return None
        bits = {d: (len(other.columns.get(d, ())), len(columns)) for d, columns in self.columns.items()}
        if any(taken > have for taken, have in bits.values()):
            return None
        cut = {d: (taken, have) if low else (0, have - taken) for d, (taken, have) in bits.items()}
        keep = {d: sizes.get(d, 1) if low else 1 for d in self.out_dims}

        def quotient(column: int) -> int:
            coordinates = zip(self.out_dims, self.coordinates(column), outs, strict=True)
            return join((c // keep[d] % size for d, c, (_, size) in coordinates), [size for _, size in outs])

        columns = tuple((d, tuple(map(quotient, all_[slice(*cut[d])]))) for d, all_ in self.columns.items())
        found = intern(columns, outs)
        product = other * found if low else found * other
        return found if product.permute_ins(self.in_dims).permute_outs(self.out_dims) is self else None


_interned: WeakValueDictionary[tuple[DimColumns, Outs, tuple[int, ...]], LinearLayout] = WeakValueDictionary()
_lock = Lock()


def intern(columns: DimColumns, outs: Outs, sizes: tuple[int, ...] | None = None) -> LinearLayout:
    """The one layout with these flat columns and outputs, of a tile of these sizes (default: those of the outputs)."""
    key = (columns, outs, tuple([size for _, size in outs]) if sizes is None else sizes)
    found = _interned.get(key)
    if found is not None:
        return found
    with _lock:
        return _interned.setdefault(key, _construct(*key))


def _construct(columns: DimColumns, outs: Outs, ends: tuple[int, ...]) -> LinearLayout:
    sizes = tuple(size for _, size in outs)
    shifts = tuple(f2.log2(prod(sizes[index + 1 :])) for index in range(len(sizes)))
    layout = LinearLayout()
    fields = {
        "columns": dict(columns),
        "in_dims": tuple(d for d, _ in columns),
        "out_dims": tuple(d for d, _ in outs),
        "out_sizes": sizes,
        "sizes": ends,
        "_shifts": shifts,
    }
    for name, value in fields.items():
        object.__setattr__(layout, name, value)
    return layout
