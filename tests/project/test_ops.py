"""The table of operations is complete: an operation without a rule of the simulator, lowering or CUDA is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import weft.cuda
import weft.cuda.emitter
import weft.sim
import weft.sim.rule
from tests.project import effects, tree
from weft import ops
from weft.analysis.facts import rules as facts
from weft.analysis.facts.rules.control import FLOW
from weft.analysis.facts.rules.program import PLACES
from weft.ir.core import OpDef, Value
from weft.ir.define import OPS
from weft.ir.types import DType, ScalarType, int1, int32
from weft.ops import arith, hints, warp
from weft.passes.lower import rules as lowering

LOWER = "lower_tiles"
PASSES = tree.PACKAGE / "passes"


def source(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))


SOURCES = source(PASSES)


def spellings() -> Iterator[tuple[str, OpDef]]:
    """`("arith.add", <op arith.add>)`: each operation by the Python name that code uses for it."""
    for family in ops.__all__:
        for name, value in vars(getattr(ops, family)).items():
            if isinstance(value, OpDef) and value.rule.__module__ == f"weft.ops.{family}":
                yield f"{family}.{name}", value


PYTHON_NAMES = {op: name for name, op in spellings()}
SIM = weft.sim.rule.RULES
CUDA = weft.cuda.emitter.RULES
each_op = pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)


def test_there_are_operations():
    assert len(OPS) > 50
    assert OPS.keys() == {op.name for op in PYTHON_NAMES}


def test_every_family_is_imported():
    """A family that `weft.ops` does not import would not be in the table at all."""
    files = {path.stem for path in (tree.PACKAGE / "ops").glob("*.py")} - {"__init__", "check"}
    assert files == set(ops.__all__)


RULE_FOLDERS = ("weft.sim.rules", "weft.cuda.rules", "weft.passes.lower.rules", "weft.analysis.facts.rules")


def homes(op: OpDef) -> Iterator[str]:
    """The modules that define an operation and its rules."""
    yield op.rule.__module__
    yield from (rules.module_of(op) for rules in (SIM, CUDA) if op in rules)
    yield from (family.__name__ for family in lowering.FAMILIES if op in family.RULES)
    yield from (family.__name__ for family in facts.FAMILIES if op in family.RULES or op in family.NOTHING)


@each_op
def test_prefix_is_the_file_of_the_operation_and_of_its_rules(op):
    """`tma.load` is defined in `ops/tma.py`; its rules are in the files, or folders, of the name `tma`."""
    prefix, found = op.family, list(homes(op))
    for folder in ("weft.ops", *RULE_FOLDERS):
        here = {home.removeprefix(f"{folder}.").partition(".")[0] for home in found if home.startswith(f"{folder}.")}
        assert here <= {prefix}, f"{op.name} has its place in {folder}.{prefix}, not in {sorted(here)}"
    assert len(found) == len(set(found)), f"{op.name} has two rules in one folder: {found}"
    assert all(home.startswith(("weft.ops.", *(f"{folder}." for folder in RULE_FOLDERS))) for home in found), found


@pytest.mark.parametrize("folder", RULE_FOLDERS)
def test_a_folder_of_rules_has_the_files_of_families_alone(folder):
    """What several families of rules share lies beside the folder."""
    names = {path.stem for path in (tree.ROOT / folder.replace(".", "/")).iterdir() if not path.stem.startswith("__")}
    assert names <= set(ops.__all__)


@each_op
def test_is_documented(op):
    assert len(op.doc) > 20
    assert op.doc[0].isupper() or not op.doc[0].isalpha()


@each_op
def test_declares_its_effects(op):
    known = {*op.operands, op.variadic}
    for effect in effects.possible(op):
        assert effect.operand is None or effect.operand in known, f"{effect.operand} is no operand of {op.name}"
        assert effect.kind != "write" or effect.space != "threads"
        assert effect.kind == "sync" or (effect.waits and not effect.pendings), f"{op.name} waits, and is no sync"
    if op.pure:
        assert not re.match(r"(?i)(store|write|atomic|print|wait)\b", op.doc), f"{op.name} reads as if it had an effect"


UNFOLDED = {
    arith.select: "`simplify` picks an operand",
    hints.uniform: "`simplify` drops what is said of a constant",
    hints.axes: "`simplify` drops what is said of a constant",
    warp.shuffle_xor: "threads exchange",
    warp.shuffle_idx: "threads exchange",
    warp.vote: "threads exchange",
}
"""Operations that give integers for integers and have no `fold`, with the reason."""


def numbers_from_numbers(op: OpDef) -> bool:
    """Whether an operation computes an integer from integers, and from nothing else."""
    if not (op.pure and op.operands) or op.variadic is not None:
        return False
    values = [[Value(ScalarType(element)) for element in (int1, int32)] for _ in op.operands]
    for attrs, operands in product(effects.attributes(op), product(*values)):
        with suppress(Exception):
            types = op.infer(operands, {**op.defaults, **attrs}, ())
            if all(isinstance(t, ScalarType) and isinstance(t.element, DType) and t.element.is_int() for t in types):
                return True
    return False


@each_op
def test_folds_constants(op):
    folds, number = op.fold is not None, numbers_from_numbers(op)
    assert (folds or op in UNFOLDED) == number, f"{op.name}: `fold` at its definition says what it makes of constants"
    assert not (folds and op in UNFOLDED)


@each_op
def test_updates_an_operand(op):
    assert op.updates is None or (op.updates in (*op.operands, op.variadic) and op.stage != "tile")


@each_op
def test_names_a_pass_that_exists(op):
    assert op.removed_by is None or f"def {op.removed_by}(" in SOURCES, f"passes/ has no function {op.removed_by}"


@each_op
def test_simulator_knows_it(op):
    """The simulator runs the IR that `lower` takes, so only what goes before needs no rule."""
    known = op in SIM or op.removed_by not in (None, LOWER)
    assert known, f"{op.name}: give it a @rule in weft/sim/rules/, in a module of FAMILIES of weft/sim/__init__.py"


@each_op
def test_cuda_knows_it_or_a_pass_removes_it(op):
    spelled, removed = op in CUDA, op.removed_by is not None
    assert spelled or removed, f"{op.name}: give it a rule in weft/cuda/rules/, or say removed_by= in its @op"
    assert not (spelled and removed), (
        f"{op.name}: {op.removed_by} removes it, so its rule in weft/cuda/rules/ never runs"
    )
    assert removed or op.stage != "tile", f"{op.name} is of tiles and never reaches CUDA: say removed_by= in its @op"


@each_op
def test_lowering_knows_it(op):
    if op.removed_by == LOWER:
        assert op in lowering.RULES, f"{op.name}: give it a row in RULES of weft/passes/lower/rules/{op.family}.py"


FACTS = {family.__name__.rpartition(".")[2]: family for family in facts.FAMILIES}
NO_NUMBERS = {
    "asm": "what the author's PTX computes",
    "async_copy": "no results",
    "clc": "what the hardware answers",
    "debug": "no results",
    "mbarrier": "no results",
    "mma": "floats",
    "nvshmem": "no results",
    "shared": "handles, and what memory held",
    "sync": "no results",
    "tcgen05": "no results",
    "tensor_memory": "handles, and what memory held",
    "thread": "handles, and what memory held",
    "tma": "descriptors",
}
"""Families of operations that compute no integers, with what their results are."""


@each_op
def test_facts_know_it(op):
    """An operation on integers has one rule, in the file of its family, or a reason why nothing is known of it."""
    family, _, _ = PYTHON_NAMES[op].partition(".")
    assert (family in FACTS) != (family in NO_NUMBERS), f"{family}: a file of rules, or a reason why it needs none"
    if family in NO_NUMBERS or op.rule.__annotations__["return"] == "None":
        return
    ways = [op in FACTS[family].RULES, op in FACTS[family].NOTHING, op in PLACES, op in FLOW]
    given = ways.count(True)
    assert given == 1, f"{op.name}: one row in RULES or NOTHING of weft/analysis/facts/rules/{family}.py, not {given}"


IN_GROUPS = ("arith.packed", "arith.packed_fma", "arith.unpack_int4")
"""Operations whose statements read all registers of a group before they write the result's."""


@each_op
def test_an_elementwise_operation_is_spelled_one_element_at_a_time(op):
    """A register of an operand may then be overwritten as soon as the result's register of the same number is computed."""
    if op.elementwise and op.name not in IN_GROUPS:
        assert op.pure and op in CUDA and CUDA[op].form in ("element", "reference"), (
            f"{op.name} writes statements of its own"
        )


@pytest.mark.parametrize("folder", ["passes", "analysis", "sim", "cuda"])
def test_no_operation_is_told_by_the_start_of_its_name(folder):
    """What a family has in common is a property or an effect of its definitions."""
    assert ".name.startswith(" not in source(tree.PACKAGE / folder)
