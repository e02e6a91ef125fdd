"""The public names of element types, and the classes that describe the types of kernel values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.ir.types import (
    BY_NAME,
    DTYPES,
    DType,
    Element,
    Pointer,
    bfloat16,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    tile_type,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from weft.layout import DistributedLayout

dtype = DType
pointer_type = Pointer


@dataclass(frozen=True, eq=False)
class distributed_type:
    """The type of a tile: element type, shape and layout. Types are equal if their layouts place elements identically."""

    element_ty: Element
    shape: tuple[int, ...]
    layout: DistributedLayout

    def __init__(self, element_ty: Element, shape: Sequence[int], layout: DistributedLayout) -> None:
        object.__setattr__(self, "element_ty", element_ty)
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "layout", layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, distributed_type):
            return NotImplemented
        return _key(self) == _key(other)

    def __hash__(self) -> int:
        return hash(_key(self))

    @property
    def scalar(self) -> Element:
        """The element type."""
        return self.element_ty

    def is_block(self) -> bool:
        """True: a tile, not a scalar."""
        return True


def _key(type: distributed_type) -> object:
    linear = tile_type(type.element_ty, type.shape, type.layout).linear
    return type.element_ty, type.shape, linear if linear is not None else type.layout


__all__ = [
    "BY_NAME", "DTYPES", "DType", "Element", "Pointer", "bfloat16", "distributed_type", "dtype", "float8e4nv", "float8e5",
    "float16", "float32", "float64", "int1", "int8", "int16", "int32", "int64", "pointer_type", "uint8", "uint16", "uint32",
    "uint64",
]  # fmt: skip
