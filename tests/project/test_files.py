"""What every file of the project keeps to: length, words, goldens that a test owns."""

from __future__ import annotations

import re

import pytest

from tests.project import tree

LIMIT = 700
# Files over the limit, each with the reason why it reads better whole.
LONG = {"weft/errors/hazard.py": "a table: one class and its rows for each hazard of a run"}
# Written apart, so that this file does not find itself.
FORBIDDEN = {
    "a machine's path": re.compile(r"(?<![\w.])/(?:work|root|home)/\w"),
    "a note to self": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b"),
    "a licence header": re.compile(r"SPDX-" + r"License|Copyright" + r" \(c\)"),
    "a generated-by line": re.compile(
        r"(?i)\b(?:generated|written|assisted) (?:by|with) (?:an? )?(?:ai|llm|claude|gpt|copilot)\b"
    ),
}
# Each run of the suite tries the same; `make stress` tries others.
CHANCE = re.compile(r"\b(?:default_rng|Random|RandomState)\(" + r"\)|\b(?:uuid4|urandom)\(")
FILES = tree.python_files("weft", "tests", "examples", "benchmarks")


@pytest.mark.parametrize("path", FILES, ids=tree.name)
def test_length(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LIMIT or tree.name(path) in LONG, (
        f"{tree.name(path)} has {lines} lines; split it, or say in LONG why not"
    )


def test_the_list_of_long_files_is_current():
    for path, reason in LONG.items():
        assert len((tree.ROOT / path).read_text(encoding="utf-8").splitlines()) > LIMIT, f"{path} is short by now"
        assert len(reason) > 20


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_words(kind):
    texts = {p: p.read_text(encoding="utf-8") for p in tree.text_files() if p.name != "LICENSE"}
    found = [
        f"{tree.name(path)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in texts.items()
        for match in FORBIDDEN[kind].finditer(text)
    ]
    assert not found, f"{kind} in\n" + "\n".join(found)


def test_no_test_draws_lots():
    texts = {path: path.read_text(encoding="utf-8") for path in tree.python_files("tests")}
    assert [tree.name(path) for path, text in texts.items() if CHANCE.search(text)] == [], "generators without a seed"


@pytest.mark.parametrize("path", tree.python_files("weft"), ids=tree.name)
def test_every_module_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.startswith(('"""', 'r"""')), f"{tree.name(path)} has no docstring"


def test_every_golden_belongs_to_a_test():
    golden = tree.ROOT / "tests" / "golden"
    orphans = []
    for path in sorted(p for p in golden.rglob("*") if p.is_file()):
        owner = tree.ROOT / "tests" / path.parent.relative_to(golden).with_suffix(".py")
        test = re.match(r"\w+", path.name)
        if not owner.exists() or not test or f"def {test[0]}(" not in owner.read_text(encoding="utf-8"):
            orphans.append(tree.name(path))
    assert not orphans, "no test compares with\n" + "\n".join(orphans)
