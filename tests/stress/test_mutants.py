"""Mutated kernels compile or are refused in their line: no internal traceback, no hang."""

from __future__ import annotations

import collections
import os

import pytest

from tests.stress.mutants import launches, verdict

MUTANTS = 500
"""At scale 1; at scale 40 that is 20,000."""


@pytest.mark.stress
def test_mutants_compile_or_are_refused_in_their_line(scale, stress_report):
    subjects = launches()
    first = int(os.environ.get("WEFT_STRESS_SEED", "0"))
    wrong: dict[int, str] = {}
    for seed in range(first, first + MUTANTS * scale):
        found = verdict(subjects[seed % len(subjects)], seed)
        if found:
            wrong[seed] = found
    stress_report("mutated kernels", tried=MUTANTS * scale, wrong=len(wrong))
    kinds = collections.Counter(text.splitlines()[-1][:120] for text in wrong.values())
    shown = "\n".join(f"seed {seed}: {text}\n" for seed, text in list(wrong.items())[:20])
    assert not wrong, f"{kinds}\n{shown}"
