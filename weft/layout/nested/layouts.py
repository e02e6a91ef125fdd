"""Nested layouts: where the elements of a tensor lie in memory, as a shape with strides, `((2, 2):(4, 1))`.

A layout maps coordinates to offsets: the sum of coordinates times strides. A mode (an axis) may itself be a tuple of modes:
a matrix in 2x2 tiles has shape ((2, M), (2, N)). An element is named in several ways: by a coordinate nested like the
shape, by one index for a whole nested mode, by flattened coordinates, or by a single index; an index counts with the first
mode fastest, in every mode. Semantics are CuTe's; names follow CuTe and Mojo.

Sizes and strides are ints. UNKNOWN stands for one that is known at run time only. Such a layout still has a rank and its
known sizes; `size`, `cosize` and calls return UNKNOWN if they depend on it, and the algebra, which depends on values, raises.
Arguments of a call may be run-time scalars. Linear layouts are a different kind, see `weft.layout.linear`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from weft.errors import fail
from weft.errors import nested as errors
from weft.layout.nested import int_tuple
from weft.layout.nested.int_tuple import UNKNOWN, IntTuple


class Layout:
    """A shape with strides, each a number or a tuple of modes. Immutable; equal layouts have equal hashes.

    Without strides the first mode runs fastest (column-major). Raises LayoutError if shape and stride are not congruent.

    >>> layout = Layout((4, 8), (8, 1))
    >>> layout, layout(1, 2), layout((1, 2)), layout(9)
    (((4, 8):(8, 1)), 10, 10, 10)
    """

    __slots__ = ("_hash", "flat_shape", "flat_stride", "shape", "stride")

    shape: IntTuple
    stride: IntTuple
    flat_shape: tuple[Any, ...]
    flat_stride: tuple[Any, ...]
    _hash: int | None

    def __init__(self, shape: Any, stride: Any = None) -> None:
        shape = int_tuple.nested(shape)
        stride = int_tuple.prefix_product(shape) if stride is None else int_tuple.nested(stride)
        if not int_tuple.congruent(shape, stride):
            raise fail(errors.CONGRUENT, shape=int_tuple.show(shape), stride=int_tuple.show(stride))
        flat_shape = int_tuple.flatten(shape)
        for size in flat_shape:
            if type(size) is int and size < 0:
                raise fail(errors.NEGATIVE_SIZE, size=size, shape=int_tuple.show(shape))
        fields = (shape, stride, flat_shape, int_tuple.flatten(stride), None)
        for name, value in zip(("shape", "stride", "flat_shape", "flat_stride", "_hash"), fields, strict=True):
            object.__setattr__(self, name, value)

    @staticmethod
    def row_major(*shape: Any) -> Layout:
        """The compact layout whose last mode runs fastest. Modes may be nested; one tuple is the whole shape.

        >>> Layout.row_major(4, 8), Layout.row_major((2, 2), 3)
        (((4, 8):(8, 1)), (((2, 2), 3):((6, 3), 1)))
        """
        whole = int_tuple.nested(shape[0] if len(shape) == 1 else shape)
        return Layout(whole, int_tuple.suffix_product(whole))

    @staticmethod
    def col_major(*shape: Any) -> Layout:
        """The compact layout whose first mode runs fastest. Modes may be nested; one tuple is the whole shape.

        >>> Layout.col_major(4, 8)
        ((4, 8):(1, 4))
        """
        return Layout(shape[0] if len(shape) == 1 else shape)

    # Looking at it

    def rank(self) -> int:
        """Number of top-level modes."""
        return int_tuple.rank(self.shape)

    def depth(self) -> int:
        """Levels of nesting: 0 for a single number."""
        return int_tuple.depth(self.shape)

    @property
    def flat_rank(self) -> int:
        """Number of modes when flattened."""
        return len(self.flat_shape)

    @property
    def all_dims_known(self) -> bool:
        """Whether every size and stride is an int."""
        return int_tuple.is_known(self.flat_shape) and int_tuple.is_known(self.flat_stride)

    def size(self) -> Any:
        """Number of elements; UNKNOWN where a size is."""
        return int_tuple.product(self.flat_shape)

    def cosize(self) -> Any:
        """Elements from the lowest offset to the highest, both included: the storage that the layout spans.

        >>> Layout((4, 2), (1, 8)).cosize(), Layout(4, UNKNOWN).cosize()
        (12, UNKNOWN)
        """
        if any(type(size) is int and size == 0 for size in self.flat_shape):
            return 0
        steps = (
            int_tuple.times(size - 1, abs(step)) for size, step in zip(self.flat_shape, self.flat_stride, strict=True)
        )
        return sum(steps, start=1)

    def __len__(self) -> int:
        return self.rank()

    def __iter__(self) -> Iterator[Layout]:
        return (self[mode] for mode in range(self.rank()))

    def __getitem__(self, mode: int | slice) -> Layout:
        """One mode as a layout of its own, or a slice of modes. Raises LayoutError for a mode that does not exist.

        >>> Layout(((2, 2), 3))[0], Layout((2, 3, 4))[1:]
        (((2, 2):(1, 2)), ((3, 4):(2, 6)))
        """
        shape = self.shape if int_tuple.is_tuple(self.shape) else (self.shape,)
        stride = self.stride if int_tuple.is_tuple(self.stride) else (self.stride,)
        if isinstance(mode, int) and not -len(shape) <= mode < len(shape):
            raise fail(errors.MODE, layout=self, mode=mode, rank=len(shape), last=len(shape) - 1)
        return Layout(shape[mode], stride[mode])

    # Applying it

    def __call__(self, *coordinate: Any) -> Any:
        """The offset of an element, named by a coordinate, flattened coordinates, or a single index.

        Numbers may be run-time scalars; they are not checked against the sizes. Raises LayoutError if their count or nesting
        matches neither the rank nor the flattened rank.

        >>> tiled = Layout(((2, 2), (2, 2)), ((1, 4), (2, 8)))
        >>> tiled((1, 0), (0, 1)), tiled(1, 2), tiled(1, 0, 0, 1), tiled(9)
        (9, 9, 9, 9)
        """
        given: Any = coordinate[0] if len(coordinate) == 1 else coordinate
        if int_tuple.is_tuple(given) and len(given) == self.flat_rank and not any(map(int_tuple.is_tuple, given)):
            return int_tuple.inner_product(given, self.flat_stride)
        if not int_tuple.weakly_congruent(given, self.shape):
            raise int_tuple.bad_coordinate(given, self.shape)
        return int_tuple.crd2idx(given, self.shape, self.stride)

    def idx2crd(self, offset: Any) -> IntTuple:
        """The coordinate of the element at an offset: the inverse of a call, for a layout without holes.

        >>> Layout.row_major(4, 8).idx2crd(11)
        (1, 3)
        """
        return int_tuple.idx2crd(offset, self.shape, self.stride)

    def transpose(self) -> Layout:
        """The layout with its modes reversed.

        >>> Layout.row_major(4, 8).transpose()
        ((8, 4):(1, 8))
        """
        return self if not int_tuple.is_tuple(self.shape) else Layout(self.shape[::-1], self.stride[::-1])

    def reverse(self) -> Layout:
        """As `transpose`."""
        return self.transpose()

    def make_shape_unknown(self, axis: int | None = None) -> Layout:
        """The layout with UNKNOWN sizes, along one axis or along all; strides stay.

        >>> Layout.row_major(4, 8).make_shape_unknown(0)
        ((?, 8):(8, 1))
        """
        if axis is None or not int_tuple.is_tuple(self.shape):
            return Layout(int_tuple.to_unknown(self.shape), self.stride)
        self[axis]  # Raises LayoutError for a mode that does not exist.
        modes = list(self.shape)
        modes[axis] = int_tuple.to_unknown(modes[axis])
        return Layout(tuple(modes), self.stride)

    def flatten(self) -> Layout:
        """The layout with all its modes at top level."""
        return Layout(self.flat_shape, self.flat_stride)

    def offsets(self) -> list[int]:
        """The offset of every index, in order. For layouts whose numbers are all known."""
        return [self(index) for index in range(self.size())]

    # Being a value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self is other or (self.shape == other.shape and self.stride == other.stride)

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.shape, self.stride)))
        return self._hash or 0

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Layout cannot be changed (setting {name!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.shape, self.stride)

    def __repr__(self) -> str:
        return f"({int_tuple.show(self.shape)}:{int_tuple.show(self.stride)})"


def make_layout(*layouts: Layout) -> Layout:
    """The layout whose modes are these layouts.

    >>> make_layout(Layout(4), Layout((2, 3), (3, 1)))
    ((4, (2, 3)):(1, (3, 1)))
    """
    return Layout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


__all__ = ["UNKNOWN", "Layout", "make_layout"]
