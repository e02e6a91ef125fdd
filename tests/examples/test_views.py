"""Examples of views: the programs of `layout_tensor`, and stencils on any sizes; under -m gpu on a GPU as well."""

from __future__ import annotations

import runpy

import numpy as np
import pytest

from benchmarks import twin
from weft.errors.hazard import ReadInFlight, ThreadRace

PROGRAMS, STENCIL = twin.load("layout_tensor"), twin.load("thread_stencil")
SHAPES = [(1, 1), (8, 32), (33, 31), (40, 100), (1, 65), (65, 1)]


@pytest.mark.parametrize("program", PROGRAMS.PROGRAMS, ids=lambda program: program.__name__)
def test_program(device, program):
    found, want = program(twin.load("workbench").Place(gpu=device.is_gpu))
    np.testing.assert_array_equal(np.asarray(found), want)


def test_a_program_that_finds_something_else_is_noticed():
    def wrong(_):
        """A sum that is not."""
        return [1 + 1], [3]

    with pytest.raises(AssertionError, match="Mismatched"):
        PROGRAMS.row(twin.load("workbench").Place(gpu=False), wrong)


# Stencils


def step(matrix):
    """The step in double precision, from its definition: element by element."""
    rows, cols = matrix.shape
    out = np.empty_like(matrix, np.float64)
    for i, j in np.ndindex(rows, cols):
        near = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
        around = sum(float(matrix[r, c]) for r, c in near if 0 <= r < rows and 0 <= c < cols)
        out[i, j] = matrix[i, j] + STENCIL.RATE * (around - 4.0 * float(matrix[i, j]))
    return out


def check(device, run, shape, **options):
    """Fresh inputs of any size, a poisoned output, and the step in double precision."""
    src = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    dst = device.full(shape, np.nan)
    run(device.array(src), dst, **options)
    np.testing.assert_allclose(device.numpy(dst), step(src), rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("run", STENCIL.KERNELS.values(), ids=STENCIL.KERNELS)
def test_stencil(device, run, shape):
    check(device, run, shape)


@pytest.mark.parametrize(("ROWS", "block"), [(6, (16, 3)), (4, (8, 4)), (16, (64, 1)), (8, (2, 8))])
def test_tiles_of_other_sizes(device, ROWS, block):
    check(device, STENCIL.run_shared, (37, 70), ROWS=ROWS, block=block)


def test_views_of_parts_of_matrices(device):
    """Rows that lie further apart than they are long, on both sides."""
    whole = np.random.default_rng(0).standard_normal((20, 60), dtype=np.float32)
    out = device.full((20, 64), np.nan)
    STENCIL.run_shared(device.array(whole)[2:19, 3:50], out[1:18, 5:52])
    np.testing.assert_allclose(device.numpy(out)[1:18, 5:52], step(whole[2:19, 3:50]), rtol=0, atol=2e-6)
    assert np.isnan(device.numpy(out)[:, :5]).all() and np.isnan(device.numpy(out)[18:]).all()


def test_the_reference_is_the_step():
    src = np.random.default_rng(0).standard_normal((9, 13), dtype=np.float32)
    np.testing.assert_allclose(STENCIL.reference(src), step(src), rtol=0, atol=2e-6)


# What keeps threads in order


def without(tmp_path, monkeypatch, example, text, number):
    """The example's names, read from a copy that lacks the `number`-th line with this text."""
    monkeypatch.syspath_prepend(str(twin.EXAMPLES))
    lines = (twin.EXAMPLES / f"{example}.py").read_text(encoding="utf-8").splitlines()
    del lines[[at for at, line in enumerate(lines) if line.strip() == text][number]]
    copy = tmp_path / f"{example}_without.py"
    copy.write_text("\n".join(lines), encoding="utf-8")
    return runpy.run_path(str(copy))


@pytest.mark.parametrize(
    ("program", "text", "number", "rule"),
    [
        ("shared_and_local", "gl.barrier()", 0, ThreadRace),
        ("copied_ahead", "gl.async_copy_wait_all()", 0, ReadInFlight),
        ("copied_ahead", "gl.barrier()", 1, ThreadRace),
        ("copied_ahead", "gl.barrier()", 2, ThreadRace),
        ("copied_by_a_block", "gl.barrier()", 3, ThreadRace),
    ],
)
def test_every_barrier_and_wait_is_needed(tmp_path, monkeypatch, program, text, number, rule):
    names = without(tmp_path, monkeypatch, "layout_tensor", text, number)
    with pytest.raises(rule):
        names[program](twin.load("workbench").Place(gpu=False))


@pytest.mark.parametrize(("text", "rule"), [("gl.barrier()", ThreadRace), ("gl.async_copy_wait_all()", ReadInFlight)])
def test_the_stencil_needs_both(tmp_path, monkeypatch, text, rule):
    run = without(tmp_path, monkeypatch, "thread_stencil", text, 0)["run_shared"]
    src = np.ones((40, 40), np.float32)
    with pytest.raises(rule):
        run(src, np.full_like(src, np.nan))
