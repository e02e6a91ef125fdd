"""Examples in docstrings say what really happens."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.project import tree

FILES = [p for p in tree.python_files("weft") if ">>> " in p.read_text(encoding="utf-8") and p.stem != "__main__"]


@pytest.mark.parametrize("path", FILES, ids=tree.name)
def test_examples(path):
    module = importlib.import_module(tree.module_of(path))
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0
