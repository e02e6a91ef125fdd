"""Operands of every type, order and alignment get to tensor cores, each by the path that the table gives it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.conftest import Device
from tests.kernels_lib.matrices import Lies, check, kept_poison, operand, output
from weft.kernels import MatmulConfig, matmul
from weft.kernels.operands import PATHS, Matrix, form_of, matrix, read_slowly

SIZES = {"sim": (70, 72, 104), "gpu": (1000, 520, 1048)}
"""M, N, K: rows of 16-bit elements are multiples of 16 bytes, and tiles stick out everywhere."""
HOST = Device("sim")
MATRIX = pytest.mark.matrix
ALIGNED, WORDS, BYTES = Lies(), Lies(gap=4), Lies(gap=1, first=1)
EVERY = [("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32"), ("float8_e4m3fn", "float8_e5m2"),
         ("float8_e5m2", "float8_e5m2"), ("int8", "int8"), ("uint8", "int8")]  # fmt: skip


def lying(order: str, lies: Lies) -> Lies:
    return Lies(order, lies.gap, lies.first)


def small(itemsize: int, **given: object) -> MatmulConfig:
    """Tiles of two instructions, few enough for each program to have several."""
    shape = {"block_m": 128, "block_n": 32, "block_k": 64 // itemsize, "stages": 3, "programs": 2}
    return MatmulConfig(**{**shape, **given})


CASES = [
    pytest.param(pair, order_a + order_b, lies_a, lies_b, marks=() if plain else MATRIX)
    for pair, order_a, order_b, (lies_a, lies_b) in itertools.product(
        EVERY, "CF", "CF", itertools.product((ALIGNED, WORDS, BYTES), repeat=2)
    )
    for plain in [
        (pair[0] in ("float16", "float8_e4m3fn") and lies_a == lies_b)
        or (order_a + order_b == "CF" and lies_a == lies_b == ALIGNED)
    ]
]


@pytest.mark.parametrize(("pair", "orders", "lies_a", "lies_b"), CASES)
def test_path(device, rng, pair, orders, lies_a, lies_b):
    m, n, k = SIZES[device.name]
    a = operand(device, rng, pair[0], (m, k), lying(orders[0], lies_a))
    b = operand(device, rng, pair[1], (k, n), lying(orders[1], lies_b))
    found = matmul(a.array, b.array, config=small(a.values.itemsize))
    check(device.numpy(found), a.values, b.values)


@pytest.mark.parametrize(
    ("dtype", "order", "lies", "path"),
    [
        ("float16", "C", ALIGNED, "descriptor"), ("float16", "F", ALIGNED, "descriptor"),
        ("float16", "C", WORDS, "copies"), ("float16", "F", WORDS, "copies"), ("float16", "C", BYTES, "loads"),
        ("float16", "F", BYTES, "loads"), ("float8_e4m3fn", "C", ALIGNED, "descriptor"),
        ("float8_e4m3fn", "F", ALIGNED, "loads"), ("float8_e4m3fn", "C", WORDS, "copies"), ("int8", "F", ALIGNED, "loads"),
        ("float32", "C", ALIGNED, "descriptor"), ("float32", "F", ALIGNED, "loads"), ("float32", "C", BYTES, "copies"),
    ],
)  # fmt: skip
def test_what_takes_which_path(rng, dtype, order, lies, path):
    a = operand(HOST, rng, dtype, (64, 96), lying(order, lies))
    assert form_of(matrix("a", a.array)).path == path


def test_what_tma_reads_slowly():
    for columns, pointer, slow in ((64, 0, 0), (80, 0, 1), (72, 0, 2), (64, 16, 2), (64, 96, 1)):
        a = Matrix("float16", (64, columns), (columns, 1), pointer, -1)
        assert read_slowly(a) == slow
        assert form_of(a).path == "descriptor"


def test_the_last_row_of_the_table_takes_everything():
    assert {bits for rule in PATHS for bits in rule.bits} == set(PATHS[-1].bits)
    assert (PATHS[-1].contiguous, PATHS[-1].granule) == ("any", 1)


@pytest.mark.parametrize("pair", [("float16", "float16"), ("float8_e4m3fn", "float8_e5m2")])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("config", [{"variant": "persistent"}, {"splits": 2}, {"swap": True}])
def test_operands_that_are_copied_first(device, rng, pair, orders, config):
    """Any variant can multiply the copies."""
    m, n, k = (70, 53, 105) if not device.is_gpu else (1001, 523, 1049)
    a = operand(device, rng, pair[0], (m, k), lying(orders[0], ALIGNED))
    b = operand(device, rng, pair[1], (k, n), lying(orders[1], BYTES))
    used = small(a.values.itemsize, pack=True, **config)
    check(device.numpy(matmul(a.array, b.array, config=used)), a.values, b.values, config=used)


def test_every_other_column(device, rng):
    a = operand(device, rng, "float16", (70, 2 * 40), ALIGNED)
    b = operand(device, rng, "float16", (40, 24), ALIGNED)
    check(device.numpy(matmul(a.array[:, ::2], b.array)), a.values[:, ::2], b.values)


def test_rows_backwards_and_one_row_for_all(rng):
    """Strides below zero and of zero, which NumPy's views have."""
    a = operand(HOST, rng, "float16", (70, 40), ALIGNED).values[::-1]
    b = np.broadcast_to(operand(HOST, rng, "float16", (1, 24), ALIGNED).values, (40, 24))
    check(matmul(a, b), a, b)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 40, 8), (40, 1, 3), (3, 5, 1), (1, 8, 300), (300, 1, 8)])
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_vectors_and_single_elements(device, rng, shape, dtype):
    m, n, k = shape
    a, b = operand(device, rng, dtype, (m, k), Lies()), operand(device, rng, dtype, (k, n), Lies("F"))
    check(device.numpy(matmul(a.array, b.array)), a.values, b.values)


# Rows of 34 elements that begin 4 bytes after a multiple of 16 are copied in words; the gaps make rows odd.
LYING = [Lies(), Lies("F"), Lies("C", gap=3), Lies("F", gap=3), Lies("C", gap=1, first=2), Lies("F", gap=1, first=2)]


@pytest.mark.parametrize("options", [{"swap": True}, {"splits": 2}])
@pytest.mark.parametrize("shape", [(6, 1, 34), (1, 6, 34), pytest.param((2, 1, 2), marks=MATRIX)])
def test_the_stride_along_one_element_may_be_any(device, rng, shape, options):
    """A stride of 1 or 35 keeps no promise that wide accesses make, and nobody steps by it."""
    m, n, k = shape
    for dtype, lies in itertools.product(("float16", "float32"), LYING):
        a, b = operand(device, rng, dtype, (m, k), lies), operand(device, rng, dtype, (k, n), lies)
        out, whole = output(device, dtype, (m, n), lies)
        config = MatmulConfig(block_m=128, block_n=32, block_k=32, stages=2, programs=1, **options)
        check(device.numpy(matmul(a.array, b.array, out, config=config)), a.values, b.values, config=config)
        kept_poison(device, whole, (m, n), lies)


@pytest.mark.parametrize("shape", [(0, 5, 7), (5, 0, 7), (5, 6, 0)])
def test_nothing_to_multiply(device, rng, shape):
    m, n, k = shape
    a, b = operand(device, rng, "float16", (m, k), Lies()), operand(device, rng, "float16", (k, n), Lies())
    found = device.numpy(matmul(a.array, b.array))
    assert found.shape == (m, n)
    assert not found.any()
