"""What handles are called, in IR and so in reports: the outermost name that the author has for one."""

from __future__ import annotations

from tests.lang.support import jit, ops, read
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier

TILE = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
NVMMA = gl.NVMMASharedLayout(128, 16, 2)


@jit
def make_barriers(count):
    bars = gl.allocate_shared_memory(gl.int64, [count, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(count):
        mbarrier.init(bars.index(slot), count=1)
    return bars


@jit
def make_two():
    inner = make_barriers(2)
    other = make_barriers(3)
    return inner, other


@jit
def hand_back(given):
    local = given
    local.store(gl.zeros([64, 64], gl.float16, TILE))
    return local


def test_the_outermost_name_of_a_handle_counts():
    """A helper has a name for what it makes, but its caller's says more; what is handed through keeps its own."""

    @jit
    def kernel():
        ready = make_barriers(2)
        free, turn = make_two()
        mine = gl.allocate_shared_memory(gl.float16, [64, 64], NVMMA)
        again = hand_back(mine)
        last = again
        mbarrier.invalidate(make_barriers(4).index(0))
        for bars in (ready, turn, free):
            mbarrier.invalidate(bars.index(0))
        last.store(gl.zeros([64, 64], gl.float16, TILE))

    names = [alloc.result.name for alloc in ops(read(kernel), "shared.alloc")]
    assert names == ["ready", "free", "turn", "mine", "bars"]
