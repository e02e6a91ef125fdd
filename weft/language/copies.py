"""Cooperative copies between memory spaces, as `gl.copy_dram_to_sram(to, from, thread_layout)`.

`dram` is global memory, `sram` shared memory, and `local` thread-private memory. A layout of threads partitions the global or
shared operand among the threads, as `distribute` does; the `local` operand is each thread's whole fragment. All threads of the
block call the function, and threads beyond the layout copy nothing. `thread=` and `threads=` select other threads, such as
those of a warp with `gl.lane_id()` and 32. The functions neither insert a barrier nor wait for an asynchronous copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, cast

from weft.language.context import current
from weft.language.marks import anywhere, builtin
from weft.language.tensor import apply
from weft.layout import WARP_SIZE
from weft.ops import program
from weft.views import copies, products


def _by_block(function: Callable[..., None]) -> Callable[..., None]:
    """The same copy, by all threads of the block by default."""

    @wraps(function)
    def copy(dst: Any, src: Any, thread_layout: Any, thread: Any = None, **options: Any) -> None:
        if thread is None:
            context = current()
            threads = context.num_warps * WARP_SIZE
            if context.block is not None and not context.partition:
                threads = math.prod(context.block)
            thread, options["threads"] = apply(program.thread_id), threads
        function(dst, src, thread_layout, thread, **options)

    known = signature(function)
    parameters = [p.replace(default=None) if p.name == "thread" else p for p in known.parameters.values()]
    cast("Any", copy).__signature__ = known.replace(parameters=parameters)
    return builtin(copy)


copy_dram_to_sram = _by_block(copies.copy_dram_to_sram)
copy_dram_to_sram_async = _by_block(copies.copy_dram_to_sram_async)
copy_sram_to_dram = _by_block(copies.copy_sram_to_dram)
copy_dram_to_local = _by_block(copies.copy_dram_to_local)
copy_local_to_dram = _by_block(copies.copy_local_to_dram)
copy_sram_to_local = _by_block(copies.copy_sram_to_local)
copy_local_to_shared = _by_block(copies.copy_local_to_shared)
outer_product_acc = anywhere(products.outer_product_acc)
