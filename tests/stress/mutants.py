"""Kernels that are mutated: launches of the suite and of the documentation, recorded, and their functions changed at random.

A mutant is one function of a launch, the kernel or a helper that it inlines, with some changes (`tests.stress.mutations`). It
is compiled for the recorded arguments, and some are simulated. It must compile, or be refused by an error of the catalogue
that points into the author's text; an exception of another kind, or a mistake found in weft's own code, is wrong.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import re
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FunctionType, SimpleNamespace
from typing import Any

from tests.mutation import cases
from tests.mutation.harness import Launch, recorded
from tests.stress.mutations import mutate
from weft.compiler import Stages
from weft.errors import ErrorGroup, UserError
from weft.lang.source import source_of
from weft.language.marks import jit_of

ROOT = Path(__file__).parents[2]
WEFT = str(ROOT / "weft")
SECONDS = 20
"""What compiling a mutant may take; kernels of this size take 0.1."""
SHORT = 5
"""Seconds after which a simulation is left: mutants may loop for ever, as kernels may."""
CASES = ("tma_copy", "add_async_2", "add_warp_specialized", "transpose", "swap_through_global", "sum_bands", "products")


class Hang(BaseException):
    """A mutant took too long; no handler of weft's may catch it."""


def launches() -> list[Launch]:
    """What is mutated: launches of the mutation tests, and of the snippets of the documentation."""
    with recorded() as found, tempfile.TemporaryDirectory() as folder, _working_in(folder):
        for name in CASES:
            cases.CASES[name]()
        for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))):
            _run_page(page)
    unique = {launch.stages.request.fn.fn.__qualname__: launch for launch in found}
    return [launch for launch in unique.values() if "breakpoint" not in launch.stages.request.fn.fn.__code__.co_names]


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """Let files that the documentation writes land in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run_page(page: Path) -> None:
    """Run the Python of a page as far as it goes; the documentation's own tests say whether it is right."""
    space: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ):
        name = f"<{page.name} {number}>"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
        with contextlib.suppress(Exception, Hang), contextlib.redirect_stdout(io.StringIO()), limited(SECONDS):
            exec(compile(block, name, "exec"), space)  # noqa: S102


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise Hang in the main thread once the seconds are over."""

    def ring(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _functions(launch: Launch) -> list[FunctionType]:
    """The kernel, and the helpers of its own module that it names."""
    kernel: FunctionType = launch.stages.request.fn.fn
    found = [kernel]
    for read in launch.stages.built.reads:
        helper = jit_of(read.value)
        named = [kind for kind, *_ in read.path] == ["name"]
        if isinstance(helper, FunctionType) and named and helper.__globals__ is kernel.__globals__:
            found.append(helper)
    return list(dict.fromkeys(found))


def _made(function: FunctionType, node: ast.FunctionDef, name: str, space: dict[str, Any]) -> FunctionType:
    """A function of a changed tree, whose text stands in a file of that name."""
    node.decorator_list = []
    text = ast.unparse(node) + "\n"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for free, cell in cells.items():
        space[free] = cell.cell_contents
    local: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space, local)  # noqa: S102
    made: FunctionType = local[function.__name__]
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def mutant(launch: Launch, seed: int) -> tuple[Stages, str]:
    """A compilation with one changed function, and the file of its text. Raises SyntaxError where the change is no Python."""
    random = Random(seed)
    kernel: FunctionType = launch.stages.request.fn.fn
    function = random.choice(_functions(launch))
    name, space = f"<mutant {seed}>", dict(kernel.__globals__)
    made = _made(function, mutate(random, source_of(function).node), name, space)
    if function is kernel:
        kernel = made
    else:
        space[function.__name__] = SimpleNamespace(__weft_jit__=made)
        kernel = _made(kernel, source_of(kernel).node, f"<mutated caller {seed}>", space)
    request = replace(launch.stages.request, fn=SimpleNamespace(fn=kernel, __name__=kernel.__name__))
    return Stages(request), name


def verdict(launch: Launch, seed: int) -> str:
    """What is wrong with how weft takes a mutant; empty when nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stages, name = mutant(launch, seed)
    except SyntaxError:
        return ""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), limited(SECONDS):
            warnings.simplefilter("ignore")
            _ = stages.tile
            if seed % 4 == 0:
                _ = stages.cuda
            if seed % 8 == 1:
                _simulate(launch, stages)
    except UserError as error:
        return _complaint(error, name, seed)
    except Hang:
        return "hangs"
    except Exception:  # noqa: BLE001 (that there is none is what is tested)
        return traceback.format_exc(limit=-6)
    finally:
        linecache.cache.pop(name, None)
        linecache.cache.pop(f"<mutated caller {seed}>", None)
    return ""


def _simulate(launch: Launch, stages: Stages) -> None:
    """Run a mutant for a while: it may loop for ever, and it may end by any hazard."""
    signal.alarm(SHORT)
    with contextlib.suppress(Hang):
        launch.run(stages.tile)


def _complaint(error: UserError, name: str, seed: int) -> str:
    """What is wrong with the report of a mistake."""
    for each in error.errors if isinstance(error, ErrorGroup) else [error]:
        if each.code == "lang-internal":
            return f"lang-internal: {each}"
        cause = each.__cause__
        if each.code == "lang-raised" and not isinstance(cause, (ArithmeticError, ValueError)) and cause is not None:
            last = traceback.extract_tb(cause.__traceback__)[-1]
            if last.filename.startswith(WEFT) and not last.filename.startswith(f"{WEFT}/lang/"):
                return f"an exception of weft's own code, {last.filename}:{last.lineno}: {each}"
        places = [] if each.loc is None else [loc.file for loc in each.loc.chain()]
        if not any(file in (name, f"<mutated caller {seed}>") for file in places):
            return f"no line of the kernel: {each}"
    return ""
