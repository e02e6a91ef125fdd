"""Matrix products of Blackwell's tensor cores: one thread starts them, and they run on in tensor memory.

    tcgen05.mma %a, %b, %acc                    starts acc + a @ b
    tcgen05.commit %bar                         one arrival on the barrier, when all that was started before is complete

The elected thread of the partition starts products, copies and commits. Products of one thread that add to the same
accumulator by the same instructions are carried out in order, and so are copies to tensor memory before the products that
follow. Nothing else waits for them: who reads the accumulator, also as an operand of a product, or writes the operands'
memory, waits for a barrier that a commit arrives on. Operands in shared memory are read in the async
proxy. In a kernel whose tensor memory layouts say `two_ctas`, the first of two neighbouring blocks starts the product of both:
each block has half of the rows of a and of the accumulator, and half of the columns of b.
(PTX ISA, "TensorCore 5th Generation Family Instructions".)
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op
from weft.ir.types import SharedArrayType, SharedType, TensorType, int32
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_cores.tcgen05 import Step
from weft.layout.tensor_cores.tcgen05_copies import CopyStep
from weft.layout.tensor_cores.tcgen05_kinds import Format, Kind
from weft.ops.check import barrier, boolean, require, scalar, shared, shared_array, tensor_memory
from weft.ops.tile import LOWER

A = (
    Effect("read", "shared", "a", "async", "tcgen05", by="elected"),
    Effect("read", "tensor", "a", "async", "tcgen05", by="elected"),
)
B = Effect("read", "shared", "b", "async", "tcgen05", by="elected")
ACC = Effect("write", "tensor", "acc", "async", "tcgen05", by="elected")
SCALES = tuple(Effect("read", "tensor", name, "async", "tcgen05", by="elected") for name in ("a_scale", "b_scale"))
COPIES = (
    Effect("read", "shared", "src", "async", "tcgen05", by="elected"),
    Effect("write", "tensor", "dst", "async", "tcgen05", by="elected"),
)


def _commits(attrs: Attrs) -> tuple[Effect, ...]:
    return (Effect("update", "shared", "bar", "async", "tcgen05", by="elected", remote=bool(attrs["receivers"])),)


@op("tcgen05.mma", effects=(*A, B, ACC), needs="block", stage="tile", removed_by=LOWER)
def mma(a: Value, b: Value, acc: Value, use_acc: Value | None, pred: Value | None) -> None:
    """Start acc + a @ b, or a @ b where the scalar `use_acc` does not hold (None: it holds), where `pred` holds.

    `a` is shared or tensor memory, `b` shared memory, `acc` tensor memory."""
    (m, k), (inner, n) = _matrix(a), _matrix(b)
    shared(b)
    require(k == inner and tensor_memory(acc).shape == (m, n), "{} times {} added to {}", a.type, b.type, acc.type)
    _flags(use_acc, pred)


@op("tcgen05.mma_scaled", effects=(*A, B, ACC, *SCALES), needs="block", stage="tile", removed_by=LOWER)
def mma_scaled(
    a: Value, b: Value, acc: Value, a_scale: Value, b_scale: Value, use_acc: Value | None, pred: Value | None,
    a_type: Format, b_type: Format,
) -> None:  # fmt: skip
    """As `mma`, each run of elements along k multiplied by its scale first. e2m1 elements come as bytes, two of neighbouring
    k each, the first one in the low half.

    Scales are tensor memory: [M, K / run] of a and [N, K / run] of b, of powers of two (uint8: e8m0, runs of 32) or of e4m3
    (float8e4nv, runs of 16)."""
    (m, k), (inner, n) = _matrix(a), _matrix(b)
    shared(b)
    k, inner = k * (2 if a_type == "e2m1" else 1), inner * (2 if b_type == "e2m1" else 1)
    require(k == inner and tensor_memory(acc).shape == (m, n), "{} times {} added to {}", a.type, b.type, acc.type)
    for scale, outer in ((a_scale, m), (b_scale, n)):
        t = tensor_memory(scale)
        require(t.shape in ((outer, k // 32), (outer, k // 16)), "{} scales {} times {}", t, a.type, b.type)
    _flags(use_acc, pred)


@op("tcgen05.copy", effects=COPIES, needs="block", stage="tile", removed_by=LOWER)
def copy(src: Value, dst: Value) -> None:
    """Start to copy a tile from shared to tensor memory."""
    s, d = shared(src), tensor_memory(dst)
    require((s.element, s.shape) == (d.element, d.shape), "{} copied to {}", s, d)


@op("tcgen05.commit", effects=_commits, needs="block")
def commit(bar: Value, pred: Value | None, receivers: tuple[int, ...] = ()) -> None:
    """One arrival on the barrier when all tcgen05 operations that the elected thread started before are complete, where `pred`
    holds.

    With `receivers` it comes to the barriers, at the same place, of several blocks: of those whose number in the cluster
    differs from this block's only in the bits of one of the masks. Where two blocks multiply together the first one commits."""
    barrier(bar)
    _flags(pred)


@op("tcgen05.fence", effects=(Effect("sync", "tensor"),))
def fence(before: bool, reason: str = "") -> None:
    """Order tcgen05 operations with what orders threads: with `before`, those so far come before what the thread signals next;
    else those that follow come after what it has waited for. `reason` says what it is for when a pass placed it.

    A commit needs none before it. (PTX ISA, tcgen05.fence.)"""


# Lowered


@op("tcgen05.issue", effects=(*A, B, ACC, *SCALES), needs="block", stage="lowered")
def issue(
    a: Value, b: Value, acc: Value, a_scale: Value | None, b_scale: Value | None, use_acc: Value | None, pred: Value | None,
    *, kind: Kind, left: Operand | None, right: Operand, steps: tuple[Step, ...], two_ctas: bool = False,
) -> None:  # fmt: skip
    """Instructions of one product. `acc` and the scales are addresses in tensor memory, and so is `a` where `left` is None.

    `left` and `right` say how the operands lie in shared memory. Steps that are the first along k of their columns obey
    `use_acc`, the others add."""
    require(isinstance(b.type, SharedArrayType), "b is memory: {}", b.type)
    require(isinstance(a.type, SharedArrayType) == (left is not None), "a does not lie where it should: {}", a.type)
    for address in (acc, a_scale, b_scale, a if left is None else None):
        if address is not None:
            scalar(address, int32)
    _flags(use_acc, pred)


@op("tcgen05.copy_shared", effects=COPIES, needs="block", stage="lowered")
def copy_shared(
    src: Value, dst: Value, *, shape: str, operand: Operand, steps: tuple[CopyStep, ...], two_ctas: bool = False
) -> None:
    """Instructions tcgen05.cp of one copy; `shape` is PTX's, as in "32x128b.warpx4", `operand` says how the source lies."""
    shared_array(src)
    scalar(dst, int32)


def _flags(*flags: Value | None) -> None:
    for flag in flags:
        if flag is not None:
            scalar(flag)
            boolean(flag)


def _matrix(value: Value) -> tuple[int, int]:
    t = value.type
    require(isinstance(t, SharedType | TensorType) and len(t.shape) == 2, "a matrix is needed: {}", t)
    assert isinstance(t, SharedType | TensorType)
    return t.shape[0], t.shape[1]
