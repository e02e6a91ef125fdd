"""What authors read when they misuse tensor memory, its products, cluster launch control and gathered rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.language.support import MATRIX, Kernel, building, jit
from weft import language as gl
from weft.errors import Row, UserError, blackwell
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
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
from weft.language.partitions import warp_specialize

ACC = TensorMemoryLayout([128, 64], col_stride=1)
PAIR = TensorMemoryLayout([128, 64], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
SCALES = TensorMemoryScalesLayout()
COLUMNS = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [0])
ROWS = gl.NVMMASharedLayout.get_default_for([8, 64], gl.float16)


def named(x: Any, name: str) -> Any:
    x.handle.name = name
    return x


def smem(shape: Any, element: Any = gl.float16, layout: Any = None, name: str = "smem") -> Any:
    layout = layout or gl.NVMMASharedLayout.get_default_for(shape[-2:], element)
    return named(gl.allocate_shared_memory(element, shape, layout), name)


def tmem(shape: Any = (128, 64), element: Any = gl.float32, layout: Any = ACC, name: str = "acc") -> Any:
    return named(allocate_tensor_memory(element, shape, layout), name)


def bar() -> Any:
    return named(mbarrier.allocate_mbarrier(), "bar")


def product(**wrong: Any) -> Any:
    """A product that is right, but for what is given."""
    operands = [wrong.pop(name, None) for name in ("a", "b", "acc")]
    made = [smem([128, 64]), smem([64, 64]), tmem()]
    return tcgen05_mma(*(new if x is None else x for x, new in zip(operands, made, strict=True)), **wrong)


def scaled(**wrong: Any) -> Any:
    """A product of fp8 with scales that is right, but for what is given."""
    right = {
        "a": smem([128, 128], gl.float8e4nv), "b": smem([64, 128], gl.float8e4nv).permute([1, 0]), "acc": tmem(),
        "a_scale": tmem((128, 4), gl.uint8, SCALES), "b_scale": tmem((64, 4), gl.uint8, SCALES), "a_type": "e4m3",
        "b_type": "e4m3",
    }  # fmt: skip
    return tcgen05_mma_scaled(**{**right, **wrong})


def gather(k: Kernel, rows: Any = None, memory: Any = None, block: Any = (1, 64), column: Any = 0) -> Any:
    """Eight rows gathered, as they should be but for what is given."""
    rows = k.tile(gl.int32, (8,), name="rows") if rows is None else rows
    memory = smem([8, 64], layout=ROWS) if memory is None else memory
    return tma.async_gather(k.descriptor(block=block, layout=ROWS), rows, column, bar(), memory)


def worker() -> None:
    tmem()


def specialize(k: Kernel) -> None:
    warp_specialize([(jit(worker), ())], [])


# Code: what the author wrote, and what the report must contain.
MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    # Tensor memory
    "tmem-not-a-layout": (
        lambda k: tmem(layout=PLAIN),
        (f"{PLAIN!r} is not a layout of tensor memory", "TensorMemoryLayout([128, N], col_stride=1)"),
    ),
    "tmem-shape": (lambda k: tmem([64]), ("shape [64] is not that of tiles", repr(ACC), "[rows, columns]")),
    "tmem-element": (
        lambda k: tmem(element=gl.float64),
        (f"elements of float64 have 64 bits, but {ACC!r} holds elements of 8, 16 or 32 bits",),
    ),
    "tmem-partition": (specialize, ("the partition worker of warp_specialize", "before warp_specialize")),
    "tmem-two-ctas-mixed": (
        lambda k: (tmem([256, 64], layout=PAIR), tmem()),
        (f"{ACC!r} is for one block, but", "allocated before is for two blocks", "write two_ctas=True"),
    ),
    "tmem-access": (
        lambda k: tmem().load(MATRIX),
        (
            f"load of 'acc' (a float32 tensor memory buffer [128, 64]) in {ACC!r} as a tile in {MATRIX!r}",
            "the lanes that they reach hold",
            f"get_tmem_reg_layout(dtype, [128, 64], {ACC!r}, num_warps)",
        ),
    ),
    "tmem-reinterpret": (
        lambda k: tmem().slice(0, 64, dim=0).reinterpret(gl.int32),
        ("a float32 tensor memory buffer [64, 64]", "a part of a tile [128, 64]", ".slice of the result"),
    ),
    # Products
    "tcgen05-accumulator": (
        lambda k: product(acc=k.tile(shape=(128, 64))),
        ("the accumulator of tcgen05_mma is 'x' (a float32 tile [128, 64])", "allocate_tensor_memory(gl.float32"),
    ),
    "tcgen05-accumulator-layout": (
        lambda k: product(acc=tmem((128, 64), gl.uint8, SCALES)),
        ("is 'acc' (a uint8 tensor memory buffer [128, 64]) in TensorMemoryScalesLayout()",),
    ),
    "tcgen05-layouts": (
        lambda k: product(b=smem([64, 64], layout=gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), name="b_smem")),
        (
            "tcgen05_mma of 'smem' (a float16 buffer [128, 64]) and 'b_smem' (a float16 buffer [64, 64]) added to 'acc'",
            "neither a swizzle of 128, 64 or 32 bytes nor unswizzled rows of 16",
            "NVMMASharedLayout.get_default_for([64, 64], dtype)",
        ),
    ),
    "tcgen05-barriers": (lambda k: product(mbarriers=bar()), ("'bar' (an mbarrier), not a list", "mbarriers=[bar]")),
    "tcgen05-predicates": (
        lambda k: product(mbarriers=[bar()], mbarrier_preds=[True, True]),
        ("tcgen05_mma got 2 conditions for mbarrier_preds, but 1 for mbarriers",),
    ),
    "tcgen05-descriptors": (
        lambda k: tcgen05_commit(bar(), descs=[k.tile()]),
        ("tcgen05_commit got 'x' (a float32 tile [128])", "descs=[a_smem, b_smem]"),
    ),
    "mma-operand": (
        lambda k: product(a=k.tile(gl.float16, (128, 64))),
        (
            "a of tcgen05_mma is 'x' (a float16 tile [128, 64]), not one tile in shared memory or tensor memory",
            "gl.allocate_shared_memory(dtype, shape, layout, value), or allocate_tensor_memory(",
        ),
    ),
    "mma-types": (
        lambda k: product(b=smem([64, 64], gl.bfloat16)),
        ("tcgen05_mma does not multiply float16 by bfloat16",),
    ),
    "mma-shapes": (lambda k: product(b=smem([128, 64])), ("a has 64 columns, b 128 rows",)),
    "mma-accumulator-type": (
        lambda k: product(acc=tmem(element=gl.int32)),
        ("tcgen05_mma of float16 and float16 does not add to 'acc'", "float32 or float16"),
    ),
    # Products with scales
    "tcgen05-format": (
        lambda k: scaled(b_type="e3m4"),
        ("b_type of tcgen05_mma_scaled is 'e3m4'", "'e2m1', 'e4m3', 'e5m2'"),
    ),
    "tcgen05-format-element": (
        lambda k: scaled(a_type="e2m1"),
        ("a of tcgen05_mma_scaled is", "elements of e2m1 are kept in gl.uint8", "pass a_type='e4m3'"),
    ),
    "tcgen05-scale": (
        lambda k: scaled(a_scale=smem([128, 4], gl.uint8, gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))),
        ("a_scale of tcgen05_mma_scaled is 'smem' (a uint8 buffer [128, 4])", "TensorMemoryScalesLayout()"),
    ),
    "tcgen05-scale-layout": (
        lambda k: scaled(b_scale=tmem((64, 4), gl.uint8, TensorMemoryLayout([64, 4]))),
        (
            "b_scale of tcgen05_mma_scaled is 'acc' (a uint8 tensor memory buffer [64, 4]) in TensorMemoryLayout([64, 4])",
        ),
    ),
    "tcgen05-scale-types": (
        lambda k: scaled(b_scale=tmem((64, 4), gl.float8e4nv, SCALES)),
        ("does not scale e4m3 by 'acc' (a uint8 tensor memory buffer [128, 4]) and e4m3 by 'acc' (a float8e4nv",),
    ),
    "tcgen05-scale-shape": (
        lambda k: scaled(a_scale=tmem((128, 8), gl.uint8, SCALES)),
        ("a_scale of", "[128, 8]", "one scale for 32 elements along K has [128, 4]"),
    ),
    "tcgen05-scaled-block": (
        lambda k: scaled(a=smem([64, 128], gl.float8e4nv), acc=tmem((64, 64), layout=TensorMemoryLayout([64, 64]))),
        ("TensorMemoryLayout([64, 64])", "blocks of 128 rows"),
    ),
    # Copies
    "tcgen05-copy": (
        lambda k: tcgen05_copy(smem([128, 64]), tmem()),
        (
            "tcgen05_copy copies 'smem' (a float16 buffer [128, 64]) to 'acc' (a float32 tensor memory buffer [128, 64])",
        ),
    ),
    "tcgen05-copy-layouts": (
        lambda k: tcgen05_copy(smem([128, 64], gl.float32, COLUMNS), tmem()),
        (f"tcgen05_copy cannot copy 'smem' (a float32 buffer [128, 64]) in {COLUMNS!r} to 'acc'", repr(ACC)),
    ),
    # Cluster launch control
    "clc-result": (
        lambda k: clc.try_cancel(smem([2], gl.int32, PLAIN, "answer"), bar()),
        ("try_cancel got 'answer' (an int32 buffer [2])", "gl.allocate_shared_memory(gl.int64, [2]"),
    ),
    "clc-dimension": (
        lambda k: clc.load_result(smem([2], gl.int64, PLAIN)).program_id(3),
        ("program_id(3)", "0, 1 or 2"),
    ),
    # Gathered rows
    "gather-rows": (
        lambda k: gather(k, k.tile(gl.int32, (4,), name="few")),
        ("async_gather got 'few' (an int32 tile [4]) for the rows", "at least 8 rows"),
    ),
    "gather-block": (
        lambda k: gather(k, block=(1, 8)),
        ("a descriptor of float16 blocks [1, 8] is not one of single rows of at least 32 bytes", "columns >= 16"),
    ),
    "gather-buffer": (
        lambda k: gather(k, memory=smem([16, 64], layout=ROWS)),
        (
            "async_gather of 8 rows by",
            "moves [8, 64], but the buffer is 'smem' (a float16 buffer [16, 64])",
            repr(ROWS),
        ),
    ),
    "async-coordinate-step": (lambda k: gather(k, column=4), ("async_gather starts at column 4",)),
    "async-coordinate-type": (
        lambda k: gather(k, column=k.scalar(gl.float32, "y")),
        ("coordinate 1 of async_gather is 'y' (a float32 scalar)",),
    ),
    # Views and accesses, as of shared memory
    "shared-index": (lambda k: tmem([2, 128, 64]).index(2), ("index(2) of 'acc' (a float32 tensor memory", "0 to 1")),
    "shared-no-stages": (lambda k: tmem().index(0), ("index of 'acc'", "[stages, *tile]")),
    "shared-slice": (
        lambda k: tmem().slice(32, 64),
        ("slice of elements 32 to 96 along dimension 1", "between 0 and 64"),
    ),
    "shared-slice-aligned": (lambda k: tmem().slice(16, 32), ("slice of 32 elements from 16 on",)),
    "shared-slice-stages": (lambda k: tmem([2, 4, 128, 64]).slice(0, 2, dim=1), ("the inner one of several",)),
    "shared-several-tiles": (lambda k: tmem([2, 128, 64]).load(), ("load of 'acc'", "holds several tiles")),
    "shared-store": (
        lambda k: tmem().store(k.tile(gl.float16, (128, 64))),
        ("'x' (a float16 tile [128, 64]) is stored to 'acc'", "value.to(gl.float32)"),
    ),
    "shared-handle-needed": (
        lambda k: tcgen05_commit(tmem()),
        ("tcgen05_commit needs an mbarrier, but got 'acc' (a float32 tensor memory buffer [128, 64])",),
    ),
    "async-barrier-layout": (lambda k: product(mbarriers=[smem([128, 64])]), ("tcgen05_mma needs an mbarrier",)),
    "language-predicate": (
        lambda k: product(use_acc=k.tile(gl.int1, name="mask")),
        ("the predicate of tcgen05_mma, use_acc, is 'mask'",),
    ),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_report(code):
    wrong, texts = MISTAKES[code]
    with building(target="sm_100a", num_ctas=2 if code == "tmem-two-ctas-mixed" else 1) as kernel:
        with pytest.raises(UserError) as caught:
            wrong(kernel)
        assert caught.value.code == code, str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_every_mistake_has_its_report():
    codes = {entry.code for entry in vars(blackwell).values() if isinstance(entry, Row)}
    assert codes <= set(MISTAKES)


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
        "a has 256 columns, b 128 rows",
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
        lambda k: tmem((128, 4), gl.int8, SCALES),
        "gl.uint8 (powers of two) or gl.float8e4nv",
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


def test_barriers_that_blocks_share():
    with building(target="sm_100a", num_ctas=2) as kernel:
        shared = mbarrier.allocate_mbarrier(two_ctas=True)
        for wrong in (
            # Each block commits for itself, so both would have to arrive at the first one's.
            lambda: tcgen05_commit(shared),
            lambda: tcgen05_mma(smem([128, 64]), smem([64, 64]), tmem(), mbarriers=[shared]),
            lambda: clc.try_cancel(smem([2], gl.int64, PLAIN), shared),
            lambda: tma.async_gather(
                kernel.descriptor(block=(1, 64), layout=ROWS),
                kernel.tile(gl.int32, (8,)),
                0,
                shared,
                smem([8, 64], layout=ROWS),
            ),
        ):
            with pytest.raises(UserError) as caught:
                wrong()
            assert caught.value.code == "cluster-signal"
            assert "each block's own" in str(caught.value)


def test_pairs_share_barriers_of_loads_on_blackwell_alone():
    with building(target="sm_90a", num_ctas=2) as kernel:
        layout = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16, cga_layout=[[1, 0]])
        desc, memory = kernel.descriptor(block=(128, 64), layout=layout), smem([128, 64], layout=layout)
        with pytest.raises(UserError) as caught:
            tma.async_load(desc, [0, 0], mbarrier.allocate_mbarrier(two_ctas=True), memory)
        assert caught.value.code == "cluster-signal"


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
