"""Names that Gluon has for kinds of values and of types, for annotations and `isinstance`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from weft.ir.types import DType, Pointer
from weft.language.dtypes import distributed_type
from weft.language.marks import constexpr
from weft.language.runtime_value import AGGREGATE, RuntimeValue
from weft.language.shared_memory import shared_memory_descriptor_type

tuple = builtins.tuple
"""Python's tuple, which kernels take, pass on, index and return."""


@dataclass(frozen=True, init=False)
class tuple_type:
    """The type of a tuple, as `x.type` gives it in a kernel: the types of its elements, and of a named tuple its field names.

    The entry of a constant is `constexpr`, that of an aggregate its class."""

    types: builtins.tuple[Any, ...]
    fields: builtins.tuple[str, ...] | None

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None) -> None:
        object.__setattr__(self, "types", builtins.tuple(types))
        object.__setattr__(self, "fields", None if fields is None else builtins.tuple(fields))

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)


def type_of(value: Any) -> Any:
    """The type of a value of a kernel, which for a tuple is a `tuple_type`."""
    if isinstance(value, RuntimeValue):
        return cast("Any", value).type
    if isinstance(value, builtins.tuple):
        items = cast("builtins.tuple[Any, ...]", value)
        return tuple_type([type_of(item) for item in items], getattr(items, "_fields", None))
    cls: Any = value.__class__
    return cls if hasattr(cls, AGGREGATE) else constexpr


base_value = RuntimeValue | tuple
"""Any run-time value of a kernel, or a tuple of them."""

base_type = DType | Pointer | distributed_type | shared_memory_descriptor_type | tuple_type
"""The type of a run-time value: of an element, of a tile, or of a buffer; or of a tuple."""
