"""Launches taken over, and rows gathered and scattered by TMA: which operations the functions become."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import building
from weft import language as gl
from weft.language.nvidia.blackwell import clc, mbarrier, tma
from weft.language.nvidia.hopper import tma as hopper_tma

PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [0])


@pytest.fixture
def kernel() -> Any:
    with building(target="sm_100a") as made:
        yield made


def test_a_request_and_its_answer(kernel):
    results, bar = gl.allocate_shared_memory(gl.int64, [3, 2], PLAIN), mbarrier.allocate_mbarrier()
    result = results.index(1)
    clc.try_cancel(result, bar)
    op = kernel.last("clc.try_cancel")
    assert (op.operands, op.attrs) == ((result.handle, bar.handle), {"multicast": False})
    answer = clc.load_result(result)
    low, high = kernel.last("clc.load").results
    assert isinstance(answer, clc.clc_result)
    taken = answer.is_canceled()
    assert kernel.last("clc.is_canceled").operands == (low, high)
    assert str(taken.handle.type) == "i1"
    for dim in range(3):
        assert str(answer.program_id(dim).handle.type) == "i32"
        assert kernel.last("clc.program_id").attrs == {"dim": dim}
    assert "clc_result(" in repr(answer)


def test_several_blocks_may_learn_of_the_answer(kernel):
    result, bar = gl.allocate_shared_memory(gl.int64, [2], PLAIN), mbarrier.allocate_mbarrier()
    clc.try_cancel(result, bar, multicast=True)
    assert kernel.last("clc.try_cancel").attrs == {"multicast": False}, "there are no others"
    with building(target="sm_100a", num_ctas=2) as cluster:
        layout = gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[0]])
        bar = mbarrier.allocate_mbarrier()
        result = gl.allocate_shared_memory(gl.int64, [2], layout)
        clc.try_cancel(result, bar)
        assert cluster.last("clc.try_cancel").attrs == {"multicast": True}
        clc.try_cancel(result, bar, multicast=False)
        assert cluster.last("clc.try_cancel").attrs == {"multicast": False}


def test_gathers_are_hoppers_besides():
    assert set(hopper_tma.__all__) | {"async_gather", "async_scatter"} == set(tma.__all__)
    assert all(getattr(tma, name) is getattr(hopper_tma, name) for name in hopper_tma.__all__)


@pytest.mark.parametrize("count", [8, 32])
def test_rows(kernel, count):
    layout = gl.NVMMASharedLayout.get_default_for([count, 64], gl.float16)
    desc = kernel.descriptor(block=(1, 64), layout=layout)
    rows, bar, pred = kernel.tile(gl.int32, (count,)), mbarrier.allocate_mbarrier(), kernel.scalar(gl.int1)
    memory = gl.allocate_shared_memory(gl.float16, [count, 64], layout)
    tma.async_gather(desc, rows, 8, bar, memory, pred=pred)
    *operands, column = kernel.last("tma.gather").operands
    assert operands == [x.handle for x in (desc.handle, bar, memory, pred, rows)]
    assert str(column.type) == "i32"
    tma.async_scatter(desc, rows, kernel.scalar(gl.int32, "y"), memory)
    *operands, column = kernel.last("tma.scatter").operands
    assert operands == [x.handle for x in (desc.handle, memory, rows)]
    assert column.name == "y"
