"""The benchmark of single threads: on the host with small CPU tensors and a clock that counts; its own figures small."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import harness, run, threads
from tests.conftest import missing_gpu


class CountingClock:
    """Each call takes a millisecond."""

    def milliseconds(self, run):
        run()
        return 1.0


@pytest.fixture
def small(torch, monkeypatch):
    """`device="cuda"` means the host, and arrays are small."""
    for name in ("randn", "empty"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, original=original, device=None, **k: original(*a, **k))
    for clock in ("CudaClock", "GraphClock"):
        monkeypatch.setattr(harness, clock, CountingClock)
    monkeypatch.setattr(harness, "WARM_UP", 0)
    rounds = harness.measure
    monkeypatch.setattr(harness, "measure", lambda variants, clock, count: rounds(variants, clock, 1))
    for name, value in {"SIDE": 72, "PRODUCT": 68, "NUMEL": 20_000}.items():
        monkeypatch.setattr(threads, name, value)
    return torch


@pytest.mark.usefixtures("small")
def test_transposes():
    best, *lines = threads.transpose(quick=True)
    assert [str(goal) for goal in best.goals] == [">= 0.95 x tile kernel"]
    assert best.verdict == "pass"
    assert len(lines) == 5 + len(threads.BLOCKS)
    speed = pytest.approx(2 * 72 * 72 * 4 / 1e9)
    assert all(line.ours == line.peers["tile kernel"] == line.peers["torch"] == speed for line in lines)


@pytest.mark.usefixtures("small")
def test_copies():
    best, *lines = threads.copy(quick=True)
    assert [str(goal) for goal in best.goals] == [">= 0.98 x tile kernel"]
    assert len(lines) == len(threads.COPIES)
    assert all(line.ours == pytest.approx(2 * 20_000 * 4 / 1e9) for line in lines)


def test_products(small):
    small.backends.cuda.matmul.allow_tf32 = True
    try:
        best, hot, *lines = threads.ladder(quick=True)
        assert small.backends.cuda.matmul.allow_tf32
    finally:
        small.backends.cuda.matmul.allow_tf32 = False
    assert (best.what, hot.what) == ("68^3, best", "68^3, best, graph")
    assert (best.verdict, hot.verdict) == ("pass", "pass")
    assert len(lines) == 2 * (5 + len(threads.TILES))
    assert all(line.ours == line.peers["cuBLAS"] for line in lines)


def test_a_product_that_is_wrong_has_no_figure(small, capsys, monkeypatch):
    kernels = threads.twin.load("thread_matmul")
    monkeypatch.setitem(kernels.RUNGS, "naive", lambda A, B, C: C.copy_(A @ B).add_(1e-2))
    lines = threads.ladder(quick=True)
    assert [line.ours for line in lines if line.what.startswith("68^3, naive")] == [None, None]
    assert "naive|weft: not measured: WrongResultError" in capsys.readouterr().err


def test_host_figures(monkeypatch):
    monkeypatch.setattr(threads, "ELEMENTS", 10**6)
    monkeypatch.setattr(threads, "COPIED", 64)
    lines = threads.host(quick=True)
    assert len(lines) == len(threads.PARTITIONS) + len(threads.HOST_COPIES)
    assert all(line.ours > 0 and line.peers for line in lines)


def test_host_copies_are_compared(monkeypatch):
    monkeypatch.setattr(threads, "COPIED", 64)
    dst, src, to, of = threads.rows_to_columns()
    with pytest.raises(AssertionError):
        threads.beside_numpy("wrong", threads.weft.LayoutTensor(np.zeros((64, 64), np.int8)), src, to, of, 1)
    threads.beside_numpy("right", dst, src, to, of, 1)
    np.testing.assert_array_equal(np.asarray(dst), of)


def test_simulator_figures():
    lines = threads.simulator(quick=True)
    assert [line.what for line in lines] == [
        "transpose 1024x1024, padded", "transpose 1024x1024, blocks in tiles",
        "product 256^3, shared", "product 256^3, double buffered",
    ]  # fmt: skip
    assert all(line.ours > 0 and line.note.endswith("programs") for line in lines)


def test_parts_that_need_a_gpu_are_left_out(tmp_path, capsys, monkeypatch):
    if not missing_gpu():
        pytest.skip("there is a GPU here")
    monkeypatch.setitem(threads.PARTS, "host", ("Views", lambda quick: []))
    monkeypatch.setitem(threads.PARTS, "simulator", ("Kernels", lambda quick: []))
    assert run.main(["threads", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err.count("needs a GPU") == 3
    assert {path.stem for path in tmp_path.iterdir()} == {"threads-host", "threads-simulator"}
