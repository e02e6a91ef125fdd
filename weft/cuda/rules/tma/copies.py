"""TMA: one instruction per box, issued by the elected thread. PTX orders coordinates from the innermost dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from weft.cuda.emitter import Emitter, Repeated, elects
from weft.cuda.rules.cluster import PEER
from weft.cuda.rules.memory import plus
from weft.cuda.text.accesses import HINT, define_policy, policy_name
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.ir.core import Op, Value
from weft.ir.types import DescriptorType
from weft.layout import NVMMASharedLayout
from weft.layout.cluster import receivers
from weft.ops import tma
from weft.ops.memory import L2Policy

_COMMIT = Piece('DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }')
_WAITS = {
    name: Piece(
        f"template <int N> DEV void {name}() {{\n"
        f'  asm volatile("cp.async.bulk.wait_group{until} %0;" :: "n"(N) : "memory"); }}'
    )
    # With `.read` the wait ends when the operations have read their sources and their tensor maps; their writes may be
    # incomplete (PTX ISA, cp.async.bulk.wait_group). That suffices to overwrite the source.
    for name, until in (("bulk_wait_read", ".read"), ("bulk_wait", ""))
}
_AXES = "xyzwv"
_OFFSETS = "ijk"


def _numbers(first: int, count: int) -> str:
    return f"{{{', '.join(f'%{first + i}' for i in range(count))}}}"


Pair = Literal["", "own barrier", "shared barrier"]


def barrier_of(pair: Pair) -> str:
    """The operand of a load that is its mbarrier.

    With `.cta_group::2` it may be in either CTA of the pair that receives the elements (PTX ISA, cp.async.bulk.tensor). Bit 24
    of a shared::cluster address distinguishes the CTAs of a pair; if it is clear, the barrier is the first CTA's. The PTX ISA
    does not document the bit. CUTLASS clears it too (Sm100MmaPeerBitMask in cute/arch/copy_sm100_tma.hpp)."""
    return '"r"(bar & 0xfeffffffu)' if pair == "shared barrier" else '"r"(bar)'


def _load_piece(name: str, rank: int, offsets: int, multicast: bool, pair: Pair = "", l2: L2Policy = ()) -> Piece:
    """`name(to, desc, bar, x, y, ...)`; an im2col load also has `offsets` within the filter.

    With `multicast`, the last argument is the mask of the CTAs that receive the box, each at the same shared memory offset, and
    the mbarriers that count its bytes are theirs, or in a `pair` those of the CTAs of their pairs whose rank is as even or odd
    as that of the CTA with `bar`."""
    axes, steps, blocks = _AXES[:rank], _OFFSETS[:offsets], ["blocks"] * multicast
    parameters = ", ".join(["u32 to", "const CUtensorMap* desc", "u32 bar", *(f"int {a}" for a in axes),
                            *(f"u16 {s}" for s in (*steps, *blocks))])  # fmt: skip
    within = [f'"r"({a})' for a in axes] + [f'"h"({s})' for s in (*steps, *blocks)]
    operands = ", ".join(['"r"(to)', '"l"(desc)', barrier_of(pair), *within])
    # An address of this CTA is valid as `.shared::cluster`, since that window contains the `.shared::cta` window (PTX ISA,
    # "Shared State Space").
    mode, sends = ".im2col" if offsets else "", ".multicast::cluster" * multicast + ".cta_group::2" * bool(pair)
    within = f", {_numbers(3 + rank, offsets)}" if offsets else ""
    within += f", %{3 + rank + offsets}" if multicast else ""
    within += f", %{3 + rank + offsets + multicast}" if l2 else ""
    operands += policy_operand(l2)
    sends += HINT * bool(l2)
    return Piece(
        f"DEV void {name}({parameters}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes{sends}"\n'
        f'    " [%0], [%1, {_numbers(3, rank)}], [%2]{within};"\n    :: {operands} : "memory"); }}',
        ("CUtensorMap",),
    )


def policy_operand(l2: L2Policy) -> str:
    """The last operand of a request with a policy of L2."""
    return f', "l"({policy_name(l2)}())' if l2 else ""


def _store_piece(name: str, rank: int, reduction: str, l2: L2Policy) -> Piece:
    """`name(desc, from, x, y, ...)`: a store or a reduction."""
    axes = _AXES[:rank]
    parameters = ", ".join(["const CUtensorMap* desc", "u32 from", *(f"int {a}" for a in axes)])
    operands = ", ".join(['"l"(desc)', '"r"(from)', *(f'"r"({a})' for a in axes)])
    what, kind = ("cp.reduce", f".{reduction}") if reduction else ("cp", "")
    hint, policy = (HINT, f", %{2 + rank}") if l2 else ("", "")
    return Piece(
        f"DEV void {name}({parameters}) {{\n"
        f'  asm volatile("{what}.async.bulk.tensor.{rank}d.global.shared::cta{kind}.bulk_group{hint}"\n'
        f'    " [%0, {_numbers(2, rank)}], [%1]{policy};"\n    :: {operands}{policy_operand(l2)} : "memory"); }}',
        ("CUtensorMap",),
    )


def _boxes(op: Op, rank: int) -> tuple[int, Sequence[tuple[int, ...]]]:
    """The number of boxes, and a table of offsets by box for each coordinate and for the shared memory address."""
    boxes: tma.Boxes = op.attrs["boxes"] or (((0,) * rank, 0),)
    columns = list(zip(*(start for start, _ in boxes), strict=True))
    return len(boxes), [*columns, tuple([offset for _, offset in boxes])]


def moved(e: Emitter, value: Value | None, table: tuple[int, ...], index: Index) -> str:
    """A coordinate or address plus the offset of a box."""
    assert value is not None
    number = e.number(value)
    if isinstance(number, int):
        return e.entry(tuple([number + step for step in table]), index)
    return plus(e.at(value), e.entry(table, index))


def column(desc: Value, elements: str) -> str:
    """The innermost coordinate in the hardware's elements: a byte of packed fp4 is two."""
    layout = desc.type.layout if isinstance(desc.type, DescriptorType) else None
    return f"2 * ({elements})" if isinstance(layout, NVMMASharedLayout) and layout.fp4_padded else elements


