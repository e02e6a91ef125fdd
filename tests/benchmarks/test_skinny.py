"""The benchmark of products of few rows: shares of the copy's rate, and their goals."""

from __future__ import annotations

import pytest

from benchmarks import shapes, skinny


@pytest.mark.parametrize(("n", "k", "bound"), [(1024, 1024, None), (8192, 8192, 0.88), (8192, 28672, 0.95)])
def test_goals_follow_the_weights(n, k, bound):
    shape = shapes.Shape(16, n, k, b_turned=True)
    milliseconds = shape.nbytes / 3e9
    line = skinny.line_of(shapes.Record(shape, "tile", {"cuBLAS": milliseconds, "weft": milliseconds}), 3.2)
    assert [goal.bound for goal in line.goals] == ([] if bound is None else [bound])
    assert line.ours == pytest.approx(3.0) == line.peers["cuBLAS"]
    assert line.verdict == {None: "", 0.88: "pass", 0.95: "FAIL"}[bound]
