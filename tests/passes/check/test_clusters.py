"""What the compiler refuses between the blocks of a cluster, and where it has them meet."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.cuda.rules.test_clusters import described
from tests.kernels.test_clusters import blocked, copy_blocks, offsets
from weft import language as gl
from weft.errors import LayoutError, UserError
from weft.language.nvidia.hopper import async_copy, cluster, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptorIm2Col

ROWS, COLUMNS, COPIES = blocked([[1, 0]]), blocked([[0, 1]]), blocked([[0, 0]])


@weft.jit
def copied(x, layout: gl.constexpr, shared: gl.constexpr):
    i, j = offsets(64, 64, layout)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], shared)
    async_copy.async_copy_global_to_shared(memory, x + i * 64 + j)


def error_of(kernel, *args, **options) -> UserError:
    with pytest.raises(UserError) as caught:
        kernel.warmup(*args, num_ctas=2, **options)
    assert caught.value.loc is not None
    return caught.value


SWIZZLED = gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=[[1, 0]])


def test_copies_stay_in_their_block():
    error = error_of(copied, gl.float32, COLUMNS, SWIZZLED)
    assert isinstance(error, LayoutError)
    assert error.code == "cluster-exchange"
    assert "those of the tile lie at [[0, 32]]" in error.message
    assert "cp.async writes its own block's memory only" in error.fix


# Barriers


@weft.jit
def role(x):
    cluster.arrive()
    cluster.wait()


@weft.jit
def idle(x):
    gl.store(x, 1.0)


@weft.jit
def specialised(x, kind: gl.constexpr):
    if kind == "nested":
        for _ in range(2):
            cluster.arrive()
            gl.store(x, 2.0)
            cluster.wait()
    gl.warp_specialize([(idle, (x,)), (role if kind == "partition" else idle, (x,))], [1], [24])


@pytest.mark.parametrize(("kind", "code"), [("nested", "cluster-nested"), ("partition", "cluster-partition")])
def test_barriers_that_not_all_threads_reach(kind, code):
    assert error_of(specialised, gl.float32, kind).code == code


@weft.jit
def pixels(x, MULTICAST: gl.constexpr):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load_im2col(x, [0, 0, 0, 0], [0, 0], bar, memory, multicast=MULTICAST)
    mbarrier.wait(bar, 0)


def test_pixels_are_not_split():
    def image(cga):
        layout = gl.NVMMASharedLayout(0, 32, 2, cga_layout=cga)
        return TensorDescriptorIm2Col.from_tensor(np.zeros((1, 8, 8, 16), np.float32), [16, 16], layout)

    compiled = pixels.warmup(image([[0, 0]]), True, num_ctas=2)
    assert "tma_load_im2col_multicast_4d" in compiled.asm["cuda"]
    assert error_of(pixels, image([[0, 1]]), False).code == "cluster-im2col"


def meetings(compiled) -> list[str]:
    return [line.strip() for line in compiled.asm["ir"].splitlines() if "cluster.arrive" in line]


def test_blocks_meet_before_and_after_one_reaches_into_another():
    x, y = (described((128, 256), [64, 64], [[0, 0]], np.float16) for _ in range(2))
    compiled = copy_blocks.warmup(y, x, gl.float16, COPIES, True, num_ctas=2)
    first, own, last = meetings(compiled)
    lines = [line for line in compiled.asm["sync"].splitlines() if "cluster barrier" in line]
    assert [line.partition("barrier, ")[2][:8] for line in lines] == ["inserted", "as writt", "inserted"]
    assert "after mbarrier.init, before other blocks signal it" in first
    assert own == "cluster.arrive"
    assert "before a block exits while others use its memory" in last
    bare = weft.jit(sync="none")(copy_blocks.fn)
    assert meetings(bare.warmup(y, x, gl.float16, COPIES, True, num_ctas=2)) == ["cluster.arrive"]
    assert meetings(copy_blocks.warmup(y, x, gl.float16, COPIES, False, num_ctas=2)) == []


@weft.jit
def meets_itself(x):
    memory = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    cluster.barrier()
    mbarrier.expect(bar, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], bar, memory, multicast=True)
    mbarrier.wait(bar, 0)
    cluster.arrive(relaxed=True)
    cluster.wait()


def test_blocks_that_meet_already_are_left_alone():
    x = described((128, 256), [64, 64], [[0, 0]])
    assert all("reason" not in line for line in meetings(meets_itself.warmup(x, num_ctas=2)))


@weft.jit
def reuse(x, layout: gl.constexpr, MEET: gl.constexpr):
    i, j = offsets(64, 64, layout)
    memory = gl.allocate_shared_memory(gl.float32, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    memory.store(gl.load(x + i * 64 + j))
    cluster.arrive(relaxed=MEET == "relaxed")
    if MEET == "between":
        memory.store(gl.load(x + j * 64 + i))
    cluster.wait()
    gl.store(x + i * 64 + j, gl.convert_layout(memory.load(COLUMN), layout))


COLUMN = gl.BlockedLayout([4, 1], [8, 4], [1, 4], [0, 1], cga_layout=[[0, 0]])


@pytest.mark.parametrize(("meet", "barriers"), [("all", 0), ("relaxed", 1), ("between", 1)])
def test_the_barrier_of_the_cluster_is_one_of_the_block(meet, barriers):
    text = reuse.warmup(gl.float32, COPIES, meet, num_ctas=2).asm["ir"]
    assert text.count("sync.barrier") == barriers
