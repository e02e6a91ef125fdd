"""The command: what needs no GPU runs and is recorded, the rest says why not."""

from __future__ import annotations

import json

import pytest

from benchmarks import front, report, run, sim
from tests.conftest import missing_gpu


def test_what_needs_a_gpu_is_left_out(tmp_path, capsys):
    if not missing_gpu():
        pytest.skip("there is a GPU here")
    assert run.main(["launch", "copies", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err.count("needs a GPU") == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["copes", "matmul.sweeps", "sim.all"])
def test_an_unknown_name_is_refused(name, capsys):
    with pytest.raises(SystemExit):
        run.main([name])
    assert f"no benchmark is called {name}" in capsys.readouterr().err


def test_parts_are_recorded_apart_and_fail_apart(tmp_path, capsys, monkeypatch):
    line = report.Line("product", 600.0, "TFLOP/s")
    monkeypatch.setattr(
        sim, "PARTS", {"good": ("Good", lambda quick: [line]), "bad": ("Bad", lambda quick: 1 // 0)}, False
    )
    assert run.main(["sim", "--out", str(tmp_path)]) == 1
    assert "sim-bad: failed" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"sim-good.json", "sim-good.md"}
    assert run.main(["sim.good", "--out", str(tmp_path / "part")]) == 0
    assert len(list((tmp_path / "part").iterdir())) == 2


def test_results_are_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        sim, "run", lambda quick: [report.Line("copy", 1.0, "s", {}, (report.Goal(2.0, ceiling=True),))]
    )
    assert run.main(["sim", "--quick", "--out", str(tmp_path)]) == 0
    assert "pass" in capsys.readouterr().out
    assert json.loads((tmp_path / "sim.json").read_text(encoding="utf-8"))["lines"][0]["verdict"] == "pass"


def test_simulator_figures(monkeypatch):
    monkeypatch.setattr(sim, "SHAPES", ((70, 200), (100, 120)))
    monkeypatch.setattr(sim, "PRODUCT_SHAPES", ((40, 72, 80),))
    lines = sim.run(quick=True)
    assert len(lines) == 5 + 2 + 1
    assert all(line.note.endswith("programs") and line.ours > 0 for line in lines)


@pytest.mark.parametrize(("name", "point"), sim.PIPELINES)
def test_pipelines_are_timed_with_and_without_the_search(name, point):
    line = sim.pipeline(name, point, 70, 200)
    assert line.peers["unchecked"] > 0
    assert [str(goal) for goal in line.goals] == ["<= 10", "<= 3 x unchecked"]


def test_front_half_figures():
    stages, operations = front.stages(1)
    assert operations >= front.OPERATIONS
    assert list(stages) == ["read", "tile passes", "lowering", "CUDA text"]
    assert all(milliseconds > 0 for milliseconds in stages.values())
