"""How rows of any length are divided into tiles: no more than they need, masks only at their ends, and no spills."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.rows import MATRIX, close, poisoned
from tests.kernels_lib.test_errors import refused
from weft import settings
from weft.kernels import (
    RowConfig,
    cross_entropy,
    layer_norm,
    layer_norm_backward,
    log_softmax,
    rms_norm,
    rms_norm_backward,
    rowwise,
    softmax,
    softmax_backward,
)
from weft.kernels.rows import launch, losses, norms
from weft.kernels.rows.plan import MOST_TILES, most_registers, plan_of
from weft.layout import WARP_SIZE

FORWARD = {
    "softmax": lambda x, _: softmax(x, x),
    "log_softmax": lambda x, _: log_softmax(x, x),
    "rms_norm": lambda x, weight: rms_norm(x, weight, out=x),
    "rms_norm with a residual": lambda x, weight: rms_norm(x, weight, residual=x, total=x, out=np.empty_like(x)),
    "layer_norm": lambda x, weight: layer_norm(x, weight, weight, out=x),
    "cross_entropy": lambda x, _: cross_entropy(x, np.zeros(len(x), np.int64), grad=x),
}


@given(
    cols=st.integers(1, 1 << 18),
    blocks=st.sampled_from([1, 2, 8, 16]),
    warps=st.sampled_from([1, 2, 4, 16]),
    each=st.sampled_from([1, 6, 8, 32, 40, 48, 80]),
    vec=st.sampled_from([1, 2, 8]),
    anywhere=st.booleans(),
)
def test_tiles_have_the_columns_of_rows(cols, blocks, warps, each, vec, anywhere):
    """The tiles of all blocks have every column once, less than a tile of each block is empty, and `full` ones are full
    wherever rows begin."""
    align = 8 if anywhere and vec == 8 and cols >= 512 else 0
    plan = plan_of(RowConfig(blocks, warps, each), 1000, cols, vec, align=align)
    portion = plan.portion(cols) if blocks > 1 else plan.part * plan.tiles
    assert 1 <= plan.tiles <= MOST_TILES and plan.part & (plan.part - 1) == 0
    assert portion <= plan.part * plan.tiles and portion * blocks >= cols + max(align - 1, 0)
    reached = -(-(cols + max(align - 1, 0)) // blocks)
    assert plan.tiles == 1 or plan.part * (plan.tiles - 1) < reached
    for skew in (0, max(align - 1, 0)):
        ends = [min((block + 1) * portion - skew, cols) - (block * portion - skew) for block in range(blocks)]
        assert plan.full * plan.part <= max(min(ends), 0)
    if not align:
        assert plan.whole == (plan.part * plan.tiles * blocks == cols)
    down = plan.down[0] * plan.down[1]
    assert plan.lines == blocks if blocks > 1 else plan.lines % down == 0 or align
    # Each thread has elements of the tile, and none twice.
    assert plan.warps == plan.across * plan.down[1] and plan.each * WARP_SIZE * plan.warps >= plan.part * plan.tiles


def test_one_tile_where_it_is_asked_for():
    config = RowConfig()
    assert (plan_of(config, 8, 3000, 8).tiles, plan_of(config, 8, 3000, 8).part) == (3, 1024)
    assert (plan_of(config, 8, 3000, 8, single=True).tiles, plan_of(config, 8, 3000, 8, single=True).part) == (1, 4096)
    assert plan_of(config, 8, 30_000, 8, most=4096).part == 4096


def test_registers_leave_as_many_blocks():
    """65,536 registers are for five blocks of 4 warps with 96 in a thread, and two of 8."""
    assert [most_registers(96, warps) for warps in (1, 2, 4, 8, 16)] == [96, 96, 96, 128, 128]


def test_resident_programs_are_limited(monkeypatch):
    """By the warps of a multiprocessor, where more of them are slower."""
    monkeypatch.setattr(launch, "_resident", {})
    monkeypatch.setattr(launch, "_count", lambda kernel, given, options, device, count: 3 * count)
    plan = plan_of(RowConfig(1, 8), 1 << 20, 8192, 8)
    given = None, (), {"maxnreg": 128}, plan, RowConfig(), 1 << 20, launch.HOST
    count = launch.multiprocessors_of(launch.HOST, launch.machine_of(launch.target_of(launch.HOST)))
    turns = -(-(1 << 20) // (3 * count))
    assert launch.persistent(*given, "any") == -(-(1 << 20) // turns)
    turns = -(-(1 << 20) // (2 * count))
    assert launch.persistent(*given, "two", 16) == -(-(1 << 20) // turns)


def recorded(monkeypatch):
    """What is launched: kernels, arguments, options."""
    found = []
    for module in (rowwise, norms, losses):
        monkeypatch.setattr(module, "launched", lambda kernel, grid, *given: found.append((kernel, *given)))
        monkeypatch.setattr(module, "persistent", lambda *_: 1)
    monkeypatch.setattr(norms, "added", lambda *_: None)
    return found


def test_no_clusters_where_there_are_none(monkeypatch):
    """Rows that fit into a block have one; and longer logits are read twice."""
    found = recorded(monkeypatch)
    with settings.using(target="sm_80"):
        for cols in (512, 5120, 8192, 10_240, 16_384):
            x, weight, numbers = np.zeros((4, cols), np.float16), np.zeros(cols, np.float16), np.zeros(4, np.float32)
            for function in FORWARD.values():
                function(x, weight)
            softmax_backward(x, x, x)
            rms_norm_backward(x, x, weight, numbers, out=x)
            layer_norm_backward(x, x, weight, numbers, numbers, out=x)
        FORWARD["cross_entropy"](np.zeros((4, 20_000), np.float16), None)
    assert len(found) == 5 * (len(FORWARD) + 3) + 1 and all(options["num_ctas"] == 1 for _, _, options, _ in found)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_longest_rows_that_are_held(monkeypatch, dtype):
    """By a cluster of 16 blocks, whose next row fits into shared memory; longer ones are read twice, in chunks."""
    found = recorded(monkeypatch)
    for cols in (262_144, 262_152, 262_145):
        cross_entropy(np.zeros((1, cols), dtype), np.zeros(1, np.int64), grad=np.zeros((1, cols), dtype))
    plans = [arguments[-1] for _, arguments, _, _ in found]
    assert [plan.blocks for plan in plans] == [16, 1, 1]
    itemsize = np.dtype(dtype).itemsize
    assert plans[0].ahead and plans[0].part * plans[0].tiles * itemsize <= 64 << 10
    assert all(plan.part <= 32 * WARP_SIZE * plan.warps for plan in plans[1:])


def test_mistakes():
    for name, value in (("each", 0), ("num_warps", 0), ("num_ctas", 1.5), ("programs", -1), ("ahead", -1)):
        refused("kernels-rows-parameter", lambda: RowConfig(**{name: value}), "RowConfig", f"{name}={value}")  # noqa: B023


def test_threads_that_hold_less_than_an_access(device, rng):
    x = rng.standard_normal((5, 512)).astype(np.float16)
    out = poisoned(device, x.shape, x.dtype)
    softmax(device.array(x), out, config=RowConfig(1, 4, 4))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    close(device.numpy(out), e / e.sum(1, keepdims=True))


HIDDEN, VOCABULARIES = (640, 2560, 9216, 12_288, 16_384, 36_864), (50_304, 151_936)


@needs_nvrtc
@pytest.mark.parametrize(
    ("op", "cols"),
    [
        *((op, cols) for op in FORWARD for cols in (768, 5120)),
        *(pytest.param(op, cols, marks=MATRIX) for op in FORWARD for cols in HIDDEN),
        *(pytest.param(op, cols, marks=MATRIX) for op in FORWARD if "norm" not in op for cols in VOCABULARIES),
    ],
)
def test_no_spills(monkeypatch, op, cols):
    """Neither if rows fill their tiles nor if they do not; and 16 bytes an access."""
    found = recorded(monkeypatch)
    x = np.zeros((256, cols), ml_dtypes.bfloat16)
    FORWARD[op](x, np.zeros(cols, x.dtype))
    ((kernel, arguments, options, _),) = found
    compiled = kernel.warmup(*arguments, **options, target="sm_90a")
    assert compiled.n_spills == 0 and compiled.n_regs <= options["maxnreg"]
    assert "STG.E.128" in compiled.asm["sass"]
