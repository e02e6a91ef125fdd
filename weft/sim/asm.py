"""Inline PTX: the author's `sim=` function, or the meanings of common instructions in `weft.sim.ptx`.

Operands are numbered as PTX text sees them: results first, then operands, each as so many 32-bit registers as its packed
elements need (one register of its own width where they need less).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op
from weft.ir.types import DType
from weft.ops import asm
from weft.sim import ptx
from weft.sim.access import from_bits
from weft.sim.data import Array, Data, undefined_in
from weft.sim.machine import Run, Task
from weft.sim.numbers import bits_dtype, bits_of, numpy_dtype
from weft.sim.reduce import packed
from weft.sim.rules import rule


@rule(asm.inline_asm, asm.inline_asm_volatile)
def _inline_asm(task: Task, op: Op, *values: Data) -> Run:
    if op.attrs["sim"] is not None:
        return _by_function(op, values)
    if op.attrs["pack"] > 1:
        return (yield from packed(task, op, values, op.attrs["pack"], lambda parts: _by_text(task, op, parts)))
    return (yield from _by_text(task, op, values))


def _by_function(op: Op, values: Sequence[Data]) -> tuple[Data, ...]:
    """The author's function on whole arrays; it returns one array, or a sequence of them."""
    dtypes: tuple[DType, ...] = op.attrs["dtypes"]
    found: Any = op.attrs["sim"](*[data.array for data in values])
    arrays: Sequence[Array] = [found] if len(dtypes) == 1 and hasattr(found, "dtype") else found
    undefined, shape = undefined_in(values), np.shape(values[0].array)
    pairs = zip(arrays, dtypes, strict=True)
    return tuple(Data(np.broadcast_to(np.asarray(a, numpy_dtype(d)), shape)[()], undefined) for a, d in pairs)


def _by_text(task: Task, op: Op, parts: Sequence[Data]) -> Run:
    """Run the text on the bits of `pack` elements per operand; gives `pack` values per result."""
    yield from ()
    pack, dtypes = op.attrs["pack"], op.attrs["dtypes"]
    inputs = [parts[i : i + pack] for i in range(0, len(parts), pack)]
    results = [_registers(dtype, pack) for dtype in dtypes]
    registers = [bits for group in inputs for bits in _pack([_bits(data.array) for data in group])]
    try:
        outputs = ptx.run(op.attrs["asm"], [width for widths in results for width in widths], registers)
    except ptx.UnknownInstruction as error:
        raise task.fail(hazard.INLINE_ASM, op, instruction=error.text) from None
    undefined, shape = undefined_in(parts), np.shape(parts[0].array)
    elements: list[Array] = []
    for dtype, widths in zip(dtypes, results, strict=True):
        elements += _unpack([outputs.pop(0) for _ in widths], dtype, pack)
    return tuple(Data(np.broadcast_to(array, shape), undefined) for array in elements)


def _bits(array: Array) -> Array:
    return bits_of(array.astype(np.uint8) if array.dtype == np.bool_ else array)


def _registers(dtype: DType, pack: int) -> list[int]:
    """Bits of each register that holds `pack` elements."""
    total = dtype.itemsize * 8 * pack
    return [total] if total <= 32 else [max(dtype.itemsize * 8, 32)] * (total // max(dtype.itemsize * 8, 32))


def _pack(elements: list[Array]) -> list[Array]:
    """Elements narrower than 32 bits side by side, the first lowest."""
    size = elements[0].dtype.itemsize
    group = min(4 // size, len(elements)) if size < 4 else 1
    if group <= 1:
        return elements
    wide = bits_dtype(size * group)
    out: list[Array] = []
    for start in range(0, len(elements), group):
        register = np.zeros_like(elements[0], wide)
        for number, element in enumerate(elements[start : start + group]):
            register = register | element.astype(wide) << wide.type(number * size * 8)
        out.append(register)
    return out


def _unpack(registers: list[Array], dtype: DType, pack: int) -> list[Array]:
    size = dtype.itemsize
    narrow = bits_dtype(size)
    per_register = max(pack // len(registers), 1)
    return [
        from_bits((r >> r.dtype.type(k * size * 8)).astype(narrow), dtype)
        for r in registers
        for k in range(per_register)
    ]
