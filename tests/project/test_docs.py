"""Every link in the documentation leads somewhere, and the names it gives to commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project import tree

PAGES = sorted([*tree.ROOT.glob("*.md"), *(tree.ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"(?<![!\\])\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def broken(page: Path, target: str) -> str:
    """What is wrong with a link; empty when nothing is."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{target}: no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=tree.name)
def test_links(page):
    text = CODE.sub("code", FENCE.sub("", page.read_text(encoding="utf-8")))
    targets = [link or image for link, image in LINK.findall(text)]
    wrong = [broken(page, t) for t in targets if not re.match(r"[a-z]+:", t)]
    assert not any(wrong), "\n".join(w for w in wrong if w)


@pytest.mark.parametrize("page", PAGES, ids=tree.name)
def test_make_targets_exist(page):
    known = set(re.findall(r"^([a-z-]+):", (tree.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^\s*|&& )make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= known


def test_navigation_lists_every_page():
    navigation = (tree.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [
        page.name
        for page in PAGES
        if page.is_relative_to(tree.ROOT / "docs") and page.relative_to(tree.ROOT / "docs").as_posix() not in navigation
    ]
    assert not missing
