"""The benchmark of epilogues on the host: small CPU tensors, the simulator, a clock that counts."""

from __future__ import annotations

import pytest

from benchmarks import epilogues, harness


class CountingClock:
    """Each call takes a millisecond."""

    def __init__(self, calls):
        assert calls > 0

    def milliseconds(self, run):
        run()
        return 1.0


@pytest.fixture(autouse=True)
def host(torch, monkeypatch):
    """`device="cuda"` means the host, and matrices are small."""
    for name in ("randn", "empty"):
        original = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, original=original, device=None, **k: original(*a, **k))
    monkeypatch.setattr(harness, "GraphClock", CountingClock)
    monkeypatch.setattr(harness, "WARM_UP", 0)
    rounds = harness.measure
    monkeypatch.setattr(harness, "measure", lambda variants, clock, count: rounds(variants, clock, 1))
    monkeypatch.setattr(epilogues, "SHAPES", ((64, 96, 64),))
    monkeypatch.setattr(epilogues, "MOST", {(64, 96, 64): 1.03})
    monkeypatch.setattr(epilogues, "GATED_SHAPES", ((64, 96, 64),))
    monkeypatch.setattr(epilogues, "VARIANTS", {name: epilogues.VARIANTS[name] for name in ("chosen", "ping pong")})


def test_layers():
    lines = epilogues.layers(quick=True)
    assert [line.what.rpartition(", ")[2] for line in lines] == ["chosen", "ping pong"] * 2
    assert all(line.ours == 1000 and set(line.peers) == {"plain", "torch"} for line in lines)
    assert [line.verdict for line in lines] == ["pass", "", "", ""]


def test_gated():
    lines = epilogues.gated(quick=True)
    assert [(line.ours, line.verdict) for line in lines] == [(1000, "pass"), (1000, "")]
