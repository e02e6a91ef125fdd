"""Finding a function's text, with true positions."""

# ruff: noqa: RET504, S102 (functions under test are oddly written, some without a file)

from __future__ import annotations

import ast
import linecache
import textwrap
import weakref

import pytest

from tests.lang.support import INT, POINTER, jit, read
from weft import language as gl
from weft.errors import UserError
from weft.lang import branches, expressions, frame, loops, refused, statements
from weft.lang.source import source_of

FAMILIES = (branches, expressions, loops, refused, statements)


# fmt: off
def plain(a, b=1, *rest, c: int = 2, **others):
    """Odd text:
at the margin"""
    x = (a +
b)
    # a comment
    return x
# fmt: on


def decorated(f):
    return f


@decorated
@decorated
def under_decorators(): return 1  # fmt: skip


def test_positions_are_those_of_the_file():
    source = source_of(plain)
    assert source.node.lineno == plain.__code__.co_firstlineno
    last = source.node.body[-1]
    assert linecache.getline(source.file, last.lineno)[last.col_offset : last.end_col_offset] == "return x"
    assert [type(s) for s in source.body] == [ast.Expr, ast.Assign, ast.Return]


def test_indented_and_decorated():
    class Holder:
        @decorated
        def method(self, x):

            if x:
                pass

            # trailing comment

    source = source_of(Holder.method)
    assert source.name == "Holder.method"
    node = source.node.body[0]
    assert linecache.getline(source.file, node.lineno)[node.col_offset :].startswith("if x:")
    assert source_of(under_decorators).node.name == "under_decorators"


def test_what_a_statement_assigns():
    text = """
    def f(x):
        if x:
            a, (b, *c) = x
            d.e.f = 1
        for g in x:
            h[0] = [i for i in x]
        j += 1
    """
    space: dict = {}
    linecache.cache["<assigned>"] = (0, None, textwrap.dedent(text).splitlines(keepends=True), "<assigned>")
    exec(compile(textwrap.dedent(text), "<assigned>", "exec"), space)
    source = source_of(space["f"])
    assert source.assigned(source.body[0]) == ("a", "b", "c", "d")
    assert source.assigned(source.body[1]) == ("g",)
    assert source.assigned(source.body[2]) == ("j",)


def test_a_parsed_source_does_not_keep_its_function():
    def make():
        def inner():
            return 1

        return inner

    function = make()
    assert source_of(function) is source_of(function)
    gone = weakref.ref(function)
    del function
    assert gone() is None


def test_text_given_to_linecache_is_enough():
    text = "def kernel(out, n):\n    gl.store(out, n + 1)\n"
    linecache.cache["<given>"] = (len(text), None, text.splitlines(keepends=True), "<given>")
    space = {"gl": gl}
    exec(compile(text, "<given>", "exec"), space)
    assert read(jit(space["kernel"]), out=POINTER, n=INT).name == "kernel"


def test_no_text_says_so():
    space: dict = {}
    exec("def kernel(): pass", space)
    with pytest.raises(UserError) as caught:
        source_of(space["kernel"])
    assert caught.value.code == "lang-no-source"


def test_the_text_of_another_program_is_not_taken(monkeypatch):
    """`python -c` of Python 3.13 enters its own text under the name that `exec` gives every text."""
    text = "def kernel(x): return x\n"
    monkeypatch.setitem(linecache.cache, "<string>", (len(text), None, [text], "<string>"))
    test_no_text_says_so()


def test_a_lambda_says_so():
    with pytest.raises(UserError) as caught:
        source_of(lambda: 1)
    assert caught.value.code == "lang-lambda-kernel"


@pytest.mark.parametrize("now", ["x = 1\n", "", "def kernel(a): pass\n", "def other(): pass\n"])
def test_a_changed_file_says_so(tmp_path, now):
    path = tmp_path / "changing.py"
    path.write_text("\n\ndef kernel(): pass\n")
    space: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    path.write_text("\n\n" + now)
    with pytest.raises(UserError) as caught:
        source_of(space["kernel"])
    assert caught.value.code == "lang-source-changed"


def test_every_construct_is_read_or_refused():
    assert all(FAMILIES)
    kinds = {kind.__name__ for kind in (*ast.expr.__subclasses__(), *ast.stmt.__subclasses__())}
    known = {kind.__name__ for kind in (*frame.EXPRESSIONS, *frame.STATEMENTS)}
    # Parts of f-strings; f-strings read them themselves, template strings are refused whole.
    assert kinds - known <= {"FormattedValue", "Interpolation"}
