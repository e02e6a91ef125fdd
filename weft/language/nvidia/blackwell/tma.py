"""TMA on Blackwell: Hopper's functions, and gather and scatter of matrix rows by index.

    mbarrier.expect(bar, rows * columns * itemsize)
    tma.async_gather(desc, row_numbers, column, bar, smem)          # desc.block_shape is [1, columns]
    mbarrier.wait(bar, phase)
    ...
    tma.async_scatter(desc, row_numbers, column, smem)
    tma.store_wait(0)

Row indices are a tile distributed over the threads of the block (or partition); one thread issues the instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import asynchronous as errors
from weft.errors import fail
from weft.ir.types import int32
from weft.language.descriptor import tensor_descriptor, tensor_descriptor_im2col, tensor_descriptor_type
from weft.language.marks import builtin
from weft.language.nvidia.checks import check_own_barrier, demand
from weft.language.nvidia.hopper.tma import (
    async_atomic_add,
    async_atomic_and,
    async_atomic_max,
    async_atomic_min,
    async_atomic_or,
    async_atomic_xor,
    async_copy_global_to_shared,
    async_copy_global_to_shared_im2col,
    async_copy_shared_to_global,
    async_load,
    async_load_im2col,
    async_store,
    check_column,
    check_reached,
    is_multicast,
    l2_of,
    make_tensor_descriptor,
    request_integer,
    signalled,
    store_wait,
    stored_descriptor,
    tiled_descriptor,
    update_tensor_descriptor,
)  # fmt: skip
from weft.language.policies import AnyPolicy
from weft.language.runtime_value import RuntimeValue, describe, name_of
from weft.language.scalars import predicate
from weft.language.shared_memory import check_buffer, shared_memory_descriptor
from weft.language.tensor import apply_many, tensor
from weft.ops import tma as ops

LEAST_ROWS = 8
LEAST_BYTES = 32
"""The minimum size of a row's columns."""


@builtin
def async_gather(
    tensor_desc: tensor_descriptor, x_offsets: tensor, y_offset: Any, barrier: shared_memory_descriptor,
    result: shared_memory_descriptor, pred: Any = True, multicast: bool = False, *,
    cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """Start a copy of rows `x_offsets` of a matrix, from column `y_offset`, to the rows of `result`, if `pred` is true.

    `x_offsets` is a one-dimensional int32 tile of at least 8 elements, in any layout; out-of-bounds rows are read as the
    descriptor's padding. The descriptor's block is one row of at least 32 bytes, [1, C], and `result` is a buffer [rows, C] in
    its layout, or a slice of one as in `async_copy_global_to_shared`. All bytes of `result` count on the barrier's current
    phase; a CTA pair may share the barrier. With `multicast`, the first of the CTAs that hold copies of the rows loads them for
    all of these, as in `async_copy_global_to_shared`.

    Raises CompilationError: async-target, async-descriptor-needed, async-descriptor-mode, gather-rows, gather-block,
    async-coordinate-step, async-coordinate-type, cluster-signal, language-predicate, and the errors of an invalid barrier or
    buffer; LayoutError (gather-buffer, cluster-slice).
    """
    what = "async_gather"
    desc, rows, column = _check_rows(what, tiled_descriptor, tensor_desc, x_offsets, y_offset)
    bar, memory = check_own_barrier(what, barrier, pairs=True), _check_memory(what, desc, rows, result, loads=True)
    operands = (desc.handle, bar, memory, predicate(f"{what}, pred,", pred), rows, column)
    sent = {"multicast": is_multicast(multicast), **signalled(bar, memory)}
    apply_many(ops.gather, operands, **sent, **l2_of(what, cache_policy))


@builtin
def async_scatter(
    tensor_desc: tensor_descriptor, x_offsets: tensor, y_offset: Any, src: shared_memory_descriptor, *,
    cache_policy: AnyPolicy | None = None,
) -> None:  # fmt: skip
    """Start a copy of the rows of `src` to rows `x_offsets` of a matrix, from column `y_offset`.

    Out-of-bounds rows are not written. Like `async_copy_shared_to_global`, it forms a group for `store_wait`, and threads that
    wrote the buffer must execute `fence_async_shared` first. Raises the same errors as `async_gather`.
    """
    what = "async_scatter"
    desc, rows, column = _check_rows(what, stored_descriptor, tensor_desc, x_offsets, y_offset)
    operands = (desc.handle, _check_memory(what, desc, rows, src), rows, column)
    apply_many(ops.scatter, operands, **l2_of(what, cache_policy))


def _check_rows(
    what: str, checked: Callable[[str, object], tensor_descriptor], x: Any, offsets: Any, column: Any
) -> tuple[tensor_descriptor, tensor, RuntimeValue]:
    """Checks the descriptor of rows, the row indices, and the first column."""
    demand(what, "rows gathered by TMA")
    desc = checked(what, x)
    least = LEAST_BYTES // desc.dtype.itemsize
    if desc.rank != 2 or desc.block_shape[0] != 1 or desc.block_shape[1] < least:
        raise fail(errors.GATHER_BLOCK, what=what, desc=describe(desc.handle), least=least)
    known = isinstance(offsets, tensor) and offsets.rank == 1 and offsets.element == int32
    if not known or offsets.shape[0] < LEAST_ROWS:
        raise fail(errors.GATHER_ROWS, what=what, got=name_of(offsets))
    check_column(what, desc, column)
    return desc, offsets, request_integer(what, 1, column, int32)


def _check_memory(
    what: str, desc: tensor_descriptor, rows: tensor, x: Any, loads: bool = False
) -> shared_memory_descriptor:
    """Checks for a buffer of the rows, in the descriptor's layout; `loads` as in `check_reached`. Raises gather-buffer,
    cluster-slice, and the errors of an invalid buffer."""
    memory = check_buffer(what, x)
    d, t = desc.handle.descriptor, memory.memory
    want = (rows.shape[0], d.block_shape[1])
    if (t.element, t.shape, t.layout) != (d.element, want, d.layout) or ops.reached(t) == "no box":
        raise fail(
            errors.GATHER_BUFFER, what=what, count=want[0], desc=describe(desc.handle), desc_layout=d.layout, want=list(want),
            got=name_of(memory), layout=t.layout,
        )  # fmt: skip
    check_reached(what, memory, loads)
    return memory


__all__ = [
    "async_atomic_add", "async_atomic_and", "async_atomic_max", "async_atomic_min", "async_atomic_or", "async_atomic_xor",
    "async_copy_global_to_shared", "async_copy_global_to_shared_im2col", "async_copy_shared_to_global", "async_gather",
    "async_load", "async_load_im2col", "async_scatter", "async_store", "make_tensor_descriptor", "store_wait",
    "tensor_descriptor", "tensor_descriptor_im2col", "tensor_descriptor_type", "update_tensor_descriptor",
]  # fmt: skip
