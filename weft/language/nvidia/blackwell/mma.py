"""Blackwell's MMAs (`tcgen05.mma`): one thread issues them, they accumulate asynchronously in tensor memory, and a commit
signals their completion on an mbarrier.

    tcgen05_mma(a_bufs.index(i), b_bufs.index(i), acc, use_acc=i > 0)
    tcgen05_commit(bar)
    ...
    mbarrier.wait(bar, phase)
    c = acc.load()

Nothing else waits for an MMA or a copy. Until the barrier's phase is complete, only further MMAs of the same partition may
access the accumulator, and the operands must not be modified. If the tensor memory layout has `two_ctas`, a CTA pair executes
the MMA (`cta_group::2`), and the first CTA of the pair issues and commits it for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, cast

from weft.errors import fail
from weft.errors import tensor_cores as errors
from weft.ir.types import BY_CODE, DType, float8e4nv, float32
from weft.language.context import current
from weft.language.handles import memory_handle
from weft.language.logic import logical_and
from weft.language.marks import builtin
from weft.language.nvidia.blackwell.tensor_memory import tensor_memory_descriptor
from weft.language.nvidia.checks import check_own_barrier, demand
from weft.language.nvidia.products import SIDES, check_shapes, check_types
from weft.language.runtime_value import RuntimeValue, name_of
from weft.language.scalars import predicate
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.layout import MBarrierLayout
from weft.layout.base import Unreadable
from weft.layout.cluster import receivers
from weft.layout.tensor_cores.tcgen05 import plan_mma
from weft.layout.tensor_cores.tcgen05_copies import plan_copy
from weft.layout.tensor_cores.tcgen05_kinds import MEMORY, RUNS, Format, Scaled
from weft.layout.tensor_memory.layouts import LANES, TensorMemoryLayout, TensorMemoryScalesLayout
from weft.ops import tcgen05 as ops
from weft.ops.mbarrier import blocks_sharing

FORMATS = {name: BY_CODE[code] for name, code in MEMORY.items()}
"""Element formats of scaled MMAs, and their storage types: a byte holds two e2m1."""
SCALES = {BY_CODE[code] for code in RUNS}
"""Types of scales: powers of two (e8m0, as uint8), and e4m3."""

Handle = shared_memory_descriptor | tensor_memory_descriptor


@builtin
def tcgen05_mma(
    a: Handle, b: shared_memory_descriptor, acc: tensor_memory_descriptor, *, use_acc: Any = True, pred: Any = True,
    multicast: bool = False, mbarriers: Sequence[shared_memory_descriptor] | None = None,
    mbarrier_preds: Sequence[Any] | None = None,
) -> None:  # fmt: skip
    """Issue `acc += a @ b`, or `acc = a @ b` if `use_acc` is false; nothing is issued if `pred` is false.

    The shapes are [M, K] times [K, N] into [M, N]. `b` is a buffer in shared memory, `a` one in shared or tensor memory.
    Operands are float16, bfloat16, float32 (multiplied as tf32), or any two fp8 or 8-bit integer types. Each of `mbarriers`
    gets one arrival when this MMA and all earlier ones are complete, if its entry of `mbarrier_preds` and `pred` are true;
    `multicast` signals the CTAs of `tcgen05_commit(..., descs=[a, b])`. Without barriers, call `tcgen05_commit` later.


    Raises CompilationError: async-target, mma-operand, mma-types, mma-shapes, mma-accumulator-type, tcgen05-accumulator,
    tcgen05-barriers, tcgen05-predicates, cluster-signal, language-predicate; LayoutError: tcgen05-accumulator-layout,
    tcgen05-layouts.
    """
    what = "tcgen05_mma"
    demand(what, "tensor memory")
    left, right = _operand(what, 0, a), _operand(what, 1, b)
    _check_accumulator(what, acc)
    check_shapes(what, a, b, acc)
    check_types(what, left, right, acc)
    _check_layouts(what, a, b, acc)
    commits = _commits(what, mbarriers, mbarrier_preds, (a, b) if multicast else ())
    condition, holds = predicate(f"{what}, use_acc,", use_acc), predicate(f"{what}, pred,", pred)
    apply_many(ops.mma, (a, b, acc, condition, holds))
    _emit(commits, holds)


@builtin
def tcgen05_mma_scaled(
    a: Handle, b: shared_memory_descriptor, acc: tensor_memory_descriptor, a_scale: tensor_memory_descriptor,
    b_scale: tensor_memory_descriptor, a_type: Format, b_type: Format, *, use_acc: Any = True, pred: Any = True,
    multicast: bool = False, mbarriers: Sequence[shared_memory_descriptor] | None = None,
    mbarrier_preds: Sequence[Any] | None = None,
) -> None:  # fmt: skip
    """As `tcgen05_mma`, with block-scaled operands: each vector of elements along K is multiplied by its scale. The
    accumulator is float32.

    `a_type` and `b_type` are the element formats: "e4m3" (gl.float8e4nv), "e5m2" (gl.float8e5), or "e2m1", of which a byte
    (gl.uint8) holds two adjacent along K, the first one in its low half. Scales are in tensor memory, [M, K / vector] of a and
    [N, K / vector] of b: gl.uint8 (e8m0 powers of two) for vectors of 32, or, for e2m1 times e2m1, gl.float8e4nv for vectors
    of 16.

    Raises the errors of `tcgen05_mma`, and CompilationError: tcgen05-format, tcgen05-format-element, tcgen05-scale,
    tcgen05-scale-types, tcgen05-scale-shape; LayoutError: tcgen05-scale-layout, tcgen05-scaled-block.
    """
    what = "tcgen05_mma_scaled"
    demand(what, "tensor memory")
    for number, (x, format) in enumerate(((a, a_type), (b, b_type))):
        _check_format(number, format, _operand(what, number, x), x)
    layout = _check_accumulator(what, acc)
    each = (_per_element(a_type), _per_element(b_type))
    check_shapes(what, a, b, acc, each)
    if acc.dtype is not float32:
        got, allowed = name_of(acc), float32.name
        raise fail(errors.MMA_ACCUMULATOR_TYPE, what=what, left=name_of(a), right=name_of(b), got=got, allowed=allowed)
    if layout.block[0] != LANES:
        raise fail(errors.TCGEN05_SCALED_BLOCK, got=name_of(acc), layout=layout)
    run_type = _check_scales((a, b), (a_scale, b_scale), (a_type, b_type))
    _check_layouts(what, a, b, acc, Scaled(a_type, b_type, a_scale.side, b_scale.side, run_type.code))
    commits = _commits(what, mbarriers, mbarrier_preds, (a, b) if multicast else ())
    condition, holds = predicate(f"{what}, use_acc,", use_acc), predicate(f"{what}, pred,", pred)
    apply_many(ops.mma_scaled, (a, b, acc, a_scale, b_scale, condition, holds), a_type=a_type, b_type=b_type)
    _emit(commits, holds)


@builtin
def tcgen05_copy(src: shared_memory_descriptor, dst: tensor_memory_descriptor) -> None:
    """Start a copy of a tile, such as scales, from shared to tensor memory. Later MMAs are ordered after it, threads are not.


    Raises CompilationError: async-target, tcgen05-copy; LayoutError: tcgen05-copy-layouts.
    """
    what = "tcgen05_copy"
    demand(what, "tensor memory")
    known = _is_tile(src, shared_memory_descriptor) and _is_tile(dst, tensor_memory_descriptor)
    if not known or (src.dtype, src.shape) != (dst.dtype, dst.shape):
        raise fail(errors.TCGEN05_COPY, src=name_of(src), dst=name_of(dst))
    plan = plan_copy(src.side, dst.side, dst.dtype.bits)
    if isinstance(plan, Unreadable):
        raise fail(
            errors.TCGEN05_COPY_LAYOUTS, src=name_of(src), src_layout=src.layout, dst=name_of(dst), dst_layout=dst.layout,
            reason=plan.reason, fix=plan.fix,
        )  # fmt: skip
    apply_many(ops.copy, (src, dst))


@builtin
def tcgen05_commit(barrier: shared_memory_descriptor, pred: Any = True, descs: Sequence[Handle] = ()) -> None:
    """One arrival on the barrier when all earlier MMAs and copies are complete, if `pred` is true.

    A CTA pair signals the barriers of both CTAs, unless they share one. `descs` are the operands of the MMAs if TMA fills
    their buffers with `multicast`. The arrival then signals the barriers of all CTAs that receive an operand, since the sender
    must not overwrite a buffer that another CTA still reads; `tcgen05_mma_barrier_count` is the number of arrivals at each.


    Raises CompilationError: async-target, tcgen05-descriptors, cluster-signal, language-predicate, and the errors of an invalid
    barrier.
    """
    what = "tcgen05_commit"
    demand(what, "tensor memory")
    commits = _commits(what, [barrier], None, descs)
    _emit(commits, predicate(f"{what}, pred,", pred))


@builtin
def tcgen05_mma_barrier_count(smems: Sequence[Handle], multicast: bool, two_ctas: bool = False) -> int:
    """The number of arrivals per phase on each CTA's barrier when MMAs commit: the `count` of `mbarrier.init`.

    `smems` are the operands of a commit with `multicast` (or `descs`). Every CTA, or with `two_ctas` every CTA pair, that
    receives one of them in the same multicast as this one commits. 1 without `multicast`. Raises tcgen05-descriptors.
    """
    masks = _masks("tcgen05_mma_barrier_count", smems)
    if not multicast or not masks:
        return 1
    starting = range(0, current().num_ctas, 2 if two_ctas else 1)
    return sum(any(not rank & ~mask for mask in masks) for rank in starting)


@builtin
def tcgen05_fence(before: bool) -> None:
    """Order this thread's tensor memory accesses with thread synchronization, in kernels launched with `sync="none"`.

    With `before` (`tcgen05.fence::before_thread_sync`), earlier accesses precede the thread's next arrival or barrier;
    otherwise (`after_thread_sync`), later accesses follow its last wait. In other kernels the compiler inserts fences. Raises
    async-target.
    """
    demand("tcgen05_fence", "tensor memory")
    apply_many(ops.fence, (), before=bool(before))


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit: its barrier, its predicate, and the CTAs that it signals."""

    bar: shared_memory_descriptor
    condition: tensor | None
    receivers: tuple[int, ...]


