"""Other ways to misuse tensor memory and what comes with it: barriers that blocks share, and targets that have none of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.errors.tensor_products import PAIR, PLAIN, ROWS, SCALES, bar, gather, product, scaled, smem, tmem
from tests.language.support import building
from weft import language as gl
from weft.errors import LayoutError, UserError
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    clc,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_fence,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tcgen05_mma_scaled,
    tma,
)
from weft.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_layout

SPREAD = gl.NVMMASharedLayout(128, 8, 2, fp4_padded=True)
OTHERS: dict[str, tuple[str, Any, str]] = {
    "a barrier as an operand": ("mma-operand", lambda k: product(a=bar()), "a of tcgen05_mma is 'bar' (an mbarrier)"),
    "several tiles as an operand": (
        "mma-operand",
        lambda k: product(b=smem([2, 64, 64])),
        "choose one, as in bufs.index(i)",
    ),
    "b in tensor memory": (
        "mma-operand",
        lambda k: product(b=tmem((64, 64), gl.float16, TensorMemoryLayout([64, 64]))),
        "not one tile in shared memory [mma-operand]",
    ),
    "scales as an operand": (
        "mma-operand",
        lambda k: product(a=tmem((128, 64), gl.uint8, SCALES)),
        "a uint8 tensor memory buffer",
    ),
    "several accumulators": ("tcgen05-accumulator", lambda k: product(acc=tmem([2, 128, 64])), "accs.index(i)"),
    "a half accumulator of float16": (
        "tcgen05-layouts",
        lambda k: product(acc=tmem(element=gl.float16)),
        "col_stride=2",
    ),
    "columns that are too few": (
        "tcgen05-layouts",
        lambda k: product(b=smem([64, 8]), acc=tmem((128, 8), layout=TensorMemoryLayout([128, 8]))),
        "takes 16 to 256 columns, not 8",
    ),
    "accumulators of scaled products": (
        "mma-accumulator-type",
        lambda k: scaled(acc=tmem(element=gl.float16, layout=TensorMemoryLayout([128, 64], col_stride=2))),
        "use an accumulator of float32",
    ),
    "shapes of scaled products": (
        "mma-shapes",
        lambda k: scaled(a=smem([128, 128], gl.uint8), a_type="e2m1", b=smem([64, 128], gl.float8e4nv).permute([1, 0])),
        "a has 256 columns (two in each byte), b 128 rows",
    ),
    "types of another format": (
        "tcgen05-format-element",
        lambda k: scaled(a=smem([128, 64])),
        "keep it in that type",
    ),
    "fp4 beside fp8 that is not padded": (
        "tcgen05-layouts",
        lambda k: scaled(b=smem([64, 64], gl.uint8).permute([1, 0]), b_type="e2m1"),
        "fp4_padded=True",
    ),
    "a condition that is no list": (
        "tcgen05-predicates",
        lambda k: product(mbarriers=[bar()], mbarrier_preds=k.scalar(gl.int1, "p")),
        "got 'p' (an int1 scalar) for mbarrier_preds, but 1 for mbarriers",
    ),
    "conditions of no barriers": (
        "tcgen05-predicates",
        lambda k: product(mbarrier_preds=[True]),
        "but 0 for mbarriers",
    ),
    "an operand that is no list": (
        "tcgen05-descriptors",
        lambda k: tcgen05_mma_barrier_count(smem([64, 64]), True, False),
        "tcgen05_mma_barrier_count got 'smem'",
    ),
    "elements of scales": (
        "tmem-element",
        lambda k: tmem((128, 4), gl.int16, SCALES),
        "gl.uint8 (powers of two) or gl.float8e4nv",
    ),
    "elements of a padded operand": (
        "tmem-element",
        lambda k: tmem((128, 64), gl.float16, TensorMemoryLayout([128, 64], fp4_padded=True)),
        "gl.uint8, two elements of e2m1 in each",
    ),
    "bytes that are no scales": (
        "tcgen05-scale-types",
        lambda k: scaled(a_scale=tmem((128, 4), gl.int8, SCALES), b_scale=tmem((64, 4), gl.int8, SCALES)),
        "does not scale e4m3 by 'acc' (an int8 tensor memory buffer [128, 4])",
    ),
    "a store that no instruction does": (
        "tmem-access",
        lambda k: tmem().store(k.tile(shape=(128, 64))),
        "store of 'acc'",
    ),
    "empty allocations": ("tmem-shape", lambda k: tmem([0, 128, 64]), "[0, 128, 64]"),
    "blocks that do not divide the tile": ("tmem-block-shape", lambda k: tmem([64, 64]), "[64, 64]"),
    "clusters that there are none of": ("layout-num-ctas", lambda k: tmem([256, 64], layout=PAIR), "num_ctas"),
    "an answer of one word": ("clc-result", lambda k: clc.load_result(smem([1], gl.int64, PLAIN)), "load_result got"),
    "a barrier as an answer": ("clc-result", lambda k: clc.load_result(bar()), "'bar' (an mbarrier)"),
    "rows of long integers": (
        "gather-rows",
        lambda k: gather(k, k.tile(gl.int64, (8,))),
        "a tile of gl.int32 with one dimension",
    ),
    "blocks of several rows": ("gather-block", lambda k: gather(k, block=(8, 64)), "block_shape=[1, columns]"),
    "rows that are scattered": (
        "gather-rows",
        lambda k: tma.async_scatter(k.descriptor(block=(1, 64), layout=ROWS), k.tile(), 0, smem([8, 64], layout=ROWS)),
        "async_scatter got",
    ),
    "stores of fp4 that was spread": (
        "async-descriptor-mode",
        lambda k: tma.async_store(
            k.descriptor(gl.uint8, (16, 64), layout=SPREAD), [0, 0], smem([16, 64], gl.uint8, SPREAD)
        ),
        "a descriptor of memory without padding, but got one in",
    ),
    "scatters of fp4 that was spread": (
        "async-descriptor-mode",
        lambda k: tma.async_scatter(k.descriptor(gl.uint8, (1, 64), layout=SPREAD), k.tile(), 0, smem([8, 64])),
        "store packed bytes",
    ),
    "another layout than the descriptor's": (
        "gather-buffer",
        lambda k: gather(k, memory=smem([8, 64], layout=gl.NVMMASharedLayout(32, 16, 2))),
        "desc.layout",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_ways_to_go_wrong(what):
    code, wrong, text = OTHERS[what]
    with building(target="sm_100a") as kernel, pytest.raises(UserError) as caught:
        wrong(kernel)
    assert caught.value.code == code, str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize("access", [lambda acc: acc.load(), lambda acc: acc.store(gl.zeros([128, 64], gl.float32))])
def test_warps_that_do_not_reach_all_lanes(access):
    with building(2, target="sm_100a"), pytest.raises(UserError) as caught:
        access(tmem())
    assert caught.value.code == "tmem-warps", str(caught.value)


def test_barriers_that_blocks_share():
    with building(target="sm_100a", num_ctas=2) as kernel:
        shared = mbarrier.allocate_mbarrier(two_ctas=True)
        for wrong in (
            # Each block commits for itself, so both would have to arrive at the first one's.
            lambda: tcgen05_commit(shared),
            lambda: tcgen05_mma(smem([128, 64]), smem([64, 64]), tmem(), mbarriers=[shared]),
            lambda: clc.try_cancel(smem([2], gl.int64, PLAIN), shared),
        ):
            with pytest.raises(UserError) as caught:
                wrong()
            assert caught.value.code == "cluster-signal"
            assert "signals one barrier per block" in str(caught.value)


def test_pairs_share_barriers_of_loads_on_blackwell_alone():
    with building(target="sm_90a", num_ctas=2) as kernel:
        layout = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16, cga_layout=[[1, 0]])
        desc, memory = kernel.descriptor(block=(128, 64), layout=layout), smem([128, 64], layout=layout)
        with pytest.raises(UserError) as caught:
            tma.async_load(desc, [0, 0], mbarrier.allocate_mbarrier(two_ctas=True), memory)
        assert caught.value.code == "cluster-signal"


HALF = [[1, 0]]


@pytest.mark.parametrize(
    ("call", "target", "cga", "limit"),
    [
        (tma.async_load, "sm_90a", HALF, "but the TMA of sm_90a writes to the block's own memory"),
        (tma.async_load, "sm_100a", [[0, 0], [1, 0]], "but a load writes to the other block of its pair only"),
        (tma.async_store, "sm_100a", HALF, "but only loads of tiles write to another block"),
        (tma.async_atomic_add, "sm_100a", HALF, "but only loads of tiles write to another block"),
        (tma.async_gather, "sm_100a", [[0, 0], [1, 0]], "but a load writes to the other block of its pair only"),
        (tma.async_scatter, "sm_100a", HALF, "but only loads of tiles write to another block"),
    ],
)
def test_slices_that_blocks_do_not_reach(call, target, cga, limit):
    rows = call in (tma.async_gather, tma.async_scatter)
    with building(target=target, num_ctas=1 << len(cga)) as kernel:
        layout = gl.NVMMASharedLayout(128, 16, rank=2, cga_layout=cga)
        desc = kernel.descriptor(block=(1 if rows else 64, 64), layout=layout)
        part = smem([128, 64], layout=layout).slice(64, 64)
        at = (kernel.tile(gl.int32, (64,)), 0) if rows else ([0, 0],)
        bar = (mbarrier.allocate_mbarrier(),) if call in (tma.async_load, tma.async_gather) else ()
        with pytest.raises(UserError) as caught:
            call(desc, *at, *bar, part)
        assert caught.value.code == "cluster-slice"
        assert limit in caught.value.message and "a part of a tile [128, 64]" in caught.value.message


@pytest.mark.parametrize(
    ("call", "target", "texts"),
    [
        (lambda k: tmem(), "sm_90a", ("allocate_tensor_memory needs tensor memory", "use warpgroup_mma of")),
        (lambda k: tmem(), "sm_80", ("mma_v2 of weft.language.nvidia.ampere",)),
        (lambda k: tcgen05_mma(None, None, None), "sm_90a", ("tcgen05_mma needs tensor memory", "warpgroup_mma of")),
        (lambda k: tcgen05_mma_scaled(*[None] * 5, "e4m3", "e4m3"), "sm_90a", ("tcgen05_mma_scaled needs", "warpgroup_mma")),
        (lambda k: tcgen05_commit(None), "sm_90a", ("tcgen05_commit needs",)),
        (lambda k: tcgen05_copy(None, None), "sm_90a", ("tcgen05_copy needs",)),
        (lambda k: tcgen05_fence(True), "sm_90a", ("tcgen05_fence needs",)),
        (lambda k: clc.try_cancel(None, None), "sm_90a", ("try_cancel needs cluster launch control", "gl.num_programs(0)")),
        (lambda k: clc.load_result(None), "sm_90a", ("load_result needs",)),
        (gather, "sm_90a", ("async_gather needs rows gathered by TMA", "tma.async_copy_global_to_shared")),
        (
            lambda k: tma.async_load(
                k.descriptor(gl.uint8, (16, 64), layout=SPREAD), [0, 0], None, smem([16, 64], gl.uint8, SPREAD)
            ),
            "sm_90a",
            ("async_copy_global_to_shared needs fp4 spread by TMA", "without fp4_padded"),
        ),
        (
            lambda k: warpgroup_mma(
                smem([128, 64]), smem([64, 64]), k.tile(shape=(128, 64), layout=warpgroup_mma_layout(gl.float16, [128, 64], 4))
            ),
            "sm_100a",
            ("warpgroup_mma needs wgmma", "use tcgen05_mma of weft.language.nvidia.blackwell, with the accumulator in tensor"),
        ),
    ],
)  # fmt: skip
def test_what_targets_do_not_have(call, target, texts):
    with building(target=target) as kernel, pytest.raises(UserError) as caught:
        call(kernel)
    assert caught.value.code == "async-target"
    for text in (f"{target} does not have", *texts):
        assert text in str(caught.value)


def test_descriptors_of_padded_fp4_are_made_on_the_host():
    with building(target="sm_100a") as kernel, pytest.raises(LayoutError) as caught:
        tma.make_tensor_descriptor(kernel.pointer(gl.uint8), [64, 64], [64, 1], [16, 64], SPREAD)
    assert caught.value.code == "async-make-layout"
    assert "a TensorDescriptor made on the host" in str(caught.value)
