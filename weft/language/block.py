"""`gl.block`: reductions, prefix sums and broadcasts over all threads of a block.

    total = gl.block.sum(x)                          # in every thread
    place = gl.block.prefix_sum(flag, exclusive=True)

Each warp combines its values with shuffles, and the warps' results go through shared memory. Every thread combines these in the
same order, so that sums and extremes are uniform in the block. All threads of the block must take part; the barriers that are
needed are part of the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.ir.types import DType
from weft.language import arith, logic
from weft.language.context import current
from weft.language.marks import builtin, with_parameters
from weft.language.program import lane_id, warp_id
from weft.language.promote import convert, to_tensor
from weft.language.runtime_value import name_of
from weft.language.scalars import int32_scalar
from weft.language.storages import SharedStorage, allocate_memory
from weft.language.tensor import apply, apply_many, tensor
from weft.language.thread import WARP_SIZE, shuffle_up, warp_broadcast, warp_max, warp_min, warp_prefix_sum, warp_sum
from weft.language.vector import check_vector
from weft.ops import hints, program, sync
from weft.views.storage import AddressSpace, Places

Combine = Callable[[Any, Any], tensor]


@with_parameters("block_size", "broadcast")
@builtin
def sum(val: Any, *, block_size: int | None = None, broadcast: bool = True) -> tensor:
    """The sum over the threads of the block, in each of them; vectors are summed element by element.

    `block_size` is checked, if given. `broadcast=False` promises that only thread 0 uses the result. Raises
    thread-block-size, thread-value-needed.
    """
    return _combined("gl.block.sum", val, block_size, warp_sum, arith.add)


@with_parameters("block_size", "broadcast")
@builtin
def max(val: Any, *, block_size: int | None = None, broadcast: bool = True) -> tensor:
    """The maximum over the threads of the block, in each of them; NaNs are ignored. Arguments and errors as for `sum`."""
    return _combined("gl.block.max", val, block_size, warp_max, arith.maximum)


@with_parameters("block_size", "broadcast")
@builtin
def min(val: Any, *, block_size: int | None = None, broadcast: bool = True) -> tensor:
    """The minimum over the threads of the block, in each of them; NaNs are ignored. Arguments and errors as for `sum`."""
    return _combined("gl.block.min", val, block_size, warp_min, arith.minimum)


@with_parameters("dtype", "block_size", "exclusive")
@builtin
def prefix_sum(
    val: Any, *, dtype: DType | None = None, block_size: int | None = None, exclusive: bool = False
) -> tensor:
    """The prefix sum over the threads of the block, inclusive unless `exclusive`. `dtype` is the type to add in, by default
    that of `val`. Errors as for `sum`."""
    what = "gl.block.prefix_sum"
    x, warps = _operand(what, val if dtype is None else convert(to_tensor(val), dtype), block_size)
    own = warp_prefix_sum(x)
    if warps == 1:
        return warp_prefix_sum(x, exclusive=True) if exclusive else own
    totals = _through(what, own, warps, logic.compare("eq", lane_id(), WARP_SIZE - 1))
    before, warp = convert(to_tensor(0), own.dtype), warp_id()
    for number, total in enumerate(totals[:-1]):
        before = arith.add(before, logic.where(logic.compare("lt", number, warp), total, 0))
    if exclusive:
        own = logic.where(logic.compare("eq", lane_id(), 0), 0, shuffle_up(own, 1))
    return arith.add(before, own)


@with_parameters("dtype", "width", "block_size")
@builtin
def broadcast(
    val: Any, src_thread: Any = 0, *, dtype: DType | None = None, width: int | None = None, block_size: int | None = None
) -> tensor:  # fmt: skip
    """The value of thread `src_thread`, counted along x first, in all threads of the block. Errors as for `sum`.

    `dtype` converts it first; `width`, if given, is checked to be the number of its elements (thread-width)."""
    what = "gl.block.broadcast"
    x, _ = _operand(what, val if dtype is None else convert(to_tensor(val), dtype), block_size, keep=True)
    if width is not None and width != (1 if x.is_scalar else len(x)):
        raise fail(errors.WIDTH, what=what, given=width, got=name_of(x))
    chosen = logic.compare("eq", apply(program.thread_id), int32_scalar(what, src_thread))
    (value,) = _through(what, x, 1, chosen)
    return value


def _combined(what: str, val: Any, block_size: Any, within: Callable[[Any], tensor], combine: Combine) -> tensor:
    x, warps = _operand(what, val, block_size)
    own = within(x)
    if warps == 1:
        # Lanes agree up to the payload of a NaN, which their order of operations chooses.
        own = warp_broadcast(own)
        return _uniform(own) if own.is_scalar else own
    first, *others = _through(what, own, warps, logic.compare("eq", lane_id(), 0))
    for other in others:
        first = combine(first, other)
    return first


def _operand(what: str, val: Any, block_size: Any, keep: bool = False) -> tuple[tensor, int]:
    """The checked operand, converted to a type of arithmetic unless `keep`, and the number of warps."""
    context = current(what)
    threads = context.num_warps * WARP_SIZE
    if context.block is not None and not context.partition:
        threads = math.prod(context.block)
    if block_size is not None and block_size != threads:
        raise fail(errors.BLOCK_SIZE, what=what, given=block_size, threads=threads)
    x = check_vector(what, to_tensor(val) if isinstance(val, (int, float)) else val)
    return x if keep else convert(x, arith.arithmetic_dtype(what, x)), -(-threads // WARP_SIZE)


def _through(what: str, x: tensor, count: int, writes: tensor) -> list[tensor]:
    """What `count` warps (or one thread) hand to all threads of the block: the value of each warp's thread that `writes`."""
    width = 1 if x.is_scalar else len(x)
    memory = allocate_memory(x.dtype, count * width, AddressSpace.SHARED)
    assert isinstance(memory, SharedStorage)
    # The first barrier is for a call in a loop: threads may still read what the call before has written.
    _barrier(what)
    base = 0 if count == 1 else arith.mul(warp_id(), width)
    memory.store(base, Places((0,), width), x, (writes,))
    _barrier(what)
    found = memory.load(0, Places((0,), count * width), None)
    if count * width == 1:
        return [_uniform(found)]
    parts = [found[i * width : (i + 1) * width] for i in range(count)]
    return [_uniform(part) if width == 1 else part for part in parts]


def _uniform(x: tensor) -> tensor:
    return apply(hints.uniform, x)


def _barrier(what: str) -> None:
    apply_many(sync.barrier, (), of=what)


__all__ = ["broadcast", "max", "min", "prefix_sum", "sum"]
