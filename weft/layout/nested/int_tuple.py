"""Nested tuples of numbers, the shapes and strides of nested layouts: a number, or a tuple of IntTuples.

`4`, `(2, 3)` and `((2, 2), 3)` are IntTuples. Their *leaves* are numbers: Python ints, `UNKNOWN` (known at run time only), or
run-time scalars, which are any objects with `+ * // %`. Index arithmetic here omits identities (times 1, plus 0), so that it
emits no operation on a run-time scalar that a hand-written index would not have. Two tuples are *congruent* if they have the
same nesting.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import Any, TypeAlias, TypeGuard, cast

from weft.errors import fail
from weft.errors import nested as errors

# A number or a tuple of IntTuples. Run-time scalars may be of any class, so the type cannot say more.
IntTuple: TypeAlias = Any


class Unknown:
    """The class of `UNKNOWN`: a size or stride that is known at run time only. Arithmetic with it gives UNKNOWN.

    >>> UNKNOWN * 4, 3 + UNKNOWN, UNKNOWN == UNKNOWN
    (UNKNOWN, UNKNOWN, True)
    """

    __slots__ = ()

    def _unknown(self, _other: Any) -> Unknown:
        return UNKNOWN

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _unknown

    def __neg__(self) -> Unknown:
        return UNKNOWN

    def __abs__(self) -> Unknown:
        return UNKNOWN

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __str__(self) -> str:
        return "?"

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


def is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    """Whether this is a tuple rather than a number."""
    return isinstance(value, tuple)


def is_known(value: IntTuple) -> bool:
    """Whether every leaf is a Python int: neither UNKNOWN nor a run-time scalar."""
    return all(type(leaf) is int for leaf in leaves(value))


def nested(value: Any) -> IntTuple:
    """The IntTuple of ints, lists and tuples as a caller writes them. Raises LayoutError on what is no number.

    >>> nested([[2, 2], 3])
    ((2, 2), 3)
    """
    if type(value) is int:
        return value
    if isinstance(value, tuple | list):
        return tuple(map(nested, cast("Sequence[Any]", value)))
    if isinstance(value, Integral):
        return int(value)
    return _number(value)


def _number(value: Any) -> Any:
    """Whether this is a run-time scalar or UNKNOWN, recognised by its operators."""
    if isinstance(value, float) or not hasattr(value, "__floordiv__"):
        raise fail(errors.NUMBER, value=value)
    return value


def leaves(value: IntTuple) -> Iterator[Any]:
    """The numbers from left to right."""
    if is_tuple(value):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def flatten(value: IntTuple) -> tuple[Any, ...]:
    """The numbers from left to right as one flat tuple.

    >>> flatten(((2, 2), 3)), flatten(4)
    ((2, 2, 3), (4,))
    """
    return tuple(leaves(value))


def unflatten(numbers: Sequence[Any], profile: IntTuple) -> IntTuple:
    """The numbers nested like `profile`, of which there must be as many.

    >>> unflatten([1, 2, 3], ((0, 0), 0))
    ((1, 2), 3)
    """
    found = iter(numbers)

    def take(_: Any) -> Any:
        return next(found)

    return transform(take, profile)


def transform(function: Callable[..., Any], *values: IntTuple) -> IntTuple:
    """The function of every leaf, or of the leaves of several congruent tuples, nested alike.

    >>> transform(lambda a, b: a * b, ((2, 2), 3), ((1, 10), 100))
    ((2, 20), 300)
    """
    if isinstance(values[0], tuple):
        return tuple(transform(function, *items) for items in zip(*values, strict=True))
    return function(*values)


def rank(value: IntTuple) -> int:
    """Number of top-level modes; 1 for a number."""
    return len(value) if is_tuple(value) else 1


def depth(value: IntTuple) -> int:
    """Levels of nesting; 0 for a number.

    >>> depth(4), depth((2, 3)), depth(((2, 2), 3))
    (0, 1, 2)
    """
    return 1 + max(map(depth, value), default=0) if is_tuple(value) else 0


def fill_like(value: IntTuple, number: Any) -> IntTuple:
    """The number in place of every leaf.

    >>> fill_like((2, (3, 4)), 0)
    (0, (0, 0))
    """

    def same(_: Any) -> Any:
        return number

    return transform(same, value)


def to_unknown(value: IntTuple) -> IntTuple:
    """UNKNOWN in place of every leaf.

    >>> to_unknown((2, (3, 4)))
    (UNKNOWN, (UNKNOWN, UNKNOWN))
    """
    return fill_like(value, UNKNOWN)


def mul(value: IntTuple, factor: Any) -> IntTuple:
    """Every leaf times a number.

    >>> mul((1, (2, 3)), 4)
    (4, (8, 12))
    """

    def scaled(leaf: Any) -> Any:
        return times(leaf, factor)

    return transform(scaled, value)


def abs(value: IntTuple) -> IntTuple:
    """The absolute value of every leaf.

    >>> abs((0, (-2, 3)))
    (0, (2, 3))
    """
    return transform(builtins.abs, value)


def sum(value: IntTuple) -> Any:
    """The sum of all leaves.

    >>> sum(((2, 3), 4)), sum((2, UNKNOWN))
    (9, UNKNOWN)
    """
    total: Any = 0
    for leaf in leaves(value):
        total = plus(total, leaf)
    return total


def tuple_max(value: IntTuple) -> Any:
    """The largest leaf.

    >>> tuple_max((1, (4, 5), 3))
    5
    """
    return max(leaves(value))


def tuple_min(a: IntTuple, b: IntTuple) -> IntTuple:
    """The smaller of both leaves at each place of two congruent tuples.

    >>> tuple_min((1, (14, 6)), (4, (2, 32)))
    (1, (2, 6))
    """
    return transform(min, a, b)


def reverse(value: IntTuple) -> IntTuple:
    """The modes from right to left, in every nested mode too.

    >>> reverse(((1, 2), 3))
    (3, (2, 1))
    """
    return tuple(map(reverse, value[::-1])) if is_tuple(value) else value


def product(value: IntTuple) -> Any:
    """The product of all leaves; 1 for the empty tuple."""
    total: Any = 1
    for leaf in leaves(value):
        total = times(total, leaf)
    return total


def size(value: IntTuple) -> Any:
    """The number of elements of a shape: its product."""
    return product(value)


def product_each(value: IntTuple) -> IntTuple:
    """The product of each top-level mode.

    >>> product_each(((2, 2), 3))
    (4, 3)
    """
    return tuple(map(product, value)) if is_tuple(value) else value


def shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """Sizes divided by sizes: of two numbers one must divide the other, and 1 is left where the divisor is larger.

    A number divides a tuple mode by mode from the left, each mode by what is left of it. Raises LayoutError.

    >>> shape_div((4, 8), (2, 4)), shape_div((4, 8), 8), shape_div(12, (2, 3)), shape_div(2, 6)
    ((2, 2), (1, 4), 2, 1)
    """
    if is_tuple(a) and is_tuple(b):
        if len(a) != len(b):
            raise fail(errors.SHAPE_DIV, a=show(a), b=show(b))
        return tuple(map(shape_div, a, b))
    if is_tuple(a):
        parts: list[IntTuple] = []
        for mode in a:
            parts.append(shape_div(mode, b))
            b = shape_div(b, product(mode))
        return tuple(parts)
    divisor = product(b)
    if not (isinstance(a, int) and isinstance(divisor, int)) or 0 in (a, divisor) or (a % divisor and divisor % a):
        raise fail(errors.SHAPE_DIV, a=show(a), b=show(b))
    return ceil_div(a, divisor)


def compact_order(shape: IntTuple, order: IntTuple) -> IntTuple:
    """The strides of the compact layout in which modes with a lower order run faster. Raises LayoutError unless the order
    nests like the shape.

    >>> compact_order((2, 3, 4, 5), (1, 4, 3, 5)), compact_order((2, (3, 4), 5), (1, (2, 3), 4))
    ((1, 8, 2, 24), (1, (2, 6), 24))
    """
    if not congruent(shape, order):
        raise fail(errors.COMPACT_ORDER, shape=show(shape), order=show(order))
    sizes, ranks = flatten(shape), flatten(order)
    strides: dict[int, Any] = {}
    stride: Any = 1
    for mode in sorted(range(len(sizes)), key=ranks.__getitem__):
        strides[mode] = stride
        stride = times(stride, sizes[mode])
    return unflatten([strides[mode] for mode in range(len(sizes))], shape)


def inner_product(a: IntTuple, b: IntTuple) -> Any:
    """The sum of the products of leaves of two congruent tuples."""
    total: Any = 0
    for x, y in zip(leaves(a), leaves(b), strict=True):
        total = plus(total, times(x, y))
    return total


def prefix_product(value: IntTuple, first: Any = 1) -> IntTuple:
    """Per leaf the product of those before it: strides of the compact layout whose first mode runs fastest.

    >>> prefix_product(((2, 2), 3))
    ((1, 2), 4)
    """
    strides: list[Any] = []
    for leaf in leaves(value):
        strides.append(first)
        first = times(first, leaf)
    return unflatten(strides, value)


def suffix_product(value: IntTuple, last: Any = 1) -> IntTuple:
    """Per leaf the product of those after it: strides of the compact layout whose last mode runs fastest.

    >>> suffix_product(((2, 2), 3))
    ((6, 3), 1)
    """
    strides: list[Any] = []
    for leaf in reversed(flatten(value)):
        strides.append(last)
        last = times(last, leaf)
    return unflatten(strides[::-1], value)


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether both have the same nesting.

    >>> congruent((1, (2, 3)), (4, (5, 6))), congruent((1, 2), 3)
    (True, False)
    """
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(map(congruent, a, b))
    return not is_tuple(a) and not is_tuple(b)


