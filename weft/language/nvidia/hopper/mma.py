"""Warpgroup MMAs (`wgmma`): a warpgroup is 4 warps, and all warpgroups of the block (or partition) share an MMA.

    acc = warpgroup_mma(a_bufs.index(i), b_bufs.index(i), acc, is_async=True)
    ...
    acc = warpgroup_mma_wait(0, (acc,))

An MMA is asynchronous. Until it has been waited for, its accumulator must not be read, and the buffers that it reads must not
be modified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from weft.errors import fail
from weft.errors import tensor_cores as errors
from weft.ir.core import Value
from weft.ir.types import DType
from weft.language.context import current
from weft.language.creation import check_int
from weft.language.layouts import set_auto_layout
from weft.language.marks import builtin, constexpr_function
from weft.language.nvidia.checks import check_pendings, demand
from weft.language.nvidia.products import (
    OPERANDS,
    SIDES,
    accumulator_layout,
    check_precision,
    check_shapes,
    check_types,
    element_of,
    fragments,
)  # fmt: skip
from weft.language.runtime_value import name_of
from weft.language.scalars import predicate
from weft.language.shared_memory import check_buffer, shared_memory_descriptor
from weft.language.tensor import tensor
from weft.layout import NVMMADistributedLayout
from weft.layout.distributed.fragments import K_BITS
from weft.layout.distributed.mma import WGMMA, pick_wgmma_layout
from weft.layout.tensor_cores.mma import INTEGER_COLUMNS, MOST_EIGHTS, plan_product
from weft.layout.tensor_cores.shared_operands import SharedSide
from weft.ops import mma as ops


class warpgroup_mma_accumulator(tensor):
    """The accumulator of MMAs in flight, as `warpgroup_mma(..., is_async=True)` returns it.

    It has the type and the layout of a tile, but no value before `warpgroup_mma_wait`. It may be carried through loops and
    accumulate the next MMA.
    """

    __slots__ = ()
    in_flight = True


@constexpr_function
def warpgroup_mma_layout(
    dtype: DType, shape: Sequence[int], num_warps: int, cga_layout: Sequence[Sequence[int]] | None = None
) -> NVMMADistributedLayout:
    """The layout of an [M, N] accumulator of MMAs of `dtype` operands, for the widest instructions that divide it.

    Also callable on the host. Raises CompilationError (mma-layout-dtype) for a dtype without MMAs, LayoutError
    (layout-mma-warps) unless the number of warps is a multiple of 4.
    """
    if dtype not in OPERANDS:
        known = ", ".join(f"gl.{each.name}" for each in OPERANDS)
        raise fail(errors.MMA_LAYOUT_DTYPE, got=repr(dtype), known=known)
    return pick_wgmma_layout(dtype.primitive_bitwidth, tuple(shape), num_warps, cga_layout)


@builtin
def warpgroup_mma_init(value: tensor) -> warpgroup_mma_accumulator:
    """A tile as the accumulator of later MMAs; emits no instructions. Raises mma-accumulator, mma-accumulator-layout."""
    what = "warpgroup_mma_init"
    demand(what, "wgmma")
    accumulator_layout(what, value, (WGMMA,), _example(value))
    return warpgroup_mma_accumulator(value.handle)


@builtin
def warpgroup_mma(
    a: shared_memory_descriptor | tensor, b: shared_memory_descriptor, acc: warpgroup_mma_accumulator | tensor, *,
    use_acc: Any = True, precision: str | None = None, max_num_imprecise_acc: int | None = None, is_async: bool = False,
) -> Any:  # fmt: skip
    """`acc + a @ b`, or `a @ b` if `use_acc` is false. The shapes are [M, K] times [K, N] into [M, N].

    `b` is a buffer in shared memory, `a` a buffer or a tile in the accumulator's `DotOperandLayout`. Both are float16,
    bfloat16, float32 (multiplied as tf32), or any two fp8 or 8-bit integer types. 16-bit types may be contiguous along either
    dimension, others along K. N is a power of two or a multiple of 8 (of 16 above 32 for integers), K a multiple of 256 bits of
    elements. With `is_async` the MMA is only issued, and `warpgroup_mma_wait` waits for it; otherwise all MMAs
    are complete afterwards. The tensor core accumulates fp8 products with fewer bits than fp32 has. If `max_num_imprecise_acc`
    is given, the partial accumulator is added to `acc` by fp32 additions every that many elements along K.


    Raises CompilationError: async-target, mma-operand, mma-types, mma-precision, mma-shapes, mma-accumulator,
    mma-accumulator-type, mma-imprecise, mma-in-flight, language-predicate; LayoutError: mma-operand-layout,
    mma-accumulator-layout, mma-instruction-k, mma-integer-columns, and layout-mma-* for layouts that no instruction supports.
    """
    what = "warpgroup_mma"
    demand(what, "wgmma")
    left = element_of(what, 0, a, tensor, shared_memory_descriptor)
    right = element_of(what, 1, b, shared_memory_descriptor)
    left_side = None if isinstance(a, tensor) else _side(what, 0, a)
    right_side = _side(what, 1, b)
    acc = _with_layout(acc, left)
    layout = accumulator_layout(what, acc, (WGMMA,), _example(acc, left))
    check_shapes(what, a, b, acc)
    check_types(what, left, right, acc)
    check_precision(what, left, precision)
    _, n, k = layout.instr_shape
    want = K_BITS // left.bits
    if k != want:
        raise fail(errors.MMA_INSTRUCTION_K, layout=layout, got=k, dtype=left.name, want=want, n=n)
    if not left.is_floating() and acc.shape[1] > MOST_EIGHTS and acc.shape[1] % INTEGER_COLUMNS:
        raise fail(errors.MMA_INTEGER_COLUMNS, n=acc.shape[1], dtype=left.name, step=INTEGER_COLUMNS)
    if isinstance(a, tensor):
        a = fragments(what, 0, a, layout, ", or pass it in shared memory")
    (rows, columns), length = acc.shape, a.shape[1]
    plan_product(layout, (rows, columns, length), left.bits, left_side or a.layout, right_side)
    asynchronous = check_int("warpgroup_mma, is_async,", is_async) != 0
    limit = _imprecise(max_num_imprecise_acc, left, length, asynchronous)
    condition = predicate("warpgroup_mma, use_acc,", use_acc)
    operands = (a.handle, b.handle, acc.handle, None if condition is None else condition.handle)
    made = current().builder.emit(ops.warpgroup, *operands, max_imprecise=limit)
    if limit:
        return tensor(made)
    started = warpgroup_mma_accumulator(made)
    return started if asynchronous else _wait(0, [started])[0]


@builtin
def warpgroup_mma_wait(num_outstanding: int = 0, deps: Any = None) -> Any:
    """Wait until at most the latest `num_outstanding` MMAs are in flight; returns `deps`, the accumulators, as tiles.

    One accumulator is returned as a tile, several as a tuple. Only the returned tiles may be read, and only if their MMAs are
    complete. Buffers read by completed MMAs may be overwritten. Arithmetic on tiles that is written between an MMA and its wait
    runs before the wait in machine code too, so it overlaps the MMA. Raises async-target, async-pendings, mma-wait-deps,
    mma-wait-operand.
    """
    what = "warpgroup_mma_wait"
    demand(what, "wgmma")
    count = check_pendings(what, num_outstanding)
    values = list(cast("Sequence[Any]", deps)) if isinstance(deps, (list, tuple)) else [] if deps is None else [deps]
    if not values:
        raise fail(errors.MMA_NO_DEPS, count=count)
    for value in values:
        layout = value.layout if isinstance(value, tensor) and not value.is_scalar else None
        if not isinstance(layout, NVMMADistributedLayout) or tuple(layout.version) != WGMMA:
            raise fail(errors.MMA_NO_ACCUMULATOR, got=name_of(value))
    waited = _wait(count, values)
    return waited[0] if len(waited) == 1 else waited


def _wait(count: int, accumulators: Sequence[tensor]) -> tuple[tensor, ...]:
    handles = (x.handle for x in accumulators)
    made: Value | tuple[Value, ...] = current().builder.emit(ops.warpgroup_wait, *handles, pendings=count)
    return tuple(map(tensor, made)) if isinstance(made, tuple) else (tensor(made),)


def _with_layout(acc: Any, dtype: DType) -> Any:
    """Give an accumulator in `AutoLayout` the layout of the MMA."""
    if not isinstance(acc, tensor) or acc.is_scalar or acc.layout.is_resolved or acc.rank != 2:
        return acc
    return set_auto_layout(acc, warpgroup_mma_layout(dtype, acc.shape, current().num_warps))


def _side(what: str, number: int, x: shared_memory_descriptor) -> SharedSide:
    """One tile in shared memory, for planning."""
    memory = check_buffer(f"{SIDES[number]} of {what}", x)
    if memory.leading:
        fix = "choose one, as in bufs.index(i)"
        raise fail(errors.MMA_OPERAND, side=SIDES[number], what=what, got=name_of(x), want="one tile", fix=fix)
    return memory.side


def _imprecise(limit: Any, dtype: DType, length: int, is_async: bool) -> int:
    """The number of elements along K accumulated at the tensor core's precision; 0 for all. Raises mma-imprecise."""
    if limit is None:
        return 0
    count, step = check_int("max_num_imprecise_acc", limit), K_BITS // dtype.bits
    problem = fix = ""
    if not dtype.is_fp8():
        problem, fix = f"with {dtype.name} operands, whose products are added in full", "leave it out"
    elif is_async:
        problem, fix = "with is_async=True: the threads themselves add the parts", "leave one of them out"
    elif count < step or count % step or count > length:
        problem = f"for {length} elements along K, which instructions take {step} at a time"
        fix = f"pass a multiple of {step} up to {length}"
    if problem:
        raise fail(errors.MMA_IMPRECISE, got=count, problem=problem, fix=fix)
    return count


def _example(acc: Any, dtype: DType | None = None) -> str:
    shape = acc.shape if isinstance(acc, tensor) and acc.rank == 2 else "[M, N]"
    return f"warpgroup_mma_layout({'dtype' if dtype is None else f'gl.{dtype.name}'}, {shape}, {current().num_warps})"
