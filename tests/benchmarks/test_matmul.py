"""The benchmark of matrix products on the host: small CPU tensors, the simulator for both compilers, a clock that counts."""

from __future__ import annotations

import pytest

from benchmarks import harness, matmul, twin
from benchmarks.report import Goal, Line

pytestmark = pytest.mark.usefixtures("host")


class CountingClock:
    """Each call takes a millisecond."""

    def milliseconds(self, run):
        run()
        return 1.0


@pytest.fixture
def host(torch, monkeypatch):
    """`device="cuda"` means the host, matrices are small, and weft stands in for Gluon."""
    for name in ("randn", "empty", "ones"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, original=original, device=None, **k: original(*a, **k))
    for clock in ("CudaClock", "GraphClock"):
        monkeypatch.setattr(harness, clock, CountingClock)
    monkeypatch.setattr(harness, "WARM_UP", 0)
    small = {"SIDE": 64, "LENGTHS": (128,), "LONGEST": 128, "GROUPS": (2,), "BUFFERS": ((64, 3),)}
    for name, value in small.items():
        monkeypatch.setattr(matmul, name, value)
    monkeypatch.setattr(twin, "has_gluon", lambda: True)
    monkeypatch.setattr(twin, "load_gluon", twin.load)
    rounds = harness.measure
    monkeypatch.setattr(harness, "measure", lambda variants, clock, count: rounds(variants, clock, 1))


def test_ladder():
    lines = matmul.ladder(quick=True)
    assert [line.what for line in lines[:3]] == [
        "K=128, pipelined",
        "K=128, persistent",
        "K=128, persistent, pipelined",
    ]
    assert len(lines) == 2 * 3
    speed = pytest.approx(2 * 64 * 64 * 128 / 1e9)
    assert all(line.ours == line.peers["gluon"] == line.peers["cuBLAS"] == speed for line in lines)
    assert {(line.verdict, line.unit) for line in lines} == {("pass", "TFLOP/s")}


def test_settings():
    lines = matmul.settings(quick=True)
    assert len(lines) == 2 * (2 + 1 + 2)
    assert all(line.ours and set(line.peers) == {"gluon", "cuBLAS"} for line in lines)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_library(dtype):
    lines = matmul.library(dtype, quick=True)
    assert [line.what for line in lines[:3]] == [
        "geometric mean of ratios to cuBLAS",
        "geometric mean of ratios to cuBLAS, graph",
        "K=128, best",
    ]
    assert all(line.ours for line in lines)
    assert len(lines) == 2 + 2 + 2 * 9


def test_sweep(monkeypatch):
    monkeypatch.setattr(matmul, "SWEEP", ((64, 64, 64), (1, 72, 72), (51, 27, 49)))
    lines = matmul.sweep(quick=False)
    assert len(lines) == 2 + 2 * 3
    assert all(line.ours for line in lines)
    assert all(line.note for line in lines)


def test_a_kernel_that_is_wrong_has_no_figure(torch, capsys):
    A, B, C = matmul.matrices(64, 64, 64, "float16")
    jobs = {"|cuBLAS": lambda: matmul.cublas(A, B, C), "nothing|weft": lambda: None, "raises|weft": lambda: 1 // 0}
    lines = matmul.table("small", jobs, 2 * 64**3, True, matmul.outcome(A, B, C), (Goal(1.0, "cuBLAS"),))
    assert [(line.ours, line.verdict) for line in lines] == [(None, "FAIL")] * 4
    printed = capsys.readouterr().err
    assert "small, nothing|weft: not measured: WrongResultError" in printed
    assert "small, raises|weft: not measured: ZeroDivisionError" in printed


def test_the_best_of_each_product_and_the_mean_of_their_ratios():
    def line(what, ours):
        return Line(what, ours, "TFLOP/s", {"cuBLAS": 600.0})

    lines = [line("K=1, a", 300.0), line("K=1, b", 1200.0), line("K=2, a", None), line("K=2, b", 300.0)]
    mean, graph, one, two = matmul.best_lines(lines, 1.0, 0.9)
    assert (one.what, one.ours, one.note, one.verdict) == ("K=1, best", 1200.0, "b", "pass")
    assert (two.what, two.ours, two.verdict) == ("K=2, best", 300.0, "FAIL")
    assert (mean.ours, mean.verdict) == (pytest.approx(1.0), "pass")
    assert (graph.ours, graph.verdict) == (None, "FAIL")


def test_a_mean_of_some_figures_is_none():
    lines = [Line(name, ours, "TFLOP/s", {"cuBLAS": 1.0}) for name, ours in (("x", 2.0), ("y", None))]
    assert matmul.means(lines, 1.0)[0].ours is None


def test_fp8():
    lines = matmul.fp8(quick=True)
    assert all(line.ours for line in lines if line.what.startswith("fp8"))
    assert "fp8 64^3, chosen" in {line.what for line in lines}
