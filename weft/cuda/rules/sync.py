"""Barriers of a block and of a warp, fences of memory order, proxy fences, and the order between launches."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits
from weft.cuda.text.prelude import Piece
from weft.ir.core import Op
from weft.ops import sync


@emits(sync.barrier)
def _barrier(e: Emitter, op: Op) -> None:
    here = e.partition
    if not here.barrier:
        e.out.line("__syncthreads();")
    elif here.num_warps == 1:
        # A block has 16 hardware barriers (PTX ISA, barrier); a single warp does not need one.
        e.out.line("__syncwarp();")
    else:
        _at(e, "bar_sync", here.barrier, here.num_warps)


@emits(sync.schedule_barrier)
def _schedule_barrier(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('schedule_barrier')};")


@emits(sync.warp_barrier)
def _warp_barrier(e: Emitter, op: Op) -> None:
    e.out.line("__syncwarp();")


@emits(sync.block_barrier)
def _block_barrier(e: Emitter, op: Op) -> None:
    _at(e, "barrier_sync", 0, e.func.attrs.warps_of_block)


@emits(sync.named_barrier)
def _named_barrier(e: Emitter, op: Op) -> None:
    _at(e, "bar_arrive" if op.attrs["arrive"] else "barrier_sync", op.attrs["number"], op.attrs["warps"])


def _at(e: Emitter, piece: str, barrier: int, warps: int) -> None:
    """A call of a hardware barrier of `warps` warps."""
    e.out.line(f"{e.pieces.use(piece)}<{barrier}, {warps * e.target.warp_size}>();")


@emits(sync.fence_async)
def _fence_async(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('fence_async_cluster' if op.attrs['cluster'] else 'fence_async')};")


@emits(sync.gdc_wait)
def _gdc_wait(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('gdc_wait')};")


@emits(sync.gdc_launch_dependents)
def _gdc_launch_dependents(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('gdc_launch_dependents')};")


@emits(sync.fence_async_global)
def _fence_async_global(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('fence_async_global')};")


@emits(sync.fence)
def _fence(e: Emitter, op: Op) -> None:
    order, scope = op.attrs["order"], op.attrs["scope"]
    text = f'DEV void fence_{order}_{scope}() {{ asm volatile("fence.{order}.{scope};" ::: "memory"); }}'
    e.out.line(f"{e.pieces.define(f'fence_{order}_{scope}', Piece(text))}();")
