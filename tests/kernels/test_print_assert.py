"""Messages of kernels: printed while compiling and while running, and assertions of both kinds."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

import weft
from tests.conftest import Device
from tests.kernels.harness import Runner, check_machine_code, poison, run_lowered, same
from weft import language as gl
from weft.errors import CompilationError, Hazard

LINE = gl.BlockedLayout([1], [32], [4], [0])


def printed(device: Device, capfd: pytest.CaptureFixture[str], kernel, grid, *args, **options) -> list[str]:
    """The lines that a kernel prints, in no order; of lowered IR the same."""
    capfd.readouterr()
    given = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
    if "block" in options:
        given = [weft.LayoutTensor(a) if isinstance(b, np.ndarray) else a for a, b in zip(given, args, strict=True)]
        args = given
    compiled = kernel[grid](*given, **options)
    if device.is_gpu:
        import torch

        torch.cuda.synchronize()
        ctypes.CDLL(None).fflush(None)
    sys.stdout.flush()
    lines = sorted(capfd.readouterr().out.splitlines())
    if not device.is_gpu:
        assert sorted(run_lowered(kernel, compiled, grid, args, options)) == lines
        # `printf` takes its arguments from local memory.
        check_machine_code(compiled, spills=True)
    return lines


@weft.jit
def speak(x, n, scale, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at)
    gl.device_print("value", value)
    gl.device_print("two", at, value, hex=True)
    gl.device_print("scalar", n)
    gl.device_print("none")
    gl.device_print(f"n is {n}")
    if gl.program_id(0) == 1:
        gl.device_print("scale", scale)


def test_printing(device, capfd):
    x = np.array([5, -1, 7, 255], np.int32)
    lines = printed(device, capfd, speak, 2, x, 3, 2.5, 4, LINE)
    want = ["pid (1, 0, 0) scale: 2.500000"]
    for pid in ("pid (0, 0, 0)", "pid (1, 0, 0)"):
        want += [f"{pid} idx ({i}) value: {v}" for i, v in enumerate(x)]
        want += [f"{pid} idx ({i}) two: 0x{i:08x}, 0x{int(v) & 0xFFFFFFFF:08x}" for i, v in enumerate(x)]
        want += [f"{pid} scalar: 3", f"{pid} none", f"{pid} n is : 3"]
    assert lines == sorted(want)


@weft.jit
def speak_matrix(x, M: gl.constexpr, N: gl.constexpr, layout: gl.constexpr):
    i, j = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.device_print("x", gl.load(x + i[:, None] * N + j[None, :]))


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float16, np.float64])
def test_every_element_is_printed_once_with_its_indices(device, capfd, kind):
    x = np.arange(32, dtype=kind).reshape(4, 8)
    lines = printed(device, capfd, speak_matrix, 1, x, 4, 8, gl.BlockedLayout([1, 1], [4, 8], [2, 2], [1, 0]))
    shown = "{:f}" if np.dtype(kind).kind == "f" else "{}"
    want = [f"pid (0, 0, 0) idx ({i}, {j}) x: {shown.format(x[i, j])}" for i in range(4) for j in range(8)]
    assert lines == sorted(want)


@weft.jit
def speak_by_threads(x):
    i, j = gl.thread_idx.x, gl.thread_idx.y
    if i > j:
        gl.device_print("here", x[j, i], gl.block_idx.x)
        gl.device_print("twice", x.load[2](j, 2 * (i // 2)), hex=True)
    if j == 1:
        gl.device_print(f"last {i}")
        print("block", gl.block_idx.x)
    gl.device_print("all")


def test_each_thread_prints_scalars(device, capfd):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    lines = printed(device, capfd, speak_by_threads, 2, x, block=(4, 3))
    want = []
    for pid in range(2):
        for j in range(3):
            for i in range(4):
                start = f"pid ({pid}, 0, 0) thread ({i}, {j}, 0)"
                two = x[j, i // 2 * 2 : i // 2 * 2 + 2]
                if i > j:
                    want += [f"{start} here: {x[j, i]}, {pid}", f"{start} twice: 0x{two[0]:08x}, 0x{two[1]:08x}"]
                if j == 1:
                    want += [f"{start} last : {i}", f"{start} block: {pid}"]
                want.append(f"{start} all")
    assert lines == sorted(want)


@weft.jit
def speak_of_tiles_and_threads(x, BLOCK: gl.constexpr, layout: gl.constexpr):
    gl.device_print("tile", gl.arange(0, BLOCK, layout))
    if gl.thread_idx.x == 33:
        gl.device_print("thread", gl.thread_idx.x)


def test_tiles_beside_threads(device, capfd):
    x = np.zeros(1, np.int32)
    lines = printed(device, capfd, speak_of_tiles_and_threads, 1, x, 4, gl.BlockedLayout([1], [32], [2], [0]), block=64)
    tiles = [f"pid (0, 0, 0) idx ({i}) tile: {i}" for i in range(4)]
    assert lines == [*tiles, "pid (0, 0, 0) thread (33, 0, 0) thread: 33"]


@weft.jit
def say_while_compiling(out, n: gl.constexpr):
    gl.static_print("compiling for", n)
    gl.static_assert(n > 2, f"{n} is too small")
    gl.store(out, n)


def test_static_messages(run, capfd):
    out = poison(1, np.int32)
    run(say_while_compiling, 1, out, 4)
    same(out, np.array([4], np.int32))
    # Once for each target that it is compiled for.
    assert set(capfd.readouterr().out.splitlines()) == {"compiling for 4"}
    with pytest.raises(CompilationError, match="2 is too small") as caught:
        Runner(Device("sim"))(say_while_compiling, 1, out, 2)
    assert caught.value.code == "language-static-assert"


@weft.jit
def check(out, x, limit, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    at = gl.arange(0, BLOCK, layout)
    value = gl.load(x + at, mask=at < n, other=1000)
    gl.device_assert(value < limit, "too large", mask=at < n)
    gl.device_assert(n > 0, f"n is {n}")
    gl.store(out + at, value, mask=at < n)


def test_assertions_that_hold(run):
    x, out = np.arange(100, dtype=np.int32), poison(128, np.int32)
    run(check, 1, out, x, 100, 100, 128, LINE, debug=True, spills=True)
    same(out[:100], x)


@pytest.mark.parametrize("lowered", [False, True])
def test_assertions_that_fail_in_the_simulator(lowered):
    x, out = np.arange(100, dtype=np.int32), poison(128, np.int32)
    compiled = check[1](out, x, 100, 100, 128, LINE, debug=True)
    failing = (out, x, 50, 100, 128, LINE)
    with pytest.raises(Hazard, match="too large") as caught:
        run_lowered(check, compiled, 1, failing, {"debug": True}) if lowered else check[1](*failing, debug=True)
    assert caught.value.code == "hazard-assertion"
    assert "gl.device_assert(value < limit" in str(caught.value)


@weft.jit(sync="none")
def turned_without_barriers(out, x, BLOCK: gl.constexpr, read: gl.constexpr, write: gl.constexpr):
    turned = gl.convert_layout(gl.load(x + gl.arange(0, BLOCK, layout=read)), write)
    gl.store(out + gl.arange(0, BLOCK, layout=write), turned)


def test_sync_none_inserts_nothing():
    array, read, write = (
        weft.runtime.MockTensor("fp32"),
        gl.BlockedLayout([1], [32], [4], [0]),
        gl.BlockedLayout([4], [32], [4], [0]),
    )
    turned = weft.jit(turned_without_barriers.fn)
    with_barriers = turned.warmup(array, array, BLOCK=512, read=read, write=write, grid=1)
    without = turned_without_barriers.warmup(array, array, BLOCK=512, read=read, write=write, grid=1)
    assert "__syncthreads" in with_barriers.asm["cuda"]
    assert "__syncthreads" not in without.asm["cuda"]
    assert "inserted before shared.load_regs" in with_barriers.asm["sync"]


@pytest.mark.parametrize("debug", [False, True])
def test_the_gpu_checks_assertions_in_debug_only(debug):
    array, layout = weft.runtime.MockTensor("fp32"), gl.BlockedLayout([1], [32], [4], [0])
    kernel = check.warmup(array, array, 100, 100, 128, layout, grid=1, debug=debug)
    assert ("assertion failed" in kernel.asm["cuda"]) == debug
