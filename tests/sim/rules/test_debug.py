"""Output of kernels, and stopping in the debugger at their lines."""

from __future__ import annotations

import sys
from io import StringIO
from pdb import Pdb

import numpy as np

from tests.sim.build import Kernel, Loc, pointer, run
from weft.ir.types import ScalarType, float32, int32
from weft.ops import arith, control, debug, elements, program


def test_print_an_element_a_line():
    k = Kernel(("x", pointer(float32)))
    offsets = k.arange(4)
    loaded = k.load(k.params[0], offsets, k.below(offsets, 3))
    k.emit(debug.print_, loaded, prefix="x")
    k.emit(debug.print_, k.emit(program.program_id, axis=0), k.number(255), prefix="both", hex=True)
    k.emit(debug.print_, prefix="hello")
    out = StringIO()
    report = run(k.done(), np.array([0.5, 1, -2, 9], np.float32), grid=(2,), programs=[(1, 0, 0)], stdout=out)
    assert report.lines == [
        "pid (1, 0, 0) idx (0) x: 0.500000",
        "pid (1, 0, 0) idx (1) x: 1.000000",
        "pid (1, 0, 0) idx (2) x: -2.000000",
        "pid (1, 0, 0) idx (3) x: undefined",
        "pid (1, 0, 0) both: 0x00000001, 0x000000ff",
        "pid (1, 0, 0) hello",
    ]
    assert out.getvalue().splitlines() == report.lines


def test_print_under_a_branch_of_elements():
    k = Kernel(("x", pointer(int32)))
    loaded = k.load(k.params[0], k.arange(8))
    with k.region([ScalarType(int32)]) as body:
        (value,) = body.args
        with k.region() as then:
            k.emit(debug.print_, value, prefix="big")
            k.emit(control.yield_)
        with k.region() as orelse:
            k.emit(control.yield_)
        k.emit(control.if_, k.cmp("gt", value, k.number(5)), regions=(then.done, orelse.done))
        k.emit(control.yield_, value)
    k.emit(elements.map_elements, loaded, pack=1, regions=(body.done,))
    report = run(k.done(), np.arange(8, dtype=np.int32))
    assert report.lines == ["pid (0, 0, 0) idx (6) big: 6", "pid (0, 0, 0) idx (7) big: 7"]


def test_print_registers_by_their_coordinates():
    """Lowered: the last operands say which element a register holds; repeated elements appear once."""
    k = Kernel(stage="lowered", shared_bytes=0, num_warps=1)
    from weft.ops import regs

    half = k.emit(arith.rem, k.emit(program.lane_id), k.number(2))
    index = k.emit(regs.affine, k.mul(half, k.number(2)), offsets=((0, 1),))
    squares = k.mul(index, index)
    k.emit(debug.print_, squares, index, prefix="sq", coordinates=1)
    report = run(k.done())
    assert report.lines == [f"pid (0, 0, 0) idx ({i}) sq: {i * i}" for i in range(4)]


def test_breakpoint_stands_at_the_line(monkeypatch, tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text("def kernel(x):\n    y = load(x)\n    breakpoint()\n")
    seen = {}

    def hook():
        frame = sys._getframe(1)
        seen.update(file=frame.f_code.co_filename, line=frame.f_lineno, name=frame.f_code.co_name)
        seen["values"] = {**frame.f_locals}

    monkeypatch.setattr(sys, "breakpointhook", hook)
    k = Kernel(("x", pointer(int32)))
    offsets = k.arange(4)
    loaded = k.load(k.params[0], offsets, k.below(offsets, 2))
    k.loc = Loc(str(file), 3, function="kernel")
    k.emit(debug.breakpoint_, offsets, loaded, loaded, names=("offsets", "y", "state.acc"))
    run(k.done(), np.array([5, 6, 7, 8], np.int32))
    assert (seen["file"], seen["line"], seen["name"]) == (str(file), 3, "kernel")
    np.testing.assert_array_equal(seen["values"]["offsets"], np.arange(4))
    assert seen["values"]["y"].mask.tolist() == [False, False, True, True]
    assert seen["values"]["state"].acc[1] == 6
    assert seen["values"]["pid"] == (0, 0, 0)


def test_breakpoint_in_pdb(monkeypatch, tmp_path):
    """The real debugger shows the kernel's line and its values."""
    file = tmp_path / "kernels.py"
    file.write_text("def kernel(x):\n    y = load(x)\n    breakpoint()  # here\n")
    shown = StringIO()
    debugger = Pdb(stdin=StringIO("where\np y.sum()\ncontinue\n"), stdout=shown)
    monkeypatch.setattr(sys, "breakpointhook", lambda: debugger.set_trace(sys._getframe(1)))
    k = Kernel(("x", pointer(int32)))
    loaded = k.load(k.params[0], k.arange(4))
    k.loc = Loc(str(file), 3, function="kernel")
    k.emit(debug.breakpoint_, loaded, names=("y",))
    trace = sys.gettrace()
    try:
        run(k.done(), np.array([5, 6, 7, 8], np.int32))
    finally:
        sys.settrace(trace)
    assert "kernels.py(3)kernel()" in shown.getvalue()
    assert "# here" in shown.getvalue()
    assert "26" in shown.getvalue()
