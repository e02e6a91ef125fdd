"""Programs of several blocks as text, and the instructions that become of it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, pointer, text_of
from tests.kernels.test_cluster_senders import swap_work
from tests.kernels.test_clusters import add_row_block, copy_blocks, scale, specialised_sum
from weft import language as gl
from weft.ir.types import float32, int32, int64
from weft.nvidia.hopper import TensorDescriptor
from weft.ops import arith, cluster, control, regs, shared
from weft.runtime.sass import disassemble

COPIES = [[0, 0]]
LAYOUT = gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0], cga_layout=COPIES)
each_hopper = pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])


def described(shape, block, cga, dtype=np.float32):
    element = {np.float32: gl.float32, np.float16: gl.float16}[dtype]
    layout = gl.NVMMASharedLayout.get_default_for(block, element, cga_layout=cga)
    return TensorDescriptor.from_tensor(np.zeros(shape, dtype), block, layout)


def machine_code(compiled):
    assert compiled.n_spills == 0
    return disassemble(compiled.binary.cubin)


def copies(arch, multicast, blocks=2, cga=COPIES):
    """The kernel of `copy_blocks`, whose `out` is an array."""
    x, y = (described((128, 256), [64, 64], cga, np.float16) for _ in range(2))
    layout = gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0], cga_layout=cga)
    return copy_blocks.warmup(y, x, gl.float16, layout, multicast, target=arch, num_ctas=blocks)


@needs_nvrtc
@each_hopper
def test_a_load_for_all_blocks(arch):
    compiled = copies(arch, multicast=True)
    code = machine_code(compiled)
    assert re.search(r"UTMALDG\.2D\.MULTICAST", code)
    assert "UCGABAR_ARV" in code and "UCGABAR_WAIT" in code
    assert "0x3);" in compiled.asm["cuda"]
    assert "if (on)" in compiled.asm["cuda"]


@needs_nvrtc
@each_hopper
def test_a_load_for_some_of_the_blocks(arch):
    text = copies(arch, multicast=True, blocks=4, cga=[[0, 0], [1, 0]]).asm["cuda"]
    assert "(u16)(0x3 << cluster_rank())" in text


@needs_nvrtc
@each_hopper
def test_a_load_for_each_block(arch):
    compiled = copies(arch, multicast=False, cga=[[1, 0]])
    code = machine_code(compiled)
    assert "UTMALDG.2D" in code and "MULTICAST" not in code and "UCGABAR" not in code


@needs_nvrtc
@each_hopper
def test_arrivals_at_the_first_block(arch):
    a, out = (described((128, 256), [64, 64], [[1, 0]]) for _ in range(2))
    b = described((1, 256), [1, 64], COPIES)
    layout = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0], cga_layout=[[1, 0]])
    compiled = add_row_block.warmup(out, a, b, layout, 4, [[0]], target=arch, num_ctas=2)
    text = compiled.asm["cuda"]
    assert "mbar_arrive_in(empty, cluster_rank() & -2, 1);" in text
    assert "mbar_init(empty, 2);" in text
    # All that blocks tell each other of is shared memory.
    assert "mbarrier.arrive.shared::cluster.b64" in text and "fence_cluster" not in text
    assert "MULTICAST" in machine_code(compiled)


@needs_nvrtc
@each_hopper
def test_every_block_sends(arch):
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=COPIES)
    b = described((16, 448), [16, 64], COPIES)
    compiled = swap_work.warmup(gl.float32, b, layout, 7, 2, target=arch, num_ctas=2)
    text = compiled.asm["cuda"]
    assert re.search(r"r < 2; \+\+r\) mbar_arrive_in\(\w+, r, 1\);", text)
    assert "rank == 0" in text and "rank == 1" in text
    assert "UTMALDG.2D.MULTICAST" in machine_code(compiled)
    quarters = [[0, 0], [1, 0]]
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=quarters)
    b = described((16, 448), [16, 64], quarters)
    text = swap_work.warmup(gl.float32, b, layout, 7, 2, target=arch, num_ctas=4).asm["cuda"]
    assert "(u16)(0x3 << (cluster_rank() & -2))" in text


@needs_nvrtc
@each_hopper
def test_all_warps_come_to_the_barrier(arch):
    """Partitions other than the first come to the barriers that stand before and after they are specialised."""
    layout = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0], cga_layout=COPIES)
    compiled = specialised_sum.warmup(
        gl.float32, described((16, 448), [16, 64], COPIES), 7, layout, [[0]], target=arch, num_ctas=2
    )
    text = compiled.asm["cuda"]
    assert text.count("cluster_wait();") == 3 * 2
    # Threads write to global memory.
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64" in text and "fence_cluster();" in text
    assert "UCGABAR_ARV" in machine_code(compiled)


@needs_nvrtc
def test_programs_of_several_blocks():
    args = gl.float32, gl.float32, 317, 59, 4.0, 64, 64
    alone = scale.warmup(*args, gl.BlockedLayout([1, 4], [4, 8], [2, 2], [1, 0])).asm["cuda"]
    assert "cluster_" not in alone and "(int)blockIdx.x;" in alone and "(int)gridDim.x;" in alone
    text = scale.warmup(*args, LAYOUT, num_ctas=2).asm["cuda"]
    assert "(int)(blockIdx.x / 2);" in text and "(int)(gridDim.x / 2);" in text and "cluster_rank()" in text


def test_the_barrier_reads_well():
    k = Kernel(("out", pointer(int32)))
    (out,) = k.params
    first = k.emit(arith.cmp, k.emit(cluster.rank), k.number(0), predicate="eq")
    k.emit(cluster.arrive, relaxed=True)
    k.emit(cluster.wait)
    k.emit(cluster.arrive)
    k.emit(cluster.wait)
    with k.region() as then:
        k.emit(control.yield_)
    with k.region() as orelse:
        k.emit(control.yield_)
    k.emit(control.if_, first, regions=(then.done, orelse.done))
    k.store(out, k.number(1, count=1))
    text = text_of(k.done())
    assert re.findall(r"^ +(cluster_\w+\(\);)", text, re.MULTILINE) == [
        "cluster_arrive_relaxed();", "cluster_wait();", "cluster_arrive();", "cluster_wait();",
    ]  # fmt: skip


@needs_nvrtc
@each_hopper
@pytest.mark.parametrize("masked", [False, True])
def test_accesses_to_other_blocks(arch, masked):
    """Each access is to the block of its own rank, as wide as one to the block's own memory."""
    k = Kernel(("out", pointer(float32)), ("n", int32), num_ctas=4, shared_bytes=4104)
    out, n = k.params
    memory = k.emit(shared.scratch, dtype=float32, count=1024, tag=0, offset=0)
    bars = k.emit(shared.scratch, dtype=int64, count=1, tag=1, offset=4096)
    base = k.emit(arith.mul, k.thread(), k.number(4))
    peer = k.emit(arith.xor, k.emit(cluster.rank), k.number(1))
    mask = k.emit(arith.cmp, base, n, predicate="lt") if masked else None
    table = {"offsets": (0, 512), "peers": (0, 2), "registers": ((0, 1, 2, 3), (4, 5, 6, 7)), "vec": 4}
    values = k.emit(cluster.load_regs, memory, base, peer, **table)
    k.emit(cluster.store_regs, memory, base, peer, values, mask, **table)
    index, peers = (k.emit(regs.splat, scalar, count=2) for scalar in (base, peer))
    single = k.emit(cluster.load_at, memory, index, peers)
    k.emit(cluster.store_at, memory, index, peers, single, mask)
    k.store(out, single)
    bar = k.emit(shared.view, bars, k.number(0), element=int64, count=1)
    k.emit(cluster.async_store_regs, memory, base, peer, values, bar, mask, **table)
    many = None if mask is None else k.emit(regs.splat, mask, count=2)
    k.emit(cluster.atomic_at, memory, index, peers, single, many, kind="add")
    k.store(out, k.emit(cluster.atomic_at, memory, index, peers, single, many, kind="xchg"))
    func = k.done()
    text = text_of(func, arch)
    assert "store_cluster_async_f32x4" in text and "atomic_cluster_add_f32" in text
    assert "peer_address(scratch, t_3 ^ (2 * r)) + 4 * (t_1 ^ (512 * r))" in text
    made = compiled(func, arch)
    assert made.n_spills == 0
    code = disassemble(made.cubin)
    assert len(re.findall(r"\bST\.?AS\.128|\bSTAS\S*\.128", code)) == 2
    # Accesses to distributed shared memory are generic ones in machine code.
    assert len(re.findall(r"\bLD\.E\.128", code)) == len(re.findall(r"\bST\.E\.128", code)) == 2


@needs_nvrtc
@each_hopper
def test_a_barrier_of_a_partition_in_all_blocks(arch):
    k = Kernel(("out", pointer(int32)), num_ctas=4, shared_bytes=8)
    bars = k.emit(shared.scratch, dtype=int64, count=1, tag=0, offset=0, name="bars")
    bar = k.emit(shared.view, bars, k.number(0), element=int64, count=1, name="bar")
    k.emit(cluster.barrier, bar)
    k.store(k.params[0], k.number(1, count=1))
    func = k.done()
    assert "cluster_barrier(bars, 4);" in text_of(func, arch)
    code = disassemble(compiled(func, arch).cubin)
    assert "SYNCS.ARRIVE" in code and "SYNCS.PHASECHK" in code
