"""What the README shows is real: its picture, and its excerpt of the CUDA text. Lines `...` stand for what it leaves out."""

from __future__ import annotations

import re
import runpy
import shlex

import pytest

from tests.project import tree
from weft.cli import main

README = (tree.ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def assert_excerpt(excerpt, text):
    """The excerpt's lines stand in the text, those between two `...` next to each other."""
    position = 0
    for run in re.split(r"^ *\.\.\.\n", excerpt, flags=re.MULTILINE):
        found = text.find(run, position)
        assert found >= 0, f"not in the output:\n{run}"
        position = found + len(run)


def unnumbered(text):
    """The numbers that keep names apart say nothing to a reader, and change with every pass."""
    return re.sub(r"\b([a-z]+)_\d+\b", r"\1", text)


def test_picture(capsys):
    (shown,) = blocks("console")
    command, _, excerpt = shown.partition("\n")
    words = shlex.split(command.removeprefix("$ "))
    assert words[:3] == ["python", "-m", "weft"]
    assert main(words[3:]) == 0
    assert_excerpt(excerpt, capsys.readouterr().out)


def test_cuda_excerpt(tmp_path):
    (excerpt,) = blocks("cuda")
    program = tmp_path / "readme.py"
    program.write_text("\n\n".join(blocks("python")), encoding="utf-8")
    compiled = runpy.run_path(str(program))["compiled"]
    assert_excerpt(unnumbered(excerpt), unnumbered(compiled.asm["cuda"]))


def test_an_excerpt_with_another_line_is_noticed():
    with pytest.raises(AssertionError, match="not in the output"):
        assert_excerpt("a\n...\nc\n", "a\nb\nd\n")
