"""An interrupted import leaves nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types

import pytest

from weft.loading import Later, Registry, load_module, uninterrupted


def execute(text, name, **names):
    """Execute a module's text in a new namespace, as an import does."""
    module = types.ModuleType(name)
    vars(module).update(names)
    exec(compile(text, f"{name}.py", "exec"), vars(module))  # noqa: S102 - the text of a test
    return module


def test_a_key_has_one_entry():
    table = Registry("colour")
    with pytest.raises(ValueError, match="colour red is defined twice"):
        execute("table.enter('red', 1)\ntable.enter('red', 2)", "first", table=table)
    with pytest.raises(ValueError, match="colour red is defined twice"):
        execute("table.enter('red', 3)", "second", table=table)
    assert table == {"red": 1}


def test_a_module_that_is_executed_anew_replaces_its_entries():
    table = Registry("colour")
    with pytest.raises(KeyboardInterrupt):
        execute("table.enter('red', 1)\nraise KeyboardInterrupt\ntable.enter('blue', 2)", "first", table=table)
    execute(
        "def enter(key, value):\n    table.enter(key, value)\nenter('red', 3)\nenter('blue', 4)", "first", table=table
    )
    assert table == {"red": 3, "blue": 4}


def test_ctrl_c_is_answered_after_the_import(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nx = sum(range(1000))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # A debugger that another test ran leaves a handler of its own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            load_module("slow_module")
        assert sys.modules.pop("slow_module").x == 499500
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_of_the_programs_own_gets_its_signal():
    got = []
    before = signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(1000))
            assert got == []
        assert got == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_load_modules_too():
    found = []
    thread = threading.Thread(target=lambda: found.append(load_module("weft.loading")))
    with uninterrupted():
        thread.start()
        thread.join()
    assert found[0].Later is Later


INTERRUPTED = """
import builtins, sys, numpy

original, wanted = builtins.__import__, [sys.argv[1]]

def interrupting(name, globals=None, locals=None, fromlist=(), level=0):
    found = original(name, globals, locals, fromlist, level)
    if wanted and name == wanted[0]:
        wanted.clear()
        raise KeyboardInterrupt
    return found

def use():
    from weft import language as gl
    import weft.compiler, weft.cuda, weft.lang, weft.passes.pipeline, weft.sim
    return gl.tensor

builtins.__import__ = interrupting
try:
    use()
except KeyboardInterrupt:
    builtins.__import__ = original
    use()
    assert sys.modules["weft.language.arith"].tensor is sys.modules["weft.language.tensor"].tensor
    print("recovered")
"""


@pytest.mark.parametrize("module", ["weft.ops.memory", "weft.language.scan", "weft.cuda.text.refs"])
def test_an_interrupt_behind_the_import_of(module):
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, check=False)
    assert ran.stdout == "recovered\n", ran.stderr


@pytest.mark.parametrize(
    "path",
    [
        "nvidia.hopper.TensorDescriptor", "nvidia.blackwell.TensorDescriptor", "language.nvidia.hopper.tma",
        "language.nvidia.blackwell.tma", "language.nvidia.ampere.async_copy", "language.extra.libdevice",
    ],
)  # fmt: skip
def test_packages_are_attributes_without_an_import_of_their_own(path):
    done = subprocess.run([sys.executable, "-c", f"import weft as gluon; gluon.{path}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_packages_for_other_vendors_are_refused_in_words():
    import weft

    with pytest.raises(AttributeError, match=r"no attribute 'amd': it compiles for NVIDIA's GPUs \(weft.nvidia\)"):
        _ = weft.amd
