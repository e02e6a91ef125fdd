"""Which package may import which. The table is design, so it is written down here and nowhere derived."""

from __future__ import annotations

from functools import cache

import pytest

from tests.project import tree

# What a package may import, beside itself, the foundations, and what those may import in turn.
FOUNDATIONS = ("bounded", "loading", "locks", "scoped", "plain", "forms", "errors", "settings")
MAY_IMPORT = {
    "loading": (),
    "errors": ("loading",),
    "bounded": (),
    "locks": (),
    "scoped": (),
    "plain": (),
    "forms": (),
    "settings": ("errors", "scoped"),
    "layout": (),
    "views": ("layout",),
    "targets": (),
    "ir": ("layout",),
    "ops": ("ir",),
    "analysis": ("ops",),
    "language": ("analysis", "ops", "layout", "views"),
    "lang": ("language",),
    "passes": ("analysis", "ops", "targets"),
    "sim": ("analysis", "ops", "targets"),
    "cuda": ("analysis", "ops", "targets"),
    "runtime": (),
    "simulation": ("targets", "runtime"),
    "compiler": ("lang", "passes", "sim", "cuda", "runtime", "simulation"),
    "kernel": ("compiler",),
    "distributed": ("kernel",),
    "pointwise": ("kernel",),
    "nvidia": ("kernel",),
    "kernels": ("kernel", "nvidia", "tune", "distributed"),
    "tune": ("kernel", "testing"),
    "testing": ("kernel",),
    "script": (),
    "explain": ("kernel", "script"),
    "check": ("kernel", "script"),
    "torch": ("kernels",),
    "cli": ("explain", "check", "kernel", "nvidia", "kernels", "tune", "testing"),
    "__main__": ("cli",),
}
# Packages that must stay importable without these, for they are pure.
PURE = {
    "loading": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "plain": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "errors": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "settings": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "layout": {"numpy", "ml_dtypes", "cuda", "torch"},
    "views": {"numpy", "ml_dtypes", "cuda", "torch"},
    "targets": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "ir": {"numpy", "ml_dtypes", "cuda", "torch", "rich"},
    "ops": {"cuda", "torch", "rich"},
    "passes": {"cuda", "torch"},
    "sim": {"cuda"},
}
# Views meet arrays in these modules only, which are imported with the first array.
AT_HOME = {"weft/views/host.py": {"numpy", "ml_dtypes"}, "weft/views/host_arrays.py": {"numpy"}}
AT_HOME["weft/views/host_arithmetic.py"] = {"numpy"}
# Modules that may name a `while` of the IR, each with the reason; what others know of loops is in `weft.analysis.flow`.
NAMES_WHILE = {
    "weft/analysis/flow.py": "describes it",
    "weft/analysis/facts/rules/control.py": "lists the operations whose facts come along edges",
    "weft/cuda/rules/control.py": "spells it in C",
    "weft/lang/loops.py": "builds it",
    "weft/passes/dce.py": "keeps it, for it may never end",
    "weft/sim/rules/control.py": "executes it",
}
FILES = [path for path in tree.python_files("weft") if path != tree.PACKAGE / "__init__.py"]


@cache
def reachable(package: str) -> frozenset[str]:
    """Every package that `package` may import."""
    direct = {*MAY_IMPORT[package], *(f for f in FOUNDATIONS if package not in FOUNDATIONS)}
    return frozenset({package}.union(direct, *(reachable(p) for p in direct)))


def package_of(module: str) -> str:
    """`weft.ir.core` belongs to `ir`."""
    return module.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=tree.name)
def test_imports_follow_the_arrows(path):
    package = package_of(tree.module_of(path))
    assert package in MAY_IMPORT, f"{package} is not in the table of arrows"
    wrong = [
        f"{tree.name(path)}:{line} imports {module}; {package} may import {', '.join(sorted(reachable(package)))}"
        for line, module in tree.imports(path)
        if module.startswith("weft.") and package_of(module) not in reachable(package)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=tree.name)
def test_pure_packages_stay_pure(path):
    forbidden = PURE.get(package_of(tree.module_of(path)), set()) - AT_HOME.get(tree.name(path), set())
    wrong = [f"line {line}: {module}" for line, module in tree.imports(path) if module.split(".")[0] in forbidden]
    assert not wrong, f"{tree.name(path)} imports {wrong}"


@pytest.mark.parametrize("path", FILES, ids=tree.name)
def test_nobody_imports_the_package_itself(path):
    """`import weft` inside weft would go round the arrows."""
    assert [line for line, module in tree.imports(path) if module == "weft"] == []


def test_the_siblings_never_meet():
    siblings = {"lang", "passes", "sim", "cuda"}
    assert {p: reachable(p) & siblings for p in siblings} == {p: {p} for p in siblings}
    assert reachable("runtime") == {"runtime", *FOUNDATIONS}


def test_the_table_has_no_cycle():
    for package in MAY_IMPORT:
        assert all(package not in reachable(other) for other in reachable(package) - {package})


def test_control_flow_has_one_owner():
    found = {tree.name(path) for path in FILES if "control.while_" in path.read_text(encoding="utf-8")}
    assert found == set(NAMES_WHILE)
