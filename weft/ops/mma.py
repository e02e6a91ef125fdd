"""Tensor core MMAs: `mma.sync` of a warp, and `wgmma` of a warpgroup, which is asynchronous.

    %acc1 = mma.warpgroup %a, %b, %acc0        starts acc0 + a @ b, as a wgmma group of its own
    %acc2 = mma.warpgroup_wait %acc1           waits for the group; %acc2 may be read, %acc1 must not be

An accumulator is a tile. The result of `mma.warpgroup` is in flight and has no value yet: it may be carried by loops, be the
accumulator of the next wgmma, and be waited for. Operands in shared memory are read in the async proxy until the group is
complete. A group completes for the whole warpgroup: once one of its warps has waited, all operands have been read.
(PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
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
WgmmaStep = tuple[int, int, int, bool]
"""One instruction: its first accumulator register; the first register, or byte offset, of a; the byte offset of b; and whether
it is the first along k."""

READS = (
    Effect("read", "shared", "a", "async", "wgmma"),
    Effect("read", "shared", "b", "async", "wgmma"),
)


def _products(attrs: Attrs) -> tuple[Effect, ...]:
    """With `max_imprecise` the operation waits for each of its parts before it adds it."""
    waits = (Effect("sync", "shared", completes="wgmma"),) if attrs["max_imprecise"] else ()
    return *READS, *waits


def _waits(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("sync", "shared", completes="wgmma", pendings=attrs["pendings"]),)


@op("mma.warpgroup", effects=_products, needs="block", stage="tile", removed_by=LOWER)
def warpgroup(a: Value, b: Value, acc: Value, use_acc: Value | None, max_imprecise: int = 0) -> Type:
    """Start acc + a @ b, or a @ b if the scalar `use_acc` does not hold (None: it holds).

    `a` is shared memory or a tile, `b` shared memory. With `max_imprecise` of n (for fp8, where the tensor core accumulates
    with fewer bits than fp32), partial results of n elements along k are added in fp32 by ordinary additions. Then `acc` must
    be complete, and so is the result."""
    _product(a, b, acc)
    shared(b)
    if use_acc is not None:
        scalar(use_acc)
        boolean(use_acc)
    return acc.type


@op("mma.warpgroup_wait", effects=_waits, needs="block", updates="values")
def warpgroup_wait(*values: Value, pendings: int, reason: str = "") -> tuple[Type, ...]:
    """Wait until at most the latest `pendings` groups are in flight. The results are `values`; complete ones may be read.

    `values` are accumulators. Other accumulators must still not be read, even if the wait has completed them. `reason` says why
    a pass moved or inserted it; it is empty for the author's waits."""
    require(pendings >= 0, "at least 0 groups stay pending")
    return tuple(value.type for value in values)


@op("mma.warp", stage="tile", removed_by=LOWER)
def warp(a: Value, b: Value, acc: Value, precision: Precision = "") -> Type:
    """`acc + a @ b` by `mma.sync`: `a` and `b` are tiles of the accumulator's `DotOperandLayout`s."""
    _product(a, b, acc)
    tile(a)
    tile(b)
    return acc.type


@op("mma.wgmma", effects=READS, needs="block", stage="lowered", updates="acc")
def wgmma(
    a: Value, b: Value, acc: Value, use_acc: Value | None, *, n: int, k: int, element: str, other: str,
    left: Operand | None, right: Operand, steps: tuple[WgmmaStep, ...],
) -> Type:  # fmt: skip
    """One group of m64n`n`k`k` instructions of the partition's warpgroups. `element` and `other` are the codes of the types of
    a and b.

    `left` and `right` describe the operands in shared memory (`left` is None for registers). Steps that are the first along k
    for their accumulator registers obey `use_acc`, the others accumulate. Instruction i updates `n / 2` registers from
    `steps[i][0]` on, in place."""
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


@op("mma.begin", stage="lowered", updates="x")
def begin(x: Value) -> Type:
    """The array `x` as the initial value of an accumulator, hidden from ptxas.

    If ptxas knew that it is constant, it would move the constants into the registers of a wgmma in flight at a join."""
    return regs(x)


@op("mma.mma_sync", needs="warp", scope="thread", updates="acc")
def mma_sync(
    a: Value, b: Value, acc: Value, *, k: int, element: str, other: str, steps: tuple[tuple[int, int, int], ...]
) -> Type:  # fmt: skip
    """Instructions m16n8k`k` of each warp, in order. A step has the first registers of acc (4), a (16 k / 32) and b
    (8 k / 32)."""
    regs(a)
    regs(b)
    require(all(0 <= first <= regs(acc).count - 4 for first, *_ in steps), "accumulator registers that are not there")
    return acc.type


def _product(a: Value, b: Value, acc: Value) -> None:
    """The operands are matrices whose shapes fit."""
    (m, k), (inner, n) = _matrix(a), _matrix(b)
    c = tile(acc)
    require(k == inner and c.shape == (m, n), "{} times {} added to {}", a.type, b.type, acc.type)


def _matrix(value: Value) -> tuple[int, int]:
    t = value.type
    require(isinstance(t, SharedType | TileType) and len(t.shape) == 2, "a matrix is needed: {}", t)
    assert isinstance(t, SharedType | TileType)
    return t.shape[0], t.shape[1]
