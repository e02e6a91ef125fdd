"""`cp.async`: asynchronous copies by each thread, completed in groups."""

from __future__ import annotations

from contextlib import nullcontext

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.memory import address
from weft.cuda.rules.shared import element_address
from weft.cuda.text.accesses import HINT, define_policy, policy_name
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.ir.core import Op
from weft.ops import async_copy
from weft.ops.memory import L2Policy

_COMMIT = Piece('DEV void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }')
_WAIT = Piece(
    'template <int N> DEV void copy_async_wait() {\n  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }'
)
_ARRIVE = {
    # Without `.noinc` the pending count is incremented first, so that these arrivals do not use up the count of `init`; with it
    # they are part of that count (PTX ISA, cp.async.mbarrier.arrive).
    "mbar_arrive_copies": Piece(
        "DEV void mbar_arrive_copies(u32 bar) {\n"
        '  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(bar) : "memory"); }'
    ),
    "mbar_arrive_copies_counted": Piece(
        "DEV void mbar_arrive_copies_counted(u32 bar) {\n"
        '  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(bar) : "memory"); }'
    ),
}
WIDEST = 16
_ON, _BYTES = "bool on", "int nbytes"


def _copy_piece(name: str, width: int, masked: str, cache: str, l2: L2Policy, prefetch: int) -> Piece:
    """`name(to, from)`, or with the parameter `masked` `name(to, from, on)`, which writes zeros if `on` is false, and `name(to,
    from, nbytes)`, which writes zeros beyond these bytes."""
    head = f"DEV void {name}(u32 to, const void* from{masked and ', '}{masked}) {{"
    # cp.async zero-fills the bytes beyond its source size operand, so a masked copy has size 0 (PTX ISA, cp.async).
    size = {"": "", _ON: f', "r"(on ? {width} : 0)', _BYTES: ', "r"(nbytes)'}[masked]
    hint, policy = ("", "") if not l2 else (HINT, f', "l"({policy_name(l2)}())')
    hint += f".L2::{prefetch}B" if prefetch else ""
    operands = f"[%0], [%1], {width}{', %2' if masked else ''}{f', %{2 + bool(masked)}' if l2 else ''}"
    # With a policy and an address that is a register and a uniform register, ptxas takes wrong uniform registers for both, and
    # the copy is an illegal instruction (13.0, sm_90a: `LDGSTS [R3+UR0], desc[UR1]` in a loop over slots). Addresses of
    # shared memory have 24 bits: the mask changes none, and leaves one register.
    to = "to & 0xffffffu" if l2 else "to"
    return Piece(
        f'{head}\n  asm volatile("cp.async{cache}.shared.global{hint} {operands};"\n'
        f'    :: "r"({to}), "l"(from){size}{policy} : "memory"); }}',
    )


@emits(async_copy.copy)
def _copy(e: Emitter, op: Op) -> None:
    memory, base, ptr, mask, active, _, end, *strides = op.operands
    assert memory is not None and base is not None and ptr is not None
    element = memory.type.element
    width = op.attrs["vec"] * element.itemsize
    cache, l2, prefetch = op.attrs["cache"], op.attrs["l2"], op.attrs["prefetch"]
    # `.cg` bypasses L1 and requires 16 bytes (PTX ISA, cp.async). Data copied to shared memory is rarely read again through L1.
    around = width == WIDEST and cache != ".ca"
    through = "l1" * (width == WIDEST and not around)
    tags = [f"copy_async_{width}", through, *define_policy(e, l2), f"{prefetch}B" if prefetch else ""]
    masked = _BYTES if end is not None else _ON if mask is not None else ""
    name = "_".join(filter(None, [*tags, {"": "", _ON: "or_zero", _BYTES: "part"}[masked]]))
    e.pieces.define(name, _copy_piece(name, width, masked, ".cg" if around else ".ca", l2, prefetch))

    def text(index: Index) -> str:
        to = element_address(e, memory, base, op.attrs["places"], op.attrs["added"], op.attrs["pads"], index)
        on = "" if mask is None else f", {e.at(mask, index)}"
        if end is not None:
            size = f"{e.at(end, index)} * {element.itemsize}"
            on = f", {size}" if mask is None else f", {e.at(mask, index)} ? {size} : 0"
        return f"{name}({to}, {address(e, ptr, op.attrs['offsets'], strides, index)}{on});"

    with nullcontext() if active is None else e.braces(f"if ({e.at(active)})"):
        e.unrolled(len(op.attrs["places"]), [(op.loc, text)])


@emits(async_copy.commit)
def _commit(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.pieces.define('copy_async_commit', _COMMIT)}();")


@emits(async_copy.wait)
def _wait(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.pieces.define('copy_async_wait', _WAIT)}<{op.attrs['pendings']}>();")


@emits(async_copy.mbarrier_arrive)
def _arrive(e: Emitter, op: Op) -> None:
    bar = op.operands[0]
    assert bar is not None
    name = "mbar_arrive_copies" if op.attrs["increment"] else "mbar_arrive_copies_counted"
    e.out.line(f"{e.pieces.define(name, _ARRIVE[name])}({e.at(bar)});")
