"""The GPU benchmarks on the host: small CPU tensors, the simulator for both compilers, and a clock that counts."""

from __future__ import annotations

import json

import pytest

from benchmarks import clusters, copies, elementwise, launch, reductions, sweep, twin

pytestmark = pytest.mark.usefixtures("host")


class CountingClock:
    """Each call takes a millisecond."""

    def milliseconds(self, run):
        run()
        return 1.0


@pytest.fixture
def host(torch, monkeypatch):
    """`device="cuda"` means the host, arrays are small, and weft stands in for Gluon."""
    for name in ("randn", "empty", "zeros"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, original=original, device=None, **k: original(*a, **k))
    monkeypatch.setattr(copies, "NUMEL", 5000)
    monkeypatch.setattr(copies, "SIDE", 64)
    monkeypatch.setattr(reductions, "SIDE", 64)
    monkeypatch.setattr(elementwise, "SIDE", 64)
    monkeypatch.setattr(twin, "has_gluon", lambda: True)
    monkeypatch.setattr(twin, "load_gluon", twin.load)


def test_one_dimension():
    lines = copies.one_dimension(CountingClock(), 1, (1024,))
    assert [line.what for line in lines[:2]] == ["1D 8 GiB, best of all", "1D 8 GiB, XBLOCK=2048 R=1"]
    assert len(lines) == 1 + 5 + 5
    assert all(line.ours == line.peers["gluon"] == pytest.approx(40_000 / 1e9) for line in lines)


def test_machine_code():
    lines = copies.machine_code()
    assert [line.ours for line in lines] == [32, 64, 128, 128, 128]
    assert lines[3].note == "LDG.128 x4, STG.128 x4"
    assert {line.verdict for line in lines} == {"pass"}


def test_two_dimensions():
    lines = copies.two_dimensions(CountingClock(), 1)
    assert [list(line.peers) for line in lines] == [["gluon", "torch"]] * 3
    assert all(line.ours for line in lines)


def test_opposite():
    lines = copies.opposite(CountingClock(), 1)
    assert len(lines) == 4
    assert all(line.ours for line in lines)
    assert [len(line.goals) for line in lines] == [1, 0, 0, 0]


def test_reductions():
    lines = [*reductions.row_sum(CountingClock(), 1, [(4, 1, 128, 1)]), *reductions.softmax(CountingClock(), 1, {})]
    assert len(lines) == 2 + 4
    assert all(line.ours and line.peers["torch"] for line in lines)
    assert sum(bool(line.goals) for line in lines) == 2


def test_clusters(monkeypatch):
    monkeypatch.setattr(clusters.harness, "CudaClock", CountingClock)
    monkeypatch.setattr(clusters, "BYTES", 1 << 14)
    monkeypatch.setattr(clusters, "ROUNDS", 2)
    monkeypatch.setattr(clusters, "SIZES", (("float32", 1024, ((4, 1),)), ("bfloat16", 512, ((2, 1),))))
    lines = clusters.rows(quick=True)
    assert [line.what.partition(", ")[2] for line in lines] == [
        "1 blocks of 4 warps, chosen", "4 blocks of 1 warps", "1 blocks of 4 warps, chosen", "2 blocks of 1 warps",
    ]  # fmt: skip
    assert all(line.ours and line.peers["torch"] for line in lines)
    assert [line.verdict for line in lines] == ["pass", "pass", "pass", ""]
    assert all(line.ours == 0 and set(line.peers) == {"relaxed", "block"} for line in clusters.barriers(quick=True))


def test_elementwise():
    found = elementwise.race(CountingClock(), 1, elementwise.POINTS)
    assert list(found) == ["torch", *elementwise.POINTS]
    speed = pytest.approx(3 * 64 * 64 * 4 / 1e9)
    assert all(found[case] == {"weft": speed, "gluon": speed} for case in elementwise.POINTS)


def test_elementwise_lines(monkeypatch):
    monkeypatch.setattr(elementwise.harness, "CudaClock", CountingClock)
    monkeypatch.setattr(elementwise, "POINTS", {"plain": elementwise.POINTS["plain"]})
    best, plain = elementwise.run(quick=True)
    assert best.what == "add 3 x 4 GiB, best of all"
    assert [str(goal) for goal in best.goals] == [">= 0.95 x torch"]
    assert [str(goal) for goal in plain.goals] == [">= 1.03 x gluon"]
    assert list(plain.peers) == ["gluon"]


def test_sweep(monkeypatch):
    monkeypatch.setattr(reductions.harness, "CudaClock", CountingClock)
    monkeypatch.setattr(
        reductions,
        "sweep_points",
        lambda: ([(4, 1, 128, 1)], {"plain": [{"num_warps": 1}, {"num_warps": 2, "VEC": 8}]}),
    )
    point = ("add_tma", "run", {"num_buffers": 1})
    monkeypatch.setattr(elementwise, "sweep_points", lambda: {"bands num_buffers=1": point})
    names = [line.what for line in sweep.run(quick=True)]
    assert "add, bands num_buffers=1" in names
    assert "softmax, plain num_warps=2 VEC=8" in names
    assert all(line.ours for line in sweep.run(quick=True))


def test_launch(torch):
    src = torch.randn(launch.NUMEL)
    dst = torch.full_like(src, float("nan"))
    launch.whole_launch(twin.load("copy_1d"), src, dst)()
    assert torch.equal(src, dst)


def test_launch_with_descriptors(torch):
    a, b = torch.randn(launch.TILE), torch.randn(launch.TILE)
    c = torch.full_like(a, float("nan"))
    launch.descriptor_launch(twin.load("add_tma"), a, b, c)()
    assert torch.equal(c, a + b)


def test_first_calls_of_one_process(torch, monkeypatch, capsys):
    from benchmarks import compile_child
    from weft.runtime import driver, nvrtc

    for module, function in ((nvrtc, "compile_cuda"), (driver, "load")):
        monkeypatch.setattr(module, function, getattr(module, function))  # put back what the child wraps
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(compile_child, "SIDE", 256)
    compile_child.main("weft")
    found = json.loads(capsys.readouterr().out)
    assert [len(found[key]) for key in ("first", "later", "product")] == [1, 4, 1]
    assert all(set(call["parts"]) == {"NVRTC", "load", "rest"} for call in found["later"])
    assert all(call["ms"] == pytest.approx(sum(call["parts"].values())) for call in found["later"])