def _commits(what: str, mbarriers: Any, preds: Any, descs: Sequence[Any]) -> list[_Commit]:
    """The commits of an MMA. Raises tcgen05-barriers, tcgen05-predicates, cluster-signal, and the errors of an invalid
    barrier."""
    barriers = _listed(mbarriers)
    if barriers is None:
        raise fail(errors.TCGEN05_BARRIERS, what=what, got=name_of(mbarriers))
    conditions = [True] * len(barriers) if preds is None else _listed(preds)
    if conditions is None or len(conditions) != len(barriers):
        got = name_of(preds) if conditions is None else f"{len(conditions)} conditions"
        raise fail(errors.TCGEN05_PREDICATES, what=what, got=got, count=len(barriers))
    # A CTA pair signals both CTAs.
    pairs = bool(current().two_ctas)
    masks = {mask | pairs for mask in _masks(what, descs)} or {int(pairs)}
    found: list[_Commit] = []
    for given, condition in zip(barriers, conditions, strict=True):
        bar = check_own_barrier(what, given, pairs=pairs)
        own = _largest({mask & ~blocks_sharing(bar.handle) for mask in masks})
        found.append(_Commit(bar, predicate(f"{what}, mbarrier_preds,", condition), own))
    return found


def _emit(commits: list[_Commit], pred: tensor | None) -> None:
    for each in commits:
        conditions = [condition for condition in (pred, each.condition) if condition is not None]
        holds = reduce(logical_and, conditions) if conditions else None
        apply_many(ops.commit, (each.bar, holds), receivers=each.receivers)


