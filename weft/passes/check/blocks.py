"""Check that a block size given in threads has the whole warps that the kernel's operations need.

    block=(48, 1, 1), warp.shuffle_xor    -->    error thread-block-warps: a shuffle needs whole warps

A thread-level kernel runs in blocks of any size. Tiles are distributed over a power of two of whole warps. Shuffles, and
operations of an elected thread (`elect.sync`), need whole warps. And a thread-local array has no address, so control flow must
not select one of several.
"""

from __future__ import annotations

from math import prod

from weft.analysis.scopes import SPELLED
from weft.errors import cluster as cluster_errors
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Func, Op, walk
from weft.ir.types import DescriptorType, LocalType, SharedType, TensorType, TileType
from weft.layout import WARP_SIZE
from weft.ops import thread

MOST_THREADS = 1024


def check_blocks_of_threads(func: Func) -> Func:
    """Check a function. Raises CompilationError: thread-block-warps, thread-local-chosen, cluster-tiles."""
    block, blocks = func.attrs.block, func.attrs.num_ctas
    for op in walk(func.body):
        if block is not None:
            _check(op, block)
        if block is not None and blocks > 1 and _of_program(op):
            raise fail(cluster_errors.TILES, loc=op.loc, what=op.name, num_ctas=blocks)
        chosen = next((value for value in op.results if isinstance(value.type, LocalType)), None)
        if chosen is not None and op.kind is not thread.alloc_local:
            raise fail(errors.THREAD_LOCAL_CHOSEN, loc=op.loc, name=repr(chosen.name) if chosen.name else "this array")
    return func


def _check(op: Op, block: tuple[int, ...]) -> None:
    threads = prod(block)
    warps, rest = divmod(threads, WARP_SIZE)
    whole = not rest
    needs = ""
    if _on_tiles(op) and not (whole and warps & (warps - 1) == 0):
        needs, warps = "whole warps, a power of two of them", 1 << (-(-threads // WARP_SIZE) - 1).bit_length()
    elif _by_warps(op) and not whole:
        needs, warps = "whole warps", -(-threads // WARP_SIZE)
    if needs:
        instead = (min(warps * WARP_SIZE, MOST_THREADS),)
        what = SPELLED.get(op.kind, op.name)
        raise fail(
            errors.THREAD_BLOCK, loc=op.loc, what=what, needs=needs, threads=threads, block=block, instead=instead
        )


def _of_program(op: Op) -> bool:
    """Whether an operation is one of the whole program: on tiles, or by TMA."""
    return _on_tiles(op) or any(isinstance(value.type, DescriptorType) for value in op.uses)


def _on_tiles(op: Op) -> bool:
    return any(isinstance(value.type, TileType) for value in (*op.uses, *op.results))


def _by_warps(op: Op) -> bool:
    """Whether the operation is collective for a warp: its threads exchange values, or elect one of them."""
    elects = any(effect.by != "threads" for effect in op.effects)
    handles = any(isinstance(value.type, SharedType | TensorType) for value in op.uses)
    return elects or op.kind.needs == "warp" or handles
