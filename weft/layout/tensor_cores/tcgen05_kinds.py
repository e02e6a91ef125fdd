"""Kinds of tcgen05.mma instructions: the operand types of each, and the 32-bit instruction descriptor.

(PTX ISA, tcgen05: "Matrix Shape", "Instruction descriptor", "Block Scaling for tcgen05.mma.sync".)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.layout.base import Unreadable
from weft.layout.tensor_cores.shared_operands import PAD_BIT, SharedSide
from weft.layout.tensor_memory.layouts import LANES, TensorMemoryLayout
from weft.layout.tensor_memory.load_store import TensorSide

Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
Format = Literal["e2m1", "e4m3", "e5m2"]
"""Formats of scaled operands."""


@dataclass(frozen=True, slots=True)
class Multiplication:
    """One kind: the field of the instruction descriptor for each operand type, and the types of accumulators.

    Types are codes of IR types; scaled operands have formats. Elements of tiles have `bits` bits; those of e2m1 are packed two
    in a byte. An instruction reads `k` of them, and `scales` scales of each row."""

    operands: dict[str, int]
    accumulators: tuple[str, ...]
    bits: int
    k: int
    scales: int = 0


KINDS: dict[Kind, Multiplication] = {
    "f16": Multiplication({"f16": 0, "bf16": 1}, ("f32", "f16"), 16, 16),
    "tf32": Multiplication({"f32": 2}, ("f32",), 32, 8),
    "f8f6f4": Multiplication({"f8e4m3": 0, "f8e5m2": 1}, ("f32", "f16"), 8, 32),
    "i8": Multiplication({"u8": 0, "i8": 1}, ("i32",), 8, 32),
    "mxf8f6f4": Multiplication({"e4m3": 0, "e5m2": 1, "e2m1": 5}, ("f32",), 8, 32, scales=1),
    "mxf4": Multiplication({"e2m1": 1}, ("f32",), 8, 64, scales=2),
    "mxf4nvf4": Multiplication({"e2m1": 1}, ("f32",), 8, 64, scales=4),
}
ACCUMULATORS = {"f16": 0, "f32": 1, "i32": 2}
E4M3, E8M0 = "f8e4m3", "u8"
SCALES = {E4M3: 0, E8M0: 1}
"""Types of scales with their field of the instruction descriptor; powers of two (e8m0) are stored as bytes."""
RUNS = {E4M3: 16, E8M0: 32}
"""Elements along k that share a scale."""
MEMORY = {"e2m1": "u8", "e4m3": "f8e4m3", "e5m2": "f8e5m2"}
"""Elements of the memory that holds a format; bytes hold any."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The block scaling of an MMA: the formats of its operands, and their scales of type `dtype` (an IR code).

    Scales are [M, K / run] of a and [N, K / run] of b."""

    a: Format
    b: Format
    a_scale: TensorSide
    b_scale: TensorSide
    dtype: str


def instruction_descriptor(
    kind: Kind,
    a: str,
    b: str,
    acc: str,
    m: int,
    n: int,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scale: str = "",
    scale_ids: tuple[int, int] = (0, 0),
) -> int:
    """The 32-bit instruction descriptor.

    `a`, `b` and `acc` are types or formats as in `KINDS`; `m` counts the rows of both blocks of a pair; a transposed operand is
    contiguous along m or n. The scales of an instruction, of type `scale`, begin at bytes `scale_ids` of their columns.
    """
    operands = KINDS[kind].operands
    bits = operands[a] << 7 | operands[b] << 10 | transpose_a << 15 | transpose_b << 16 | n >> 3 << 17
    if not KINDS[kind].scales:
        return bits | ACCUMULATORS[acc] << 4 | m >> 4 << 24
    return bits | scale_ids[1] << 4 | SCALES[scale] << 23 | m >> 7 << 27 | scale_ids[0] << 29


def plain_kind(a: str, b: str, acc: str) -> Kind | Unreadable:
    """The kind that multiplies elements of these types, which are not scaled."""
    for kind, row in KINDS.items():
        if not row.scales and a in row.operands and b in row.operands and (a == b or row.bits == 8):
            allowed = row.accumulators[: 1 if a == "bf16" else None]
            if acc in allowed:
                return kind
            return Unreadable(
                f"{a} times {b} is not added up in {acc}", f"use an accumulator of {' or '.join(allowed)}"
            )
    known = "f16, bf16 and f32 by their like, 8-bit floats by 8-bit floats, 8-bit integers by 8-bit integers"
    return Unreadable(f"{a} is not multiplied by {b}", f"it multiplies {known}; convert one of them with .to(...)")


def scaled_kind(
    a: SharedSide | TensorSide, b: SharedSide, types: tuple[str, str, str], scaled: Scaled
) -> Kind | Unreadable:
    """The kind of a block-scaled MMA of elements of `types`, whose operands must be stored as the kind reads their formats."""
    kind = _format_kind(scaled, padded(a) or padded(b), types[2])
    if isinstance(kind, Unreadable):
        return kind
    for name, side, form, code in (("a", a, scaled.a, types[0]), ("b", b, scaled.b, types[1])):
        if code not in (MEMORY[form], MEMORY["e2m1"]):
            reason = f"{name} is said to be {form}, but its elements are {code}"
            return Unreadable(reason, f"pass memory of {MEMORY[form]}")
        wide = form == "e2m1" and kind == "mxf8f6f4"
        if padded(side) != wide:
            more = ", fp4_padded=True" if wide else ""
            reason = f"{name} is {form}, read {'padded' if wide else 'without padding'}, but lies in {side.layout}"
            fix = f"allocate it in NVMMASharedLayout.get_default_for({list(side.tile)}, dtype{more})"
            if isinstance(side, TensorSide):
                rows, columns = side.shape
                bytes_of = f"store [{rows}, {2 * columns}] bytes, an element in each, and " if wide else ""
                layout = f"TensorMemoryLayout({[min(rows, LANES), columns]}, col_stride=1{more})"
                fix = f"{bytes_of}reinterpret it as {list(side.shape)} in {layout}"
            return Unreadable(reason, fix)
    return kind


def _format_kind(scaled: Scaled, padding: bool, acc: str) -> Kind | Unreadable:
    """The kind that multiplies these formats; pairs of e2m1 without `padding` have kinds of their own."""
    if acc not in KINDS["mxf4"].accumulators:
        return Unreadable(f"scaled products are not added up in {acc}", "use an accumulator of f32")
    if scaled.dtype not in SCALES:
        return Unreadable(f"scales are not of type {scaled.dtype}", "use scales of uint8 (powers of two) or float8e4nv")
    if scaled.a == scaled.b == "e2m1" and not padding:
        return "mxf4nvf4" if scaled.dtype == E4M3 else "mxf4"
    if scaled.dtype != E8M0:
        said = f"{scaled.a} times {scaled.b}{' in padded memory' if padding else ''}"
        return Unreadable(
            f"{said} has no scales of {scaled.dtype}", "use scales of uint8 (powers of two), one for 32 elements"
        )
    return "mxf8f6f4"


def padded(side: SharedSide | TensorSide) -> bool:
    """Whether the memory of an operand of e2m1 is padded: 8 bytes in each 16 of shared memory, 4 bits in each byte of tensor
    memory."""
    if isinstance(side, TensorSide):
        return isinstance(side.layout, TensorMemoryLayout) and side.layout.fp4_padded
    offsets = side.layout.to_linear(side.tile).columns["offset"]
    return len(offsets) > PAD_BIT and offsets[PAD_BIT] == 0