def _listed(given: Any) -> list[Any] | None:
    """The items of a list or tuple; an empty list for None; None for anything else."""
    if given is None:
        return []
    return list(cast("Sequence[Any]", given)) if isinstance(given, (list, tuple)) else None


def _largest(masks: set[int]) -> tuple[int, ...]:
    """The masks that are not a subset of another one; none if a CTA signals only itself."""
    return tuple(sorted(mask for mask in masks if mask and not any(mask != it and mask & it == mask for it in masks)))


def _masks(what: str, descs: Any) -> list[int]:
    """For each operand, the mask of CTA rank bits in which the CTAs of its multicast may differ."""
    operands = _listed(descs)
    if operands is None:
        raise fail(errors.TCGEN05_DESCRIPTORS, what=what, got=name_of(descs))
    found: list[int] = []
    for x in operands:
        if not isinstance(x, (shared_memory_descriptor, tensor_memory_descriptor)):
            raise fail(errors.TCGEN05_DESCRIPTORS, what=what, got=name_of(x))
        t = x.memory
        found.append(receivers(t.layout.to_linear(t.alloc_shape), current().num_ctas))
    return found


def _is_tile(x: Any, kind: type[memory_handle]) -> bool:
    """True for a handle of a kind to one tile that is not a barrier."""
    return isinstance(x, kind) and not x.leading and not isinstance(x.memory.layout, MBarrierLayout)


