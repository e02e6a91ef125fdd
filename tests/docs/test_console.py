"""What the tutorial shows of the command line is what it prints. Lines `...` stand for what a page leaves out."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.docs.test_readme import assert_excerpt
from tests.project import tree
from weft.cli import main

CONSOLE = re.compile(r"^```console\n\$ python -m weft ([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted((tree.ROOT / "docs" / "tutorial").glob("*.md"))
SHOWN = [found for page in PAGES for found in CONSOLE.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("command", "excerpt"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_command_prints_what_the_page_shows(command, excerpt, monkeypatch, capsys):
    monkeypatch.chdir(tree.ROOT)
    main(shlex.split(command))
    printed = capsys.readouterr().out
    assert_excerpt(excerpt, "".join(f"{line.rstrip()}\n" for line in printed.splitlines()))


def test_the_tutorial_shows_both_commands():
    assert {command.split()[0] for command, _ in SHOWN} >= {"check", "explain"}
