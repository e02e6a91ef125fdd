"""Cluster launch control as text, and the instructions that become of it."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.cuda.rules.test_async import barriers, room, sass
from weft.ir.core import Func
from weft.ir.types import ScalarType, int1, int32, int64
from weft.ops import arith, clc, control, mbarrier, memory, regs

ARCH = "sm_100a"


def stealing(num_ctas: int = 1, multicast: bool = False) -> Func:
    """Write the places of programs that have not been launched, until there are none."""
    k = Kernel(("out", pointer(int32)), num_ctas=num_ctas)
    (bar,), answer = barriers(k), room(k, int64, 2, 64, "result")
    with k.region([ScalarType(int32), ScalarType(int1)], ["i", "taken"]) as before:
        k.emit(control.condition, before.args[1], before.args[0])
    with k.region([ScalarType(int32)], ["i"]) as body:
        (i,) = body.args
        k.emit(mbarrier.expect, bar, None, bytes=clc.RESPONSE_BYTES)
        k.emit(clc.try_cancel, answer, bar, multicast=multicast)
        k.emit(mbarrier.wait, bar, k.emit(arith.and_, i, k.number(1)), None)
        halves = k.emit(clc.load, answer)
        taken = k.emit(clc.is_canceled, *halves, name="taken")
        ids = [k.emit(clc.program_id, *halves, dim=dim, name=f"pid_{dim}") for dim in range(3)]
        place = k.emit(memory.addptr, k.params[0], k.emit(arith.mul, i, k.number(3)))
        for dim, pid in enumerate(ids):
            k.store(k.emit(memory.addptr, place, k.number(dim)), k.emit(regs.splat, pid, count=1))
        k.emit(control.yield_, k.emit(arith.add, i, k.number(1)), taken)
    k.emit(control.while_, k.number(0), k.number(True, int1), regions=(before.done, body.done))
    return k.done()


@pytest.mark.parametrize("num_ctas", [1, 2])
def test_the_text_of_a_response(num_ctas):
    """The request shares the branch of its barrier's bytes. A thread that has read a response executes a proxy fence, since the
    async proxy writes the next one. Blocks are counted along x, programs are clusters of them."""
    text = re.sub(r" *#line.*\n", "", text_of(stealing(num_ctas), ARCH))
    assert "if (warp == 0 && elect_one()) { mbar_expect(bars, 16); clc_try_cancel(result, bars); }" in text
    assert "i64 response[2];\n    load_shared_i64x2(response, result);\n    fence_async();" in text
    x = "(int)(clc_first_block_x(t_1, t_2) / 2)" if num_ctas == 2 else "(int)clc_first_block_x(t_1, t_2)"
    assert "= clc_is_canceled(t_1, t_2);" in text
    assert f"pid_0 = {x};" in text and "pid_1 = (int)clc_first_block_y(t_1, t_2);" in text
    assert "#pragma unroll 1\n  for (;;)" in text


@needs_nvrtc
@pytest.mark.parametrize("multicast", [False, True])
def test_requests_and_answers(multicast):
    func = stealing(2, multicast)
    text = sass(func, ARCH)
    assert len(re.findall(rf"UGETNEXTWORKID\.{'BROADCAST' if multicast else 'SELFCAST'} ", text)) == 1
    assert "LDS.128" in text and "VOTE" not in text
    ptx = compiled(func, ARCH).ptx
    assert ("multicast::cluster::all" in ptx) == multicast
    assert all(f"get_first_ctaid::{axis}.b32.b128" in ptx for axis in "xyz")
