"""A twin is the same text: only its two import lines are others."""

from __future__ import annotations

import ast

import pytest

from benchmarks import twin

NAMES = sorted(path.stem for path in twin.EXAMPLES.glob("*.py") if path.stem != "workbench")


@pytest.mark.parametrize("name", NAMES)
def test_only_the_import_lines_differ(name):
    text = (twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    pairs = list(zip(text.splitlines(), twin.gluon_text(text).splitlines(), strict=True))
    assert [pair for pair in pairs if pair[0] != pair[1]] == list(twin.SWAPS.items())


@pytest.mark.parametrize("name", NAMES)
def test_kernels_use_the_language_and_constants_only(name):
    """What a kernel reads from outside is `gl` or another kernel, so the other compiler needs nothing of ours."""
    tree = ast.parse((twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and any(is_jit(d) for d in n.decorator_list)]
    known = {"gl", "range", "float", *(kernel.name for kernel in kernels)}
    assert kernels
    for kernel in kernels:
        names = [n for statement in kernel.body for n in ast.walk(statement) if isinstance(n, ast.Name)]
        local = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in kernel.args.args}
        assert {n.id for n in names} <= known | local


def is_jit(decorator):
    return ast.unparse(decorator) == "weft.jit"


@pytest.mark.parametrize("text", ["import weft\n", "from weft import language as gl\n", ""])
def test_a_text_without_both_imports_has_no_twin(text):
    with pytest.raises(ValueError, match="exactly one"):
        twin.gluon_text(text)
