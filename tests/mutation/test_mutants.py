"""The measure of the hazard checker: every mutant of every kernel against a verdict that was written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.harness import HARMLESS, WAYS, mutants, read_table, recorded, skeleton
from tests.mutation.cases import CASES
from weft.errors import Hazard

VERDICTS = Path(__file__).parent / "verdicts"
CLASSES = {HARMLESS, *(kind.__name__ for kind in Hazard.__subclasses__()), "UninitializedRead"}


def launched(name: str):
    with recorded() as launches:
        CASES[name]()
    (launch,) = launches
    return launch


def table_of(name: str):
    return read_table((VERDICTS / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_every_mutant_has_a_verdict_and_the_checker_agrees(name):
    launch, table = launched(name), table_of(name)
    found = mutants(launch.stages.tile)
    keys = [(mutant.place, mutant.change) for mutant in found]
    missing = [mutant for mutant, key in zip(found, keys, strict=True) if key not in table]
    assert not missing, f"no verdict on{skeleton(missing)}"
    assert list(table) == keys, f"no mutant is {[row for row in table if row not in keys]}, or the order is another"
    wrong = []
    for mutant in found:
        row = table[mutant.place, mutant.change]
        got = {way: launch.verdict(mutant.func, *way) for way in WAYS}
        if not set(got.values()) <= set(row.verdicts):
            wrong.append(f"{mutant.place}\n  {mutant.change}: want {row}, got {got}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted(VERDICTS.iterdir()), ids=lambda path: path.stem)
def test_tables_name_kernels_and_hazards(path):
    assert path.stem in CASES
    assert {verdict for row in table_of(path.stem).values() for verdict in row.verdicts} <= CLASSES
