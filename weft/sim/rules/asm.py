"""Inline PTX: runs the author's `sim=` function, or interprets the instructions that `weft.sim.numbers.ptx` models.

Operands are numbered as in the PTX text: results first, then operands. Each takes as many 32-bit registers as its packed
elements fill, or one narrower register if they fill less than 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, RegsType, SharedArrayType, SharedType, TileType
from weft.layout import LinearLayout
from weft.layout.linear.ends import count
from weft.layout.shared.sizes import tile_bytes
from weft.ops import asm
from weft.sim.machine.data import Array, Data, Mark, arange, moved, stacked, undefined_in, union
from weft.sim.machine.hardware import linear_of, to_threads, to_tile
from weft.sim.machine.tasks import DIVIDED, Task
from weft.sim.machine.wait import Run
from weft.sim.memory import places
from weft.sim.memory.global_access import from_bits
from weft.sim.memory.places import Place
from weft.sim.memory.spaces import Handle
from weft.sim.memory.verdicts import MANY
from weft.sim.numbers import ptx
from weft.sim.numbers.arithmetic import bits_dtype, bits_of, numpy_dtype
from weft.sim.rule import rule
from weft.sim.rules.elements import packed
from weft.sim.rules.regs import per_thread

WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64}
"""Register width in bits by constraint letter."""


@rule(asm.inline_asm, asm.inline_asm_volatile)
def _inline_asm(task: Task, op: Op, *values: Data) -> Run:
    if op.attrs["sim"] is not None:
        return _by_function(op, values)
    pack = op.attrs["pack"]
    if pack > 1:
        return (yield from packed(task, op, values, pack, lambda parts: _in_packs(task, op, parts, pack)))
    return (yield from _in_packs(task, op, values, 1))


def _by_function(op: Op, values: Sequence[Data]) -> tuple[Data, ...]:
    """Call the author's function on whole arrays."""
    undefined, shape = undefined_in(values), np.shape(values[0].array) if values else ()
    found = _called(op, [data.array for data in values], [shape] * len(op.results))
    return tuple([Data(array[()], undefined) for array in found])


