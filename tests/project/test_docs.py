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


def test_architecture_names_every_folder():
    text = (tree.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    missing = [
        f"{folder.name}/{inner.name}/" if folder != tree.PACKAGE else f"{inner.name}/"
        for folder in (tree.PACKAGE, *(path for path in tree.PACKAGE.iterdir() if f"{path.name}/" in rows))
        for inner in sorted(folder.iterdir())
        if any(inner.glob("*.py"))
        and f"`{inner.name}/`" not in (text if folder == tree.PACKAGE else rows[f"{folder.name}/"])
    ]
    assert not missing, f"docs/architecture.md names no {', '.join(missing)}"


def test_files_that_the_guide_names_exist():
    """But for the placeholders of recipes: `F`, `NAME`, `XX` and `*`."""
    guide = (tree.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:weft|tests|docs)/[\w./]+)`", guide))
    missing = sorted(
        path for path in paths if not re.search(r"\bF\.py|NAME|XX", path) and not (tree.ROOT / path).exists()
    )
    assert len(paths) > 20
    assert not missing, f"CONTRIBUTING.md names {', '.join(missing)}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_lines_wrap(page):
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), (tree.ROOT / page).read_text(encoding="utf-8"))
    long = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > 132 and not line.startswith("|")]
    assert not long, f"{page}: lines {long} are longer than 132 characters"


def test_navigation_lists_every_page():
    navigation = (tree.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [
        page.name
        for page in PAGES
        if page.is_relative_to(tree.ROOT / "docs") and page.relative_to(tree.ROOT / "docs").as_posix() not in navigation
    ]
    assert not missing
