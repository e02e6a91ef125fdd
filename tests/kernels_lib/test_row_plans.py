"""How rows of any length are divided into tiles: no more than they need, masks only at their ends, and no spills."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cuda.build import needs_nvrtc
from tests.kernels_lib.rows import MATRIX
from weft.kernels import RowConfig, cross_entropy, layer_norm, log_softmax, rms_norm, rowwise, softmax
from weft.kernels.rows import launch, losses, norms
from weft.kernels.rows.plan import MOST_TILES, most_registers, plan_of

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
    each=st.sampled_from([8, 32, 40, 48, 80]),
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
    if not align and blocks == 1:
        assert plan.whole == (plan.part * plan.tiles == cols)


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
    assert launch.persistent(*given, "two", 16) <= 2 * count


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
    found = []
    for module in (rowwise, norms, losses):
        monkeypatch.setattr(module, "launched", lambda kernel, grid, *given: found.append((kernel, *given)))
        monkeypatch.setattr(module, "persistent", lambda *_: 1)
    x = np.zeros((256, cols), ml_dtypes.bfloat16)
    FORWARD[op](x, np.zeros(cols, x.dtype))
    ((kernel, arguments, options, _),) = found
    compiled = kernel.warmup(*arguments, **options, target="sm_90a")
    assert compiled.n_spills == 0 and compiled.n_regs <= options["maxnreg"]
    assert "STG.E.128" in compiled.asm["sass"]
