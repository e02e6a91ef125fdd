"""Tensor memory: allocation of the block's columns, and loads and stores of tiles.

A load or store is one PTX wrapper with all of its instructions and the wait after them. No register can thus be read before
its load is complete. Each register is also an operand of only one `asm` statement, and NVRTC's compile time grows with their
number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from weft.cuda.emitter import Emitter, emits
from weft.cuda.rules.memory import plus
from weft.cuda.rules.tcgen05 import cta_group, fence_call
from weft.cuda.text.matrix_operands import WORD_BITS, in_place, operand_lines, ptx_vector, struct_of
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Index, Variable
from weft.cuda.text.spelling import c_type_of
from weft.cuda.text.tables import IndexTable
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, uint32
from weft.layout.tensor_memory.load_store import Variant, words
from weft.ops import tensor_memory

# tcgen05.alloc writes the address to shared memory. The shuffle tells ptxas that it is uniform in the warp.
_ADDRESS = Piece(
    "// the address that the first warp allocated, uniform in all threads\n"
    "DEV int tmem_address(u32 room) {\n"
    '  int address; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(address) : "r"(room) : "memory");\n'
    "  return __shfl_sync(0xffffffffu, address, 0); }"
)


# Allocation


def _alloc_piece(name: str, group: str) -> Piece:
    """`name<columns>(room)`: the address is written to shared memory at `room`. The block then relinquishes its permit, so that
    other blocks of the multiprocessor can allocate (PTX ISA, tcgen05.relinquish_alloc_permit)."""
    return Piece(
        f"template <int COLUMNS> DEV void {name}(u32 room) {{\n"
        f'  asm volatile("tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [%0], %1;\\n"\n'
        f'               "tcgen05.relinquish_alloc_permit.{group}.sync.aligned;" :: "r"(room), "n"(COLUMNS) : "memory"); }}'
    )


def _dealloc_piece(name: str, group: str) -> Piece:
    """`name<columns>(address)`."""
    return Piece(
        f"template <int COLUMNS> DEV void {name}(int address) {{\n"
        f'  asm volatile("tcgen05.dealloc.{group}.sync.aligned.b32 %0, %1;" :: "r"(address), "n"(COLUMNS) : "memory"); }}'
    )


@emits(tensor_memory.reserve)
def _reserve(e: Emitter, op: Op) -> None:
    (room,) = op.uses
    group, pair = cta_group(op.attrs["two_ctas"])
    name = e.pieces.define(f"tmem_alloc{pair}", _alloc_piece(f"tmem_alloc{pair}", group))
    # One warp allocates for the block. The instruction stores the address to shared memory by a weak operation (PTX ISA,
    # tcgen05.alloc), which the barrier publishes to the other warps.
    e.out.line(f"if ({e.warp} == 0) {name}<{op.attrs['columns']}>({e.at(room)});")
    _block_barrier(e)
    e.define(op.result, f"{e.pieces.define('tmem_address', _ADDRESS)}({e.at(room)})")


@emits(tensor_memory.release)
def _release(e: Emitter, op: Op) -> None:
    (address,) = op.uses
    group, pair = cta_group(op.attrs["two_ctas"])
    name = e.pieces.define(f"tmem_dealloc{pair}", _dealloc_piece(f"tmem_dealloc{pair}", group))
    # A kernel must deallocate all of its tensor memory before it exits (PTX ISA, tcgen05.dealloc). The barrier is for
    # accesses of other warps.
    _block_barrier(e)
    e.out.line(f"if ({e.warp} == 0) {name}<{op.attrs['columns']}>({e.at(address)});")


def _block_barrier(e: Emitter) -> None:
    """A barrier of the block, with fences that order tensor memory accesses with it."""
    e.out.line(f"{fence_call(e, 'before')} __syncthreads(); {fence_call(e, 'after')}")


# Loads and stores


@dataclass(frozen=True, slots=True)
class Moves:
    """The instructions of one load or store of `count` registers of the tile, in the instructions' order.

    `modifiers` are PTX's after the repetitions. `split`: the column distance of the halves, for instructions that have one.
    `offsets` are relative to the first instruction's address."""

    loads: bool
    element: DType
    variant: Variant
    repeat: int
    modifiers: str
    split: int | None
    offsets: IndexTable
    count: int

    @property
    def per_word(self) -> int:
        """The number of elements in a 32-bit word: as many as fit, or fewer in its low bits."""
        return self.count // (len(self.offsets) * self._words)

    @property
    def name(self) -> str:
        """`tmem_load_32x32b_x64_f32`, with suffixes for several instructions and for partially filled words."""
        parts = ["tmem", "load" if self.loads else "store", self.variant, f"x{self.repeat}", self.element.code]
        parts += [self.modifiers.strip(".").partition(":")[0]] if self.modifiers else []
        parts += [f"{self.per_word}_a_word"] if self.per_word * self.element.bits < WORD_BITS else []
        parts += [f"{len(self.offsets)}_times"] if len(self.offsets) > 1 else []
        return "_".join(parts)

    @property
    def _words(self) -> int:
        """The number of words of one instruction."""
        return words(self.variant, self.repeat)

    def piece(self, name: str) -> Piece:
        """`name(x, at)`: loads or stores the registers `x` of a tile at a warp-uniform address."""
        words = self._words * len(self.offsets)
        array, element = ("x", self.element) if self.element.bits == WORD_BITS else ("words", uint32)
        registers = operand_lines(in_place(array, element, words, "=&" if self.loads else ""))
        operands = f': {registers}\n    : "r"(at)' if self.loads else f':: {registers}, "r"(at) : "memory"'
        statements = "".join(f'    "{self._instruction(i, words)};\\n"\n' for i in range(len(self.offsets)))
        wait = f'    "tcgen05.wait::{"ld" if self.loads else "st"}.sync.aligned;"\n'
        before, behind, needs = ("", "", ()) if array == "x" else self._packing(words)
        constant = "" if self.loads else "const "
        return Piece(
            f"DEV void {name}({constant}{c_type_of(RegsType(self.element, 1))}* x, int at) {{\n"
            f"{before}  asm volatile(\n{statements}{wait}    {operands});{behind} }}",
            (*struct_of(self.element), *needs),
        )

    def _instruction(self, number: int, words: int) -> str:
        """One instruction; the wrapper's address is operand number `words`."""
        offset = self.offsets[number]
        place = f"[%{words}{f' + {offset}' if offset else ''}]{'' if self.split is None else f', {self.split}'}"
        vector = ptx_vector(number * self._words, self._words)
        shape = f"sync.aligned.{self.variant}.x{self.repeat}{self.modifiers}.b32"
        return f"tcgen05.ld.{shape} {vector}, {place}" if self.loads else f"tcgen05.st.{shape} {place}, {vector}"

    def _packing(self, words: int) -> tuple[str, str, tuple[str, ...]]:
        """The packing of words: statements before the instructions, statements after them, and the required prelude pieces."""
        per = self.per_word
        call, needs = f"{'unpack' if self.loads else 'pack'}{self.element.bits}", ()
        if self.element.bits == 16 and per == 1:
            into, word = ("((u16*)x)[i] = (u16)words[i];", "((const u16*)x)[i]")
        else:
            needs, at = (call,), "x + i" if per == 1 else f"x + {per} * i"
            call = call if self.element.bits == 16 else f"{call}<{per}>"
            into, word = f"{call}({at}, words[i]);", f"{call}({at})"
        loop = f"\n  #pragma unroll\n  for (int i = 0; i < {words}; ++i) "
        declared = f"  u32 words[{words}];"
        if self.loads:
            return f"{declared}\n", f"{loop}{into}", needs
        return f"{declared}{loop}words[i] = {word};\n", "", needs


