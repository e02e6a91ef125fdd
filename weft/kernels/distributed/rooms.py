"""Rooms: symmetric memory that the operations keep for a use, the same at each call with the same shape.

A room is made at the first call, on all ranks together, and kept for the life of the process, as PyTorch's symmetric memory
itself is; in `weft.distributed.simulate` and `on_one_gpu` for the life of the world.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.distributed import Symmetric, empty
from weft.distributed.current import current
from weft.kernels.distributed.operands import meeting
from weft.kernels.memory import fill_zero
from weft.runtime.dtypes import numpy_dtype

_rooms: dict[Any, Symmetric] = {}


def room_for(use: str, shape: tuple[int, ...], dtype: Any, like: Any, group: str) -> Symmetric:
    """The room of a use, of a dtype of PyTorch, for tensors of PyTorch on the device of `like`; "" is the group of all
    ranks."""
    member = current.innermost(None)
    rooms: dict[Any, Symmetric] = _rooms if member is None else member.rooms
    key = use, shape, dtype, group, like.device
    if key not in rooms:
        rooms[key] = Symmetric(_allocated(shape, dtype, like), group or None)
    return rooms[key]


def room_of(x: Symmetric, use: str, shape: tuple[int, ...], dtype: str, zeroed: bool = False) -> Symmetric:
    """The room of a use in the group of a symmetric tensor, of an element type by name, where that tensor is. With `zeroed` it
    is zero at first, on all ranks before any uses it."""
    member, on_gpu = current.innermost(None), bool(getattr(x.tensor, "is_cuda", False))
    rooms: dict[Any, Symmetric] = _rooms if member is None else member.rooms
    key = use, shape, dtype, getattr(x.group, "name", ""), x.tensor.device if on_gpu else None
    if key not in rooms:
        own = getattr(import_module("torch"), dtype) if on_gpu else numpy_dtype(dtype)
        made = Symmetric(
            _allocated(shape, own, x.tensor) if on_gpu else empty(shape, own), getattr(x.group, "name", None)
        )
        if zeroed:
            fill_zero(made.tensor)
            meeting(made).on(None)
        rooms[key] = made
    return rooms[key]


def _allocated(shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
    torch: Any = import_module("torch")
    if current.innermost(None) is None:
        return import_module("torch.distributed._symmetric_memory").empty(shape, dtype=dtype, device=like.device)
    if like.is_cuda:
        return empty(shape, dtype)
    array = empty(shape, f"int{8 * dtype.itemsize}")
    return torch.from_numpy(array).view(dtype)