def _operand(what: str, number: int, x: Any) -> DType:
    """The element type of an operand: one tile in shared memory, or for a in tensor memory. Raises mma-operand."""
    if number == 0 and _is_tile(x, tensor_memory_descriptor):
        if isinstance(x.layout, TensorMemoryLayout):
            return x.dtype
    elif _is_tile(x, shared_memory_descriptor):
        return x.dtype
    want = ("one tile in shared memory or tensor memory", "one tile in shared memory")[number]
    fix = "store it with gl.allocate_shared_memory(dtype, shape, layout, value)"
    if isinstance(x, (shared_memory_descriptor, tensor_memory_descriptor)) and x.leading:
        fix = "choose one, as in bufs.index(i)"
    elif number == 0:
        fix += ", or allocate_tensor_memory(dtype, shape, layout, value)"
    raise fail(errors.MMA_OPERAND, side=SIDES[number], what=what, got=name_of(x), want=want, fix=fix)


def _check_accumulator(what: str, acc: Any) -> TensorMemoryLayout:
    """The layout of an accumulator. Raises tcgen05-accumulator, tcgen05-accumulator-layout."""
    if not _is_tile(acc, tensor_memory_descriptor):
        raise fail(errors.TCGEN05_ACCUMULATOR, what=what, got=name_of(acc))
    if not isinstance(acc.layout, TensorMemoryLayout):
        raise fail(errors.TCGEN05_ACCUMULATOR_LAYOUT, what=what, got=name_of(acc), layout=acc.layout)
    return acc.layout


def _check_format(number: int, format: Any, dtype: DType, x: RuntimeValue) -> None:
    """Raises tcgen05-format, tcgen05-format-element."""
    side = SIDES[number]
    if format not in FORMATS:
        raise fail(errors.TCGEN05_FORMAT, side=side, got=repr(format), known=", ".join(map(repr, FORMATS)))
    if dtype != FORMATS[format]:
        known = [name for name, each in FORMATS.items() if each == dtype]
        fix = f"pass {side}_type={known[0]!r}" if known else "keep it in that type, two of e2m1 in each byte"
        want = FORMATS[format].name
        raise fail(errors.TCGEN05_FORMAT_ELEMENT, side=side, got=name_of(x), format=format, dtype=want, fix=fix)


def _check_scales(operands: Sequence[Any], scales: Sequence[Any], formats: tuple[str, str]) -> DType:
    """The type of the scales. Raises tcgen05-scale, tcgen05-scale-layout, tcgen05-scale-types, tcgen05-scale-shape."""
    for side, scale in zip(SIDES, scales, strict=True):
        if not _is_tile(scale, tensor_memory_descriptor):
            raise fail(errors.TCGEN05_SCALE, side=side, got=name_of(scale))
        if not isinstance(scale.layout, TensorMemoryScalesLayout):
            raise fail(errors.TCGEN05_SCALE_LAYOUT, side=side, got=name_of(scale), layout=scale.layout)
    kinds = {scale.dtype for scale in scales}
    if len(kinds) > 1 or not kinds <= SCALES or (float8e4nv in kinds and formats != ("e2m1", "e2m1")):
        one, other = map(name_of, scales)
        raise fail(errors.TCGEN05_SCALE_TYPES, left=formats[0], right=formats[1], a_scale=one, b_scale=other)
    dtype = kinds.pop()
    run = RUNS[dtype.code]
    for number, (x, scale) in enumerate(zip(operands, scales, strict=True)):
        length = x.shape[1 - number] * _per_element(formats[number])
        want = [x.shape[number], length // run]
        if scale.shape != want:
            got = name_of(scale)
            raise fail(errors.TCGEN05_SCALE_SHAPE, side=SIDES[number], got=got, operand=name_of(x), run=run, want=want)
    return dtype


def _check_layouts(
    what: str, a: Handle, b: shared_memory_descriptor, acc: tensor_memory_descriptor, scaled: Scaled | None = None
) -> None:
    """Reject operand and accumulator layouts that no instruction supports (tcgen05-layouts)."""
    types = (a.dtype.code, b.dtype.code, acc.dtype.code)
    plan = plan_mma(a.side, b.side, acc.side, types, scaled, bool(current().two_ctas))
    if isinstance(plan, Unreadable):
        left, right, sums = name_of(a), name_of(b), name_of(acc)
        raise fail(
            errors.TCGEN05_LAYOUTS, what=what, left=left, right=right, acc=sums, reason=plan.reason, fix=plan.fix
        )


def _per_element(format: str) -> int:
    """The number of elements along K in one storage element."""
    return 2 if format == "e2m1" else 1


__all__ = [
    "tcgen05_commit", "tcgen05_copy", "tcgen05_fence", "tcgen05_mma", "tcgen05_mma_barrier_count", "tcgen05_mma_scaled",
]  # fmt: skip
