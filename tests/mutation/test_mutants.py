"""The measure of the hazard checker: every mutant of every kernel against a verdict that was written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.cases import CASES
from tests.mutation.harness import HARMLESS, WAYS, Launch, Mutant, Table, mutants, read_table, recorded, skeleton
from weft.errors import hazard
from weft.ir.core import walk
from weft.ir.verify import verify
from weft.ops import tma

VERDICTS = Path(__file__).parent / "verdicts"
MOVED = ("before ", "after ")


LARGE = ("blackwell_clc_pairs", "blackwell_static_pairs")
SOME = [pytest.param(name, marks=pytest.mark.matrix) if name in LARGE else name for name in CASES]


def launched(name: str) -> Launch:
    with recorded() as launches:
        CASES[name]()
    (launch,) = launches
    return launch


def table_of(name: str) -> Table:
    return read_table((VERDICTS / f"{name}.txt").read_text(encoding="utf-8"))


def in_turns(number: int) -> tuple[tuple[str, int], ...]:
    """One of the ways for each mutant, which takes a third of the time."""
    return (WAYS[number % len(WAYS)],)


def disagreements(launch: Launch, table: Table, found: list[Mutant], ways=lambda number: WAYS) -> list[str]:
    """Mutants of which the simulator says something else than the table, under any schedule of `ways`."""
    wrong: list[str] = []
    for number, mutant in enumerate(found):
        row = table[mutant.key]
        got = {f"{schedule} {seed}": launch.verdict(mutant.func, schedule, seed) for schedule, seed in ways(number)}
        if not set(got.values()) <= set(row.verdicts):
            wrong.append(f"{mutant.place}\n  {mutant.change}: {row} in the table, but {got}")
    return wrong


@pytest.mark.parametrize(
    "ways",
    [pytest.param(in_turns, id="in turns"), pytest.param(lambda number: WAYS, id="all", marks=pytest.mark.matrix)],
)
@pytest.mark.parametrize("name", SOME)
def test_the_checker_agrees_on_every_mutant(name, ways):
    launch, table = launched(name), table_of(name)
    found = mutants(launch.stages.tile)
    missing = [mutant for mutant in found if mutant.key not in table]
    assert not missing, f"no verdict on{skeleton(missing)}"
    assert list(table) == [mutant.key for mutant in found], "the table has rows of no mutant, or another order"
    wrong = disagreements(launch, table, found, ways)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SOME)
def test_both_stages_agree(name):
    """In lowered IR a place has other neighbours, since one access is several there, and barriers of the cluster are each
    partition's own; what else is changed means the same."""
    launch, table = launched(name), table_of(name)
    found = {mutant.key: mutant for mutant in mutants(launch.stages.lowered)}
    same = [key for key in table if not key[1].startswith(MOVED) and not key[0].startswith("cluster.")]
    assert not [key for key in same if key not in found]
    wrong = disagreements(launch, table, [found[key] for key in table if key in found], lambda number: WAYS[:1])
    assert not wrong, "\n".join(wrong)


def test_every_table_belongs_to_a_case_and_names_hazards():
    assert sorted(path.stem for path in VERDICTS.iterdir()) == sorted(CASES)
    rows = [row for name in CASES for row in table_of(name).values()]
    named = {verdict for row in rows for verdict in row.verdicts}
    assert all(verdict == HARMLESS or hasattr(hazard, verdict) for verdict in named), named
    assert len(rows) > 500
    assert len(named) > 15


# The harness itself


def test_a_wrong_verdict_is_noticed():
    launch, table = launched("transpose"), table_of("transpose")
    found = mutants(launch.stages.tile)
    wrong = dict.fromkeys(table, read_table("x\n  y: Deadlock, since nothing")["x", "y"])
    assert len(disagreements(launch, wrong, found)) == len(found)


def test_wrong_numbers_are_not_harmless():
    """Without its stores a kernel has no hazard either."""
    launch = launched("tma_copy")
    func = launch.stages.tile
    ops = tuple(op for op in func.body.ops if op.kind is not tma.store)
    silent = type(func)(func.name, type(func.body)(func.body.args, ops), func.attrs)
    assert launch.verdict(func) == HARMLESS
    assert launch.verdict(silent) == "wrong numbers, and no report"


@pytest.mark.parametrize(
    "text", ["  drop: harmless, since nothing", "a | b\n  drop harmless", "a\n  x: y, since z\n  x: y, since z"]
)
def test_a_table_of_another_form(text):
    with pytest.raises(ValueError, match="no row"):
        read_table(text)


def test_a_wait_that_is_dropped_hands_on_what_it_was_given():
    """And it is not moved past what uses its result, nor before the product that it is handed."""
    func = launched("products").stages.tile
    found = {mutant.key: mutant.func for mutant in mutants(func)}
    (place,) = {place for place, _ in found if place.startswith("mma.warpgroup_wait") and place.endswith("| 3")}
    assert {change for at, change in found if at == place} == {"drop", "pendings +1"}

    def kinds(func):
        return [op.kind for op in walk(func.body)]

    assert len(kinds(func)) == len(kinds(found[place, "drop"])) + 1
    verify(found[place, "drop"])
