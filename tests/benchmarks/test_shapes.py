"""The benchmark of random shapes on the host: what is drawn, what is timed, and how figures are summarised."""

from __future__ import annotations

import statistics

import pytest

from benchmarks import shapes
from benchmarks.report import Goal
from benchmarks.shapes import CUBLAS, Record, Shape
from weft.kernels import chosen_config, matmul


def test_equal_seeds_draw_equal_shapes_and_longer_lists_extend_shorter_ones():
    assert shapes.draw(5, 40) == shapes.draw(5, 60)[:40]
    assert shapes.draw(5, 40) != shapes.draw(6, 40)


def test_every_class_of_shape_is_drawn():
    found = shapes.draw(3, 300)
    kinds = {shape.kind for shape in found}
    assert len(kinds) == 4
    assert {shape.dtype for shape in found} == set(shapes.DTYPES)
    assert all(shape.nbytes <= shapes.LARGEST_BYTES for shape in found)


def test_fp8_is_drawn_as_cublas_can_multiply_it():
    for shape in shapes.draw(4, 60, ("float8_e4m3fn",)):
        assert shape.b_turned and not shape.a_turned and shape.K % 16 == 0 and shape.N % 16 == 0


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (Shape(1000, 3000, 5000), "aligned, 132 tiles and more"),
        (Shape(1000, 3000, 5001), "not aligned to 16 bytes"),
        (Shape(1000, 3000, 5001, a_turned=True), "aligned, 132 tiles and more"),
        (Shape(1000, 3000, 5000, b_turned=True, b_pad=1), "not aligned to 16 bytes"),
        (Shape(1000, 3001, 5000), "not aligned to 16 bytes"),
        (Shape(64, 4096, 4096), "aligned, M or N <= 64"),
        (Shape(128, 4096, 4096), "aligned, fewer than 132 tiles of 128x128"),
    ],
)
def test_kind(shape, kind):
    assert shape.kind == kind


def test_operands_have_the_strides_of_the_shape(torch, monkeypatch):
    for name in ("randn", "empty", "ones"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, original=original, device=None, **k: original(*a, **k))
    A, B, C = shapes.operands(Shape(24, 40, 16, a_turned=True, a_pad=8, b_pad=1), 3)
    assert [len(x) for x in (A, B, C)] == [3, 3, 3]
    assert (A[1].shape, A[1].stride()) == ((24, 16), (1, 32))
    assert (B[2].shape, B[2].stride()) == ((16, 40), (41, 1))
    configs = shapes.configurations(A[0], B[0], C[0], 2)
    assert len(configs) == 3 and configs["weft"] == chosen_config(A[0], B[0], C[0])
    want = A[0].float() @ B[0].float()
    for config in configs.values():
        C[0].fill_(float("nan"))
        matmul(A[0], B[0], C[0], config=config)
        assert shapes._correct(C[0], want)
    C[0][3, 5] = float("nan")
    assert not shapes._correct(C[0], want)


def test_summary():
    times = {"a": (2.0, 1.0, 0.5), "b": (1.0, 1.0, 1.0), "c": (0.9, 1.0, 1.0)}
    records = [
        Record(Shape(128 + i, 128, 128), "", {CUBLAS: theirs, "weft": ours, "other": best})
        for i, (theirs, ours, best) in enumerate(times.values())
    ]
    lines = {line.what: line for line in shapes.lines_of(records)}
    assert lines["cuBLAS / weft, all, geometric mean"].ours == pytest.approx(statistics.geometric_mean([2.0, 1.0, 0.9]))
    worst = lines["cuBLAS / weft, aligned, worst"]
    assert (worst.ours, worst.goals, worst.verdict, worst.note[:11]) == (0.9, (Goal(0.9),), "pass", "130x128x128")
    assert lines["regret, all, worst"].ours == 2.0


def test_a_contestant_without_a_figure_is_listed():
    lines = shapes.lines_of([Record(Shape(8, 8, 8), "", {CUBLAS: 1.0}, wrong=["weft"])])
    assert [line.what for line in lines] == ["8x8x8 float16 NN: weft"]
