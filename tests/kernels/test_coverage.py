"""Every public name of the language stands in a kernel here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft import language as gl

TEXTS = {path.name: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")}


@pytest.mark.parametrize("name", gl.__all__)
def test_name_is_used(name):
    assert any(re.search(rf"\bgl\.{name}\b", text) for file, text in TEXTS.items() if file != "test_coverage.py")
