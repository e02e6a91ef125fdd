"""Matrix products on tensor cores: `mma.sync` of a warp, and `wgmma` of a warpgroup, which runs asynchronously.

    %acc1 = mma.warpgroup %a, %b, %acc0        starts acc0 + a @ b; each one is a group of its own
    %acc2 = mma.warpgroup_wait %acc1           until the group is complete; %acc2 may be read, %acc1 may not

An accumulator is a tile like any other. One in flight, the result of `mma.warpgroup`, has no value yet: it may go round loops,
be the accumulator of the next product, and be waited for. Shared operands are read in the async proxy until the group is
complete. A warpgroup acts as one: what one of its warps knows to be complete has read its operands for all of them.
(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".)
"""

from __future__ import annotations

from typing import Literal

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op
from weft.ir.types import RegsType, SharedArrayType, SharedType, TileType, Type
from weft.layout.tensor_cores.shared_operands import Operand
from weft.ops.check import boolean, regs, require, scalar, shared, tile
from weft.ops.tile import LOWER

Precision = Literal["", "tf32"]
Step = tuple[int, int, int, bool]
"""One instruction: first accumulator register; first register, or byte from its start on, of a; byte of b; first along k?"""

READS = (
    Effect("read", "shared", "a", "async", "wgmma"),
    Effect("read", "shared", "b", "async", "wgmma"),
)


def _products(attrs: Attrs) -> tuple[Effect, ...]:
    """With `max_imprecise` parts are waited for as they are summed up."""
    waits = (Effect("sync", "shared", completes="wgmma"),) if attrs["max_imprecise"] else ()
    return *READS, *waits


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "shared", completes="wgmma", pendings=attrs["pendings"]),)


@op("mma.warpgroup", effects=_products, needs="block", stage="tile", removed_by=LOWER)
def warpgroup(a: Value, b: Value, acc: Value, use_acc: Value | None, max_imprecise: int = 0) -> Type:
    """Start acc + a @ b, or a @ b where the scalar `use_acc` does not hold (None: it holds).

    `a` is shared memory or a tile, `b` shared memory. With `max_imprecise` of n, every n elements along k the sum is formed in
    fp32 by ordinary additions (fp8; the tensor core keeps fewer bits); `acc` must be complete then, and the result is."""
    _product(a, b, acc)
    shared(b)
    if use_acc is not None:
        scalar(use_acc)
        boolean(use_acc)
    return acc.type


@op("mma.warpgroup_wait", effects=_waits, needs="block")
def warpgroup_wait(*values: Value, pendings: int, reason: str = "") -> tuple[Type, ...]:
    """Wait until at most the `pendings` latest groups are under way. The results are `values`; those complete are readable.

    `values` are accumulators. Other accumulators are as they were: unreadable, though the wait may have completed them.
    `reason` says why `overlap_products` placed it; where the author did, there is none."""
    require(pendings >= 0, "at least 0 groups stay pending")
    return tuple(value.type for value in values)


@op("mma.warp", stage="tile", removed_by=LOWER)
def warp(a: Value, b: Value, acc: Value, precision: Precision = "") -> Type:
    """`acc + a @ b` by `mma.sync`: `a` and `b` are tiles of the accumulator's `DotOperandLayout`s."""
    _product(a, b, acc)
    tile(a)
    tile(b)
    return acc.type


@op("mma.wgmma", effects=READS, needs="block", stage="lowered")
def wgmma(
    a: Value, b: Value, acc: Value, use_acc: Value | None, *, n: int, k: int, element: str, other: str,
    left: Operand | None, right: Operand, steps: tuple[Step, ...],
) -> Type:  # fmt: skip
    """Instructions m64n`n`k`k` of the partition's warpgroups, one group. `element` and `other` are codes of a's and b's types.

    `left` and `right` say how the operands lie in shared memory (`left` is None for registers); steps that are the first along
    k of their accumulator registers obey `use_acc`, the others add. Instruction i updates registers `steps[i][0]` and the
    n / 2 - 1 after it, in place."""
    count = regs(acc).count
    require(isinstance(b.type, SharedArrayType), "b is memory: {}", b.type)
    require(
        isinstance(a.type, SharedArrayType if left is not None else RegsType),
        "a does not lie where it should: {}",
        a.type,
    )
    require(all(0 <= first <= count - n // 2 for first, *_ in steps), "accumulator registers that are not there")
    if use_acc is not None:
        scalar(use_acc)
        boolean(use_acc)
    return acc.type


@op("mma.begin", stage="lowered")
def begin(x: Value) -> Type:
    """The array `x` as the first value of an accumulator: the assembler learns nothing of what is in it.

    Constants that meet products in flight where control flow joins would be moved into their registers."""
    return regs(x)


@op("mma.mma_sync", stage="lowered")
def mma_sync(
    a: Value, b: Value, acc: Value, *, k: int, element: str, other: str, steps: tuple[tuple[int, int, int], ...]
) -> Type:  # fmt: skip
    """Instructions m16n8k`k` of each warp: their first registers of acc (4), a (16 k / 32) and b (8 k / 32), in order."""
    regs(a)
    regs(b)
    require(all(0 <= first <= regs(acc).count - 4 for first, *_ in steps), "accumulator registers that are not there")
    return acc.type


def _product(a: Value, b: Value, acc: Value) -> None:
    """Shapes of the trailing two dimensions fit; there are no others."""
    (m, k), (inner, n) = _matrix(a), _matrix(b)
    c = tile(acc)
    require(k == inner and c.shape == (m, n), "{} times {} added to {}", a.type, b.type, acc.type)


def _matrix(value: Value) -> tuple[int, int]:
    t = value.type
    require(isinstance(t, SharedType | TileType) and len(t.shape) == 2, "a matrix is needed: {}", t)
    assert isinstance(t, SharedType | TileType)
    return t.shape[0], t.shape[1]
