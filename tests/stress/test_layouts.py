"""Random nested layouts: each operation of the algebra against brute force over the functions that layouts are."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.layout.nested.strategies import attempt, tables
from weft.layout import (
    Layout,
    coalesce,
    complement,
    composition,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    right_inverse,
    tiled_divide,
    zipped_divide,
)
from weft.layout.nested import int_tuple

TRIED = 3000
REFUSED = ("strided-divide", "strided-carry", "strided-complement", "strided-injective")


def shape(random: Random, depth: int, sizes: tuple[int, ...]):
    if depth == 0 or random.random() < 0.45:
        return random.choice(sizes)
    return tuple(shape(random, depth - 1, sizes) for _ in range(random.randint(1, 3)))


def layout(random: Random, depth: int = 2, sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 8)) -> Layout:
    """Compact in any order, with gaps, or of any strides."""
    nested = shape(random, depth, sizes)
    flat = int_tuple.flatten(nested)
    if int_tuple.product(nested) > 600:
        return layout(random, depth, sizes)
    if random.random() < 0.4:
        return Layout(nested, int_tuple.unflatten([random.randint(0, 40) for _ in flat], nested))
    strides, span = [0] * len(flat), 1
    for mode in random.sample(range(len(flat)), len(flat)):
        strides[mode] = span
        span *= flat[mode] * random.choice([1, 1, 1, 2, 3])
    return Layout(nested, int_tuple.unflatten(strides, nested))


def right(name: str, a: Layout, b: Layout, found: Layout) -> bool:
    """Whether a result is what its name says, by counting."""
    own = tables(a)
    match name:
        case "coalesce":
            return tables(found) == own
        case "composition":
            return tables(found) == [a(offset) for offset in tables(b)]
        case "complement":
            together = tables(make_layout(a, found))
            return len(set(together)) == len(set(own)) * found.size() and tables(found) == sorted(set(tables(found)))
        case "right_inverse":
            return [a(index) for index in tables(found)] == [*range(found.size())]
        case "left_inverse":
            return [found(offset) for offset in own] == [*range(a.size())]
        case "logical_product":
            return found[0] == a and len(set(tables(found))) == len(set(own)) * len(set(tables(b)))
        case _:
            whole = found.size() != a.size() or sorted(tables(found)) == sorted(own)
            return whole and tables(found[0]) == [a(offset) for offset in tables(b)]


def test_operations_of_the_algebra(scale, stress_report):
    random, seen = Random(7), Counter[str]()
    wrong: list[tuple[str, Layout, Layout, Layout]] = []
    operations = {
        "coalesce": lambda a, b: coalesce(a),
        "composition": composition,
        "complement": lambda a, b: complement(a, a.cosize()),
        "right_inverse": lambda a, b: right_inverse(a),
        "left_inverse": lambda a, b: left_inverse(a),
        "logical_divide": logical_divide,
        "zipped_divide": zipped_divide,
        "tiled_divide": tiled_divide,
        "logical_product": logical_product,
    }
    for _ in range(TRIED * scale):
        a, b = layout(random), layout(random, sizes=(1, 2, 3, 4))
        for name, operation in operations.items():
            found = attempt(REFUSED, operation, a, b)
            seen[name if found is not None else f"{name} refused"] += 1
            if found is not None and not right(name, a, b, found):
                wrong.append((name, a, b, found))
    refused = sum(count for name, count in seen.items() if name.endswith("refused"))
    stress_report(f"layout algebra ({refused} refused)", tried=sum(seen.values()), wrong=len(wrong))
    assert not wrong, wrong[:5]
