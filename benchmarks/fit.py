"""Fits the rates of the model that chooses a matmul's configuration to the records of `benchmarks/shapes.py`.

    python benchmarks/shapes.py --seed 21 --candidates 6 --out FOLDER     # on the GPU
    python benchmarks/fit.py FOLDER/shapes.jsonl [--judge OTHER/shapes.jsonl]

It minimises the logarithmic residuals of all timed configurations with a robust loss, prints the rates for
`weft.kernels.machines`, and the regret that choices by them would have had: the time of the configuration that the model ranks
first over that of the fastest one, among those that were timed. Judge it on records of another seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.matmul import CUBLAS  # noqa: E402 - found through the path above, also when this file is the script
from benchmarks.shapes import Shape  # noqa: E402
from weft.kernels import MatmulConfig, multiply  # noqa: E402
from weft.kernels.machines import HOPPER, Rates  # noqa: E402
from weft.kernels.model import Problem, Traits, cost, cycles  # noqa: E402
from weft.kernels.operands import Matrix  # noqa: E402
from weft.runtime.arguments import HOST  # noqa: E402

FITTED = (
    "products", "memory", "port", "cache", "sectors", "unaligned", "outside", "latency", "step", "joined", "tile", "stored",
    "launch", "copied", "sent", "meeting", "tail", "blend",
)  # fmt: skip
"""The rates that are fitted."""
START = 4000.0
"""The first guess of the cycles of an empty launch, which are fitted too; no choice depends on them."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A configuration on a problem, and the cycles that it took."""

    problem: Problem
    config: MatmulConfig
    cycles: float


def problem_of(shape: Shape) -> Problem:
    """The problem of a shape whose operands begin at aligned addresses."""
    (a_pitch, b_pitch), (M, N, K) = shape.pitches, (shape.M, shape.N, shape.K)
    a = Matrix(shape.dtype, (M, K), (1, a_pitch) if shape.a_turned else (a_pitch, 1), 0, HOST)
    b = Matrix(shape.dtype, (K, N), (1, b_pitch) if shape.b_turned else (b_pitch, 1), 0, HOST)
    return multiply.problem_of(a, b, "bfloat16" if shape.itemsize == 1 else shape.dtype)


def load(file: Path) -> list[list[Timed]]:
    """The timed configurations of each shape."""
    found: list[list[Timed]] = []
    for text in file.read_text(encoding="utf-8").splitlines():
        record: dict[str, Any] = json.loads(text)
        problem = problem_of(Shape(**record["shape"]))
        hertz = (record["clock"] or 1755.0) * 1e6
        found.append([
            Timed(problem, MatmulConfig(**record["configs"][name]), ms * 1e-3 * hertz)
            for name, ms in record["milliseconds"].items()
            if name != CUBLAS
        ])  # fmt: skip
    return found


def with_rates(problem: Problem, rates: Rates) -> Problem:
    """The problem on a machine with other rates."""
    return replace(problem, machine=replace(problem.machine, rates=rates))


@dataclass(frozen=True, slots=True)
class Alike:
    """Timed configurations of a shape in one orientation, as the model takes them: columns of their traits and cycles."""

    seen: Problem
    traits: Traits
    cycles: Any

    @staticmethod
    def of(shapes: Sequence[Sequence[Timed]]) -> list[Alike]:
        """All configurations of some shapes."""
        found: list[Alike] = []
        for members in shapes:
            for swap in (False, True):
                each = [timed for timed in members if timed.config.swap == swap]
                if each:
                    seen = each[0].problem.seen_by(each[0].config)
                    sizes = (seen.itemsize, seen.out_itemsize, seen.b_rows)
                    traits = Traits.stacked([Traits.of(timed.config, *sizes) for timed in each])
                    found.append(Alike(seen, traits, np.array([timed.cycles for timed in each])))
        return found


def residuals(point: Sequence[float], every: Sequence[Alike]) -> Any:
    """Logarithms of modelled over measured cycles. A point is the logarithm of START and of the fitted rates."""
    start, rates = exp(point[0]), rates_at(point)
    modelled = [cycles(with_rates(alike.seen, rates), alike.traits).total + start for alike in every]
    return np.concatenate([np.log(x / alike.cycles) for x, alike in zip(modelled, every, strict=True)])


def rates_at(point: Sequence[float]) -> Rates:
    """The rates of a point."""
    return replace(HOPPER.rates, **{name: exp(value) for name, value in zip(FITTED, point[1:], strict=True)})


def regrets(shapes: Sequence[Sequence[Timed]], rates: Rates) -> list[float]:
    """The regret of the model's first choice, for each shape."""
    found: list[float] = []
    for members in shapes:
        chosen = min(members, key=lambda timed: cost(with_rates(timed.problem, rates), timed.config))
        found.append(chosen.cycles / min(timed.cycles for timed in members))
    return found


def said(name: str, values: Sequence[float]) -> str:
    """A distribution in a line."""
    ordered = sorted(values)
    return (
        f"{name}: geometric mean {statistics.geometric_mean(values):.3f}, median {statistics.median(values):.3f}, "
        f"90th percentile {ordered[int(0.9 * len(ordered))]:.3f}, worst {ordered[-1]:.3f} of {len(values)}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    from scipy.optimize import least_squares

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--judge", type=Path, nargs="+", default=[])
    given = parser.parse_args(argv)
    shapes = [members for file in given.records for members in load(file)]
    begin = [log(START), *(log(max(getattr(HOPPER.rates, name), 1e-2)) for name in FITTED)]
    bounds = ([value - log(6) for value in begin], [value + log(6) for value in begin])
    found = least_squares(
        residuals, begin, args=(Alike.of(shapes),), bounds=bounds, loss="soft_l1", f_scale=0.1, diff_step=1e-3
    )
    rates = rates_at(found.x)
    print(f"start {exp(found.x[0]):.0f}", *(f"{name}={getattr(rates, name):.4g}" for name in FITTED))
    for name, files in (("fitted", given.records), ("judged", given.judge)):
        members = [record for file in files for record in load(file)]
        if members:
            for which, tried in (("before", HOPPER.rates), ("after", rates)):
                print(said(f"{name}, regret {which}", regrets(members, tried)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
