"""Operations that all threads of a block must come to: none may stand under a condition that a thread decides."""

from __future__ import annotations

import pytest

from tests.lang.support import descriptor, jit, ops, read
from weft import language as gl
from weft.analysis.scopes import scopes
from weft.errors import UserError
from weft.lang import RuntimeParam
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

TILE = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
NVMMA = gl.NVMMASharedLayout(128, 16, 2)


@jit
def load_block(smem, bar, desc, ptr):
    tma.async_copy_global_to_shared(desc, [0, 0], bar, smem)


@jit
def store_block(smem, bar, desc, ptr):
    tma.async_copy_shared_to_global(desc, [0, 0], smem)


@jit
def reduce_block(smem, bar, desc, ptr):
    tma.async_atomic_add(desc, [0, 0], smem)


@jit
def wait_for_stores(smem, bar, desc, ptr):
    tma.store_wait(0)


@jit
def fence(smem, bar, desc, ptr):
    fence_async_shared()


@jit
def init(smem, bar, desc, ptr):
    mbarrier.init(bar, count=1)


@jit
def expect(smem, bar, desc, ptr):
    mbarrier.expect(bar, 16)


@jit
def arrive(smem, bar, desc, ptr):
    mbarrier.arrive(bar)


@jit
def wait(smem, bar, desc, ptr):
    mbarrier.wait(bar, 0)


@jit
def invalidate(smem, bar, desc, ptr):
    mbarrier.invalidate(bar)


@jit
def copy(smem, bar, desc, ptr):
    columns = gl.arange(0, 64, gl.SliceLayout(0, TILE))
    rows = gl.arange(0, 64, gl.SliceLayout(1, TILE))
    async_copy.async_copy_global_to_shared(smem, ptr + rows[:, None] * 64 + columns[None, :])


@jit
def copies_arrive(smem, bar, desc, ptr):
    async_copy.mbarrier_arrive(bar)


@jit
def read_memory(smem, bar, desc, ptr):
    smem.load(TILE)


@jit
def write_memory(smem, bar, desc, ptr):
    smem.store(gl.zeros([64, 64], gl.float16, TILE))


COLLECTIVE = {
    "tma.load": load_block,
    "tma.store": store_block,
    "tma.reduce": reduce_block,
    "tma.store_wait": wait_for_stores,
    "sync.fence_async": fence,
    "mbarrier.init": init,
    "mbarrier.expect": expect,
    "mbarrier.arrive": arrive,
    "mbarrier.wait": wait,
    "mbarrier.invalidate": invalidate,
    "async_copy.global_to_shared": copy,
    "async_copy.mbarrier_arrive": copies_arrive,
    "shared.load": read_memory,
    "shared.store": write_memory,
}


@pytest.mark.parametrize("op", COLLECTIVE)
def test_all_threads_come(op):
    body = COLLECTIVE[op]

    @jit
    def kernel(desc, ptr, chosen: gl.constexpr):
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        bar = mbarrier.allocate_mbarrier()
        who = gl.program_id(0) if chosen else gl.lane_id()
        if who < 4:
            body(smem, bar, desc, ptr)

    params = {"desc": descriptor("desc"), "ptr": RuntimeParam(gl.pointer_type(gl.float16))}
    func = read(kernel, **params, chosen=True)
    scopes(func)
    assert ops(func, op)
    func = read(kernel, **params, chosen=False)
    with pytest.raises(UserError) as caught:
        scopes(func)
    assert caught.value.code == "control-scope"
    assert caught.value.related[0][0] == "the condition"


def test_memory_is_one_for_all_threads():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        mine = smem.index(gl.warp_id() % 2)
        mine.load(TILE)

    text = str(narrow(kernel))
    assert "shared.load executes once for the whole block, but 'mine' may differ in each warp" in text
    assert "gl.uniform(x)" in text


def test_a_branch_that_threads_decide_gives_no_memory():
    @jit
    def kernel():
        a = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        b = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        c = a if gl.lane_id() < 4 else b
        c.load(TILE)

    assert "'c' may differ in each thread" in str(narrow(kernel))


@jit
def thread_coordinate(smem, bar, desc):
    tma.async_copy_global_to_shared(desc, [gl.lane_id(), 0], bar, smem)


@jit
def thread_phase(smem, bar, desc):
    mbarrier.wait(bar, gl.lane_id() & 1)


@jit
def thread_predicate(smem, bar, desc):
    mbarrier.arrive(bar, pred=gl.warp_id() == 0)


@pytest.mark.parametrize("body", [thread_coordinate, thread_phase, thread_predicate])
def test_requests_are_one_for_all_threads(body):
    @jit
    def kernel(desc):
        smem = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        body(smem, mbarrier.allocate_mbarrier(), desc)

    assert "executes once for the whole block" in str(narrow(kernel, desc=descriptor("desc")))


def test_what_the_author_claims_to_be_uniform():
    @jit
    def kernel():
        smem = gl.allocate_shared_memory(gl.float16, [2, 64, 64], NVMMA)
        smem.index(gl.uniform(gl.warp_id() // 4)).load(TILE)

    assert scopes(read(kernel))


def narrow(kernel, **params):
    func = read(kernel, **params)
    with pytest.raises(UserError) as caught:
        scopes(func)
    assert caught.value.code == "async-operand-scope"
    assert caught.value.loc is not None
    return caught.value
