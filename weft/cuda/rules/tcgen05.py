"""Blackwell's MMAs and copies to tensor memory, and their commits: statements of the elected thread.

Matrix descriptors are built in the branch that uses them. Instruction descriptors, and the offsets of operands within their
allocations, are constants in the text.
"""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects, emits
from weft.cuda.rules.memory import plus
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.cuda.text.tables import IndexTable
from weft.ir.core import Op, Value
from weft.layout.tensor_cores.tcgen05 import descriptor_bits
from weft.layout.tensor_cores.tcgen05_kinds import KINDS, Kind
from weft.ops import tcgen05

_FENCES = {
    f"tcgen05_fence_{when}": Piece(
        f'DEV void tcgen05_fence_{when}() {{ asm volatile("tcgen05.fence::{when}_thread_sync;" ::: "memory"); }}'
    )
    for when in ("before", "after")
}


def cta_group(two_ctas: bool) -> tuple[str, str]:
    """PTX's `.cta_group` modifier for one CTA or a CTA pair, and the corresponding suffix of the wrappers' names."""
    return ("cta_group::2", "_pair") if two_ctas else ("cta_group::1", "")


def _mma_piece(name: str, kind: Kind, group: str, in_tensor: bool, reuse: int) -> Piece:
    """`name(acc, a, b, what, add)`, with scales `name(acc, a, b, what, a_scale, b_scale, add)`.

    If `add` is false, the accumulator is overwritten. `a` is a matrix descriptor or a tensor memory address. With `reuse` above
    1 the last parameter is the instruction's number in a run of `reuse` instructions that read the same tile of a. The first
    fills the collector buffer, and the last releases it (PTX ISA, tcgen05.mma, `.collector_usage`)."""
    taken = KINDS[kind].scales
    scaled, scaling = taken > 0, f".block_scale.scale_vec::{taken}X" if taken else ""
    left, place, letter = ("int a", "[%1]", "r") if in_tensor else ("u64 a", "%1", "l")
    parameters = ["int acc", left, "u64 b", "u32 what", *["int a_scale", "int b_scale"] * scaled, "bool add"]
    parameters += ["int turn"] * (reuse > 1)
    scales = ", [%4], [%5]" * scaled
    operands = ['"r"(acc)', f'"{letter}"(a)', '"l"(b)', '"r"(what)', *['"r"(a_scale)', '"r"(b_scale)'] * scaled]
    operands.append('"r"((int)add)')

    def instruction(collector: str) -> str:
        return (
            f'asm volatile("{{\\n.reg .pred add;\\nsetp.ne.b32 add, %{len(operands) - 1}, 0;\\n"\n'
            f'    "tcgen05.mma.{group}.kind::{kind}{scaling}{collector} [%0], {place}, %2, %3{scales}, add;\\n}}"\n'
            f'    :: {", ".join(operands)} : "memory");'
        )

    if reuse == 1:
        body = [instruction("")]
    else:
        # The turn is a constant once the loop over the instructions is unrolled.
        fill, use, last = (instruction(f".collector::a::{usage}") for usage in ("fill", "use", "lastuse"))
        body = [f"if (turn == 0) {fill}", *[f"else if (turn < {reuse - 1}) {use}"] * (reuse > 2), f"else {last}"]
    return Piece("\n  ".join([f"DEV void {name}({', '.join(parameters)}) {{", *body]) + " }")


