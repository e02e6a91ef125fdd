"""Clusters: the CTA's rank, the cluster barrier, and the shared memory of other CTAs (distributed shared memory)."""

from __future__ import annotations

from dataclasses import replace

from weft.cuda.emitter import Emitter, emits, spells
from weft.cuda.rules.memory import read_registers, write_registers
from weft.cuda.rules.shared import element_address, element_of, padded, place
from weft.cuda.text import accesses as access
from weft.cuda.text.accesses import AccessFunction
from weft.cuda.text.atomics import Atomic, combine
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.cuda.text.spelling import count_of
from weft.cuda.text.tables import parenthesised
from weft.ir.core import Op, Value
from weft.ops import cluster


@spells(cluster.rank)
def _rank(e: Emitter, op: Op) -> str:
    return e.call("cluster_rank")


# Without qualifiers `arrive` is a release and `wait` an acquire; a relaxed arrival orders nothing (PTX ISA, barrier.cluster).


@emits(cluster.arrive)
def _arrive(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('cluster_arrive_relaxed' if op.attrs['relaxed'] else 'cluster_arrive')};")


@emits(cluster.wait)
def _wait(e: Emitter, op: Op) -> None:
    e.out.line(f"{e.call('cluster_wait')};")


_BARRIER = Piece(
    "// A barrier of one partition's warps in all CTAs: every warp arrives on the barrier of each CTA, and waits for its own.\n"
    "// The phase that is under way has parity 1 if the one of parity 0 is complete; it cannot end before this warp arrives.\n"
    "DEV void cluster_barrier(u32 bar, u32 blocks) {\n"
    "  const u32 parity = mbar_tested(bar, 0); __syncwarp();\n"
    "  if ((threadIdx.x & 31u) < blocks)\n"
    '    asm volatile("{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %0, %1;\\n"\n'
    '                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\\n}"\n'
    '                 :: "r"(bar), "r"(threadIdx.x & 31u) : "memory");\n'
    '  asm volatile("{\\n.reg .pred p;\\nWAIT:\\n"\n'
    '               "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\\n@p bra DONE;\\n"\n'
    '               "bra WAIT;\\nDONE:\\n}" :: "r"(bar), "r"(parity) : "memory"); __syncwarp(); }',
)
_TESTED = Piece(
    "DEV u32 mbar_tested(u32 bar, u32 parity) {\n"
    '  u32 done; asm volatile("{\\n.reg .pred p;\\n"\n'
    '    "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}"\n'
    '    : "=r"(done) : "r"(bar), "r"(parity) : "memory"); return done; }'
)


@emits(cluster.barrier)
def _barrier(e: Emitter, op: Op) -> None:
    bar = op.operands[0]
    assert bar is not None
    e.pieces.define("mbar_tested", _TESTED)
    e.out.line(f"{e.pieces.define('cluster_barrier', _BARRIER)}({e.at(bar)}, {e.func.attrs.num_ctas});")


# Accesses to other CTAs' shared memory: the address there of the memory (mapa), plus the offset that it has in every CTA.

PEER = Piece(
    "// the address of shared memory in another CTA of the cluster\n"
    "DEV u32 peer_address(u32 p, u32 block) {\n"
    '  u32 q; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(q) : "r"(p), "r"(block)); return q; }'
)


def _start(e: Emitter, memory: Value, block: str) -> str:
    """The address of the memory in the CTA of a rank."""
    return f"{e.pieces.define('peer_address', PEER)}({e.at(memory)}, {block})"


def _accessed(e: Emitter, op: Op, index: Index) -> str:
    memory, base = op.operands[:2]
    assert memory is not None and base is not None
    start = _start(e, memory, _rank_of(e, op, index))
    return element_address(e, memory, base, op.attrs["offsets"], op.attrs["added"], op.attrs["pads"], index, start)


def _rank_of(e: Emitter, op: Op, index: Index) -> str:
    """The rank of the block that an access is to."""
    peer = op.operand("peer")
    assert peer is not None
    other = e.entry(op.attrs["peers"], index)
    return e.at(peer, 0) if other == "0" else f"{e.at(peer, 0)} ^ {parenthesised(other)}"


def _at(e: Emitter, op: Op, index: Index) -> str:
    memory, element, peer = op.operands[:3]
    assert memory is not None and element is not None and peer is not None
    offset = padded(e, op.attrs["pads"], e.at(element, index))
    return place(e, memory, offset, _start(e, memory, e.at(peer, index)))


def _function(op: Op, mask: Value | None = None) -> AccessFunction:
    memory = op.operands[0]
    assert memory is not None
    return AccessFunction("shared::cluster", element_of(memory), op.attrs.get("vec", 1), "" if mask is None else "if")


@emits(cluster.load_regs, cluster.load_at)
def _load(e: Emitter, op: Op) -> None:
    address = _at if op.kind is cluster.load_at else _accessed
    if count_of(op.result.type) is None:
        e.define(op.result, access.read(e, _function(op), address(e, op, 0), None))
        return
    registers = op.attrs.get("registers") or _singly(op.result)
    read_registers(e, _function(op), e.variable(op.result), registers, lambda index: (address(e, op, index), None))


@emits(cluster.store_regs, cluster.store_at)
def _store(e: Emitter, op: Op) -> None:
    value, mask = op.operand("value"), op.operand("mask")
    assert value is not None
    address = _at if op.kind is cluster.store_at else _accessed
    on = None if mask is None else e.at(mask, 0)
    registers = op.attrs.get("registers") or _singly(value)
    write_registers(e, _function(op, mask), value, registers, lambda index: (address(e, op, index), on))


@emits(cluster.async_store_regs)
def _async_store(e: Emitter, op: Op) -> None:
    value, bar, mask = op.operand("value"), op.operand("bar"), op.operand("mask")
    assert value is not None and bar is not None
    a = replace(_function(op, mask), signals=True)
    on = None if mask is None else e.at(mask, 0)

    def places(index: Index) -> tuple[str, str | None]:
        return f"{_accessed(e, op, index)}, {_start(e, bar, _rank_of(e, op, index))}", on

    write_registers(e, a, value, op.attrs["registers"], places)


@emits(cluster.atomic_at)
def _atomic_at(e: Emitter, op: Op) -> None:
    memory, value, mask = op.operand("memory"), op.operand("value"), op.operand("mask")
    assert memory is not None and value is not None
    or_zero = mask is not None and e.is_used(op.result)
    atomic = Atomic(
        op.attrs["kind"], element_of(memory), "relaxed", "cluster", mask is not None, "shared::cluster", or_zero
    )
    name = combine(e, op, atomic)

    def call(index: Index) -> str:
        on = "" if mask is None else f", {e.at(mask, index)}"
        return f"{name}({_at(e, op, index)}, {e.at(value, index)}{on})"

    e.call_each(op, call)


def _singly(value: Value) -> tuple[tuple[int, ...], ...]:
    """The registers of accesses to one element each."""
    return tuple([(r,) for r in range(getattr(value.type, "count", 1))])
