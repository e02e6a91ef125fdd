"""A twin is the same text: only its import lines are others."""

from __future__ import annotations

import ast
import re

import pytest

from benchmarks import twin

ALONE = {
    "workbench", "broken_pipeline", "matmul_timeline", "matmul_schedules", "layout_tensor", "thread_matmul", "thread_stencil",
    "thread_transpose", "llama_block",
}  # fmt: skip
"""Without a twin: what has no kernel, what breaks a kernel on purpose in a mode that only weft has, what traces kernels or
takes parts of weft's library, and kernels of single threads, which the other compiler does not have."""
NAMES = sorted(path.stem for path in twin.EXAMPLES.glob("*.py") if path.stem not in ALONE)
GLUON = "triton.experimental.gluon"


@pytest.mark.parametrize("name", NAMES)
def test_only_the_import_lines_differ(name):
    text = (twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    pairs = list(zip(text.splitlines(), twin.gluon_text(text).splitlines(), strict=True))
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    siblings = [pair for pair in changed if not pair[0].startswith(("import weft", "from weft"))]
    assert all(old.replace(" import", "_gluon import") == new for old, new in siblings)
    changed = [pair for pair in changed if pair not in siblings]
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
    assert twin.gluon_line("from matmul_parts import WGMMA") == "from matmul_parts_gluon import WGMMA"
    assert twin.gluon_line("from workbench import Place") == "from workbench import Place"
    assert twin.gluon_line("    from weft.layout import coalescing") == "    from weft.layout import coalescing"


@pytest.mark.parametrize("name", NAMES)
def test_kernels_use_the_language_and_constants_only(name):
    """What a kernel reads from outside is `gl`, or something that has a twin, so the other compiler needs nothing of ours."""
    tree = ast.parse((twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and is_made(node, "weft.jit")]
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom) and is_offered(node.module)]
    offered = {alias.name for node in imported for alias in node.names}
    made = {node.name for node in ast.walk(tree) if isinstance(node, MADE) and is_made(node, *DECORATORS)}
    known = {"gl", "range", "float", "min", *offered, *made, *constants(tree)}
    assert kernels
    for kernel in kernels:
        names = [n for statement in kernel.body for n in ast.walk(statement) if isinstance(n, ast.Name)]
        local = {n.id for n in names if isinstance(n.ctx, ast.Store)} | {a.arg for a in kernel.args.args}
        assert {n.id for n in names} <= known | local


MADE = (ast.FunctionDef, ast.ClassDef)
DECORATORS = ("weft.jit", "weft.constexpr_function", "weft.aggregate")


def is_made(node, *decorators):
    return any(ast.unparse(decorator) in decorators for decorator in node.decorator_list)


def constants(tree):
    """Names that the module binds to `gl.constexpr(...)`, at any level."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    return {ast.unparse(node.targets[0]) for node in assigned if ast.unparse(node.value.func) == "gl.constexpr"}


def is_offered(module):
    return module.startswith("weft.language.nvidia.") or module in NAMES


@pytest.mark.parametrize("text", ["import weft\n", "from weft import language as gl\n", ""])
def test_a_text_without_both_imports_has_no_twin(text):
    with pytest.raises(ValueError, match="exactly one"):
        twin.gluon_text(text)


def test_a_twin_imports_from_twins(monkeypatch):
    """Here the other compiler is weft itself."""
    monkeypatch.setattr(twin, "SWAPS", {line: line for line in twin.SWAPS})
    monkeypatch.setattr(twin, "PREFIXES", {})
    other = twin.load_gluon.__wrapped__("matmul_ladder")
    assert other.Operands.__module__ == "matmul_parts_gluon"
    assert twin.load("matmul_ladder").Operands.__module__ == "matmul_parts"


ANNOTATION = re.compile(r"(gl|tma)\.\w+(\[int\])?|int|float|bool|'.*'|")


@pytest.mark.parametrize("name", NAMES)
def test_gluon_can_evaluate_the_annotations_of_kernels(name):
    """It does so in its own language: a text is nothing to it, a union or a name of typing an error."""
    for node in ast.walk(ast.parse((twin.EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and any("weft.jit" in ast.unparse(d) for d in node.decorator_list):
            for parameter in (*node.args.args, *node.args.kwonlyargs):
                found = ast.unparse(parameter.annotation) if parameter.annotation else ""
                assert ANNOTATION.fullmatch(found), found
