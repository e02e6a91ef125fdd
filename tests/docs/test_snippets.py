"""Every Python snippet of the documentation runs: the snippets of a page, in order, as one program."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PROGRAMS = {p.relative_to(ROOT).as_posix(): SNIPPET.findall(p.read_text(encoding="utf-8")) for p in PAGES}


def needs(snippets):
    """PyTorch is installed for its own run of the tests."""
    return (
        [pytest.mark.torch] if any(re.search(r"^import torch$", snippet, re.MULTILINE) for snippet in snippets) else []
    )


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=needs(snippets)) for page, snippets in PROGRAMS.items() if snippets]
)
def test_snippets_run(page, tmp_path, monkeypatch):
    # A kernel is read from its file, so the program needs one; what it writes stays out of the checkout.
    monkeypatch.chdir(tmp_path)
    program = tmp_path / f"{Path(page).stem}.py"
    program.write_text("\n\n".join(PROGRAMS[page]), encoding="utf-8")
    names = runpy.run_path(str(program))
    assert names, f"{page} has snippets that define nothing"


def test_the_first_page_has_a_kernel():
    assert any("@weft.jit" in snippet for snippet in PROGRAMS["docs/index.md"])
