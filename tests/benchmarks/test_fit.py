"""The fit of the model's rates: records are read as problems, and rates that made the times are found again."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks import fit, shapes
from weft.kernels.heuristic import ranked
from weft.kernels.machines import HOPPER
from weft.kernels.model import cost


@pytest.fixture
def records(tmp_path):
    """A file of records whose times are those of the model with other rates, at 1 GHz."""
    rates = replace(HOPPER.rates, cache=40.0, launch=9000)
    with (tmp_path / "shapes.jsonl").open("w") as file:
        for shape in shapes.draw(2, 24):
            problem = fit.problem_of(shape)
            configs = {str(i): config for i, config in enumerate(ranked(problem, 6))}
            ms = {name: (cost(fit.with_rates(problem, rates), c) + fit.START) / 1e6 for name, c in configs.items()}
            record = {"shape": asdict(shape), "milliseconds": ms | {"cuBLAS": 1.0}, "clock": 1000.0}
            file.write(json.dumps(record | {"configs": {name: asdict(c) for name, c in configs.items()}}) + "\n")
    return tmp_path / "shapes.jsonl", rates


def test_records_are_read(records):
    found = fit.load(records[0])
    assert len(found) == 24
    for members, shape in zip(found, shapes.draw(2, 24), strict=True):
        problem = members[0].problem
        assert (problem.m, problem.n, problem.k, problem.dtype) == (shape.M, shape.N, shape.K, shape.dtype)
        assert problem.described or not shape.aligned


def test_slow_strides_are_seen():
    assert fit.problem_of(shapes.Shape(1000, 3000, 5000)).slow_a
    assert fit.problem_of(shapes.Shape(1000, 3000, 5000, a_turned=True)).slow_a
    assert not fit.problem_of(shapes.Shape(1000, 3008, 5008)).slow_b


def test_true_rates_have_no_residual_and_no_regret(records):
    file, rates = records
    members = fit.load(file)
    point = [fit.log(fit.START), *(fit.log(max(getattr(rates, name), 1e-9)) for name in fit.FITTED)]
    assert max(map(abs, fit.residuals(point, fit.Alike.of(members)))) < 1e-6
    assert fit.regrets(members, rates) == pytest.approx([1.0] * len(members))


def test_the_fit_finds_them(records, capsys):
    pytest.importorskip("scipy")
    assert fit.main([str(records[0]), "--judge", str(records[0])]) == 0
    text = capsys.readouterr().out
    after = text.splitlines()[-1]
    assert after.startswith("judged, regret after: geometric mean 1.00")
