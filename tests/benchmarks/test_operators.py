"""The benchmark of operators on CPU tensors: every way of calling gives the result, and each line has its goal."""

from __future__ import annotations

from benchmarks import launch, operators


def test_operators(torch, monkeypatch):
    monkeypatch.setattr(operators, "CALLS", 2)
    monkeypatch.setattr(
        launch, "times", lambda jobs, rounds, wait: {name: float(job() is None) for name, job in jobs.items()}
    )
    idle = operators.noop(quick=True)
    assert [list(line.peers) for line in idle] == [["custom_op", "Library.impl", "function"]] * 2
    lines = operators.lines("cpu", 1, lambda: None)
    assert [line.what for line in lines][:2] == ["returns a tensor", "writes to an argument"]
    assert [len(line.goals) for line in lines] == [1, 1, 0, 0, 0, 0, 0, 0]
    for function in operators.jobs("cpu", launches=True)["returns a tensor"].values():
        assert function().equal(torch.full((operators.NUMEL,), 2.0))
