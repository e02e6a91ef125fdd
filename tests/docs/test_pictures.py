"""What the pages show as output is what their snippets print: the text blocks of a page, in order, are the whole of it.

Pictures that a page's snippets draw stand in the folder `pictures` beside it; --update-golden writes them there.
"""

from __future__ import annotations

import re
import runpy

import pytest

from tests.docs.test_snippets import needs
from tests.project import tree

SNIPPET = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
PAGES = [
    tree.ROOT / "README.md",
    tree.ROOT / "docs" / "architecture.md",
    *sorted((tree.ROOT / "docs" / "tutorial").glob("*.md")),
]


def marked(page):
    snippets = [code for code, _ in SNIPPET.findall(page.read_text(encoding="utf-8"))]
    return pytest.param(page, id=tree.name(page), marks=needs(snippets))


@pytest.mark.parametrize("page", [marked(page) for page in PAGES])
def test_output_is_what_the_page_shows(page, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    snippets = SNIPPET.findall(page.read_text(encoding="utf-8"))
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(code for code, _ in snippets), encoding="utf-8")
    runpy.run_path(str(program))
    assert capsys.readouterr().out == "".join(shown for _, shown in snippets)
    for drawn in tmp_path.glob("*.svg"):
        shown = page.parent / "pictures" / drawn.name
        if request.config.getoption("--update-golden"):
            shown.write_bytes(drawn.read_bytes())
        assert drawn.read_bytes() == shown.read_bytes(), f"{shown.name} is out of date; `make golden` draws it"


def test_every_picture_is_shown():
    pictures = tree.ROOT / "docs" / "tutorial" / "pictures"
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"\]\(pictures/([^)]*)\)", text)) == {picture.name for picture in pictures.iterdir()}
