"""What authors read when they misuse tensor memory, its products, cluster launch control and gathered rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.errors.tensor_products import (
    ACC,
    COLUMNS,
    PAIR,
    PLAIN,
    ROWS,
    SCALES,
    bar,
    gather,
    product,
    scaled,
    smem,
    tmem,
)
from tests.language.support import MATRIX, building
from weft import language as gl
from weft.errors import UserError, asynchronous, cluster, memory, tensor_cores
from weft.language.nvidia.blackwell import (
    TensorMemoryLayout,
    clc,
    tcgen05_commit,
    tcgen05_copy,
)

# Code: what the author wrote, and what the report must contain.
MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    # Tensor memory
    "tmem-not-a-layout": (
        lambda k: tmem(layout=PLAIN),
        (f"{PLAIN!r} is not a layout of tensor memory", "TensorMemoryLayout([128, N], col_stride=1)"),
    ),
    "tmem-shape": (lambda k: tmem([64]), ("shape [64] is not valid in tensor memory", repr(ACC), "[rows, columns]")),
    "tmem-element": (
        lambda k: tmem(element=gl.float64),
        (f"elements of float64 have 64 bits, but {ACC!r} holds elements of 8, 16 or 32 bits",),
    ),
    "tmem-two-ctas-mixed": (
        lambda k: (tmem([256, 64], layout=PAIR), tmem()),
        (f"{ACC!r} is for one block, but", "in this kernel are for two blocks", "write two_ctas=True"),
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
        ("tcgen05_mma of float16 and float16 cannot accumulate in 'acc'", "float32 or float16"),
    ),
    # Products with scales
    "tcgen05-format": (
        lambda k: scaled(b_type="e3m4"),
        ("b_type of tcgen05_mma_scaled is 'e3m4'", "'e2m1', 'e4m3', 'e5m2'"),
    ),
    "tcgen05-format-element": (
        lambda k: scaled(a_type="e2m1"),
        ("a of tcgen05_mma_scaled is", "elements of e2m1 are stored in gl.uint8", "pass a_type='e4m3'"),
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
        (
            "the block of a descriptor of float16 blocks [1, 8] is not a single row of at least 32 bytes",
            "columns >= 16",
        ),
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
    "shared-slice-aligned": (lambda k: tmem().slice(16, 24), ("slice of 24 elements from 16 on",)),
    "shared-slice-stages": (lambda k: tmem([2, 4, 128, 64]).slice(0, 2, dim=1), ("the inner one of several",)),
    "shared-several-tiles": (lambda k: tmem([2, 128, 64]).load(), ("load of 'acc'", "holds several tiles")),
    "shared-store": (
        lambda k: tmem().store(k.tile(gl.float16, (128, 64))),
        ("'x' (a float16 tile [128, 64]) cannot be stored to 'acc'", "value.to(gl.float32)"),
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
    rows = {**vars(memory), **vars(tensor_cores), **vars(cluster), **vars(asynchronous)}
    codes = {row.code for name, row in rows.items() if name.startswith(("TMEM_", "TCGEN05_", "CLC_", "GATHER_"))}
    assert codes <= set(MISTAKES)
