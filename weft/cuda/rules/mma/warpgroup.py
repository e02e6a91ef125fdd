"""Warpgroup MMAs: one PTX wrapper for a run of `wgmma` on one accumulator.

An accumulator is a C array that instructions update in place. The `asm` of a wait has all its accumulators as operands, so that
no read of them precedes it. NVRTC's compile time grows with the number of register operands of such statements, which is why a
run of instructions shares one statement. A matrix descriptor is built of two 32-bit halves, of which only the lower one depends
on the address, from values that are uniform in a warpgroup, so it stays in uniform registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import copysign

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.memory import plus
from weft.cuda.text import tables
from weft.cuda.text.matrix_operands import (
    PACKERS,
    PER_LINE,
    PTX,
    PTX_ACCUMULATOR,
    WORD_BITS,
    array_of,
    in_place,
    operand_lines,
    ptx_vector,
    struct_of,
    word_at,
)
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index
from weft.cuda.text.spelling import C_NAMES
from weft.cuda.text.tables import IndexTable
from weft.ir.core import Op, Value
from weft.ir.types import BY_CODE, DType, RegsType, uint32
from weft.layout.base import WARPGROUP
from weft.layout.tensor_cores.shared_operands import Operand
from weft.ops import mma

# Before the first wgmma, and between an access of a thread to an accumulator or a register operand and the wgmma that uses it.
# Consecutive wgmmas of one shape on the same accumulator need no fence in between (PTX ISA, wgmma.fence), so one fence serves
# all instructions of an operation.
_FENCE = Piece('DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }')
_COMMIT = Piece('DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }')


@dataclass(frozen=True, slots=True)
class Wgmma:
    """A run of instructions of one shape on the same accumulators; `transposed` operands are contiguous along m or n.

    `count` is the number of instructions. `words`: for a in registers, each instruction's first word of a, relative to that of
    the first one; None for a in memory."""

    n: int
    k: int
    sum: DType
    element: DType
    other: DType
    transposed: tuple[bool, bool]
    count: int
    words: IndexTable | None

    @property
    def instruction(self) -> str:
        """`wgmma_64x256x16_f32_f16_tb`."""
        types = [self.element.code] if self.element is self.other else [self.element.code, self.other.code]
        flags = (*self.transposed, self.words is not None)
        marks = [mark for mark, on in zip(("ta", "tb", "ra"), flags, strict=True) if on]
        return "_".join(["wgmma", f"64x{self.n}x{self.k}", self.sum.code, *types, *marks])

    @property
    def name(self) -> str:
        """`wgmma_64x256x16_f32_f16_tb_x4` for four instructions."""
        return f"{self.instruction}_x{self.count}"

    def piece(self, name: str) -> Piece:
        """`name(x, a, b, add)`: instruction i multiplies the matrices `a[i]` and `b[i]`; `x` are the accumulators.

        If `add` is false, the first instruction overwrites the accumulators (`scale-d`)."""
        outputs = in_place("x", self.sum, self.n // 2)
        left, lefts, parameter = self._left(len(outputs))
        first_b = len(outputs) + len(left)
        inputs = [*left, *(f'"l"(b[{i}])' for i in range(self.count)), '"r"((int)add)']
        types = ".".join([PTX_ACCUMULATOR[self.sum.code], PTX[self.element.code], PTX[self.other.code]])
        lines = [
            f'    {name}_on_x "{lefts[i]}, %{first_b + i}, {"on" if i else "add"}{self._modifiers};\\n"\n'
            for i in range(self.count)
        ]
        return Piece(
            f'#define {name}_on_x "wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{types} " \\\n'
            f'    "{ptx_vector(0, len(outputs), continued=True)}, "\n'
            f"DEV void {name}({C_NAMES[self.sum.code]}* x, {parameter}, const u64* b, bool add) {{\n"
            '  asm volatile("{\\n.reg .pred add, on;\\n"\n'
            f'    "setp.ne.b32 add, %{first_b + self.count}, 0;\\nsetp.eq.b32 on, 0, 0;\\n"\n'
            f'{"".join(lines)}    "}}"\n'
            f"    : {operand_lines(outputs)}\n"
            f"    : {operand_lines(inputs)}); }}",
            struct_of(self.sum),
        )

    def _left(self, first: int) -> tuple[list[str], list[str], str]:
        """The `asm` operands of a, numbered from `first`; a's spelling in each instruction; the wrapper's parameter."""
        if self.words is None:
            numbers = range(self.count)
            return [f'"l"(a[{i}])' for i in numbers], [f"%{first + i}" for i in numbers], "const u64* a"
        per = self.k * self.element.bits // (2 * WORD_BITS)
        operands = [f'"r"(a[{word + i}])' for word in self.words for i in range(per)]
        return operands, [ptx_vector(first + per * i, per) for i in range(self.count)], "const u32* a"

    @property
    def _modifiers(self) -> str:
        """The immediates after the operands: the signs of a and b for floats, and the transpose flags of operands in memory for
        16-bit types (PTX ISA, wgmma.mma_async)."""
        if not self.element.is_floating():
            return ""
        turned = self.transposed if self.words is None else self.transposed[1:]
        return ", 1, 1" + "".join(f", {int(t)}" for t in turned if self.element.bits == 16)


@emits(mma.begin)
def _begin(e: Emitter, op: Op) -> None:
    (x,) = op.uses
    assert isinstance(x.type, RegsType)
    number = e.number(x)
    if number is not None and number == 0 and copysign(1, number) > 0:
        _zeros(e, e.variable(op.result).name, _dtype(x.type), x.type.count)
        return
    e.copy(op.result, e.refs[x])
    _pin(e, e.variable(op.result).name, _dtype(x.type), x.type.count)


def _zeros(e: Emitter, array: str, element: DType, count: int) -> None:
    """As `_pin`, but the statement also zeroes the array."""
    name, outputs = f"zeros_{element.code}x{count}", in_place("x", element, count, "=")
    moves = [f"mov.b32 %{i}, 0;" for i in range(len(outputs))]
    rows = [" ".join(moves[i : i + PER_LINE]) for i in range(0, len(moves), PER_LINE)]
    text = ' "\n    "'.join(rows)
    head = f"DEV void {name}({C_NAMES[element.code]}* x)"
    e.pieces.define(
        name, Piece(f'{head} {{\n  asm volatile("{text}"\n    : {operand_lines(outputs)}); }}', struct_of(element))
    )
    e.out.line(f"{name}({array});")


def _pin(e: Emitter, array: str, element: DType, count: int) -> None:
    """An empty `asm` with the array as operands: it forces the array into registers, and hides its contents from the compiler,
    which therefore cannot move or recompute them after this point."""
    name = f"pin_{element.code}x{count}"
    head, through = f"DEV void {name}({C_NAMES[element.code]}* x)", operand_lines(in_place("x", element, count))
    e.pieces.define(name, Piece(f'{head} {{\n  asm volatile("" : {through}); }}', struct_of(element)))
    e.out.line(f"{name}({array});")


def _packed_operand(e: Emitter, value: Value) -> str:
    """The name of an array of packed words of a register operand, written before the `wgmma.fence`."""
    array, element = array_of(e, value), value.type.element
    assert isinstance(value.type, RegsType) and isinstance(element, DType)
    per = WORD_BITS // element.bits
    name, count = e.names.fresh("words"), value.type.count // per
    for need in PACKERS[per]:
        e.pieces.use(need)
    e.out.bare(f"u32 {name}[{count}];")
    e.unrolled(count, [(e.out.loc, lambda index: f"{name}[{index}] = {word_at(array, index, per)};")])
    _pin(e, name, uint32, count)
    return name


@emits(mma.wgmma)
def _wgmma(e: Emitter, op: Op) -> None:
    a, b, acc, use_acc = op.operands
    assert a is not None and b is not None and acc is not None
    left: Operand | None = op.attrs["left"]
    right: Operand = op.attrs["right"]
    sums = acc.type.element
    assert isinstance(sums, DType) and isinstance(acc.type, RegsType)
    turned = (left is not None and left.transposed, right.transposed)
    element, other = (BY_CODE[op.attrs[name]] for name in ("element", "other"))
    registers, at_a, at_b, first = (tuple(column) for column in zip(*op.attrs["steps"], strict=True))
    words = tuple([at * element.bits // WORD_BITS for at in at_a]) if left is None else None
    count, relative = _run_length(registers, words)
    shape = Wgmma(op.attrs["n"], op.attrs["k"], sums, element, other, turned, count, relative)
    wrapper = e.pieces.distinct(shape.name, shape.piece)
    e.copy(op.result, e.refs[acc])
    matrices = [] if left is None else [_Matrix(e, "left", a, left, at_a)]
    matrices.append(_Matrix(e, "right", b, right, at_b))
    held = _packed_operand(e, a) if left is None else ""
    arrays = [e.names.fresh(name) for name in ("lefts", "rights")[-len(matrices) :]]
    into = e.variable(op.result)
    added = "true" if use_acc is None else e.at(use_acc)
    number = 1 if use_acc is None else e.number(use_acc)
    for array in arrays:
        e.out.bare(f"u64 {array}[{len(first)}];")

    def descriptor(array: str, matrix: _Matrix, index: Index) -> str:
        return f"{array}[{index}] = {matrix.at(index)};"

    def run(index: Index) -> str:
        starts = tuple(range(0, len(first), count))
        operands = [plus(array, e.entry(starts, index)) for array in arrays]
        if words is not None:
            operands.insert(0, plus(held, e.entry(words[::count], index)))
        firsts = first[::count]
        on = _add_argument(firsts, index, added) if number is None else _flag(firsts, index, bool(number))
        return f"{wrapper}({plus(into.name, e.entry(registers[::count], index))}, {', '.join(operands)}, {on});"

    described = zip(arrays, matrices, strict=True)
    e.unrolled(len(first), [(op.loc, partial(descriptor, array, matrix)) for array, matrix in described])
    # Descriptors and packed operands are computed before the fence, so that no access of a thread lies between it and a wgmma.
    e.out.line(f"{e.pieces.define('wgmma_fence', _FENCE)}();")
    e.unrolled(len(first) // count, [(op.loc, run)])
    e.out.line(f"{e.pieces.define('wgmma_commit', _COMMIT)}();")


def _run_length(registers: IndexTable, words: IndexTable | None) -> tuple[int, IndexTable | None]:
    """The length of the runs of instructions on one accumulator, and the offsets of their words of a.

    The length is 1 if the runs differ."""
    lengths = {len(list(run)) for _, run in groupby(registers)}
    count = lengths.pop() if len(lengths) == 1 else 1
    if words is None:
        return count, None
    starts = range(0, len(words), count)
    places = {tuple([word - words[start] for word in words[start : start + count]]) for start in starts}
    return (count, places.pop()) if len(places) == 1 else (1, (0,))


def _add_argument(first: tuple[bool, ...], index: Index, added: str) -> str:
    """The `add` argument of a run: the first run of each accumulator, which precede the others, takes the condition."""
    if isinstance(index, int):
        return added if first[index] else "true"
    firsts = first.index(False) if False in first else len(first)
    if firsts == len(first):
        return added
    return f"{index if firsts == 1 else f'{index} >= {firsts}'} || {added}"


def _flag(first: tuple[bool, ...], index: Index, added: bool) -> str:
    return "true" if added else _add_argument(first, index, "false")


class _Matrix:
    """An operand in memory: its descriptors, and the statement that computes the first one's address field."""

    def __init__(self, e: Emitter, name: str, memory: Value, operand: Operand, offsets: IndexTable) -> None:
        fields = operand.descriptor_bits
        self.emitter, self.name, self.high = e, e.names.fresh(name), f"{fields >> 32:#x}u"
        # The other fields of the lower half are added in the constant of each step, at no cost.
        self.low, self.steps = f"{fields & 0xFFFFFFFF:#x}u", tuple([offset >> 4 for offset in offsets])
        e.pieces.use("matrix")
        address = plus(e.at(memory), _of_warpgroup(e, operand.warps))
        e.out.line(f"const u32 {self.name} = {e.pieces.use('matrix_start')}({address});")

    def at(self, index: Index) -> str:
        """The descriptor of a K step."""
        return f"matrix({self.high}, {self.low} + {plus(self.name, self.emitter.entry(self.steps, index))})"


