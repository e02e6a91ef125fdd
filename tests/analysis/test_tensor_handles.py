"""Which columns of tensor memory a handle may point to."""

from __future__ import annotations

import pytest

from tests.passes.tensor import ACC, COLUMNS, ROWS, TensorKernel
from weft.analysis.tensor_handles import columns_of, tensor_handles
from weft.ir.core import Value
from weft.ir.types import DType, ScalarType, float16, float32, int32, uint8
from weft.layout.tensor_memory.layouts import TensorMemoryLayout, TensorMemoryScalesLayout
from weft.ops import control, tensor_memory


class Places(TensorKernel):
    """Finds the places of several handles at once, as (allocation, first column, end, exact, own)."""

    def places(self, *handles: Value) -> list[list[tuple[str, int, int, bool, bool]]]:
        found = tensor_handles(self.finished())
        return [
            sorted((p.alloc.result.name, p.first, p.end, p.exact, p.own) for p in found[handle]) for handle in handles
        ]

    def at(self, handle: Value, number: int | Value) -> Value:
        value = number if isinstance(number, Value) else self.number(number)
        return self.emit(tensor_memory.index, handle, value)

    def seen(self, handle: Value, element: DType, *shape: int) -> Value:
        layout = TensorMemoryLayout(shape[-2:])
        return self.emit(tensor_memory.reinterpret, handle, element=element, shape=shape, layout=layout)


def test_tiles_follow_one_another():
    k = Places()
    many = k.tensor("m", 2, 3, ROWS, COLUMNS)
    second = k.at(many, 1)
    handles = many, second, k.at(second, 2), k.at(many, k.n), k.part(second, 1, 2, 0), k.at(second, 5)
    assert k.places(*handles) == [
        [("m", 0, 384, True, True)],
        [("m", 192, 384, True, True)],
        [("m", 320, 384, True, True)],
        [("m", 0, 384, False, True)],
        [("m", 256, 384, True, True)],
        [("m", 192, 384, False, True)],
    ]


def test_a_part_of_a_tile_has_its_columns():
    k = Places()
    wide = k.tensor("w", ROWS, 2 * COLUMNS)
    right = k.part(wide, COLUMNS, COLUMNS, 1)
    handles = right, k.part(right, 32, 16, 1), k.part(wide, 0, 2 * COLUMNS, 1), k.part(wide, 64, 64, 0)
    assert k.places(*handles) == [
        [("w", 64, 128, True, False)],
        [("w", 96, 112, True, False)],
        [("w", 0, 128, True, True)],
        [("w", 0, 128, True, False)],
    ]


def test_of_two_blocks_of_64_rows_the_second_lies_in_other_lanes():
    k = Places()
    high = k.tensor("h", 256, COLUMNS, layout=TensorMemoryLayout([64, COLUMNS]))
    assert k.places(high, k.part(high, 64, 64, 0), k.part(high, 128, 128, 0)) == [
        [("h", 0, 128, True, True)],
        [("h", 0, 64, True, False)],
        [("h", 64, 128, True, False)],
    ]


def test_elements_of_16_bits():
    k = Places()
    packed = k.tensor("p", ROWS, COLUMNS, element=float16)
    apart = k.tensor("a", ROWS, COLUMNS, element=float16, layout=TensorMemoryLayout([ROWS, COLUMNS], col_stride=2))
    single = k.part(packed, 1, 1, 1)
    assert k.places(packed, k.part(packed, 32, 32, 1), single, apart, k.part(apart, 32, 32, 1)) == [
        [("p", 0, 32, True, True)],
        [("p", 16, 32, True, False)],
        [("p", 0, 1, True, False)],
        [("a", 0, 64, True, True)],
        [("a", 32, 64, True, False)],
    ]


def test_another_type_may_reach_beyond_the_handle_but_not_beyond_its_allocation():
    k = Places()
    wide = k.tensor("w", 2, ROWS, COLUMNS)
    first, second, some = k.at(wide, 0), k.at(wide, 1), k.at(wide, k.n)
    handles = [
        k.seen(first, float16, ROWS, COLUMNS), k.seen(first, float32, ROWS, 2 * COLUMNS),
        k.seen(second, float32, ROWS, 2 * COLUMNS), k.seen(some, float16, ROWS, COLUMNS),
    ]  # fmt: skip
    assert k.places(*handles) == [
        [("w", 0, 32, True, False)],
        [("w", 0, 128, True, False)],
        [("w", 64, 128, True, False)],
        [("w", 0, 128, False, False)],
    ]


def test_handles_that_come_together():
    k = Places()
    a, b = k.tensor("a", ROWS, COLUMNS), k.tensor("b", ROWS, COLUMNS)
    either = k.either(a, b)
    with k.region([ScalarType(int32), either.type]) as body:
        k.emit(control.yield_, b)
    one = k.number(1)
    last = k.emit(control.for_, k.zero, k.n, one, a, descending=False, regions=(body.done,))
    both = [("a", 0, 64, True, True), ("b", 0, 64, True, True)]
    assert k.places(either, body.args[1], last) == [both, both, both]


@pytest.mark.parametrize(
    ("shape", "layout", "columns"),
    [
        ((ROWS, COLUMNS), ACC, 64),
        ((3, ROWS, COLUMNS), ACC, 192),
        ((64, COLUMNS), TensorMemoryLayout([64, COLUMNS]), 64),
        ((2 * ROWS, COLUMNS), ACC, 128),
        ((2 * ROWS, COLUMNS), TensorMemoryLayout([ROWS, COLUMNS], cga_layout=[[1, 0]], two_ctas=True), 64),
    ],
)
def test_columns(shape, layout, columns):
    k = TensorKernel()
    assert columns_of(k.tensor("a", *shape, layout=layout)) == columns


def test_columns_of_scales():
    k = TensorKernel()
    assert columns_of(k.tensor("s", ROWS, 16, element=uint8, layout=TensorMemoryScalesLayout())) == 16