def weakly_congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether b nests like a, or deeper where a has a number: every coordinate `a` is one of shape `b`.

    >>> weakly_congruent((1, 2), ((4, 5), 6)), weakly_congruent(((1, 2), 3), (4, 5))
    (True, False)
    """
    if is_tuple(a):
        return is_tuple(b) and len(a) == len(b) and all(map(weakly_congruent, a, b))
    return True


def weakly_compatible(a: IntTuple, b: IntTuple) -> bool:
    """Whether b nests like a or deeper, and every number of a divides the size of its part of b.

    >>> weakly_compatible((2, 8), (4, (2, 4))), weakly_compatible(6, (2, 8)), weakly_compatible((16,), 16)
    (True, False, False)
    """
    if is_tuple(a):
        return is_tuple(b) and len(a) == len(b) and all(map(weakly_compatible, a, b))
    return product(b) % a == 0


def crd2idx(coordinate: IntTuple, shape: IntTuple, stride: IntTuple = None) -> Any:
    """The offset of a coordinate, or of an index, in a shape with these strides (compact, first mode fastest, if None).

    A coordinate nests like the shape, or has one index for a whole nested mode. An index beyond the shape continues in the last
    mode. Raises LayoutError for a coordinate that nests otherwise.

    >>> crd2idx((1, 2), (3, 4), (10, 100)), crd2idx(7, (3, 4), (10, 100)), crd2idx((1, 2), (3, 4))
    (210, 210, 7)
    """
    strides = prefix_product(shape) if stride is None else stride
    if is_tuple(coordinate):
        if not is_tuple(shape) or len(coordinate) != len(shape):
            raise bad_coordinate(coordinate, shape)
        total: Any = 0
        for part, extent, step in zip(coordinate, shape, strides, strict=True):
            total = plus(total, crd2idx(part, extent, step))
        return total
    if not is_tuple(shape):
        return times(coordinate, strides)
    return crd2idx(idx2crd(coordinate, tuple(map(product, shape))), shape, strides) if shape else 0


def idx2crd(index: IntTuple, shape: IntTuple, stride: IntTuple = None) -> IntTuple:
    """The coordinate, nested like the shape, of an index that counts with the first mode fastest.

    An index beyond the shape goes on in the last coordinate. A tuple of indices gives the coordinate of each mode.
    With strides, nested like the shape, the index is the offset of an element of a layout without holes; where the stride is
    0 the coordinate is.

    >>> idx2crd(7, (3, 4)), idx2crd(7, ((2, 2), 3)), idx2crd((3, 1), ((2, 2), 3))
    ((1, 2), ((1, 1), 1), ((1, 1), 1))
    """
    if is_tuple(index):
        if not is_tuple(shape) or len(index) != len(shape):
            raise bad_coordinate(index, shape)
        strides = (None,) * len(shape) if stride is None else stride
        return tuple(map(idx2crd, index, shape, strides))
    if stride is not None:
        return transform(_digit(index), shape, stride)
    if not is_tuple(shape):
        return index
    parts: list[Any] = []
    for extent in shape[:-1]:
        count = product(extent)
        parts.append(idx2crd(modulo(index, count), extent))
        index = divided(index, count)
    return (*parts, *(idx2crd(index, extent) for extent in shape[-1:]))


def _digit(offset: Any) -> Callable[[Any, Any], Any]:
    """The coordinate of an offset along a mode of this size and stride."""

    def digit(size: Any, step: Any) -> Any:
        return 0 if type(step) is int and step == 0 else modulo(divided(offset, step), size)

    return digit


def show(value: IntTuple) -> str:
    """As text: `((2, 2), ?)`, with `?` for UNKNOWN, and the author's name of a run-time scalar.

    >>> show(((2, UNKNOWN), 3)), show((4,))
    ('((2, ?), 3)', '(4,)')
    """
    if is_tuple(value):
        return f"({', '.join(map(show, value))}{',' if len(value) == 1 else ''})"
    handle = getattr(value, "handle", None)
    return str(value) if handle is None else handle.name or "..."


def bad_coordinate(coordinate: IntTuple, shape: IntTuple) -> Exception:
    """The error of a coordinate that does not fit a shape."""
    return fail(
        errors.COORDINATE,
        coordinate=show(coordinate),
        shape=show(shape),
        rank=rank(shape),
        flat=len(flatten(shape)),
    )


def plus(a: Any, b: Any) -> Any:
    """a + b, without an operation where one of them is 0."""
    if type(a) is int and a == 0:
        return b
    return a if type(b) is int and b == 0 else a + b


def times(a: Any, b: Any) -> Any:
    """a * b, without an operation where one of them is 0 or 1."""
    for factor, other in ((a, b), (b, a)):
        if type(factor) is int and factor in (0, 1):
            return other if factor else 0
    return a * b


def divided(a: Any, b: Any) -> Any:
    """a // b, without an operation where b is 1."""
    return a if type(b) is int and b == 1 else a // b


def modulo(a: Any, b: Any) -> Any:
    """a % b, without an operation where b is 1."""
    return 0 if type(b) is int and b == 1 else a % b


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up."""
    return divided(plus(a, plus(b, -1)), b)