def _of_warpgroup(e: Emitter, warps: IndexTable) -> str:
    """The byte offset of a warpgroup's part of an operand, computed from the warpgroup index."""
    here = e.partition
    groups = [0]
    for bit in warps[2 : here.num_warps.bit_length() - 1]:
        groups += [group ^ bit for group in groups]
    if not any(groups):
        return "0"
    index = f"({e.warp} - {here.first_warp}u) / {WARPGROUP}" if here.first_warp else f"{e.warp} / {WARPGROUP}"
    text = tables.expression(tuple(groups), index)
    assert text is not None
    return text


@emits(mma.warpgroup_wait)
def _wait(e: Emitter, op: Op) -> None:
    types = [value.type for value in op.uses if isinstance(value.type, RegsType)]
    for result, value in zip(op.results, op.uses, strict=True):
        e.copy(result, e.refs[value])
    name = "_".join(["wgmma_wait", *(f"{_dtype(t).code}x{t.count}" for t in types)])
    e.pieces.define(name, _wait_piece(name, types))
    e.out.line(f"{name}<{op.attrs['pendings']}>({', '.join(e.variable(result).name for result in op.results)});")


def _wait_piece(name: str, types: Sequence[RegsType]) -> Piece:
    """`name<pendings>(x0, x1, ...)`: the wait, with the accumulators as operands."""
    dtypes = [_dtype(t) for t in types]
    parameters = [f"{C_NAMES[dtype.code]}* x{i}" for i, dtype in enumerate(dtypes)]
    through = [
        o for i, (dtype, t) in enumerate(zip(dtypes, types, strict=True)) for o in in_place(f"x{i}", dtype, t.count)
    ]
    # The `asm` with the accumulators follows the wait: moves of its operands must not execute while an MMA is in flight.
    pin = f'\n  asm volatile("" : {operand_lines(through)} :: "memory");' if through else ""
    return Piece(
        f"template <int N> DEV void {name}({', '.join(parameters)}) {{\n"
        f'  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");{pin} }}',
        tuple(need for dtype in dtypes for need in struct_of(dtype)),
    )


def _dtype(type: RegsType) -> DType:
    assert isinstance(type.element, DType)
    return type.element
