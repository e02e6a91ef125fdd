"""Thread-level code: thread and block indices, and warp shuffles and reductions.

    i = gl.global_idx.x                  # the index of this thread in the grid
    total = gl.warp_sum(v)               # uniform in the 32 threads of a warp

Threads are numbered along x first. `kernel[grid](..., block=(16, 16))` launches blocks of a shape; without `block=`, a block
is a row of `32 * num_warps` threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import fail
from weft.errors import thread as errors
from weft.ir.types import DType, int32
from weft.language import arith, logic
from weft.language.broadcast import constant
from weft.language.casts import check_dtype
from weft.language.context import current
from weft.language.marks import COMPUTED, anywhere, builtin, with_parameters
from weft.language.places import ACCESS_BYTES
from weft.language.program import lane_id, num_programs, program_id
from weft.language.promote import convert, to_tensor
from weft.language.runtime_value import name_of
from weft.language.scalars import int32_scalar
from weft.language.tensor import apply, apply_many, tensor
from weft.language.vector import check_vector
from weft.layout import WARP_SIZE
from weft.ops import async_copy, cluster, program, sync, warp


class Coordinates:
    """`thread_idx` and similar objects: an index along each of `.x`, `.y` and `.z`, computed at each use."""

    __slots__ = ("along", "name")

    def __init__(self, name: str, along: Callable[[str, int], Any]) -> None:
        self.name = name
        self.along = along

    def __repr__(self) -> str:
        return f"gl.{self.name}"

    @property
    def x(self) -> Any:
        """The index along x, consecutive in neighbouring threads."""
        return self._compute(0)

    @property
    def y(self) -> Any:
        """The index along y."""
        return self._compute(1)

    @property
    def z(self) -> Any:
        """The index along z."""
        return self._compute(2)

    def _compute(self, axis: int) -> Any:
        what = f"gl.{self.name}.{'xyz'[axis]}"
        current(what)
        return self.along(what, axis)


setattr(Coordinates, COMPUTED, True)


def _block_size(what: str, axis: int) -> int:
    context = current(what)
    if context.block is not None and not context.partition:
        return context.block[axis]
    threads = context.num_warps * WARP_SIZE
    if axis > 0:
        raise fail(errors.BLOCK, what=what, threads=threads)
    return threads


def _block_sizes(what: str, axis: int) -> tuple[int, int, int]:
    """The sizes of a block; raises for an axis that the block does not have."""
    context = current(what)
    size = _block_size(what, axis)
    return (size, 1, 1) if context.block is None or context.partition else context.block


def _thread(what: str, axis: int) -> tensor:
    """A thread's coordinate, delinearized from its number; sizes of 1 need no division."""
    sizes = _block_sizes(what, axis)
    if sizes[axis] == 1:
        return constant(0, int32)
    inside, outside = math.prod(sizes[:axis]), math.prod(sizes[axis + 1 :])
    number = apply(program.thread_id)
    if inside > 1:
        number = arith.floordiv(number, inside)
    return number if outside == 1 else arith.mod(number, sizes[axis])


def _block(axis: int) -> tensor:
    """A block's index in the grid. In a cluster of a thread-level kernel blocks are numbered within programs along x."""
    context, cluster_index = current(), program_id(axis)
    if axis or context.num_ctas == 1 or context.block is None:
        return cluster_index
    return arith.add(arith.mul(cluster_index, context.num_ctas), apply(cluster.rank))


def _blocks(axis: int) -> tensor:
    """The number of blocks of the grid."""
    context, programs = current(), num_programs(axis)
    return programs if axis or context.block is None else arith.mul(programs, context.num_ctas)


def _global(what: str, axis: int) -> tensor:
    size = _block_size(what, axis)
    block = _block(axis)
    return block if size == 1 else arith.add(arith.mul(block, size), _thread(what, axis))


thread_idx = Coordinates("thread_idx", _thread)
"""The index of the executing thread in its block: int32 scalars of thread scope."""
block_idx = Coordinates("block_idx", lambda _, axis: _block(axis))
"""The index of the block in the grid: `program_id(0)` and so on; in a thread-level kernel blocks of a cluster count apart."""
block_dim = Coordinates("block_dim", _block_size)
"""The number of threads of a block along each axis: compile-time integers."""
grid_dim = Coordinates("grid_dim", lambda _, axis: _blocks(axis))
"""The number of blocks of the grid along each axis: `num_programs(0)` and so on; in a thread-level kernel all of clusters."""
global_idx = Coordinates("global_idx", _global)
"""The index of the executing thread in the grid: `block_idx * block_dim + thread_idx`."""


@anywhere
def simd_width_of(dtype: DType) -> int:
    """The number of elements in a 16-byte vector, the widest load or store of a thread. Also callable on the host.

    >>> from weft import language as gl
    >>> gl.simd_width_of(gl.float32), gl.simd_width_of(gl.float16)
    (4, 8)
    """
    check_dtype(dtype)
    return ACCESS_BYTES // dtype.itemsize


