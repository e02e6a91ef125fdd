"""Pointers as arrays: `p[i]`, `p[i] = v`, and `p.unsafe_offset(i)`."""

from __future__ import annotations

from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.ir.types import Pointer
from weft.language import arith, memory
from weft.language.places import is_pointer
from weft.language.runtime_value import name_of
from weft.language.shape import shown_key
from weft.language.tensor import tensor

__all__ = ["is_pointer", "moved", "read", "write"]


def read(pointer: tensor, key: Any) -> tensor:
    """`p[i]`: the element at `p + i`; for a tile of integers, those elements. Raises language-pointer-index."""
    return memory.load(_address(pointer, key))


def write(pointer: tensor, key: Any, value: Any) -> None:
    """`p[i] = v`: store to the address `p + i`. Raises language-pointer-index."""
    memory.store(_address(pointer, key), value)


def moved(pointer: tensor, offset: Any) -> tensor:
    """`p.unsafe_offset(i)`: the address `p + i`. Raises language-pointer-needed for anything but a pointer."""
    if not isinstance(pointer.element, Pointer):
        raise fail(errors.POINTER_NEEDED, what="unsafe_offset", got=name_of(pointer), instead="call it on a pointer")
    return arith.add(pointer, offset)


def _address(pointer: tensor, key: Any) -> tensor:
    if isinstance(key, tensor):
        integral = not isinstance(key.element, Pointer) and key.element.is_int()
    else:
        integral = isinstance(key, int)
    if not integral:
        raise fail(errors.POINTER_INDEX, got=name_of(pointer), key=shown_key(key))
    return arith.add(pointer, key)
