"""What crosses processes: kernels, tuners, layouts and views by pickle, locks and compilations by fork."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import weft
from weft import language as gl
from weft.errors import LaunchError
from weft.locks import Lock, lazy
from weft.nvidia.hopper import TensorDescriptor
from weft.views import LayoutTensor


@weft.jit
def fill(x, value):
    gl.store(x, value)


@weft.autotune([weft.Config({"value": 3})])
@weft.jit
def tuned(x, value: gl.constexpr):
    gl.store(x, value)


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made in this line


@pytest.mark.parametrize("kernel", [fill, tuned], ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("way", [through_pickle, copy.copy, copy.deepcopy])
def test_a_kernel_is_handed_on_by_its_name(kernel, way):
    assert way(kernel) is kernel
    assert way({"kernel": kernel})["kernel"] is kernel


def test_a_kernel_of_a_function_has_no_name_to_be_found_by():
    @weft.jit
    def local(x):
        pass

    assert copy.deepcopy(local) is local
    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(local)


def test_cloudpickle_takes_kernels_by_value(tmp_path):
    pytest.importorskip("cloudpickle", reason="tests what only cloudpickle can do")
    script = """
import sys, cloudpickle, weft
from weft import language as gl
@weft.jit
def fill(x, value):
    gl.store(x, value)
sys.stdout.buffer.write(cloudpickle.dumps(fill))
"""
    (tmp_path / "script.py").write_text(script)
    sent = subprocess.run([sys.executable, str(tmp_path / "script.py")], check=True, capture_output=True).stdout
    x = np.zeros(2)
    pickle.loads(sent)[(1,)](x, 4.0)  # noqa: S301
    assert x.tolist() == [4.0, 0.0]


def test_a_compiled_kernel_says_what_to_pickle():
    compiled = fill[(1,)](np.zeros(2), 1.0)
    with pytest.raises(LaunchError) as caught:
        pickle.dumps(compiled)
    assert caught.value.code == "launch-pickle-compiled"
    assert copy.copy(compiled).report is compiled.report
    assert copy.deepcopy([compiled]) == [compiled]


LAYOUTS = [
    gl.BlockedLayout([1, 2], [8, 4], [4, 1], [1, 0]),
    gl.SliceLayout(0, gl.BlockedLayout([1, 2], [8, 4], [4, 1], [1, 0])),
    gl.BlockedLayout([1], [32], [4], [0]).to_linear([128]),
    gl.NVMMASharedLayout(128, 16, 2),
    gl.SwizzledSharedLayout(1, 1, 1, [1, 0]),
    weft.Layout.row_major(4, 8),
    weft.Layout((2, weft.UNKNOWN), (1, 2)),
    weft.Swizzle(2, 0, 3),
    weft.AddressSpace.SHARED,
    weft.UNKNOWN,
    gl.float32,
    gl.constexpr(3),
    weft.Config({"BLOCK": 64}, num_warps=2),
]


@pytest.mark.parametrize("value", LAYOUTS, ids=repr)
@pytest.mark.parametrize("way", [through_pickle, copy.copy, copy.deepcopy])
def test_layouts_and_their_kind(value, way):
    assert way(value) == value
    assert hash(way(value)) == hash(value)


def arrays():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    frozen = x.copy()
    frozen.flags.writeable = False
    return {"whole": x, "gaps": x[1:7:2, ::3], "backwards": x[::-1], "frozen": frozen, "empty": x[:0]}


@pytest.mark.parametrize("kind", arrays())
@pytest.mark.parametrize("way", [through_pickle, copy.deepcopy])
def test_a_copied_view_has_memory_of_its_own(kind, way):
    view = LayoutTensor(arrays()[kind], masked=True)
    other = way(view)
    assert np.array_equal(np.asarray(other), np.asarray(view))
    assert (other.layout, other.masked, other.dtype) == (view.layout, view.masked, view.dtype)
    assert not np.shares_memory(np.asarray(other), np.asarray(view))
    assert other.storage.memory.flags.writeable == (kind != "frozen")
    assert copy.copy(view) is view


def test_parts_of_a_copied_view_share_its_memory():
    whole = LayoutTensor(np.zeros((4, 4)))
    first, second = through_pickle((whole, whole.tile[2, 2](1, 1)))
    second[0, 0] = 7.0
    assert np.asarray(first)[2, 2] == 7.0
    fill[(1,)](np.asarray(first), 2.0)
    assert np.asarray(whole).sum() == 0.0


def test_views_of_tensors(torch):
    view = LayoutTensor(torch.arange(12, dtype=torch.bfloat16).reshape(3, 4).t())
    assert np.array_equal(np.asarray(through_pickle(view)), np.asarray(view))


def test_a_descriptor_is_made_anew():
    x = np.zeros((8, 16), np.float32)
    made = TensorDescriptor.from_tensor(x, [8, 16], gl.NVMMASharedLayout.get_default_for([8, 16], gl.float32))
    assert copy.copy(made) is made
    for way in (through_pickle, copy.deepcopy):
        with pytest.raises(LaunchError) as caught:
            way(made)
        assert caught.value.code == "descriptor-pickle"


# Forks

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def in_a_fork(work):
    """Run a function in a fork of this process and give what it returned; fails where it does not end."""
    out, into = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads, which is what is tested
        process = os.fork()
    if process == 0:
        try:
            threading.Timer(60, os._exit, [9]).start()
            os.write(into, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        text = stream.read().decode()
    assert os.waitpid(process, 0)[1] == 0, "the fork did not end"
    return text


def held(lock):
    """A thread that holds a lock until the event it gives is set."""
    taken, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    return thread, done


@needs_fork
def test_a_fork_while_another_thread_compiles():
    thread, done = held(fill._lock)
    try:

        def launch():
            x = np.zeros(2)
            fill[(1,)](x, 5.0)
            return bool(x[0] == 5.0)

        assert in_a_fork(launch) == "True"
    finally:
        done.set()
        thread.join()


@needs_fork
def test_a_fork_keeps_the_lock_of_the_thread_that_forks():
    lock = Lock()

    def again():
        with lock:
            return "inside"

    with lock:
        assert in_a_fork(again) == "'inside'"


@needs_fork
def test_a_fork_while_another_thread_computes_a_lazy_value():
    class Slow:
        def __init__(self, wait):
            self.wait = wait

        @lazy
        def value(self):
            self.wait()
            return 7

    entered, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: Slow(lambda: (entered.set(), done.wait())).value)
    thread.start()
    entered.wait()
    try:
        assert in_a_fork(lambda: Slow(lambda: None).value) == "7"
    finally:
        done.set()
        thread.join()


IMPORTING = """
import os, sys, threading, time
import numpy as np
from weft.loading import load_module

thread = threading.Thread(target=lambda: load_module("weft.sim"))
thread.start()
while "weft.sim" not in sys.modules and thread.is_alive():
    time.sleep(0.0005)
process = os.fork()
if process == 0:
    load_module("weft.sim").run
    os._exit(7)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@needs_fork
def test_a_fork_while_another_thread_imports():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTING], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "7\n", ran.stderr
