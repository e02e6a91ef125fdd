"""The asynchronous examples on shapes that their tables leave out, in the simulator and under -m gpu on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import twin
from weft.errors import Hazard

SEED_SHAPES = [(1000, 2000), (4000, 120)]
SHAPES = [(1, 4), (33, 68), (70, 200), *(pytest.param(shape, marks=pytest.mark.matrix) for shape in SEED_SHAPES)]
ROW_SHAPES = [(1, 4), (5, 1028), (70, 200)]


def check_add(device, run, shape, **point):
    """Fresh inputs, a poisoned output, and a sum that is exact."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape, dtype=np.float32) for _ in range(2))
    out = device.full(shape, np.nan)
    compiled = run(device.array(a), device.array(b), out, **point)
    np.testing.assert_array_equal(device.numpy(out), a + b)
    return compiled


@pytest.mark.parametrize("numel", [4, 40, 500])
def test_tma_copy(device, numel):
    src = np.random.default_rng(0).standard_normal(numel, dtype=np.float32)
    out = device.full(numel, np.nan)
    twin.load("tma_copy").run(device.array(src), out, XBLOCK=64)
    np.testing.assert_array_equal(device.numpy(out), src)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_buffers", [0, 1, 2, 3])
def test_add_async_copy(device, num_buffers, shape):
    check_add(device, twin.load("add_async_copy").run, shape, num_buffers=num_buffers)


@pytest.mark.parametrize("shape", ROW_SHAPES)
@pytest.mark.parametrize("point", ["plain, long rows", "2 buffers, long rows", "2 buffers, one element a copy"])
def test_add_async_copy_in_other_tiles(device, point, shape):
    example = twin.load("add_async_copy")
    check_add(device, example.run, shape, **example.POINTS[point])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_buffers", [1, 2, 3])
def test_add_tma_in_bands(device, num_buffers, shape):
    check_add(device, twin.load("add_tma").run, shape, num_buffers=num_buffers)


@pytest.mark.parametrize("shape", [(70, 200), (64, 1000)])
def test_add_tma_in_large_tiles(device, shape):
    compiled = check_add(device, twin.load("add_tma").run, shape, XBLOCK=64, YBLOCK=128, num_buffers=3)
    assert compiled.shared > 7 * 64 * 128 * 4


ORDERS = [
    {"XBLOCK": 8, "programs": 2},
    {"XBLOCK": 32, "YBLOCK": 64, "swizzle": 128, "flat": False, "programs": 3},
    {"XBLOCK": 32, "YBLOCK": 64, "swizzle": 128, "flat": False, "programs": 1, "num_buffers": 1, "num_stores": 1},
]


@pytest.mark.parametrize("shape", ROW_SHAPES)
@pytest.mark.parametrize("point", ORDERS, ids=["flat", "swizzled", "one-buffer"])
@pytest.mark.parametrize("example", ["add_tma", "add_warp_specialized"])
def test_add_dealt(device, example, point, shape):
    module = twin.load(example)
    check_add(device, module.run_dealt if example == "add_tma" else module.run, shape, **point)


@pytest.mark.parametrize("shape", SHAPES)
def test_add_warp_specialized(device, shape):
    point = {"XBLOCK": 32, "YBLOCK": 64, "swizzle": 128, "flat": False, "num_buffers": 2, "num_stores": 1}
    check_add(device, twin.load("add_warp_specialized").run, shape, **point, programs=4)


# What is broken on purpose


@pytest.mark.parametrize("fault", twin.load("broken_pipeline").FAULTS)
def test_each_fault_is_found(fault):
    example = twin.load("broken_pipeline")
    assert example.row(fault)["found"] == example.FAULTS[fault]


def test_without_a_fault_the_broken_pipeline_is_right(device):
    src = np.random.default_rng(0).standard_normal((70, 300), dtype=np.float32)
    out = device.full((70, 300), np.nan)
    twin.load("broken_pipeline").run(device.array(src), out)
    np.testing.assert_array_equal(device.numpy(out), 2 * src)


def test_the_table_of_faults(capsys):
    example = twin.load("broken_pipeline")
    example.main([])
    printed = capsys.readouterr().out
    assert all(fault in printed and found in printed for fault, found in example.FAULTS.items())


def test_the_report_of_one_fault(capsys):
    twin.load("broken_pipeline").main(["no fence"])
    printed = capsys.readouterr().out
    assert "hazard-missing-fence" in printed
    assert "fence_async_shared()" in printed


def test_a_report_that_is_not_the_fault_s_is_noticed(monkeypatch):
    example = twin.load("broken_pipeline")
    monkeypatch.setitem(example.FAULTS, "no fence", "ThreadRace")
    with pytest.raises(AssertionError, match="no fence"):
        example.row("no fence")


def test_every_report_has_two_places():
    example = twin.load("broken_pipeline")
    hazard = example.found("no store_wait")
    assert isinstance(hazard, Hazard)
    assert hazard.first is not None and hazard.second is not None
    assert hazard.first.line > hazard.second.line  # the store is further down, one round earlier


# What they share


@pytest.mark.parametrize(
    ("shape", "num_warps", "vec"), [((32, 64), 4, 1), ((32, 64), 4, 4), ((1, 1024), 8, 4), ((2, 512), 4, 2)]
)
def test_lanes_along_rows_repeat_nothing(shape, num_warps, vec):
    from weft import language as gl

    layout = gl.BlockedLayout(*twin.load("workbench").lanes_along_rows(shape, num_warps, vec))
    linear = layout.to_linear(list(shape))
    assert linear.in_size("register") * 32 * num_warps == shape[0] * shape[1]
    assert linear.bases("register")[: vec.bit_length() - 1] == tuple(
        (0, 1 << bit) for bit in range(vec.bit_length() - 1)
    )


def test_flat_matrices_are_the_same_memory():
    flat = twin.load("workbench").flat
    matrix = np.arange(30 * 128).reshape(30, 128)
    assert flat(matrix, 256).shape == (15, 256)
    assert np.shares_memory(flat(matrix, 256), matrix)
    assert flat(matrix[:, :100], 256).shape == (30, 100)
    assert flat(matrix[:29], 256).shape == (29, 128)


def test_matrices_of_other_strides_have_no_common_one():
    row_stride = twin.load("workbench").row_stride
    a = np.zeros((8, 8), np.float32)
    assert row_stride(a, a.copy()) == 8
    for other in (np.asfortranarray(a), np.zeros((8, 16), np.float32)[:, :8]):
        with pytest.raises(ValueError, match="equal strides"):
            row_stride(a, other)
    with pytest.raises(ValueError, match="contiguous rows"):
        row_stride(np.asfortranarray(a))
