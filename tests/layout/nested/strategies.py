"""Random nested layouts, and what their functions are by brute force."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from weft.errors import LayoutError
from weft.layout import Layout
from weft.layout.nested import int_tuple

STRIDES = st.integers(0, 40)


def attempt(codes, function, *arguments):
    """The function's result, or None where it raises a LayoutError of one of these codes."""
    try:
        return function(*arguments)
    except LayoutError as error:
        if error.code not in codes:
            raise
        return None


def tables(layout) -> list[int]:
    """The offset of every index, by explicit counting: the first mode fastest, in every mode."""
    flat = product(*(range(size) for size in reversed(layout.flat_shape)))
    return [
        sum(c * step for c, step in zip(reversed(coordinate), layout.flat_stride, strict=True)) for coordinate in flat
    ]


def coordinates(shape):
    """Every coordinate of a shape, nested like it, the first mode fastest."""
    sizes = int_tuple.flatten(shape)
    for numbers in product(*(range(size) for size in reversed(sizes))):
        yield int_tuple.unflatten(numbers[::-1], shape)


def profiles(depth: int = 2):
    """How a tuple may nest."""
    leaf = st.just(0)
    inner = leaf if depth == 0 else st.one_of(leaf, leaf, profiles(depth - 1))
    return st.lists(inner, min_size=1, max_size=3).map(tuple)


@st.composite
def layouts(draw, sizes=(1, 2, 3, 4, 5), strides=STRIDES, most: int = 400):
    """Any layout: nested at random, strides at random or of a compact layout."""
    profile = draw(st.one_of(st.just(0), profiles()))
    count = len(int_tuple.flatten(profile))
    shape = draw(st.lists(st.sampled_from(sizes), min_size=count, max_size=count))
    while int_tuple.product(tuple(shape)) > most:
        shape[shape.index(max(shape))] = 1
    nested = int_tuple.unflatten(shape, profile)
    match draw(st.sampled_from(["column", "row", "any", "gaps"])):
        case "column":
            return Layout.col_major(nested)
        case "row":
            return Layout.row_major(nested)
        case "any":
            return Layout(nested, int_tuple.unflatten(draw(st.lists(strides, min_size=count, max_size=count)), profile))
        case _:
            return draw(spaced(nested))


@st.composite
def spaced(draw, shape):
    """A layout of this shape whose modes lie one above the other in any order, with gaps in whole multiples."""
    sizes = int_tuple.flatten(shape)
    strides = [0] * len(sizes)
    span = 1
    for mode in draw(st.permutations(range(len(sizes)))):
        span *= draw(st.sampled_from([1, 1, 1, 2, 3]))
        strides[mode] = span
        span *= sizes[mode]
    return Layout(shape, int_tuple.unflatten(strides, shape))


@st.composite
def injective(draw, sizes=(1, 2, 3, 4), most: int = 200):
    """A layout whose modes do not overlap."""
    return draw(spaced(draw(layouts(sizes, most=most)).shape))


@st.composite
def distinct(draw):
    """A layout of strides that no sum of others repeats, so that its function gives its modes away."""
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=3))
    strides = draw(st.permutations([1, 1009, 1000003]))
    return Layout(tuple(sizes), tuple(strides[: len(sizes)]))
