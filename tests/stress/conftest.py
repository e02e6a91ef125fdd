"""What every stress test may ask for: how much to try, and a line of the final report.

@pytest.mark.stress
def test_damaged_files(scale, stress_report):
    for seed in range(200 * scale): ...
    stress_report("damaged cache files", tried=200 * scale, wrong=len(wrong))
    assert not wrong

Whatever stands in this folder is a stress test, marked or not: the suite leaves it out unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SECONDS = 300
"""What one test may take at scale 1."""
REPORTED = "stress"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress-scale", type=int, default=1, help="how many times as much the stress tests try")


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.stress)
            item.add_marker(pytest.mark.timeout(SECONDS * _scale(config)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    # The properties of a report travel from the workers of pytest-xdist to the process that prints.
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    lines = sorted(value for report in reports for name, value in report.user_properties if name == REPORTED)
    if lines:
        terminalreporter.section("stress: tried and wrong")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> int:
    """How many times as much as usual is tried: `--stress-scale 10`."""
    return _scale(request.config)


@pytest.fixture
def stress_report(request: pytest.FixtureRequest) -> Callable[[str, int, int], None]:
    """Report at the end of the run how many cases of a name were tried and how many were wrong."""

    def report(name: str, tried: int, wrong: int) -> None:
        request.node.user_properties.append((REPORTED, f"{name:<50} {tried:>8} tried {wrong:>6} wrong"))

    return report


def _scale(config: pytest.Config) -> int:
    return config.getoption("--stress-scale", default=1)