def named(e: Emitter, name: str, l2: L2Policy) -> str:
    """The name of a function of requests under a policy of L2, which is defined."""
    return "_".join([name, *define_policy(e, l2)])


@elects(tma.load)
def _load(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc, bar, _, _, *coords = op.operands
    assert desc is not None and bar is not None
    blocks = _receivers(e, op)
    pair, way = paired(op)
    l2 = op.attrs["l2"]
    name = named(e, f"tma_load_{'multicast_' if blocks else ''}{way}{len(coords)}d", l2)
    e.pieces.define(name, _load_piece(name, len(coords), 0, bool(blocks), pair, l2))
    count, (*starts, offsets) = _boxes(op, len(coords))

    def text(index: Index) -> str:
        *at, x = [moved(e, c, start, index) for c, start in zip(coords, starts, strict=True)]
        arguments = [received(e, op, offsets, index), e.at(desc), e.at(bar), column(desc, x), *reversed(at), *blocks]
        return f"{name}({', '.join(arguments)});"

    return [(count, text)]


def paired(op: Op) -> tuple[Pair, str]:
    """How a load uses that blocks are pairs, and the part of its function's name that says so."""
    if op.attrs["shared_by"]:
        return "shared barrier", "pair_"
    return ("own barrier", "remote_") if op.attrs["remote"] else ("", "")


def received(e: Emitter, op: Op, offsets: tuple[int, ...], index: Index) -> str:
    """The address that a load writes a box to: in this CTA, or in the other one of its pair for the CTAs in `crossing`."""
    handle = op.operand("handle")
    assert handle is not None
    if not op.attrs.get("remote"):
        return moved(e, handle, offsets, index)
    there = f"{e.pieces.define('peer_address', PEER)}({e.at(handle)}, {_destination(e, op)})"
    return plus(there, e.entry(offsets, index))


def _destination(e: Emitter, op: Op) -> str:
    """The rank of the CTA that a load writes to."""
    rank, crosses = e.call("cluster_rank"), int(op.attrs.get("crossing", 0))
    return f"{rank} ^ ({crosses:#x} >> {rank} & 1)" if crosses else rank


def _receivers(e: Emitter, op: Op) -> list[str]:
    """The mask of the CTAs that receive a multicast, computed by the CTA that issues it."""
    if not op.attrs["multicast"]:
        return []
    desc = op.operands[0]
    assert desc is not None and isinstance(desc.type, DescriptorType)
    bits = receivers(desc.type.layout.to_linear(desc.type.block_shape), e.func.attrs.num_ctas)
    return [receiving(e, op, bits)]


def receiving(e: Emitter, op: Op, bits: int) -> str:
    """The mask of the CTAs whose rank differs in some bits only from that of the CTA that a load writes to without multicast.
    Only with a `sender` may these bits be set in it."""
    count = e.func.attrs.num_ctas
    mask = sum(1 << rank for rank in range(count) if not rank & ~bits)
    if bits == count - 1:
        return f"{mask:#x}"
    first = _destination(e, op)
    if op.attrs.get("sender"):
        first = f"({first} & {~bits})"
    elif op.attrs.get("crossing"):
        first = f"({first})"
    return f"(u16)({mask:#x} << {first})"


@elects(tma.load_im2col)
def _load_im2col(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc, bar, handle, _, *operands = op.operands
    assert desc is not None and bar is not None and handle is not None
    rank = (len(operands) + 2) // 2
    coords, steps = operands[:rank], operands[rank:]
    blocks = _receivers(e, op)
    name = named(e, f"tma_load_im2col_{'multicast_' if blocks else ''}{rank}d", op.attrs["l2"])
    e.pieces.define(name, _load_piece(name, rank, len(steps), bool(blocks), l2=op.attrs["l2"]))
    # A box is pixels and channels; boxes of one block differ in their first channel.
    count, (_, channels, offsets) = _boxes(op, 2)

    def text(index: Index) -> str:
        *outer, inner = coords
        at = [*(e.at(c) for c in outer if c is not None), moved(e, inner, channels, index)]
        within = [f"(u16){e.at(step)}" for step in steps if step is not None]
        arguments = [
            moved(e, handle, offsets, index), e.at(desc), e.at(bar), *reversed(at), *reversed(within), *blocks
        ]  # fmt: skip
        return f"{name}({', '.join(arguments)});"

    return [(count, text)]


@elects(tma.store, tma.reduce)
def _store(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    desc, handle, *coords = op.operands
    assert desc is not None and handle is not None
    kind: str = op.attrs.get("kind", "")
    name = named(e, f"tma_{f'reduce_{kind}' if kind else 'store'}_{len(coords)}d", op.attrs["l2"])
    e.pieces.define(name, _store_piece(name, len(coords), kind, op.attrs["l2"]))
    count, (*starts, offsets) = _boxes(op, len(coords))

    def text(index: Index) -> str:
        *at, x = [moved(e, c, start, index) for c, start in zip(coords, starts, strict=True)]
        return f"{name}({', '.join([e.at(desc), moved(e, handle, offsets, index), column(desc, x), *reversed(at)])});"

    return [(count, text), bulk_commit(e)]


def bulk_commit(e: Emitter) -> Repeated:
    """The statement that commits the preceding bulk operations as a group."""
    return 1, lambda index: f"{e.pieces.define('bulk_commit', _COMMIT)}();"


@elects(tma.store_wait)
def _store_wait(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    name = "bulk_wait" if op.attrs["writes"] else "bulk_wait_read"
    return [(1, lambda index: f"{e.pieces.define(name, _WAITS[name])}<{op.attrs['pendings']}>();")]
