"""NVSHMEM: calls of the functions of `weft.runtime.nvshmem`, which are linked when the kernel is loaded."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, emits
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.ir.core import Op
from weft.ops import nvshmem
from weft.ops.check import pointer_of, regs

_PARAMETERS = {
    "put": "void *to, const void *from, u64 bytes, int pe, int thread, int threads", "quiet": "", "acquire": "",
    "signal": "int *at, int count, int pe",
}  # fmt: skip


def _function(e: Emitter, name: str) -> str:
    """The declaration of a function; returns its name."""
    called = f"weft_nvshmem_{name}"
    return e.pieces.define(called, Piece(f'extern "C" __device__ void {called}({_PARAMETERS[name]});'))


@emits(nvshmem.put)
def _put(e: Emitter, op: Op) -> None:
    ptr, source, count, pe = op.uses
    here, size = e.partition, e.target.warp_size
    first = here.first_warp * size
    thread = f"threadIdx.x - {first}" if first else "threadIdx.x"
    moved = f"(u64){e.at(count)} * {pointer_of(ptr).element_ty.itemsize}"
    places = f"{e.at(ptr)}, {e.at(source)}, {moved}, {e.at(pe)}"
    e.out.statement(f"{_function(e, 'put')}({places}, {thread}, {here.num_warps * size});")


@emits(nvshmem.quiet)
def _quiet(e: Emitter, op: Op) -> None:
    e.out.statement(f"{_function(e, 'quiet')}();")


@emits(nvshmem.acquire)
def _acquire(e: Emitter, op: Op) -> None:
    e.out.statement(f"{_function(e, 'acquire')}();")


@emits(nvshmem.signal_regs)
def _signal(e: Emitter, op: Op) -> None:
    ptr, value, pe, mask = op.operands
    assert ptr is not None and value is not None and pe is not None
    name = _function(e, "signal")

    def text(index: Index) -> str:
        on = "" if mask is None else f"if ({e.at(mask, index)}) "
        return f"{on}{name}({e.at(ptr, index)}, {e.at(value, index)}, {e.at(pe, index)});"

    e.unrolled(regs(ptr).count, [(op.loc, text)])
