"""A twin is the same text: only its import lines are others."""

from __future__ import annotations

import ast

import pytest

from benchmarks import twin

ALONE = {"workbench", "broken_pipeline"}
"""Without a twin: what has no kernel, and what breaks a kernel on purpose in a mode that only weft has."""
NAMES = sorted(path.stem for path in twin.EXAMPLES.glob("*.py") if path.stem not in ALONE)
GLUON = "triton.experimental.gluon"


@pytest.mark.parametrize("name", NAMES)
def test_only_the_import_lines_differ(name):
    text = (twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    pairs = list(zip(text.splitlines(), twin.gluon_text(text).splitlines(), strict=True))
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    assert changed[:2] == list(twin.SWAPS.items())
    assert all(new == old.replace("from weft.", f"from {GLUON}.") for old, new in changed[2:])
    assert [old for old, _ in pairs if old.startswith(("from weft.language.", "from weft.nvidia."))] == [
        old for old, _ in changed[2:]
    ]


def test_what_an_architecture_offers_comes_from_the_other_compiler():
    assert twin.gluon_line("from weft.nvidia.hopper import TensorDescriptor") == (
        f"from {GLUON}.nvidia.hopper import TensorDescriptor"
    )
    assert twin.gluon_line("from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma") == (
        f"from {GLUON}.language.nvidia.hopper import fence_async_shared, mbarrier, tma"
    )
    assert twin.gluon_line("    from weft.layout import coalescing") == "    from weft.layout import coalescing"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_use_the_language_and_constants_only(name):
    """What a kernel reads from outside is `gl` or another kernel, so the other compiler needs nothing of ours."""
    tree = ast.parse((twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    kernels = [n for n in tree.body if isinstance(n, ast.FunctionDef) and any(is_jit(d) for d in n.decorator_list)]
    offered = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) and is_offered(n.module) for a in n.names}
    known = {"gl", "range", "float", *offered, *(kernel.name for kernel in kernels)}
    assert kernels
    for kernel in kernels:
        names = [n for statement in kernel.body for n in ast.walk(statement) if isinstance(n, ast.Name)]
        local = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in kernel.args.args}
        assert {n.id for n in names} <= known | local


def is_offered(module):
    return module.startswith("weft.language.nvidia.")


def is_jit(decorator):
    return ast.unparse(decorator) == "weft.jit"


@pytest.mark.parametrize("text", ["import weft\n", "from weft import language as gl\n", ""])
def test_a_text_without_both_imports_has_no_twin(text):
    with pytest.raises(ValueError, match="exactly one"):
        twin.gluon_text(text)
