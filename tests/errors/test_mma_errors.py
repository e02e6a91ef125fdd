"""What authors read when they misuse tensor cores: the message and the fix of each mistake, and the line that it points at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.language.support import MATRIX, Kernel, building
from weft import language as gl
from weft.errors import UserError, tensor_cores
from weft.language.nvidia.ampere import mma_v2
from weft.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_layout,
    warpgroup_mma_wait,
)

WIDE = warpgroup_mma_layout(gl.float16, [128, 64], 4)
V2 = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])


def smem(shape: Any, element: Any = gl.float16, layout: Any = None, name: str = "smem") -> Any:
    layout = layout or gl.NVMMASharedLayout.get_default_for(shape[-2:], element)
    made = gl.allocate_shared_memory(element, shape, layout)
    made.handle.name = name
    return made


def acc(k: Kernel, element: Any = gl.float32, layout: Any = WIDE, shape: Any = (128, 64)) -> gl.tensor:
    return k.tile(element, shape, layout, "acc")


def product(k: Kernel, a: Any = None, b: Any = None, c: Any = None, **options: Any) -> Any:
    """A product that is right, but for what is given."""
    a, b, c = (made if x is None else x for x, made in ((a, smem([128, 64])), (b, smem([64, 64])), (c, acc(k))))
    return warpgroup_mma(a, b, c, **options)


def of(k: Kernel, element: Any, **options: Any) -> Any:
    """A product of a type that is contiguous along K."""
    layout = warpgroup_mma_layout(element, [128, 64], 4)
    c = acc(k, gl.int32 if element.is_int() else gl.float32, layout)
    return warpgroup_mma(smem([128, 64], element), smem([64, 64], element).permute([1, 0]), c, **options)


def named(x: Any, name: str) -> Any:
    x.handle.name = name
    return x


# Code: what the author wrote, and what the report must contain.
MISTAKES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "mma-operand": (
        lambda k: product(k, b=k.tile(gl.float16, (64, 64))),
        (
            "b of warpgroup_mma is 'x' (a float16 tile [64, 64]), not a buffer in shared memory",
            "gl.allocate_shared_memory(dtype, shape, layout, value)",
        ),
    ),
    "mma-operand-layout": (
        lambda k: product(k, a=k.tile(gl.float16, (128, 64))),
        (
            f"a of warpgroup_mma is 'x' (a float16 tile [128, 64]) in {MATRIX!r}",
            f"an accumulator in {WIDE!r} needs it in DotOperandLayout(0, {WIDE!r}, 2)",
            f"gl.convert_layout(x, gl.DotOperandLayout(0, gl.{WIDE!r}, 2)), or pass it in shared memory",
        ),
    ),
    "mma-types": (
        lambda k: product(k, b=smem([64, 64], gl.bfloat16)),
        (
            "warpgroup_mma does not multiply float16 by bfloat16",
            "pairs of float16, bfloat16, float32, pairs among float8e4nv and float8e5, and pairs among int8 and uint8",
        ),
    ),
    "mma-precision": (
        lambda k: of(k, gl.float32, precision="tf32x3"),
        ("warpgroup_mma got precision 'tf32x3' for float32 operands", "as tf32", "gl.dot_fma"),
    ),
    "mma-shapes": (
        lambda k: product(k, b=smem([128, 64], name="b")),
        (
            "'smem' (a float16 buffer [128, 64]) and 'b' (a float16 buffer [128, 64]) added to 'acc' (a float32 tile",
            "a has 64 columns, b 128 rows",
            "smem.permute([1, 0])",
        ),
    ),
    "mma-accumulator": (
        lambda k: product(k, c=0.0),
        ("the accumulator of warpgroup_mma is the constant 0.0", "gl.zeros([M, N], gl.float32, layout)"),
    ),
    "mma-accumulator-type": (
        lambda k: product(k, c=acc(k, gl.int32)),
        ("of float16 and float16 cannot accumulate in 'acc' (an int32 tile [128, 64])", "float32 or float16"),
    ),
    "mma-accumulator-layout": (
        lambda k: product(k, c=acc(k, layout=MATRIX)),
        (
            f"'acc' (a float32 tile [128, 64]) in {MATRIX!r}, not in an NVMMADistributedLayout of version [3, 0]",
            "warpgroup_mma_layout(gl.float16, [128, 64], 4)",
        ),
    ),
    "mma-layout-dtype": (
        lambda k: warpgroup_mma_layout(np.float16, [64, 64], 4),
        ("<class 'numpy.float16'>", "which tensor cores do not multiply", "gl.float16 for numpy.float16", "gl.int8"),
    ),
    "mma-instruction-k": (
        lambda k: product(k, smem([128, 64], gl.int8), smem([64, 64], gl.int8).permute([1, 0]), acc(k, gl.int32)),
        ("take 16 elements along K, but 256 bits of int8 are 32", "instr_shape=[16, 64, 32]"),
    ),
    "mma-integer-columns": (
        lambda k: product(
            k,
            smem([64, 64], gl.int8),
            smem([72, 64], gl.int8).permute([1, 0]),
            acc(k, gl.int32, layout=gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 72, 32]), shape=(64, 72)),
        ),
        ("int8 operands has 72 columns", "make N a multiple of 16"),
    ),
    "mma-imprecise": (
        lambda k: of(k, gl.float8e5, max_num_imprecise_acc=48),
        (
            "max_num_imprecise_acc=48 for 64 elements along K, which instructions take 32 at a time",
            "multiple of 32 up to 64",
        ),
    ),
    "mma-in-flight": (
        lambda k: named(product(k, is_async=True), "sums") * 2,
        (
            "'sums' (a float32 tile [128, 64]) is the accumulator of an MMA in flight",
            "sums = warpgroup_mma_wait(0, (sums,))",
        ),
    ),
    "mma-wait-deps": (
        lambda k: warpgroup_mma_wait(1),
        ("warpgroup_mma_wait got no deps", "acc = warpgroup_mma_wait(1, (acc,))"),
    ),
    "mma-wait-operand": (
        lambda k: warpgroup_mma_wait(0, (acc(k), smem([128, 64]))),
        ("waits for 'smem' (a float16 buffer [128, 64])", "the buffers that it reads are not listed"),
    ),
    "async-pendings": (
        lambda k: warpgroup_mma_wait(-1, (acc(k),)),
        ("warpgroup_mma_wait cannot leave -1 operations in flight", "0 waits for all"),
    ),
    "language-predicate": (
        lambda k: product(k, use_acc=k.tile(gl.int1, (64,), gl.BlockedLayout([1], [32], [4], [0]))),
        ("the predicate of warpgroup_mma, use_acc, is 'x' (an int1 tile [64])",),
    ),
    # What layouts say of instructions
    "layout-mma-shape": (
        lambda k: product(k, smem([128, 8]), smem([8, 64])),
        ("M 128, N 64, K 8", "K to be a multiple of 16"),
    ),
    "layout-mma-read": (
        lambda k: product(k, a=smem([128, 64], layout=gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))),
        (
            "wgmma cannot read operand a",
            "neither a swizzle of 128, 64 or 32 bytes",
            "NVMMASharedLayout.get_default_for",
        ),
    ),
    "layout-mma-warps": (lambda k: warpgroup_mma_layout(gl.float16, [64, 64], 2), ("groups of 4 warps", "has 2 warps")),
    "layout-mma-accumulator": (
        lambda k: product(k, c=acc(k, layout=gl.NVMMADistributedLayout([3, 0], [2, 2], [16, 32, 16]))),
        ("[2, 2]", "does not consist of whole wgmma fragments", "[4, 1]"),
    ),
    "layout-num-warps": (
        lambda k: gl.zeros([128, 64], gl.float32, warpgroup_mma_layout(gl.float16, [128, 64], 8)),
        ("spread over 8 warps", "num_warps=4"),
    ),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_mistakes(code):
    call, expected = MISTAKES[code]
    with building() as kernel, pytest.raises(UserError) as caught:
        call(kernel)
    assert caught.value.code == code, str(caught.value)
    for part in expected:
        assert part in str(caught.value)


def test_every_row_is_here():
    rows = {row.code for name, row in vars(tensor_cores).items() if name.startswith("MMA_")}
    assert rows <= MISTAKES.keys()


OTHERS = {
    "a condition at run time": (
        "language-constexpr-needed",
        lambda k: product(k, is_async=k.tile(gl.int1, (64,), gl.BlockedLayout([1], [32], [4], [0]))),
        "warpgroup_mma, is_async, needs",
    ),
    "a layout of three warpgroups": (
        "layout-mma-warps",
        lambda k: warpgroup_mma_layout(gl.float16, [64, 64], 12),
        "1, 2, 4 or 8 groups of 4 warps, but the accumulator has 12 warps",
    ),
    "a number": ("mma-operand", lambda k: product(k, a=2), "a of warpgroup_mma is the constant 2"),
    "a pointer tile": (
        "mma-operand",
        lambda k: product(k, a=k.tile(gl.pointer_type(gl.float16), (128, 64))),
        "not a tile in registers or a buffer in shared memory",
    ),
    "several tiles": ("mma-operand", lambda k: product(k, a=smem([2, 128, 64])), "choose one, as in bufs.index(i)"),
    "a barrier": ("shared-handle-needed", lambda k: product(k, a=mbarrier.allocate_mbarrier()), "an mbarrier"),
    "three dimensions": (
        "mma-shapes",
        lambda k: product(k, a=smem([2, 128, 64], layout=gl.NVMMASharedLayout(128, 16, 3))),
        "'smem' (a float16 buffer [2, 128, 64]) is no matrix",
    ),
    "rows": ("mma-shapes", lambda k: product(k, a=smem([64, 64])), "a has 64 rows, the accumulator 128"),
    "columns": ("mma-shapes", lambda k: product(k, b=smem([64, 128])), "b has 128 columns, the accumulator 64"),
    "bfloat16 sums": ("mma-accumulator-type", lambda k: product(k, c=acc(k, gl.bfloat16)), "float32 or float16"),
    "exact float32": ("mma-precision", lambda k: of(k, gl.float32, precision="ieee"), "gl.dot_fma(a, b, acc) is exact"),
    "no precision": ("mma-precision", lambda k: product(k, precision="fast"), "'fast'"),
    "exact float16 in parts": (
        "mma-imprecise",
        lambda k: product(k, max_num_imprecise_acc=32),
        "with float16 operands, whose products are added in full",
    ),
    "parts in flight": (
        "mma-imprecise",
        lambda k: of(k, gl.float8e5, max_num_imprecise_acc=32, is_async=True),
        "with is_async=True",
    ),
    "bytes contiguous along n": (
        "layout-mma-read",
        lambda k: warpgroup_mma(
            smem([128, 64], gl.int8),
            smem([64, 64], gl.int8),
            acc(k, gl.int32, warpgroup_mma_layout(gl.int8, [128, 64], 4)),
        ),
        "elements of 8 bits are read along k only",
    ),
    "an old accumulator": ("mma-accumulator-layout", lambda k: warpgroup_mma_init(acc(k, layout=V2)), "version [3, 0]"),
    "a scalar to wait for": ("mma-wait-operand", lambda k: warpgroup_mma_wait(0, k.scalar(gl.float32)), "'s'"),
    "mma_v2 of buffers": (
        "mma-operand",
        lambda k: mma_v2(smem([128, 64]), smem([64, 64]), acc(k, layout=V2)),
        "smem.load(gl.DotOperandLayout(",
    ),
    "mma_v2 into a newer layout": (
        "mma-accumulator-layout",
        lambda k: mma_v2(k.tile(gl.float16, (128, 64)), k.tile(gl.float16, (64, 64)), acc(k)),
        "gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])",
    ),
    "mma_v2 of other fragments": (
        "mma-operand-layout",
        lambda k: mma_v2(
            k.tile(gl.float16, (128, 64), gl.DotOperandLayout(0, V2, 4)),
            k.tile(gl.float16, (64, 64), gl.DotOperandLayout(1, V2, 2)),
            acc(k, layout=V2),
        ),
        f"needs it in DotOperandLayout(0, {V2!r}, 2)",
    ),
    "mma_v2 of few rows": (
        "layout-mma-shape",
        lambda k: mma_v2(
            gl.zeros([8, 64], gl.float16), gl.zeros([64, 64], gl.float16), acc(k, layout=V2, shape=(8, 64))
        ),
        "M to be a multiple of 16",
    ),
    "mma_v2 in flight": (
        "mma-in-flight",
        lambda k: product(k, a=product(k, c=acc(k, gl.float16), is_async=True)),
        "in flight",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_ways_to_go_wrong(what):
    code, call, expected = OTHERS[what]
    with building() as kernel, pytest.raises(UserError) as caught:
        call(kernel)
    assert caught.value.code == code, str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("call", "target", "instead"),
    [
        (lambda k: product(k), "sm_80", "mma_v2 of weft.language.nvidia.ampere"),
        (lambda k: product(k), "sm_100a", "tcgen05_mma of weft.language.nvidia.blackwell"),
        (lambda k: warpgroup_mma_wait(0, (acc(k),)), "sm_80", "mma_v2"),
        (lambda k: warpgroup_mma_init(acc(k)), "sm_80", "mma_v2"),
        (
            lambda k: mma_v2(
                gl.zeros([128, 64], gl.float8e5), gl.zeros([64, 64], gl.float8e5), acc(k, layout=V2)
            ),
            "sm_80",
            "convert the operands with .to(gl.float16)",
        ),
    ],
)  # fmt: skip
def test_what_targets_do_not_have(call, target, instead):
    with building(target=target) as kernel, pytest.raises(UserError) as caught:
        call(kernel)
    assert caught.value.code == "async-target"
    assert f"{target} does not have" in str(caught.value)
    assert instead in str(caught.value)


EVERY_USE = {
    "an operator": lambda x: x + 1,
    "a comparison": lambda x: x > 0,
    "a cast": lambda x: x.to(gl.float16),
    "a reduction": lambda x: x.sum(axis=1),
    "a shape": lambda x: x.reshape([64, 128]),
    "a layout": lambda x: gl.convert_layout(x, MATRIX),
    "a store": lambda x: smem([128, 64], gl.float32).store(x),
    "a math function": gl.exp2,
    "a choice": lambda x: gl.where(x.shape[0] > 1, x, 0.0),
    "an allocation": lambda x: gl.allocate_shared_memory(gl.float32, [128, 64], smem([128, 64], gl.float32).layout, x),
}


@pytest.mark.parametrize("use", EVERY_USE)
def test_no_use_of_an_accumulator_under_way(use):
    with building() as kernel, pytest.raises(UserError) as caught:
        EVERY_USE[use](product(kernel, is_async=True))
    assert caught.value.code == "mma-in-flight", str(caught.value)


@weft.jit
def unreadable_left(n):
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    a = gl.allocate_shared_memory(gl.float16, [64, 64], layout)
    b = gl.allocate_shared_memory(gl.float16, [64, 64], wide)
    acc = gl.zeros([64, 64], gl.float32, warpgroup_mma_layout(gl.float16, [64, 64], 4))
    for _ in range(n):
        acc = warpgroup_mma(a, b, acc)


@weft.jit
def used_under_way(n):
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    a = gl.allocate_shared_memory(gl.float16, [64, 64], wide)
    acc = gl.zeros([64, 64], gl.float32, warpgroup_mma_layout(gl.float16, [64, 64], 4))
    for _ in range(n):
        acc = warpgroup_mma(a, a, acc, is_async=True)
        a.store(acc.to(gl.float16))


@weft.jit
def of_two_warps():
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    a = gl.allocate_shared_memory(gl.float16, [64, 64], wide)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [2, 1], [16, 64, 16])
    warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, layout))


@weft.jit
def nothing():
    pass


@weft.jit
def of_a_worker():
    gl.warp_specialize([(nothing, ()), (multiplies, ())], [2], [24])


@weft.jit
def multiplies():
    gl.zeros([64, 64], gl.float32, warpgroup_mma_layout(gl.float16, [64, 64], 4))


def test_warps_of_a_partition():
    with pytest.raises(UserError) as caught:
        of_a_worker[(1,)](num_warps=4)
    assert caught.value.code == "layout-num-warps"
    assert "the partition of multiplies runs with num_warps=2" in str(caught.value)
    assert "let gl.warp_specialize give it num_warps=4" in caught.value.fix


@pytest.mark.parametrize(
    ("kernel", "arguments", "warps", "code", "line"),
    [
        (unreadable_left, (3,), 4, "layout-mma-read", "acc = warpgroup_mma(a, b, acc)"),
        (used_under_way, (3,), 4, "mma-in-flight", "a.store(acc.to(gl.float16))"),
        (of_two_warps, (), 2, "layout-mma-warps", "warpgroup_mma(a, a, gl.zeros([64, 64], gl.float32, layout))"),
    ],
    ids=["unreadable", "in flight", "warps"],
)
def test_the_line_that_is_at_fault(kernel, arguments, warps, code, line):
    with pytest.raises(UserError) as caught:
        kernel[(1,)](*arguments, num_warps=warps)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.loc is not None
    assert caught.value.loc.source.strip() == line
