"""What an operation may do to memory, whatever its attributes are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args, get_origin, get_type_hints

from weft.ir.core import Effect, OpDef
from weft.ir.types import DType, int32

SAMPLES: dict[object, tuple[object, ...]] = {bool: (False, True), int: (0, 1, 4), str: ("abs",), DType: (int32,)}
"""Of attributes of these types; of others the empty tuple."""


def possible(op: OpDef) -> list[Effect]:
    """The effects that an operation has with some attributes, each once."""
    if not callable(op.effects):
        return list(op.effects)
    return list(dict.fromkeys(effect for attrs in attributes(op) for effect in op.effects(attrs)))


def attributes(op: OpDef) -> Iterator[dict[str, object]]:
    """Attributes of an operation: both bools, every literal, samples of others."""
    hints = get_type_hints(op.rule)
    yield from (
        dict(zip(op.attributes, chosen, strict=True))
        for chosen in product(*[_values(hints[name]) for name in op.attributes])
    )


def _values(hint: object) -> tuple[object, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return SAMPLES.get(hint, ((),)) if isinstance(hint, type) else ((),)
