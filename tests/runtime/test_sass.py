"""Scheduling decoded from instruction encodings."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from weft.errors import DeviceError
from weft.runtime import nvrtc, sass
from weft.runtime.sass import Control, control

# As nvdisasm and cuobjdump print them (CUDA 13): S2R, LEA that waits for it, LDG, FADD behind it.
LISTING = """
\t.text.k:
.text.k:
        /*0010*/                   S2R R7, SR_CTAID.X ;                /* 0x0000000000077919 */
                                                                       /* 0x000e220000002500 */
        /*0050*/                   LEA R7, R7, R6, 0x7 ;               /* 0x0000000607077211 */
                                                                       /* 0x001fc800078e38ff */
.L_x_0:
        /*00a0*/              @!P0 LDG.E R0, desc[UR6][R2.64] ;        /* 0x0000000602008981 */
                                                                       /* 0x0000a2000c1e1900 */
"""


def test_known_encodings():
    assert list(sass.annotate(LISTING)) == [
        "k:",
        "--:-:0:-:1  S2R R7, SR_CTAID.X;",
        "01:-:-:Y:4  LEA R7, R7, R6, 0x7;",
        ".L_x_0:",
        "--:0:2:-:1  @!P0 LDG.E R0, desc[UR6][R2.64];",
    ]


barrier = st.none() | st.integers(0, 6)


@given(st.integers(0, 63), barrier, barrier, st.booleans(), st.integers(0, 15), st.integers(0, 2**105 - 1))
@settings(deadline=None, max_examples=examples(200))
def test_control_reads_back_every_field(wait, read, write, yields, stall, rest):
    bits = stall | (not yields) << 4 | (7 if write is None else write) << 5 | (7 if read is None else read) << 8
    encoding = (bits | wait << 11) << 105 | rest
    assert control(encoding) == Control(wait, read, write, yields, stall)


@pytest.mark.skipif(not nvrtc.available(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")
@pytest.mark.parametrize("tool", ["nvdisasm", "cuobjdump"])
def test_both_tools_give_the_same_instructions(tool, monkeypatch):
    sass._tool.cache_clear()
    monkeypatch.setattr(sass, "_ARGUMENTS", {tool: sass._ARGUMENTS[tool]})
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = x[threadIdx.x + 32] + 1.f; }'
    try:
        text = sass.disassemble(nvrtc.compile_cuda(source, name="k", arch="sm_90a").cubin)
    except DeviceError as error:
        pytest.skip(str(error))
    finally:
        sass._tool.cache_clear()
    lines = text.splitlines()
    assert lines[0] == "k:"
    instructions = [line for line in lines if re.match(r"(--|\d\d):[-0-6]:[-0-6]:[-Y]:[0-9a-f]  ", line)]
    assert any("LDG.E" in line for line in instructions)
    load = next(line for line in instructions if "LDG.E" in line)
    wait, _, sets, *_ = load.split(":")
    assert sets != "-", "a load sets a barrier for its result"
    consumer = next(line for line in instructions if "FADD" in line)
    assert int(consumer[:2].replace("--", "0")) & 1 << int(sets), "and the addition waits for that barrier"
    assert any("EXIT" in line for line in instructions)


def test_no_tool(monkeypatch):
    sass._tool.cache_clear()
    monkeypatch.setattr(sass, "_directories", lambda: iter(()))
    with pytest.raises(DeviceError, match=re.escape("weft[sass]")) as caught:
        sass.disassemble(b"")
    assert caught.value.code == "device-no-disassembler"
    sass._tool.cache_clear()


def test_a_cubin_that_is_none():
    try:
        sass._tool(tuple(sass._ARGUMENTS))
    except DeviceError as error:
        pytest.skip(str(error))
    with pytest.raises(DeviceError) as caught:
        sass.disassemble(b"nonsense")
    assert caught.value.code == "device-disassembler-failed"
