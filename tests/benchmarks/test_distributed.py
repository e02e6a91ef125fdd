"""The benchmark of several GPUs, as far as a machine without them can run it."""

from __future__ import annotations

import pytest

from benchmarks import distributed


def test_it_says_how_to_run_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(SystemExit):
        distributed.main(["--quick"])
    assert "torchrun --nproc-per-node 2 benchmarks/distributed.py" in capsys.readouterr().err


def test_every_goal_is_of_a_size_that_is_measured():
    assert {size for _, size in distributed.GOALS} <= set(distributed.SIZES)
