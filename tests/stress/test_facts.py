"""More of the random expressions by which the facts of values are judged."""

from __future__ import annotations

from tests.analysis.test_expressions import judged

TRIED = 4_000


def test_facts_of_random_expressions(scale, stress_report):
    axes, wide, lost = judged(2, TRIED * scale)
    stress_report("facts of random expressions", tried=TRIED * scale, wrong=0)
    stress_report("axes that allow several elements", tried=wide, wrong=lost.total())
    assert lost.total() <= 0.05 * axes, lost
