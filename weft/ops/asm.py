"""Inline PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.core import Attrs, Effect, Op, Value
from weft.ir.define import op, reads, writes
from weft.ir.types import DType, RegsType, ScalarType, SharedArrayType, SharedType, Type, tile_type, with_element
from weft.layout import DistributedLayout
from weft.ops.check import require, same_form

Simulated = Callable[..., Any] | None
Shapes = tuple[tuple[int, ...], ...]


@op("asm.elementwise")
def inline_asm(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], pack: int, sim: Simulated = None
) -> tuple[Type, ...]:
    """Run PTX text on each element (on `pack` consecutive elements of each operand at once); one result per entry of `dtypes`.

    Elements narrower than 32 bits are packed into 32-bit registers. Without values the results are scalars. `sim` is what the
    simulator calls instead."""
    return _results(values, dtypes, pack)


@op("asm.elementwise_volatile", effects=(Effect("write", "io"),))
def inline_asm_volatile(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], pack: int, sim: Simulated = None
) -> tuple[Type, ...]:
    """As `asm.elementwise`, for text with effects: it is neither dropped, merged nor moved."""
    return _results(values, dtypes, pack)


@op("asm.block", scope="thread")
def block(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], shapes: Shapes,
    layouts: tuple[DistributedLayout, ...] = (), sim: Simulated = None,
) -> tuple[Type, ...]:  # fmt: skip
    """Run PTX text once in each thread, on all registers of its operands, tiles of any shapes and layouts, or scalars.

    The results are tiles of `shapes` in `layouts`; lowered, without layouts, a shape is a number of registers. Elements
    narrower than 32 bits are packed into 32-bit registers. `sim` is what the simulator calls instead."""
    return _tiles(dtypes, shapes, layouts)


@op("asm.block_volatile", effects=(Effect("write", "io"),), scope="thread")
def block_volatile(
    *values: Value, asm: str, constraints: str, dtypes: tuple[DType, ...], shapes: Shapes,
    layouts: tuple[DistributedLayout, ...] = (), sim: Simulated = None,
) -> tuple[Type, ...]:  # fmt: skip
    """As `asm.block`, for text with effects: it is neither dropped, merged nor moved."""
    return _tiles(dtypes, shapes, layouts)


def _memory(attrs: Attrs) -> tuple[Effect, ...]:
    """All threads read and write the buffers."""
    buffers = ("first", "second", "third")[: len(attrs["places"])]
    return (*(reads(b, "shared") for b in buffers), *(writes(b, "shared") for b in buffers), Effect("write", "io"))


@op("asm.block_memory", effects=_memory, scope="thread", needs="block")
def block_memory(
    first: Value, second: Value | None, third: Value | None, *values: Value, asm: str, constraints: str,
    dtypes: tuple[DType, ...], shapes: Shapes, places: tuple[int, ...], layouts: tuple[DistributedLayout, ...] = (),
    sim: Simulated = None,
) -> tuple[Type, ...]:  # fmt: skip
    """As `asm.block_volatile`, for text that accesses buffers: their addresses in shared memory are operands, too.

    `places` has the number of each buffer among all operands of the text."""
    for buffer in (first, second, third):
        require(buffer is None or isinstance(buffer.type, (SharedType, SharedArrayType)), "a buffer is needed")
    return _tiles(dtypes, shapes, layouts)


def in_order(op: Op) -> list[Value]:
    """The operands of a text in the order of its registers."""
    places = op.attrs.get("places", ())
    ordered = list(op.uses[len(places) :])
    for place, buffer in zip(places, op.uses, strict=False):
        ordered.insert(place, buffer)
    return ordered


def _tiles(dtypes: tuple[DType, ...], shapes: Shapes, layouts: tuple[DistributedLayout, ...]) -> tuple[Type, ...]:
    if layouts:
        return tuple(map(tile_type, dtypes, shapes, layouts))
    require(all(len(shape) == 1 for shape in shapes), "a number of registers, not {}", shapes)
    return tuple([RegsType(dtype, count) for dtype, (count,) in zip(dtypes, shapes, strict=True)])


def _results(values: tuple[Value, ...], dtypes: tuple[DType, ...], pack: int) -> tuple[Type, ...]:
    if not values:
        require(pack == 1, "there are no elements to pack")
        return tuple(map(ScalarType, dtypes))
    same_form(*values)
    require(pack >= 1, "pack counts elements")
    return tuple(with_element(values[0].type, dtype) for dtype in dtypes)