def _moves(e: Emitter, op: Op, value: Value, loads: bool) -> tuple[Moves, IndexTable, str]:
    """The instructions of an operation, the tile's registers in their order, and the address of the first instruction."""
    address = op.operands[0]
    assert address is not None
    order = tuple(chain.from_iterable(op.attrs["registers"]))
    packing = f".{'' if loads else 'un'}pack::16b" if op.attrs["packed"] else ""
    split = op.attrs["split"] if op.attrs["variant"] == "16x32bx2" else None
    element = value.type.element
    assert isinstance(element, DType)
    first, *_ = offsets = op.attrs["offsets"]
    further = tuple([offset - first for offset in offsets])
    moves = Moves(loads, element, op.attrs["variant"], op.attrs["repeat"], packing, split, further, len(order))
    return moves, order, plus(e.at(address), str(first))


def _array(e: Emitter, value: Value, count: int) -> str:
    """The name of a new array, for a tile's registers in the order of the instructions."""
    name = e.names.fresh(value.name or "part")
    e.out.bare(f"{c_type_of(value.type)} {name}[{count}];")
    return name


@emits(tensor_memory.load_regs)
def _load(e: Emitter, op: Op) -> None:
    moves, order, at = _moves(e, op, op.result, loads=True)
    name = e.pieces.distinct(moves.name, moves.piece)
    into = e.variable(op.result)
    if order == tuple(range(len(order))):
        e.out.line(f"{name}({into.name if len(order) > 1 else f'&{into.name}'}, {at});")
        return
    part = _array(e, op.result, len(order))
    e.out.line(f"{name}({part}, {at});")
    e.unrolled(len(order), [(op.loc, lambda index: f"{into.at(e.entry(order, index))} = {part}[{index}];")])


@emits(tensor_memory.store_regs)
def _store(e: Emitter, op: Op) -> None:
    value = op.operands[1]
    assert value is not None
    moves, order, at = _moves(e, op, value, loads=False)
    name = e.pieces.distinct(moves.name, moves.piece)
    on = e.operand(op, "pred")
    head = "" if on is None else f"if ({on}) "
    ref = e.refs[value]
    in_order = order == tuple(range(len(order)))
    if in_order and isinstance(ref, Variable) and ref.count is not None and not ref.local:
        e.out.line(f"{head}{name}({ref.name}, {at});")
        return
    part, picked = _array(e, value, len(order)), e.picked(ref, order)

    def move(index: Index) -> str:
        return f"{part}[{index}] = {picked.at(index)};"

    e.unrolled(len(order), [(op.loc, move)])
    e.out.line(f"{head}{name}({part}, {at});")
