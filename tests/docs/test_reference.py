"""The reference is complete: every public name stands on its page, and every name that a page shows exists."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import resolve_name

import pytest

import weft.torch
from tests.project import tree
from weft import language, layout, views
from weft.language.nvidia import ampere, blackwell, hopper

REFERENCE = tree.ROOT / "docs" / "reference"
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))}


@pytest.mark.parametrize(
    ("pages", "names"),
    [
        (["weft.md"], weft.__all__[1:]),
        (["language.md"], language.__all__),
        (["torch.md"], weft.torch.__all__),
        (["layout.md", "strided.md"], layout.__all__),
        (["views.md"], views.__all__),
        (["language.md"], ampere.__all__),
        (["language.md"], [*hopper.__all__, *hopper.mbarrier.__all__, *hopper.tma.__all__, *hopper.cluster.__all__]),
        (
            ["language.md"],
            [*blackwell.__all__, *blackwell.tma.__all__, *blackwell.clc.__all__, *blackwell.float2.__all__],
        ),
    ],
    ids=["weft", "weft.language", "weft.torch", "weft.layout", "weft.views", "ampere", "hopper", "blackwell"],
)
def test_every_public_name_is_on_its_page(pages, names):
    text = "\n".join(PAGES[page] for page in pages)
    shown = {path.rpartition(".")[2] for path in SHOWN.findall(text)}
    named = set(re.findall(r"`(?:\w+\.)*(\w+)`", text))
    assert [name for name in names if name not in shown | named] == []


def shown_by(path):
    """What a path names; where a module holds a class of its own name, the path goes through the module."""
    try:
        return resolve_name(":".join(path.rsplit(".", 1)))
    except AttributeError:
        return import_module(path)


@pytest.mark.parametrize(
    ("page", "path"), [(page, path) for page, text in PAGES.items() for path in SHOWN.findall(text)]
)
def test_what_a_page_shows_is_documented(page, path):
    assert shown_by(path).__doc__, f"{page} shows {path}"