@elects(tcgen05.issue)
def _issue(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    a, b, acc, a_scale, b_scale, use_acc, _ = op.operands
    assert a is not None and b is not None and acc is not None
    left, right, kind = op.attrs["left"], op.attrs["right"], op.attrs["kind"]
    group, pair = cta_group(op.attrs["two_ctas"])
    reuse: int = op.attrs["reuse"]
    name = f"tcgen05_mma_{kind}{'_ta' * (left is None)}{pair}{f'_reuse{reuse}' if reuse > 1 else ''}"
    e.pieces.define(name, _mma_piece(name, kind, group, left is None, reuse))
    columns: list[IndexTable] = list(zip(*op.attrs["steps"], strict=True))
    into, at_a, at_b, first, what, at_a_scale, at_b_scale = columns
    matrices = [] if left is None else [_Matrix(e, "left", e.at(a), descriptor_bits(left), at_a)]
    matrices.append(_Matrix(e, "right", e.at(b), descriptor_bits(right), at_b))
    scales = [(value, table) for value, table in ((a_scale, at_a_scale), (b_scale, at_b_scale)) if value is not None]

    def text(index: Index) -> str:
        operands = [_moved(e, a, at_a, index)] if left is None else []
        operands = [_moved(e, acc, into, index), *operands, *(matrix.at(index) for matrix in matrices)]
        operands += [
            _instruction_descriptor(e, what, index),
            *(_moved(e, scale, table, index) for scale, table in scales),
        ]
        operands.append(_add_argument(e, first, index, use_acc))
        if reuse > 1:
            operands.append(str(index % reuse) if isinstance(index, int) else f"{index} % {reuse}")
        return f"{name}({', '.join(operands)});"

    return [*(_once(matrix.start) for matrix in matrices), (len(first), text)]


class _Matrix:
    """An operand in shared memory at `address`: `fields` are the other bits of its descriptor, `offsets` the byte offsets of
    the instructions' matrices.

    `start` is the statement that builds the descriptor of the operand's base; the steps' descriptors add their offsets to
    it."""

    def __init__(self, e: Emitter, name: str, address: str, fields: int, offsets: IndexTable) -> None:
        self._emitter, self._name, self._steps = e, e.names.fresh(name), tuple([offset >> 4 for offset in offsets])
        low = f"{fields & 0xFFFFFFFF:#x}u + {e.pieces.use('matrix_start')}({address})"
        self.start = f"const u64 {self._name} = {e.pieces.use('matrix')}({fields >> 32:#x}u, {low});"

    def at(self, index: Index) -> str:
        """The descriptor of a K step."""
        return plus(self._name, self._emitter.entry(self._steps, index))


def _instruction_descriptor(e: Emitter, descriptors: IndexTable, index: Index) -> str:
    """The instruction descriptor of a step: that of the first one plus a difference."""
    if isinstance(index, int):
        return f"{descriptors[index]:#x}u"
    return plus(f"{descriptors[0]:#x}u", e.entry(tuple([each - descriptors[0] for each in descriptors]), index))


def _add_argument(e: Emitter, first: IndexTable, index: Index, use_acc: Value | None) -> str:
    """The `add` argument of a step: the `first` steps along K take the condition (None: they accumulate), the others are
    true."""
    number = 1 if use_acc is None else e.number(use_acc)
    if use_acc is None or number or not any(first):
        return "true"
    added = e.at(use_acc) if number is None else "false"
    if isinstance(index, int):
        return added if first[index] else "true"
    if all(first):
        return added
    later = _not_first(e, first, index)
    return later if added == "false" else f"{later} || {added}"


def _not_first(e: Emitter, first: IndexTable, index: str) -> str:
    """The condition that a step is not the first along K: a comparison, if the first steps precede all others or are regularly
    spaced, else a table."""
    firsts, steps = sum(first), range(len(first))
    if all(first[:firsts]):
        return f"{index} >= {firsts}"
    period = len(first) // firsts
    if first == tuple([step % period == 0 for step in steps]):
        return f"{index} % {period} > 0"
    return f"{e.array(tuple([int(not one) for one in first]))}[{index}] > 0"


def _moved(e: Emitter, address: Value, steps: IndexTable, index: Index) -> str:
    return plus(e.at(address), e.entry(steps, index))


def _once(text: str) -> Repeated:
    return 1, lambda index: text


@elects(tcgen05.copy_shared)
def _copy(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    src, dst = op.uses
    shape: str = op.attrs["shape"]
    group, pair = cta_group(op.attrs["two_ctas"])
    name = f"tcgen05_copy_{shape.replace('.', '_').replace('::', '_')}{pair}"
    e.pieces.define(
        name,
        Piece(
            f"DEV void {name}(int to, u64 from) {{\n"
            f'  asm volatile("tcgen05.cp.{group}.{shape} [%0], %1;" :: "r"(to), "l"(from) : "memory"); }}'
        ),
    )
    places, into = zip(*op.attrs["steps"], strict=True)
    source = _Matrix(e, "source", e.at(src), descriptor_bits(op.attrs["operand"]), places)

    def text(index: Index) -> str:
        return f"{name}({_moved(e, dst, into, index)}, {source.at(index)});"

    return [_once(source.start), (len(into), text)]


@elects(tcgen05.commit)
def _commit(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    bar = op.operands[0]
    assert bar is not None
    group, pair = cta_group(e.func.attrs.two_ctas)
    blocks = _receivers(e, op.attrs["receivers"])
    name = f"tcgen05_commit{'_multicast' if blocks else ''}{pair}"
    parameter, operand, sends, mask = (
        (", u16 blocks", ', "h"(blocks)', ".multicast::cluster", ", %1") if blocks else ("", "", "", "")
    )
    e.pieces.define(
        name,
        Piece(
            f"DEV void {name}(u32 bar{parameter}) {{\n"
            f'  asm volatile("tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster{sends}.b64 [%0]{mask};"\n'
            f'    :: "r"(bar){operand} : "memory"); }}'
        ),
    )
    return [_once(f"{name}({', '.join([e.at(bar), *blocks])});")]


def _receivers(e: Emitter, masks: tuple[int, ...]) -> list[str]:
    """The set of CTAs whose rank differs from this CTA's only in bits of one of the masks; empty without masks."""
    every = e.func.attrs.num_ctas - 1
    if every in masks:
        return [f"{(1 << every + 1) - 1:#x}"]
    sets = [(sum(1 << rank for rank in range(every + 1) if not rank & ~mask), mask) for mask in masks]
    terms = [f"{some:#x} << ({e.call('cluster_rank')} & {~mask})" for some, mask in sets]
    return [f"(u16)({' | '.join(terms)})"] if terms else []


@emits(tcgen05.fence)
def _fence(e: Emitter, op: Op) -> None:
    e.out.line(fence_call(e, "before" if op.attrs["before"] else "after"))


def fence_call(e: Emitter, when: str) -> str:
    """A call of `tcgen05.fence::before_thread_sync` or `::after_thread_sync`."""
    name = f"tcgen05_fence_{when}"
    return f"{e.pieces.define(name, _FENCES[name])}();"