@builtin
def async_copy_wait_all() -> None:
    """Wait until all asynchronous copies of this thread are complete. Raises async-target.

    The copied data is visible to other threads after a `barrier()`."""
    from weft.language.nvidia.checks import demand

    demand("async_copy_wait_all", "cp.async")
    apply_many(async_copy.commit, ())
    apply_many(async_copy.wait, (), pendings=0)


@builtin
def syncwarp() -> None:
    """A barrier of the threads of a warp; memory accesses before it are visible to that warp after it.

    It does not order accesses of other warps. Raises control-scope in control flow that diverges within a warp."""
    apply_many(sync.warp_barrier, ())


# Warp shuffles and reductions


@builtin
def shuffle_xor(x: Any, mask: Any) -> tensor:
    """The value of lane `lane_id() ^ mask`: a scalar, or a vector element by element.

    This function and those below are executed by all threads of a warp. Raises thread-value-needed, thread-shuffle.
    """
    value = _exchanged("shuffle_xor", x)
    if isinstance(mask, tensor):
        return _from(value, logic.bit_xor(lane_id(), int32_scalar("shuffle_xor", mask)))
    lanes = _lanes("shuffle_xor", mask, "a mask from 1 to 31")
    return value if lanes == 0 else apply(warp.shuffle_xor, value, mask=lanes)


@builtin
def shuffle_idx(x: Any, lane: Any) -> tensor:
    """The value of lane `lane`, which may differ between threads."""
    value = _exchanged("shuffle_idx", x)
    if not isinstance(lane, tensor):
        _lanes("shuffle_idx", lane, "a lane from 0 to 31")
    return _from(value, int32_scalar("shuffle_idx", lane))


@builtin
def shuffle_up(x: Any, delta: Any) -> tensor:
    """The value of the lane `delta` below; the first `delta` lanes keep their own value."""
    value = _exchanged("shuffle_up", x)
    source = arith.sub(lane_id(), _distance("shuffle_up", delta))
    return _from(value, logic.where(logic.compare("ge", source, 0), source, lane_id()))


@builtin
def shuffle_down(x: Any, delta: Any) -> tensor:
    """The value of the lane `delta` above; the last `delta` lanes keep their own value."""
    value = _exchanged("shuffle_down", x)
    source = arith.add(lane_id(), _distance("shuffle_down", delta))
    return _from(value, logic.where(logic.compare("lt", source, WARP_SIZE), source, lane_id()))


@builtin
def warp_broadcast(x: Any) -> tensor:
    """The value of lane 0, in all threads of the warp."""
    return shuffle_idx(x, 0)


@builtin
def warp_sum(x: Any) -> tensor:
    """The sum over the threads of a warp, in each of them; vectors are summed element by element."""
    return combined("warp_sum", x, arith.add)


@builtin
def warp_max(x: Any) -> tensor:
    """The maximum over the threads of a warp, in each of them; NaNs are ignored."""
    return combined("warp_max", x, arith.maximum)


@builtin
def warp_min(x: Any) -> tensor:
    """The minimum over the threads of a warp, in each of them; NaNs are ignored."""
    return combined("warp_min", x, arith.minimum)


@with_parameters("exclusive")
@builtin
def warp_prefix_sum(x: Any, exclusive: bool = False) -> tensor:
    """The prefix sum over the lanes of a warp, inclusive unless `exclusive`."""
    total = _exchanged("warp_prefix_sum", x)
    total = convert(total, arith.arithmetic_dtype("warp_prefix_sum", total))
    lane = lane_id()
    for distance in _STEPS:
        total = arith.add(total, _below(total, lane, distance))
    return _below(total, lane, 1) if exclusive else total


def _below(x: tensor, lane: tensor, distance: int) -> tensor:
    """The value of the lane `distance` below, or 0 in the first `distance` lanes."""
    return logic.where(logic.compare("ge", lane, distance), _from(x, arith.sub(lane, distance)), 0)


_STEPS = (1, 2, 4, 8, 16)


def combined(what: str, x: Any, combine: Callable[[Any, Any], tensor], masks: Sequence[int] = _STEPS) -> tensor:
    """A butterfly reduction: a `shuffle_xor` step for each mask, after which the value is that of all lanes which the masks
    reach; of five, uniform in the warp."""
    value = _exchanged(what, x)
    value = convert(value, arith.arithmetic_dtype(what, value))
    for mask in reversed(masks):
        value = combine(value, apply(warp.shuffle_xor, value, mask=mask))
    return value


def _exchanged(what: str, x: Any) -> tensor:
    """A checked operand of a shuffle."""
    return check_vector(what, to_tensor(x) if isinstance(x, (int, float)) else x)


def _from(value: tensor, lane: tensor) -> tensor:
    return apply(warp.shuffle_idx, value, lane)


def _lanes(what: str, number: Any, want: str) -> int:
    if not isinstance(number, int) or not 0 <= number < WARP_SIZE:
        shown = number if isinstance(number, int) else name_of(number)
        raise fail(errors.SHUFFLE, what=what, by=shown, want=want)
    return number


def _distance(what: str, delta: Any) -> Any:
    if isinstance(delta, tensor):
        return int32_scalar(what, delta)
    return _lanes(what, delta, "a distance from 1 to 31")
