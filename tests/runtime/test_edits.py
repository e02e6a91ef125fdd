"""No kernel is served that was compiled before an edit: from disk, and within a session.

All kinds of edits, in all ways, are in `tests/stress/test_cache_edits.py`; here are those that went wrong once.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

import weft
from tests.edits import kinds, run
from weft import language as gl
from weft.runtime import watch

FROM_DISK = {
    "an Enum": kinds.KERNEL,
    "an IntEnum": kinds.HELPER,
    "the order of a NamedTuple": kinds.KERNEL,
    "a property of an int": kinds.KERNEL,
    "what a frozen dataclass sets outside of its fields": kinds.KERNEL,
    "a property of a metaclass": kinds.KERNEL,
    "getattr of a module": kinds.KERNEL,
    "hasattr of a module": kinds.HELPER,
    "a module's __getattr__": kinds.KERNEL,
    "a module called as a standard one": kinds.CALLED,
    "two functions of one line": kinds.CALLED,
    "a function of called Python": kinds.KERNEL,
    "which of two functions": kinds.KERNEL,
    "a function of the language": kinds.STAR,
    "a list": kinds.CALLED,
    "the __init__ of an aggregate": kinds.KERNEL,
}
SESSION = {
    "an item of a long list": kinds.KERNEL,
    "a list that is passed on": kinds.KERNEL,
    "what a property reads": kinds.KERNEL,
    "a global of called Python": kinds.KERNEL,
    "a list of called Python": kinds.HELPER,
    "an object given to called Python": kinds.KERNEL,
    "a function of called Python": kinds.CALLED,
    "what called Python imports from": kinds.KERNEL,
    "an attribute that appears": kinds.KERNEL,
    "a method of an aggregate": kinds.KERNEL,
}


def cases(table, named):
    return [pytest.param(edit, way, id=edit.name) for edit, way in table if named.get(edit.name) == way]


def test_the_tables_have_what_is_chosen_here():
    assert len(cases(kinds.EDITS, FROM_DISK)) == len(FROM_DISK)
    assert len(cases(kinds.CHANGES, SESSION)) == len(SESSION)
    assert len({edit.name for edit, _ in kinds.EDITS}) >= 100


@pytest.fixture(scope="module")
def both():
    with run.servers() as pair:
        yield pair


@pytest.mark.parametrize(("edit", "way"), cases(kinds.EDITS, FROM_DISK))
def test_the_disk_cache_notices(both, tmp_path, edit, way):
    assert not run.is_stale(both, tmp_path, edit, way)


@pytest.mark.parametrize(("edit", "way"), cases(kinds.CHANGES, SESSION))
def test_a_session_notices(tmp_path, edit, way, request):
    assert not run.change(tmp_path, edit, way, f"n{crc32(request.node.name.encode())}")


ENVIRONMENT = """
import os
import weft
from weft import language as gl
from weft.runtime import watch

@weft.constexpr_function
def width():
    return int(os.environ["EDITED_WIDTH"])

@weft.jit
def kernel(out):
    gl.store(out, width())
"""


def test_an_environment_variable_counts_in_the_next_process(both, tmp_path):
    (tmp_path / "script.py").write_text(ENVIRONMENT)
    cache, (one, other) = tmp_path / "cache", both
    first = one.compile(tmp_path, cache, EDITED_WIDTH="1")
    assert other.compile(tmp_path, cache, EDITED_WIDTH="2") != first == other.compile(tmp_path, cache, EDITED_WIDTH="1")


def test_forget_reads_the_environment_again(monkeypatch, tmp_path):
    (tmp_path / "forgetful.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EDITED_WIDTH", "1")
    import forgetful  # pyright: ignore[reportMissingImports] - a module of the test's folder

    assert run.stored(forgetful.kernel) == 1
    monkeypatch.setenv("EDITED_WIDTH", "2")
    assert run.stored(forgetful.kernel) == 1, "the environment is read once"
    forgetful.kernel.forget()
    assert run.stored(forgetful.kernel) == 2


LONG = list(range(10_000))


def test_a_launch_looks_at_the_items_that_were_read_and_at_no_other():
    @weft.jit
    def kernel(out):
        gl.store(out, LONG[7] + len(LONG))

    kernel[1](np.zeros(1, np.int32))
    assert len(kernel._binder.watched) <= 4, "the variable, the item, the length, and that nothing hides `len`"
    whole = [test for test, _, _ in kernel._binder.watched if isinstance(getattr(test, "__self__", None), watch.Whole)]
    assert not whole
