"""Products into tensor memory: which operations the functions become, what they accept, and which blocks learn of the end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import building
from weft import language as gl
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tcgen05_mma_scaled,
    tma,
)

FP8 = (gl.float8e4nv, gl.float8e5)
BYTES = (gl.int8, gl.uint8)
PAIRS = [
    (gl.float16, gl.float16, gl.float32),
    (gl.float16, gl.float16, gl.float16),
    (gl.bfloat16, gl.bfloat16, gl.float32),
    (gl.float32, gl.float32, gl.float32),
    *[(a, b, acc) for a in FP8 for b in FP8 for acc in (gl.float32, gl.float16)],
    *[(a, b, gl.int32) for a in BYTES for b in BYTES],
]


@pytest.fixture
def kernel() -> Any:
    with building(target="sm_100a") as made:
        yield made


def smem(shape: Any, element: Any = gl.float16, cga: Any = None) -> Any:
    layout = gl.NVMMASharedLayout.get_default_for(shape[-2:], element, cga_layout=cga)
    return gl.allocate_shared_memory(element, shape, layout)


def accumulator(element: Any = gl.float32, shape: Any = (128, 64)) -> Any:
    return allocate_tensor_memory(element, shape, TensorMemoryLayout(shape[-2:], col_stride=32 // element.bits))


def scales(element: Any, rows: int, columns: int) -> Any:
    return allocate_tensor_memory(element, [rows, columns], TensorMemoryScalesLayout())


def barrier() -> Any:
    return mbarrier.allocate_mbarrier()


@pytest.mark.parametrize(("a", "b", "acc"), PAIRS)
def test_every_pair_of_types(kernel, a, b, acc):
    total = accumulator(acc)
    left, right = smem([128, 64], a), smem([64, 64], b).permute([1, 0])
    assert tcgen05_mma(left, right, total) is None
    assert kernel.last("tcgen05.mma").operands == (left.handle, right.handle, total.handle, None, None)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("columns", [16, 64, 256, 512])
def test_shapes(kernel, rows, columns):
    total = allocate_tensor_memory(gl.float32, [rows, columns], TensorMemoryLayout([rows, min(columns, 256)]))
    tcgen05_mma(smem([rows, 128]), smem([128, columns]), total)
    assert kernel.last("tcgen05.mma").operands[2] is total.handle


def test_a_left_operand_in_tensor_memory(kernel):
    a = allocate_tensor_memory(gl.float16, [128, 64], TensorMemoryLayout([128, 64]))
    tcgen05_mma(a, smem([64, 64]), accumulator())
    assert kernel.last("tcgen05.mma").operands[0] is a.handle


def test_parts(kernel):
    a, b, total = smem([2, 128, 64]), smem([2, 64, 128]), accumulator(shape=(2, 128, 128))
    tcgen05_mma(a.index(0), b.index(1).slice(64, 64, dim=1), total.index(1).slice(64, 64))
    tcgen05_mma(a.index(1).slice(32, 32, dim=1), b.index(0).slice(0, 32, dim=0), total.index(0))
    assert kernel.names.count("tcgen05.mma") == 2


@pytest.mark.parametrize("no", [False, gl.constexpr(False)])
def test_conditions_that_are_known(kernel, no):
    tcgen05_mma(smem([128, 64]), smem([64, 64]), accumulator(), use_acc=no, pred=gl.constexpr(True))
    constant, product = kernel.ops[-2:]
    assert product.operands[3:] == (constant.results[0], None)
    assert (constant.attrs["value"], str(constant.results[0].type)) == (False, "i1")


def test_conditions_of_run_time(kernel):
    use_acc, pred = kernel.scalar(gl.int1), kernel.scalar(gl.int32)
    tcgen05_mma(smem([128, 64]), smem([64, 64]), accumulator(), use_acc=use_acc, pred=pred)
    got, other = kernel.last("tcgen05.mma").operands[3:]
    assert got is use_acc.handle
    assert str(other.type) == "i1"


def test_barriers_of_a_product(kernel):
    first, second, pred, mine = barrier(), barrier(), kernel.scalar(gl.int1, "p"), kernel.scalar(gl.int1, "q")
    a, b, total = smem([128, 64]), smem([64, 64]), accumulator()
    tcgen05_mma(a, b, total, mbarriers=[first, second])
    *_, product, one, other = kernel.ops
    assert product.name == "tcgen05.mma"
    assert [op.operands for op in (one, other)] == [(first.handle, None), (second.handle, None)]
    assert [op.attrs for op in (one, other)] == [{"receivers": ()}] * 2
    tcgen05_mma(a, b, total, pred=pred, mbarriers=(first, second), mbarrier_preds=[True, mine])
    *_, product, one, both, other = kernel.ops
    assert product.operands[4] is one.operands[1] is pred.handle
    assert (both.name, both.operands) == ("arith.and", (pred.handle, mine.handle))
    assert other.operands == (second.handle, both.results[0])


def test_no_barriers_no_commit(kernel):
    for given in (None, []):
        tcgen05_mma(smem([128, 64]), smem([64, 64]), accumulator(), mbarriers=given)
    assert "tcgen05.commit" not in kernel.names


def test_a_commit(kernel):
    bar, pred = barrier(), kernel.scalar(gl.int1)
    tcgen05_commit(bar)
    assert kernel.last("tcgen05.commit").operands == (bar.handle, None)
    tcgen05_commit(bar, pred)
    assert kernel.last("tcgen05.commit").operands == (bar.handle, pred.handle)
    tcgen05_commit(bar, descs=[smem([128, 64])])
    assert kernel.last("tcgen05.commit").attrs == {"receivers": ()}


def test_a_fence(kernel):
    tcgen05_fence(before=True)
    assert kernel.last("tcgen05.fence").attrs == {"before": True, "reason": ""}
    tcgen05_fence(False)
    assert kernel.last("tcgen05.fence").attrs["before"] is False


@pytest.mark.parametrize("a_type", ["e4m3", "e5m2"])
@pytest.mark.parametrize("b_type", ["e4m3", "e5m2"])
def test_scaled_bytes(kernel, a_type, b_type):
    elements = {"e4m3": gl.float8e4nv, "e5m2": gl.float8e5}
    a, b = smem([128, 128], elements[a_type]), smem([64, 128], elements[b_type]).permute([1, 0])
    a_scale, b_scale, total, bar = scales(gl.uint8, 128, 4), scales(gl.uint8, 64, 4), accumulator(), barrier()
    tcgen05_mma_scaled(a, b, total, a_scale, b_scale, a_type, b_type, use_acc=False, mbarriers=[bar])
    product, commit = kernel.ops[-2:]
    assert product.operands[:5] == tuple(x.handle for x in (a, b, total, a_scale, b_scale))
    assert product.attrs == {"a_type": a_type, "b_type": b_type}
    assert commit.operands == (bar.handle, None)


@pytest.mark.parametrize(("element", "run"), [(gl.uint8, 32), (gl.float8e4nv, 16)])
def test_scaled_pairs_of_fp4(kernel, element, run):
    # 128 bytes of e2m1 are 256 elements along K.
    a, b = smem([128, 128], gl.uint8), smem([64, 128], gl.uint8).permute([1, 0])
    a_scale, b_scale = scales(element, 128, 256 // run), scales(element, 64, 256 // run)
    tcgen05_mma_scaled(a, b, accumulator(), a_scale, b_scale, "e2m1", "e2m1")
    assert kernel.last("tcgen05.mma_scaled").attrs == {"a_type": "e2m1", "b_type": "e2m1"}


def test_scaled_fp4_beside_fp8(kernel):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.uint8, fp4_padded=True)
    a, b = smem([128, 128], gl.float8e4nv), gl.allocate_shared_memory(gl.uint8, [64, 64], layout).permute([1, 0])
    tcgen05_mma_scaled(a, b, accumulator(), scales(gl.uint8, 128, 4), scales(gl.uint8, 64, 4), "e4m3", "e2m1")
    assert kernel.last("tcgen05.mma_scaled").attrs == {"a_type": "e4m3", "b_type": "e2m1"}


def test_a_copy(kernel):
    layout = gl.NVMMASharedLayout(0, 32, 2)
    src, dst = gl.allocate_shared_memory(gl.float32, [128, 4], layout), accumulator(shape=(128, 4))
    tcgen05_copy(src, dst)
    assert kernel.last("tcgen05.copy").operands == (src.handle, dst.handle)


# Two blocks that multiply together, and operands that several blocks receive


def pair(rows: int = 256) -> Any:
    layout = TensorMemoryLayout([rows // 2, 128], cga_layout=[[1, 0]], two_ctas=True)
    a, b = smem([rows, 64], cga=[[1, 0]]), smem([64, 128], cga=[[0, 1]])
    return a, b, allocate_tensor_memory(gl.float32, [rows, 128], layout)


def test_both_blocks_learn_of_the_end():
    with building(target="sm_100a", num_ctas=2) as kernel:
        a, b, total = pair()
        bar = barrier()
        tcgen05_mma(a, b, total, mbarriers=[bar])
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (1,)}
        tcgen05_commit(bar)
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (1,)}
        shared = mbarrier.allocate_mbarrier(two_ctas=True)
        tcgen05_commit(shared)
        assert kernel.last("tcgen05.commit").attrs == {"receivers": ()}
        assert tcgen05_mma_barrier_count([a, b], True, True) == tcgen05_mma_barrier_count([], True, True) == 1


def test_receivers_of_multicast_operands():
    rows, columns = [[1, 0], [0, 0]], [[0, 0], [0, 1]]
    with building(target="sm_100a", num_ctas=4) as kernel:
        a, b = smem([256, 64], cga=rows), smem([64, 128], cga=columns)
        layout = TensorMemoryLayout([128, 64], cga_layout=[[1, 0], [0, 1]])
        total, bar = allocate_tensor_memory(gl.float32, [256, 128], layout), barrier()
        # Blocks 0 and 2 share the rows of a, 0 and 1 the columns of b.
        tcgen05_mma(a, b, total, mbarriers=[bar], multicast=True)
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (1, 2)}
        tcgen05_mma(a, b, total, mbarriers=[bar])
        assert kernel.last("tcgen05.commit").attrs == {"receivers": ()}
        tcgen05_commit(bar, descs=(a,))
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (2,)}
        assert tcgen05_mma_barrier_count([a, b], True, False) == 3
        assert tcgen05_mma_barrier_count((a,), gl.constexpr(True), False) == 2
        assert tcgen05_mma_barrier_count([a, b], False, False) == 1


def test_receivers_of_multicast_operands_of_pairs():
    with building(target="sm_100a", num_ctas=4) as kernel:
        a, b = smem([256, 64], cga=[[1, 0], [0, 0]]), smem([64, 256], cga=[[0, 1], [0, 2]])
        layout = TensorMemoryLayout([128, 128], cga_layout=[[1, 0], [0, 1]], two_ctas=True)
        total, bar = allocate_tensor_memory(gl.float32, [256, 256], layout), barrier()
        tcgen05_mma(a, b, total, mbarriers=[bar], multicast=True)
        # What both blocks of the other pair read of a is in the larger mask.
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (3,)}
        assert tcgen05_mma_barrier_count([a, b], True, True) == 2
        shared = mbarrier.allocate_mbarrier(two_ctas=True)
        tcgen05_commit(shared, descs=[a, b])
        assert kernel.last("tcgen05.commit").attrs == {"receivers": (2,)}


def test_loads_of_two_blocks_arrive_on_one_barrier():
    with building(target="sm_100a", num_ctas=2) as kernel:
        layout = gl.NVMMASharedLayout.get_default_for([256, 64], gl.float16, cga_layout=[[1, 0]])
        desc, bar = kernel.descriptor(block=(256, 64), layout=layout), mbarrier.allocate_mbarrier(two_ctas=True)
        memory = gl.allocate_shared_memory(gl.float16, [256, 64], layout)
        tma.async_load(desc, [0, 0], bar, memory)
        assert kernel.last("tma.load").attrs["shared_by"] == 1
        tma.async_load(desc, [0, 0], mbarrier.allocate_mbarrier(), memory)
        assert kernel.last("tma.load").attrs["shared_by"] == 0
