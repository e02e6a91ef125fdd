"""Tensor core tiles and swizzled memory: `stmatrix` and `ldmatrix` of four matrices at a time, without bank conflicts."""

from __future__ import annotations

import pytest

from weft.layout import DotOperandLayout, NVMMADistributedLayout, NVMMASharedLayout, pick_wgmma_layout, plan_access
from weft.layout.distributed import infer

LANE_BYTES = 16
"""Bytes that a lane gives to, or takes from, one instruction of four matrices."""


def assert_matrices(distributed, shape, shared, bits, *, store, transposed, tile=None, start=(0, 0)):
    """All of a tile moves in instructions of four matrices, whose wavefronts are as few as their bytes allow."""
    linear = distributed.to_linear(shape)
    matrix = plan_access(linear, shared, tile or shape, shape, start, bits, store=store).matrix
    assert matrix is not None
    assert (matrix.matrices, matrix.transposed) == (4, transposed)
    assert len(matrix.rows.registers) == linear.in_size("register") * bits // 8 // LANE_BYTES
    assert set(matrix.rows.phase_wavefronts(bits)) == {1}


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (128, 64), (128, 128), (128, 256), (256, 128)])
def test_accumulators_of_16_bits_are_stored_as_matrices(shape, warps, transposed, swizzle):
    shared = NVMMASharedLayout(swizzle, 16, transposed=transposed)
    assert_matrices(pick_wgmma_layout(16, shape, warps), shape, shared, 16, store=True, transposed=transposed)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "warps"), [(64, 4), (128, 4), (128, 8)])
@pytest.mark.parametrize("columns", [128, 256, 512])
def test_halves_of_accumulators_are_stored_as_matrices(columns, rows, warps, transposed, swizzle):
    """reshape([rows, 2, columns / 2]), permute((0, 2, 1)), split(): into a buffer of their own, and into half of one."""
    whole, half = (rows, columns), (rows, columns // 2)
    layout = infer.reshape(pick_wgmma_layout(16, whole, warps), whole, (rows, 2, columns // 2))
    layout = infer.permute(layout, (rows, 2, columns // 2), (0, 2, 1))
    layout = infer.split(layout, (*half, 2))
    shared = NVMMASharedLayout(swizzle, 16, transposed=transposed)
    assert_matrices(layout, half, shared, 16, store=True, transposed=transposed)
    assert_matrices(layout, half, shared, 16, store=True, transposed=transposed, tile=whole, start=(0, columns // 2))


@pytest.mark.parametrize("accumulator", [
    NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]),
    NVMMADistributedLayout([3, 0], [8, 1], [16, 64, 16]),
    NVMMADistributedLayout([2, 0], [4, 1], [16, 8]),
    NVMMADistributedLayout([2, 0], [2, 2], [16, 8]),
])  # fmt: skip
@pytest.mark.parametrize(("bits", "along_k"), [(8, True), (16, True), (16, False), (32, True)])
def test_operands_are_loaded_as_matrices(accumulator, bits, along_k):
    for index in (0, 1) if accumulator.version == (2, 0) else (0,):
        shape = [(128, 1024 // bits), (1024 // bits, 128)][index]
        operand = DotOperandLayout(index, accumulator, 32 // bits)
        shared = NVMMASharedLayout(128, bits, transposed=(index == 0) != along_k)
        assert_matrices(operand, shape, shared, bits, store=False, transposed=not along_k)
