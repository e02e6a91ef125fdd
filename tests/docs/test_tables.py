"""The reference's tables of errors, operations and names are those of the package; --update-golden rewrites them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from types import UnionType
from typing import get_args

import pytest

import weft.errors
import weft.ops
from tests.docs.test_reference import PAGES, SHOWN, shown_by
from tests.project.effects import possible
from weft import language
from weft.errors import CATALOGUE
from weft.ir.core import OpDef
from weft.ir.define import OPS
from weft.language.extra import libdevice
from weft.ops.libdevice import FUNCTIONS, Overload

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MARK = "<!-- The table is read from the package: `make golden` writes it. -->\n"

for module in pkgutil.iter_modules(weft.errors.__path__):
    importlib.import_module(f"weft.errors.{module.name}")


def error_table() -> str:
    rows = [(f"`{r.code}`", r.kind.__name__, plain(r.message), plain(r.fix)) for r in CATALOGUE.values()]
    return table(("code", "exception", "message", "fix"), sorted(rows))


def plain(text: str) -> str:
    """The text with what Markdown would take for links, tags or emphasis escaped; code between backticks stays."""
    return re.sub(r"(`[^`]*`)|([\[<*])", lambda found: found[1] or "\\" + found[2], text)


def operation_table() -> str:
    rows = [(f"`{op.name}`", stage(op), effects(op), op.doc.split("\n\n")[0].replace("\n", " ")) for op in OPS.values()]
    return table(("operation", "stage", "effects", "meaning"), sorted(rows))


def stage(op: OpDef) -> str:
    return f"{op.stage}, until `{op.removed_by}`" if op.removed_by else op.stage


def effects(op: OpDef) -> str:
    found = [f"{e.kind} {e.space}" + (" (async)" if e.proxy == "async" else "") for e in possible(op)]
    return ", ".join(dict.fromkeys(found)) or "-"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def library_table() -> str:
    rows = [of_library(name) if name in FUNCTIONS else of_language(name) for name in libdevice.__all__]
    return table(("function", "types", "CUDA", "error in ulp", "meaning"), rows)


def of_library(name: str) -> tuple[str, ...]:
    function = FUNCTIONS[name]
    ulps = [(each.ulp, each.result.name) for each in function.overloads if each.ulp is not None]
    errors = f"{ulps[0][0]:g}" if ulps else ""
    errors += "".join(f" ({dtype}: {ulp:g})" for ulp, dtype in ulps if ulp != ulps[0][0])
    return (
        f"`{name}({', '.join('xyzt'[: len(function.overloads[0].arguments)])})`",
        "; ".join(types(each) for each in function.overloads),
        ", ".join(dict.fromkeys(f"`{each.cuda}`" for each in function.overloads)),
        plain(f"{errors} {function.bound}".strip()),
        plain(function.meaning),
    )


def types(version: Overload) -> str:
    names = [dtype.name for dtype in version.arguments]
    if {*names} == {version.result.name}:
        return names[0]
    given = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f"{given} → {version.result.name}"


def of_language(name: str) -> tuple[str, ...]:
    function = getattr(libdevice, name)
    return f"`{name}`", f"those of `gl.{function.__name__}`", "-", "0", plain(summary(function))


@pytest.mark.parametrize(
    ("page", "make"),
    [("errors.md", error_table), ("operations.md", operation_table), ("libdevice.md", library_table)],
)
def test_table(page, make, request):
    path = REFERENCE / page
    head, mark, found = path.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{page} says where its table stands"
    expected = "\n" + make()
    if request.config.getoption("--update-golden"):
        path.write_text(head + mark + expected, encoding="utf-8")
        return
    assert found == expected, f"docs/reference/{page} is out of date; `make golden` writes it"


BEGIN, END = "<!-- Names: `make golden` writes them. -->\n", "<!-- End of names. -->\n"


def name_table(page: str) -> str:
    rows = [(f"`{spelled(path)}`", plain(summary(shown_by(path)))) for path in SHOWN.findall(page)]
    return table(("name", "summary"), list(dict.fromkeys(rows)))


def spelled(path: str) -> str:
    """As a program writes it: `gl.load`, `tma.store_wait`, `matmul`."""
    module, _, name = path.rpartition(".")
    if name in language.__all__ and getattr(language, name) is shown_by(path):
        return f"gl.{name}"
    owner = module.rpartition(".")[2]
    return f"{owner}.{name}" if owner in ("async_copy", "mbarrier", "tma", "cluster", "clc", "block") else name


def summary(shown: object) -> str:
    """The first sentence of a docstring."""
    if isinstance(shown, UnionType):
        return f"One of {', '.join(f'`{each.__name__}`' for each in get_args(shown))}."
    text = " ".join((shown.__doc__ or "").strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`*])", text)[0].rstrip(".:") + "."


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if SHOWN.search(text)])
def test_names(name, request):
    # Read again: under --update-golden another test has just rewritten the other table of the page.
    page = (REFERENCE / name).read_text(encoding="utf-8")
    head, begun, rest = page.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    assert begun, f"{name} says where its table of names stands"
    assert ended, f"{name} says where its table of names ends"
    expected = head + BEGIN + "\n" + name_table(page) + "\n" + END + tail
    if request.config.getoption("--update-golden"):
        (REFERENCE / name).write_text(expected, encoding="utf-8")
        return
    assert page == expected, f"docs/reference/{name} is out of date; `make golden` writes it"
