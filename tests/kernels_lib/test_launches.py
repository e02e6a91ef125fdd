"""Repeated products: what they launch is what the first one launched, with the addresses of their own arrays."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

import weft
from tests.runtime import fake_driver
from tests.runtime.fake_driver import WARM, FakeTensor, float16, float32
from weft import settings
from weft.kernels import MatmulConfig, matmul, multiply
from weft.runtime import rehearsal

M, N, K = 512, 256, 128
CONFIG = MatmulConfig(block_m=128, block_n=128, block_k=64, stages=4)


class Operand(FakeTensor):
    """A fake matrix of float16, which makes new ones at ever higher addresses."""

    is_cuda = True
    free = 0x7000_0000

    def __init__(self, pointer, shape, dtype=float16):
        super().__init__(pointer, dtype, 0, shape)

    def new_empty(self, shape, dtype):
        Operand.free += 0x100_0000
        return Operand(Operand.free, shape, dtype)


Operand.__module__ = "torch"


@pytest.fixture
def cuda(monkeypatch):
    """The fake driver, whose launches take three descriptors with five values each."""
    fake_driver.install_compiler(monkeypatch)
    fake = fake_driver.install_driver(monkeypatch)
    torch = fake_driver.sys.modules["torch"]
    monkeypatch.setitem(
        fake_driver.sys.modules, "torch", SimpleNamespace(**vars(torch), float16=float16, float32=float32)
    )
    multiply.forget()
    fake.parameters = 3 * 5
    yield fake
    for kernel in {product.kernel for product in _products()}:
        kernel.forget()
    multiply.forget()
    fake_driver.forget_devices()


def _products():
    return [ready.product for ready in multiply._known.values() if ready.product is not None]


def operands(number=0, rows=M):
    step = number << 28
    return (
        Operand(step + 0x100_0000, (rows, K)),
        Operand(step + 0x200_0000, (K, N)),
        Operand(step + 0x300_0000, (rows, N)),
    )


def maps(launched):
    """The arrays' addresses: a launch's words are those of the descriptors' parameters, of which the first is the map."""
    return tuple(launched.words[number] for number in (0, 5, 10))


def test_each_launch_has_the_addresses_of_its_arrays(cuda):
    for number in range(WARM + 3):
        matmul(*operands(number), config=CONFIG)
    assert [maps(launched) for launched in cuda.launches] == [
        tuple(operand.pointer for operand in operands(number)) for number in range(WARM + 3)
    ]
    first = cuda.launches[0]
    assert {(launched.grid, launched.block, launched.stream) for launched in cuda.launches} == {
        (first.grid, first.block, 700)
    }


def test_other_shapes_and_streams_are_other_launches(cuda):
    for _ in range(WARM + 1):
        matmul(*operands(), config=CONFIG)
        matmul(*operands(rows=64), config=CONFIG)
    matmul(*operands(), config=CONFIG, stream=55)
    grids = [launched.grid for launched in cuda.launches]
    assert len({*grids[0:-1:2]}) == len({*grids[1:-1:2]}) == 1 and grids[0] != grids[1]
    assert cuda.launches[-1].stream == 55 and cuda.launches[-1].grid == grids[0]


@pytest.mark.parametrize("swap", [False, True])
def test_addresses_that_return(cuda, swap):
    """Each array keeps its place where the transpose is computed, and a new one is described."""
    order = [0, 1] * (WARM + 2) + [2, 0, 2]
    for number in order:
        matmul(*operands(number), config=replace(CONFIG, swap=swap))
    wanted = [[operand.pointer for operand in operands(number)] for number in order]
    assert [maps(launched) for launched in cuda.launches] == [
        (b, a, out) if swap else (a, b, out) for a, b, out in wanted
    ]


def test_outputs_of_its_own(cuda):
    found = [matmul(*operands()[:2], config=CONFIG) for _ in range(WARM + 3)]
    assert [maps(launched)[2] for launched in cuda.launches] == [out.pointer for out in found]


def test_a_forgotten_kernel_is_compiled_again(cuda, monkeypatch):
    compiler = fake_driver.sys.modules["weft.compiler"]
    for _ in range(WARM + 1):
        matmul(*operands(), config=CONFIG)
    count = len(compiler.requests)
    _products()[0].kernel.forget()
    matmul(*operands(), config=CONFIG)
    assert len(compiler.requests) == count + 1
    assert maps(cuda.launches[-1]) == tuple(operand.pointer for operand in operands())


def test_settings_and_rehearsals_are_seen(cuda):
    compiler = fake_driver.sys.modules["weft.compiler"]
    for _ in range(WARM + 1):
        matmul(*operands(), config=CONFIG)
    launches = len(cuda.launches)
    with settings.using(debug=True):
        matmul(*operands(), config=CONFIG)
    assert compiler.requests[-1].options.debug and len(cuda.launches) == launches + 1
    visited = []
    with rehearsal.rehearsal(visited.append):
        matmul(*operands(), config=CONFIG)
    assert len(visited) == 1 and len(cuda.launches) == launches + 1


def test_split_k_launches_both_kernels_each_time(cuda):
    config = replace(CONFIG, splits=2)
    cuda.parameters = 0
    for _ in range(WARM + 2):
        matmul(*operands(), config=config)
    assert len(cuda.launches) == 2 * (WARM + 2)
    assert len({launched.grid for launched in cuda.launches[0::2]}) == 1
    assert all(launched.dependent for launched in cuda.launches)


def test_what_an_epilogue_reads_is_that_of_the_call(cuda):
    cuda.parameters = 3 * 5 + 1 + 3 + 5
    for number in range(WARM + 3):
        bias, residual = Operand((number << 28) + 0x400_0000, (N,)), Operand((number << 28) + 0x500_0000, (M, N))
        matmul(*operands(number), scale_a=number + 0.5, bias=bias, residual=residual, config=CONFIG)
    for number, launched in enumerate(cuda.launches):
        (scale,) = struct.unpack("<f4x", struct.pack("<Q", launched.words[15]))
        at, steps, loaded = launched.words[16], launched.words[17:19], launched.words[19]
        assert maps(launched) == tuple(operand.pointer for operand in operands(number))
        assert (scale, steps) == (number + 0.5, (0, 1))
        assert (at, loaded) == ((number << 28) + 0x400_0000, (number << 28) + 0x500_0000)


def test_a_number_of_another_type_is_another_product(cuda):
    """Integers of one width share a launch."""
    for value in (2, 3, 4, 5, 2.5, 1 << 40):
        for _ in range(2):
            matmul(*operands(), epilogue=plus, extras=(value,))
    assert len(_products()) == 3


def test_splits_are_added_with_the_epilogue_of_the_call(cuda):
    config = replace(CONFIG, splits=2)
    cuda.parameters = 5
    for number in range(WARM + 3):
        bias = Operand((number << 28) + 0x400_0000, (N,))
        matmul(*operands(number), bias=bias, config=config)
    for number, launched in enumerate(cuda.launches[1::2]):
        assert launched.words[1:] == ((number << 28) + 0x300_0000, (number << 28) + 0x400_0000, 0, 1)


@weft.jit
def plus(x, rows, columns, extras):
    return x + extras[0]
