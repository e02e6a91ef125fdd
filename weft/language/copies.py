"""Cooperative copies between memory spaces, as `gl.copy_dram_to_sram(to, from, thread_layout)`, or with the compile-time
arguments first, `gl.copy_dram_to_sram(thread_layout=threads)(to, from)`.

`dram` is global memory, `sram` shared memory, and `local` thread-private memory. A layout of threads partitions the global or
shared operand among the threads, as `distribute` does; the `local` operand is each thread's whole fragment. All threads of the
block call the function, and threads beyond the layout copy nothing. `thread=` and `threads=` select other threads, such as
those of a warp with `gl.lane_id()` and 32. `num_threads=` is checked to be enough for the thread layout; with
`block_dim_count=n` the first n axes of the block number the threads, otherwise all. The functions neither insert a barrier nor
wait for an asynchronous copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Protocol, cast, overload

from weft.errors import fail
from weft.errors import views as errors
from weft.language import arith
from weft.language.context import current
from weft.language.marks import anywhere, builtin, with_parameters
from weft.language.tensor import apply, tensor
from weft.layout import WARP_SIZE, Layout
from weft.ops import program
from weft.views import LayoutTensor, copies, products


class BlockCopy(Protocol):
    """A copy by threads, for type checkers: all arguments at once, or the compile-time ones first."""

    @overload
    def __call__(
        self, dst: LayoutTensor, src: LayoutTensor, thread_layout: Layout, thread: Any = None, **options: Any
    ) -> None: ...
    @overload
    def __call__(self, **parameters: Any) -> Callable[..., None]: ...


def _by_block(function: Callable[..., None]) -> BlockCopy:
    """The same copy, by all threads of the block by default."""

    @wraps(function)
    def copy(
        dst: Any, src: Any, thread_layout: Any, thread: Any = None, *,
        num_threads: int | None = None, block_dim_count: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        if thread is None:
            thread, options["threads"] = _numbered(block_dim_count)
        elif num_threads is not None:
            options.setdefault("threads", num_threads)
        if num_threads is not None and num_threads < thread_layout.cosize():
            raise fail(errors.THREADS_FEW, threads=thread_layout, count=thread_layout.cosize(), block=num_threads)
        function(dst, src, thread_layout, thread, **options)

    known = signature(function)
    parameters = [p.replace(default=None) if p.name == "thread" else p for p in known.parameters.values()]
    names = ("num_threads", "block_dim_count")
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation="int | None") for name in names]
    cast("Any", copy).__signature__ = known.replace(parameters=parameters)
    return with_parameters(*(p.name for p in parameters if p.name not in ("dst", "src", "thread")))(builtin(copy))


def _numbered(axes: int | None) -> tuple[tensor, int]:
    """The number of the executing thread, along the first axes of the block, and how many there are."""
    context = current()
    number = apply(program.thread_id)
    if context.block is None or context.partition:
        return number, context.num_warps * WARP_SIZE
    count = math.prod(context.block[:axes])
    return (number if count == math.prod(context.block) else arith.mod(number, count)), count


copy_dram_to_sram = _by_block(copies.copy_dram_to_sram)
copy_dram_to_sram_async = _by_block(copies.copy_dram_to_sram_async)
copy_sram_to_dram = _by_block(copies.copy_sram_to_dram)
copy_dram_to_local = _by_block(copies.copy_dram_to_local)
copy_local_to_dram = _by_block(copies.copy_local_to_dram)
copy_sram_to_local = _by_block(copies.copy_sram_to_local)
copy_local_to_shared = _by_block(copies.copy_local_to_shared)
outer_product_acc = anywhere(products.outer_product_acc)
