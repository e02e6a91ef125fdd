"""tcgen05 MMAs of Blackwell: one thread issues them, and they execute asynchronously with accumulators in tensor memory.

    tcgen05.mma %a, %b, %acc                    starts acc + a @ b
    tcgen05.commit %bar                         one arrival on the mbarrier when all earlier operations are complete

The elected thread of the partition issues MMAs, copies and commits. MMAs of one thread that accumulate to the same accumulator
by the same instructions execute in order, and so do copies to tensor memory before later MMAs. Everything else must be waited
for: before the accumulator is read (also as an operand of an MMA), or the operands' memory is written, a thread waits for an
mbarrier on which a commit arrives. Operands in shared memory are read in the async proxy. If the tensor memory layouts have
`two_ctas` (`.cta_group::2`), the first of two neighbouring blocks issues the MMA of both: each block holds half of the rows of
a and of the accumulator, and half of the columns of b. (PTX ISA, "TensorCore 5th Generation Family Instructions".)
"""

from __future__ import annotations

from weft.ir.core import Attrs, Effect, Value
from weft.ir.define import op
from weft.ir.types import SharedArrayType, SharedType, TensorType, int32
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_cores.tcgen05 import Tcgen05Step
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
    """Start acc + a @ b, or a @ b if the scalar `use_acc` does not hold (None: it holds), if `pred` holds.

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
    """Block-scaled MMA: as `mma`, with each run of elements along k multiplied by its scale first. Two e2m1 elements with
    neighbouring k are packed in a byte, the first in the low half.

    Scales are in tensor memory: [M, K / run] for a and [N, K / run] for b, powers of two (uint8: e8m0, runs of 32) or e4m3
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
    """Start an asynchronous copy of a tile from shared to tensor memory."""
    s, d = shared(src), tensor_memory(dst)
    require((s.element, s.shape) == (d.element, d.shape), "{} copied to {}", s, d)


@op("tcgen05.commit", effects=_commits, needs="block")
def commit(bar: Value, pred: Value | None, receivers: tuple[int, ...] = ()) -> None:
    """One arrival on the mbarrier when all tcgen05 operations that the elected thread issued before are complete, if `pred`
    holds.

    With `receivers` it arrives on the mbarriers at the same offset of several blocks: those whose cluster rank differs from
    this block's only in the bits of one of the masks. With `.cta_group::2` the first block of the pair commits."""
    barrier(bar)
    _flags(pred)


@op("tcgen05.fence", effects=(Effect("sync", "tensor"),))
def fence(before: bool, reason: str = "") -> None:
    """Order tcgen05 operations with thread synchronisation: with `before`, earlier ones precede the thread's next signal
    (`before_thread_sync`); else later ones follow its last wait (`after_thread_sync`). `reason` says why a pass inserted it.

    A commit needs none before it. (PTX ISA, tcgen05.fence.)"""


# Lowered IR


@op("tcgen05.issue", effects=(*A, B, ACC, *SCALES), needs="block", stage="lowered")
def issue(
    a: Value, b: Value, acc: Value, a_scale: Value | None, b_scale: Value | None, use_acc: Value | None, pred: Value | None,
    *, kind: Kind, left: Operand | None, right: Operand, steps: tuple[Tcgen05Step, ...], reuse: int = 1, two_ctas: bool = False,
) -> None:  # fmt: skip
    """The instructions of one MMA. `acc` and the scales are tensor memory addresses, and so is `a` if `left` is None.

    `left` and `right` describe the operands in shared memory. Steps that are the first along k for their columns obey
    `use_acc`, the others accumulate. Each run of `reuse` steps reads the same tile of a, which the tensor core may keep in its
    collector buffer (PTX ISA, tcgen05.mma, `.collector_usage`)."""
    tiles = [step[1] for step in steps]
    require(
        len(tiles) % reuse == 0 and tiles == [tile for tile in tiles[::reuse] for _ in range(reuse)],
        "runs of {} steps do not read the same tile of a", reuse,
    )  # fmt: skip
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
    """The tcgen05.cp instructions of one copy; `shape` is PTX's, such as "32x128b.warpx4"; `operand` describes the source."""
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
