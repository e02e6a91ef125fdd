"""Cluster launch control: requests, and their 128-bit responses, which are two 64-bit halves in the text."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects, emits, spells
from weft.cuda.text import accesses as access
from weft.cuda.text.accesses import AccessFunction
from weft.cuda.text.prelude import Piece
from weft.ir.core import Op
from weft.ir.types import int64
from weft.ops import clc


# query_cancel decodes registers and accesses no memory, so its statement is not volatile.
def _query(name: str, result: str, query: str, convert: str = "") -> Piece:
    """`name(low, high)`: decodes a response. `query` writes `%0`, or a predicate that `convert` converts."""
    return Piece(
        f"DEV {result} {name}(i64 low, i64 high) {{\n"
        '  u32 x; asm("{\\n.reg .b128 response;\\n.reg .pred p;\\nmov.b128 response, {%1, %2};\\n"\n'
        f'    "clusterlaunchcontrol.query_cancel.{query}, response;\\n{convert}}}"\n'
        '    : "=r"(x) : "l"(low), "l"(high)); return x; }'
    )


_IS_CANCELED = _query("clc_is_canceled", "bool", "is_canceled.pred.b128 p", "selp.u32 %0, 1, 0, p;\\n")
_FIRST = {
    axis: _query(f"clc_first_block_{axis}", "u32", f"get_first_ctaid::{axis}.b32.b128 %0")
    for axis in "xyz"
}  # fmt: skip


def _try_cancel_piece(name: str, sends: str) -> Piece:
    """`name(to, bar)`."""
    return Piece(
        f"DEV void {name}(u32 to, u32 bar) {{\n"
        '  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"\n'
        f'    "{sends}.b128 [%0], [%1];" :: "r"(to), "r"(bar) : "memory"); }}'
    )


@elects(clc.try_cancel)
def _try_cancel(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    result, bar = op.uses
    multicast: bool = op.attrs["multicast"]
    name = f"clc_try_cancel{'_multicast' * multicast}"
    e.pieces.define(name, _try_cancel_piece(name, ".multicast::cluster::all" * multicast))
    return [(1, lambda index: f"{name}({e.at(result)}, {e.at(bar)});")]


@emits(clc.load)
def _load(e: Emitter, op: Op) -> None:
    (result,) = op.uses
    response = e.names.fresh("response")
    e.out.bare(f"i64 {response}[2];")
    e.out.line(access.load(e, AccessFunction("shared", int64, 2), response, e.at(result), None))
    # The next response is written through the async proxy, possibly requested by another warp or CTA. A proxy fence executed
    # there would not order this thread's reads of the buffer, so this thread executes one after its reads.
    e.out.line(f"{e.call('fence_async')};")
    for half, value in enumerate(op.results):
        e.define(value, f"{response}[{half}]")


@spells(clc.is_canceled)
def _is_canceled(e: Emitter, op: Op, low: str, high: str) -> str:
    return f"{e.pieces.define('clc_is_canceled', _IS_CANCELED)}({low}, {high})"


@spells(clc.program_id)
def _program_id(e: Emitter, op: Op, low: str, high: str) -> str:
    axis = "xyz"[op.attrs["dim"]]
    block = f"{e.pieces.define(f'clc_first_block_{axis}', _FIRST[axis])}({low}, {high})"
    blocks = e.func.attrs.num_ctas
    # The CTAs of a program are adjacent along x of the grid.
    return f"(int)({block} / {blocks})" if axis == "x" and blocks > 1 else f"(int){block}"
