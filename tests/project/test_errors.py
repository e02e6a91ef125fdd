"""The catalogue of user errors: complete, well formed, each row tested."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

from tests.project import tree
from weft import errors
from weft.errors import CATALOGUE

for module in pkgutil.iter_modules(errors.__path__):
    importlib.import_module(f"weft.errors.{module.name}")

QUOTED = {
    word
    for path in tree.python_files("tests")
    if path.parent != tree.ROOT / "tests" / "project"
    for word in re.findall(r"""["']([a-z0-9-]+)["']""", path.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: row.code)
def test_row(row):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", row.code), "codes are kebab-case: family, then mistake"
    assert len(row.message) > 15
    assert not row.message.endswith("."), "messages and fixes are clauses; the report joins them"
    assert row.fix, "a user error says what to write instead"


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: row.code)
def test_row_has_a_test(row):
    assert row.code in QUOTED, f"no test expects {row.code!r}"


def test_codes_are_entered_once():
    with pytest.raises(ValueError, match="target-unknown"):
        errors.row("target-unknown", errors.LaunchError, "there are two of these", "enter one")
