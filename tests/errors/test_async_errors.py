"""What authors read when they misuse shared memory, cp.async, mbarriers and TMA: the message and the fix of each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import BLOCKED, MATRIX, Kernel, building
from weft import language as gl
from weft.errors import Row, UserError, asynchronous
from weft.errors import memory as shared
from weft.language.nvidia.ampere import async_copy
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma

NVMMA = gl.NVMMASharedLayout(128, 16, 2)
LINE = gl.SwizzledSharedLayout(1, 1, 1, [0])
ROWS = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])


def named(x: Any, name: str) -> Any:
    x.handle.name = name
    return x


FLAT = gl.NVMMASharedLayout(0, 16, 2)


def smem(shape: Any = (64, 64), layout: Any = NVMMA, element: Any = gl.float16) -> Any:
    return named(gl.allocate_shared_memory(element, shape, layout), "smem")


def line(element: Any = gl.float32, count: int = 128) -> Any:
    return smem([count], LINE, element)


def bar() -> Any:
    return named(mbarrier.allocate_mbarrier(), "bar")


def addresses(k: Kernel, element: Any = gl.float32, count: int = 128, layout: Any = BLOCKED) -> Any:
    return named(k.pointer(element) + gl.arange(0, count, layout), "p")


def load(k: Kernel, memory: Any = None, coord: Any = (0, 0), **descriptor: Any) -> None:
    desc = k.descriptor(**descriptor)
    tma.async_copy_global_to_shared(desc, coord, bar(), smem() if memory is None else memory)


# Code: what the author wrote, and what the report must contain.
MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    # Handles are no numbers
    "shared-handle-operand": (
        lambda k: k.tile() + smem(),
        ("+ needs numbers, but 'smem' (a float16 buffer [64, 64]) is a handle", "smem.load(layout)"),
    ),
    "shared-handle-brackets": (lambda k: smem()[0], ("'smem' (a float16 buffer [64, 64])", ".index(i)")),
    "shared-handle-needed": (
        lambda k: tma.async_copy_shared_to_global(k.descriptor(), [0, 0], bar()),
        ("async_copy_shared_to_global needs a buffer in shared memory, but got 'bar' (an mbarrier)",),
    ),
    # Allocations
    "shared-not-a-layout": (lambda k: smem(layout=BLOCKED), (repr(BLOCKED), "gl.SwizzledSharedLayout(")),
    "shared-rank": (lambda k: smem([64]), ("shape [64] has fewer dimensions than", "tiles of 2")),
    "shared-stages": (lambda k: smem([0, 64, 64]), ("a leading dimension of 0", "the last 2", "at least one tile")),
    "layout-tile-shape": (lambda k: smem([3, 100, 64]), ("[100, 64]", "[128, 64]")),
    "shared-element-bits": (
        lambda k: smem(layout=gl.NVMMASharedLayout(128, 8, 2, fp4_padded=True), element=gl.float32),
        ("float32 have 32 bits", "made for 8", "element_bitwidth=32"),
    ),
    "shared-barrier-element": (
        lambda k: smem([1], mbarrier.MBarrierLayout(), gl.int64).reinterpret(gl.int32, [2]),
        ("not int32", "gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())"),
    ),
    "layout-barrier-shape": (lambda k: smem([2], mbarrier.MBarrierLayout(), gl.int64), ("[2]",)),
    # Views
    "shared-index": (
        lambda k: smem([3, 64, 64]).index(3),
        ("index(3) of 'smem' (a float16 buffer [3, 64, 64])", "counts 3", "from 0 to 2"),
    ),
    "shared-no-stages": (lambda k: smem().index(0), ("all of whose dimensions lie in its layout", ".slice(")),
    "language-integer-scalar": (
        lambda k: smem([3, 64, 64]).index(k.scalar(gl.float32, "i")),
        ("index needs an integer, but got 'i' (a float32 scalar)", ".to(gl.int32)"),
    ),
    "shared-slice": (
        lambda k: smem().slice(48, 32, dim=1),
        ("elements 48 to 80 along dimension 1", "which has 64 there"),
    ),
    "shared-slice-aligned": (
        lambda k: smem().slice(16, 32),
        ("32 elements from 16 on", "starting at a multiple of it"),
    ),
    "shared-slice-stages": (
        lambda k: smem([2, 4, 64, 64]).slice(1, 2, dim=1),
        ("slice of 2 from 1 on along dimension 1 of 'smem'", "bufs.index(i).slice(start, length)"),
    ),
    "shared-permute-stages": (
        lambda k: smem([3, 64, 64]).permute([1, 0, 2]),
        ("permute([1, 0, 2])", "one of its 1 leading dimensions", "bufs.index(i).permute([1, 0])"),
    ),
    "shared-reshape": (lambda k: smem().reshape([64]), ("reshape to [64]", "that counts 64 elements, not 4096")),
    "shared-reinterpret": (
        lambda k: smem().slice(0, 32, dim=1).reinterpret(gl.int8, [4096], LINE),
        ("a part of a tile [64, 64]", "take a .slice of the result"),
    ),
    "layout-reinterpret": (
        lambda k: line()._reinterpret(gl.float16, [64, 64], NVMMA),
        (repr(LINE), repr(NVMMA)),
    ),
    # Accesses
    "shared-several-tiles": (
        lambda k: smem([3, 64, 64]).load(MATRIX),
        ("load of 'smem' (a float16 buffer [3, 64, 64]), which holds several tiles", "bufs.index(i)"),
    ),
    "shared-store": (
        lambda k: smem().store(k.tile(gl.float32, (64, 64))),
        (
            "'x' (a float32 tile [64, 64]) cannot be stored to 'smem' (a float16 buffer [64, 64])",
            "value.to(gl.float16)",
        ),
    ),
    "layout-rank": (lambda k: smem().load(BLOCKED), ("[64, 64]",)),
    "layout-num-warps": (
        lambda k: line().load(gl.BlockedLayout([1], [32], [8], [0])),
        ("spread over 8 warps", "num_warps=4"),
    ),
    "shared-gather": (
        lambda k: line().gather(k.tile(gl.float32), 0),
        ("gather along axis 0", "with a float32 tile [128] as indices"),
    ),
    "shared-scatter": (
        lambda k: line().scatter(k.tile(gl.float16), k.tile(gl.int32, name="i"), 0),
        ("scatter of 'x' (a float16 tile [128])", "'i' (an int32 tile [128]) as indices"),
    ),
    "language-atomic-type": (
        lambda k: line(gl.int8).atomic_scatter_add(k.tile(gl.int8), k.tile(gl.int32, name="i"), 0),
        ("atomic_add does not work on int8", "integers of 32 or 64 bits"),
    ),
    "language-mask-type": (
        lambda k: line(gl.int32).atomic_scatter_max(
            k.tile(gl.int32), k.tile(gl.int32), 0, mask=k.tile(gl.int32, name="m")
        ),
        ("atomic_scatter_max", "'m' (an int32 tile [128])"),
    ),
    "shared-barrier-access": (lambda k: bar().load(BLOCKED), ("load of 'bar' (an mbarrier)", "functions of mbarrier")),
    "shared-bank-conflicts": (
        lambda k: gl.bank_conflicts(k.tile().type, smem().type),
        ("distributed_type(element_ty=float32", "gl.bank_conflicts(x.type, smem.type)"),
    ),
    # cp.async
    "async-copy-tile": (
        lambda k: async_copy.async_copy_global_to_shared(line(gl.float16), addresses(k)),
        ("cannot copy from 'p' (a pointer<float32> tile [128]) to 'smem' (a float16 buffer [128])",),
    ),
    "async-copy-bytes": (
        lambda k: async_copy.async_copy_global_to_shared(line(gl.float16), addresses(k, gl.float16)),
        ("each thread copies one element of 16 bits from 'p'", "at least 2 contiguous elements"),
    ),
    "async-copy-cache": (
        lambda k: async_copy.async_copy_global_to_shared(line(), addresses(k), cache_modifier=".cv"),
        ("no cache modifier '.cv'", "'.ca' or '.cg'"),
    ),
    "language-eviction-policy": (
        lambda k: async_copy.async_copy_global_to_shared(line(), addresses(k), eviction_policy="first"),
        ("'first'",),
    ),
    "language-pointer-needed": (
        lambda k: async_copy.async_copy_global_to_shared(line(), k.tile()),
        ("async_copy_global_to_shared needs",),
    ),
    "async-pendings": (
        lambda k: async_copy.wait_group(-1),
        ("wait_group cannot leave -1 operations in flight", "0 to 63"),
    ),
    # mbarriers
    "async-barrier-array": (
        lambda k: mbarrier.init(named(mbarrier.allocate_mbarrier(batch=3), "bars"), count=1),
        ("init works on one mbarrier, but got 'bars' (an array of 3 mbarriers)", "bars.index(i)"),
    ),
    "async-barrier-layout": (
        lambda k: mbarrier.arrive(line(gl.int32, 1)),
        ("arrive needs an mbarrier, but 'smem' (an int32 buffer [1]) lies in SwizzledSharedLayout", "MBarrierLayout()"),
    ),
    "async-barrier-count": (lambda k: mbarrier.init(bar(), 0), ("init got a count of 0 arrivals", "from 1 to 1048575")),
    "async-expect-bytes": (lambda k: mbarrier.expect(bar(), 1 << 20), ("1048576 bytes", "several barriers")),
    "language-constexpr-needed": (lambda k: mbarrier.expect(bar(), k.scalar(gl.int32, "n")), ("expect", "int32")),
    "async-phase": (lambda k: mbarrier.wait(bar(), 2), ("mbarrier.wait got phase 2", "i // num_buffers & 1")),
    "async-phase-type": (
        lambda k: mbarrier.wait(bar(), k.scalar(gl.float32, "phase")),
        ("is 'phase' (a float32 scalar), not an integer",),
    ),
    "language-predicate": (
        lambda k: mbarrier.arrive(bar(), pred=k.tile(gl.int1, name="mask")),
        ("the predicate of arrive is 'mask' (an int1 tile [128])", "scalar condition"),
    ),
    "async-two-ctas": (lambda k: mbarrier.allocate_mbarrier(two_ctas=True), ("leave two_ctas out",)),
    # TMA
    "async-descriptor-needed": (
        lambda k: tma.async_copy_shared_to_global(k.pointer(), [0], line()),
        ("needs a tensor descriptor, but got 'ptr' (a pointer<float32>)", "tma.make_tensor_descriptor"),
    ),
    "async-descriptor-mode": (
        lambda k: load(k, mode="im2col"),
        ("needs a tiled descriptor, but got an im2col descriptor of float16 blocks [64, 64]", "async_load_im2col"),
    ),
    "async-coordinates": (
        lambda k: load(k, coord=[0]),
        ("got 1 coordinate for a descriptor of float16 blocks [64, 64], which takes 2", "a list of 2 integers"),
    ),
    "async-coordinate-step": (
        lambda k: load(k, coord=[0, -4]),
        (
            "async_copy_global_to_shared starts at column -4 of a descriptor of float16 blocks [64, 64]",
            "that are multiples of 8",
        ),
    ),
    "async-coordinate-type": (
        lambda k: load(k, coord=[0, k.scalar(gl.int64, "row")]),
        ("coordinate 1 of async_copy_global_to_shared is 'row' (an int64 scalar)", ".to(gl.int32)"),
    ),
    "async-block": (
        lambda k: load(k, smem([64, 128])),
        (f"moves float16 blocks [64, 64] in {NVMMA!r}, but the buffer is 'smem' (a float16 buffer [64, 128])",),
    ),
    "async-reduce-type": (
        lambda k: tma.async_atomic_xor(k.descriptor(), [0, 0], smem()),
        ("async_atomic_xor does not work on float16", "int32, uint32, int64, uint64"),
    ),
    "async-update-nothing": (
        lambda k: tma.update_tensor_descriptor(k.descriptor()),
        ("replaces nothing", "base=, shape= or strides="),
    ),
    "async-update-base": (
        lambda k: tma.update_tensor_descriptor(k.descriptor(), k.pointer(gl.int32)),
        ("(a pointer<int32>), but the descriptor is of float16", "a pointer to float16"),
    ),
    "async-make-rank": (
        lambda k: tma.make_tensor_descriptor(k.pointer(), [64], [64, 1], [64, 64], NVMMA),
        ("1 extents, 2 strides and a block of 2 dimensions",),
    ),
    "async-make-base": (
        lambda k: tma.make_tensor_descriptor(addresses(k), [64], [1], [64], LINE),
        ("is 'p' (a pointer<float32> tile [128]), not one address",),
    ),
    "async-make-layout": (
        lambda k: tma.make_tensor_descriptor(k.pointer(), [64], [1], [64], LINE),
        (repr(LINE), "gl.NVMMASharedLayout.get_default_for(block_shape, dtype)"),
    ),
    "async-make-stride": (
        lambda k: tma.make_tensor_descriptor(k.pointer(gl.float16), [64, 64], [64, 2], [64, 64], NVMMA),
        ("is the constant 2", "pass 1 as the last stride"),
    ),
    "async-make-padding": (
        lambda k: tma.make_tensor_descriptor(k.pointer(gl.int16), [64, 64], [64, 1], [64, 64], NVMMA, "nan"),
        ("padding_option='nan' is not valid for a descriptor of int16", "'zero'"),
    ),
    "async-make-extent": (
        lambda k: tma.make_tensor_descriptor(k.pointer(gl.float16), [64, 0], [64, 1], [64, 64], NVMMA),
        ("extent 1 of a descriptor is 0", "put the code under a condition"),
    ),
    "async-make-outer-stride": (
        lambda k: tma.make_tensor_descriptor(k.pointer(gl.float16), [k.scalar(gl.int32), 64], [68, 1], [64, 64], NVMMA),
        ("stride 0 of a descriptor is 136 bytes", "multiples of 16 below 2**40", "a multiple of 8 elements"),
    ),
    "layout-tma-element": (
        lambda k: tma.make_tensor_descriptor(k.pointer(), [64, 64], [64, 1], [64, 64], NVMMA),
        (repr(NVMMA),),
    ),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_report(code):
    wrong, texts = MISTAKES[code]
    with building() as kernel, pytest.raises(UserError) as caught:
        wrong(kernel)
    assert caught.value.code == code, str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_every_mistake_has_its_report():
    rows = [row for row in (*vars(shared).values(), *vars(asynchronous).values()) if isinstance(row, Row)]
    codes = {row.code for row in rows if row.code.startswith(("async-", "shared-"))}
    # Two of these need another target, below; scopes are found by a pass; kernels of single threads are in beginners.py and in
    # tests/kernels/test_thread_barriers.py.
    elsewhere = {"async-target", "async-barrier-count-target", "async-operand-scope", "shared-in-threads"}
    elsewhere |= {"async-barrier-word", "async-barrier-threads", "async-barrier-state"}
    assert codes - set(MISTAKES) == elsewhere


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda k: async_copy.async_copy_global_to_shared(bar(), addresses(k)), "'bar' (an mbarrier)"),
        (lambda k: mbarrier.wait(k.tile(), 0), "wait needs an mbarrier, but got 'x' (a float32 tile [128])"),
        (lambda k: mbarrier.wait(bar(), 0, deps=[k.tile()]), "wait's deps needs a buffer in shared memory"),
        (lambda k: mbarrier.init(k.descriptor().handle, 1), "got 'desc' (a descriptor of float16 blocks [64, 64])"),
    ],
)
def test_handles_of_the_wrong_kind(wrong, text):
    with building() as kernel, pytest.raises(UserError) as caught:
        wrong(kernel)
    assert caught.value.code == "shared-handle-needed"
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda k: load(k, smem([64, 64], ROWS)),
        lambda k: load(k, smem(element=gl.bfloat16)),
        lambda k: load(k, smem([2, 64, 64])),
        lambda k: load(k, smem([64, 128], FLAT).slice(0, 64, dim=1), layout=FLAT),
        lambda k: load(k, smem([128, 64]).slice(0, 32)),
        lambda k: load(k, smem().permute([1, 0])),
    ],
    ids=["layout", "dtype", "several", "part of a box", "smaller part", "transposed"],
)
def test_buffers_that_a_descriptor_does_not_fit(wrong):
    with building() as kernel, pytest.raises(UserError) as caught:
        wrong(kernel)
    assert caught.value.code == "async-block"


@pytest.mark.parametrize("value", [-1, 64])
def test_pending_groups(value):
    for function in (async_copy.wait_group, tma.store_wait):
        with building(), pytest.raises(UserError) as caught:
            function(value)
        assert caught.value.code == "async-pendings"


@pytest.mark.parametrize("value", [-1, 2, 1.5, None])
def test_phases(value):
    with building(), pytest.raises(UserError) as caught:
        mbarrier.wait(bar(), value)
    assert caught.value.code == "async-phase"


@pytest.mark.parametrize("function", [mbarrier.init, lambda b, n: mbarrier.arrive(b, count=n)], ids=["init", "arrive"])
@pytest.mark.parametrize("count", [-1, 0, 1 << 20])
def test_counts(function, count):
    with building(), pytest.raises(UserError) as caught:
        function(bar(), count)
    assert caught.value.code == "async-barrier-count"


# Targets


@pytest.mark.parametrize(
    ("call", "feature", "instead"),
    [
        (lambda k: load(k), "TMA", "async_copy.async_copy_global_to_shared"),
        (lambda k: tma.async_copy_shared_to_global(k.descriptor(), [0, 0], smem()), "TMA", "gl.store"),
        (lambda k: tma.async_atomic_add(k.descriptor(), [0, 0], smem()), "TMA", "gl.store"),
        (lambda k: tma.store_wait(0), "TMA", "async_copy"),
        (
            lambda k: tma.make_tensor_descriptor(k.pointer(gl.float16), [64, 64], [64, 1], [64, 64], NVMMA),
            "TMA",
            "async_copy",
        ),
        (lambda k: fence_async_shared(), "TMA", "async_copy"),
        (lambda k: gl.extra.cuda.gdc_wait(), "programmatic dependent launch", "leave it out"),
        (lambda k: gl.extra.cuda.gdc_launch_dependents(), "programmatic dependent launch", "leave it out"),
        (lambda k: mbarrier.expect(bar(), 16), "mbarriers that count bytes", "async_copy.mbarrier_arrive"),
    ],
)
def test_what_ampere_does_not_have(call, feature, instead):
    with building(target="sm_80") as kernel, pytest.raises(UserError) as caught:
        call(kernel)
    assert caught.value.code == "async-target"
    assert f"needs {feature}, which sm_80 does not have" in str(caught.value)
    assert instead in str(caught.value)


def test_what_ampere_has():
    with building(target="sm_80") as kernel:
        async_copy.async_copy_global_to_shared(line(), addresses(kernel))
        async_copy.commit_group()
        async_copy.wait_group(0)
        one = bar()
        mbarrier.init(one, count=128)
        async_copy.mbarrier_arrive(one)
        mbarrier.arrive(one)
        mbarrier.wait(one, 0)
        assert kernel.names[-1] == "mbarrier.wait"


def test_ampere_counts_one_by_one():
    with building(target="sm_80"), pytest.raises(UserError) as caught:
        mbarrier.arrive(bar(), count=2)
    assert caught.value.code == "async-barrier-count-target"
    assert "mbarrier.arrive got count=2, but on sm_80" in str(caught.value)