def _called(op: Op, values: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Call the author's function. It returns one array, or a sequence of arrays, each of which broadcasts to its shape."""
    dtypes: tuple[DType, ...] = op.attrs["dtypes"]
    found: Any = op.attrs["sim"](*values)
    arrays: Sequence[Array] = () if not dtypes else [found] if len(dtypes) == 1 and hasattr(found, "dtype") else found
    return [np.broadcast_to(np.asarray(a, numpy_dtype(d)), s) for a, d, s in zip(arrays, dtypes, shapes, strict=True)]


@rule(asm.block, asm.block_volatile, asm.block_memory)
def _block(task: Task, op: Op, *operands: Any) -> Data | tuple[Data, ...]:
    """Operands and results by thread and register, in both stages; scalars as they are. The author's function gets a buffer as
    an array of its elements in the order of memory, to which it may write."""
    known = dict(zip(op.uses, (operand for operand in operands if operand is not None), strict=True))
    arrays: list[Array] = []
    groups: list[list[Data]] = []
    memories: list[tuple[Handle, Place, DType, Array]] = []
    for value in asm.in_order(op):
        if isinstance(value.type, (SharedType, SharedArrayType)):
            memories.append(_memory(task, value.type, known[value]))
            arrays.append(memories[-1][-1])
            continue
        layout, n, _ = _form(value)
        data = known[value]
        if n is not None:
            data = to_threads(data, layout, task.rank) if layout else per_thread(task, data, n)
        arrays.append(data.array)
        groups.append([data] if n is None else [moved(data, lambda a, j=j: a[..., j]) for j in range(n)])
    outputs = [_form(value) for value in op.results]
    counts = [n or 1 for _, n, _ in outputs]
    if op.attrs["sim"] is not None:
        undefined = undefined_in([data for group in groups for data in group])
        found = zip(_called(op, arrays, [(task.threads, n) for n in counts]), counts, strict=True)
        flat = [Data(array[:, j], undefined) for array, n in found for j in range(n)]
    elif memories:
        raise task.fail(hazard.INLINE_ASM, op, instruction=op.attrs["asm"], reason="text with buffers")
    else:
        flat = _by_text(task, op, groups, list(zip(op.attrs["dtypes"], counts, strict=True)), (task.threads,))
    for handle, place, element, contents in memories:
        places.write(task, op, handle, place, element, place.elements, Data(contents))
    made = [stacked([flat.pop(0) for _ in range(n)], lambda arrays: np.stack(arrays, axis=-1)) for n in counts]
    pairs = zip(made, outputs, strict=True)
    results = [to_tile(data, layout, shape, task.rank) if layout else data for data, (layout, _, shape) in pairs]
    return results[0] if len(results) == 1 else tuple(results)


def _memory(task: Task, type: SharedType | SharedArrayType, handle: Handle) -> tuple[Handle, Place, DType, Array]:
    """Where a buffer's elements lie, and a copy of them, in the order of memory. Any thread may access any of them."""
    element = type.element
    if isinstance(type, SharedArrayType):
        n = type.count
    else:
        n = tile_bytes(type.layout, type.alloc_shape, element.bits) // element.itemsize
    place = places.some_place(task, handle, element, arange(n), arange(n), MANY)
    return handle, place, element, places.fetch(task, handle, place, element).copy()


def _form(value: Value) -> tuple[LinearLayout | None, int | None, tuple[int, ...]]:
    """The layout of a tile, the number of registers of a tile or register array, and the shape of a tile."""
    if isinstance(value.type, TileType):
        layout = linear_of(value.type)
        return layout, count(layout), value.type.shape
    return None, value.type.count if isinstance(value.type, RegsType) else None, ()


def _in_packs(task: Task, op: Op, parts: Sequence[Data], pack: int) -> Run:
    """Run the text on `pack` elements per operand; returns `pack` values per result."""
    yield from ()
    groups = [parts[i : i + pack] for i in range(0, len(parts), pack)]
    shape = np.shape(parts[0].array) if parts else ()
    return tuple(_by_text(task, op, groups, [(dtype, pack) for dtype in op.attrs["dtypes"]], shape))


def _by_text(
    task: Task, op: Op, groups: Sequence[Sequence[Data]], wanted: Sequence[tuple[DType, int]], shape: tuple[int, ...]
) -> list[Data]:
    """Run the text on the bits of a group of elements per operand. Returns the `wanted` number of elements of each result,
    in arrays of a shape."""
    counts = [-(-dtype.itemsize * n // max(dtype.itemsize, 4)) for dtype, n in wanted]
    packed = [bits for group in groups for bits in _pack([_bits(data.array) for data in group])]
    try:
        outputs, given = _constraints(op.attrs["constraints"], sum(counts), len(packed))
        tied = [int(c) if c.isdigit() else None for c in given]
        letters = [c if place is None else outputs[place] for c, place in zip(given, tied, strict=True)]
        registers = [_widened(bits, WIDTHS[letter]) for bits, letter in zip(packed, letters, strict=True)]
        found = ptx.run(_with_places(task, op.attrs["asm"]), [WIDTHS[letter] for letter in outputs], registers, tied)
    except ptx.UnknownInstruction as error:
        raise task.fail(hazard.INLINE_ASM, op, instruction=error.text, reason=error.reason) from None
    undefined = undefined_in([data for group in groups for data in group])
    results: list[Data] = []
    for (dtype, n), registers in zip(wanted, counts, strict=True):
        elements: list[Data] = []
        for value in (found.pop(0) for _ in range(registers)):
            mark = union(undefined, None if value.unspecified is None else Mark(value.unspecified, DIVIDED, op.loc))
            each = _unpack(value.bits, dtype, min(n, max(4 // dtype.itemsize, 1)))
            elements += [Data(np.broadcast_to(element, shape), mark) for element in each]
        results += elements[:n]
    return results


def _with_places(task: Task, text: str) -> str:
    """The text with the special registers that are the same in all threads of a block as numbers."""
    if "%" not in text:
        return text
    machine, blocks = task.machine, task.machine.blocks
    values = {"cluster_ctarank": task.rank, "cluster_nctarank": blocks}
    for axis, program, programs in zip("xyz", task.pid, machine.grid, strict=True):
        along = blocks if axis == "x" else 1
        values |= {f"clusterid.{axis}": program, f"nclusterid.{axis}": programs}
        values |= {f"ctaid.{axis}": program * along + task.rank * (along > 1), f"nctaid.{axis}": programs * along}
    return _SPECIAL.sub(lambda found: str(values.get(found[1], found[0])), text)


_SPECIAL = re.compile(r"%([a-z_]+(?:\.[xyz])?)")


def _constraints(constraints: str, results: int, operands: int) -> tuple[list[str], list[str]]:
    """The constraint letters of the results, and of the operands (or the number of the result that an operand is tied to)."""
    given = [c.strip().lstrip("=&") for c in constraints.split(",") if c.strip() and not c.strip().startswith("~")]
    known = [c in WIDTHS or (c.isdigit() and n >= results > int(c)) for n, c in enumerate(given)]
    if len(given) != results + operands or not all(known):
        raise ptx.UnknownInstruction(constraints, "constraints of this form")
    return given[:results], given[results:]


def _widened(bits: Array, width: int) -> Array:
    return bits if bits.dtype.itemsize * 8 >= width else bits.astype(bits_dtype(width // 8))


def _bits(array: Array) -> Array:
    return bits_of(array.astype(np.uint8) if array.dtype == np.bool_ else array)


def _pack(elements: list[Array]) -> list[Array]:
    """Pack elements narrower than 32 bits into registers, the first in the lowest bits."""
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


def _unpack(register: Array, dtype: DType, count: int) -> list[Array]:
    """The elements packed in one register."""
    narrow, size = bits_dtype(dtype.itemsize), dtype.itemsize * 8
    return [from_bits((register >> register.dtype.type(k * size)).astype(narrow), dtype) for k in range(count)]
