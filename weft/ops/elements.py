"""Functions of the author, applied element by element."""

from __future__ import annotations

from weft.ir.core import Region, Value
from weft.ir.define import op
from weft.ir.types import Type, with_element
from weft.ops.check import require, same_form


@op("elements.map")
def map_elements(*values: Value, pack: int, body: Region) -> tuple[Type, ...]:
    """Apply a function of scalars to each element, or to the elements of `pack` consecutive registers at once.

    The region takes `pack` scalars per operand, operand by operand, and yields `pack` scalars per result."""
    same_form(*values)
    outputs = body.terminator.uses
    require(len(outputs) % pack == 0, "the function yields {} values, not a multiple of pack={}", len(outputs), pack)
    return tuple(with_element(values[0].type, v.type.element) for v in outputs[::pack])
