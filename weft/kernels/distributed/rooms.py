"""Rooms: symmetric memory that the operations keep for a use, the same at each call with the same shape.

A room is made at the first call, on all ranks together, and kept for the life of the process, as PyTorch's symmetric memory
itself is; in `weft.distributed.simulate` and `on_one_gpu` for the life of the world.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from weft.distributed import Symmetric, empty, of_torch
from weft.distributed.current import current
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.distributed.operands import group_name, meeting
from weft.kernels.memory import fill_zero
from weft.runtime.dtypes import numpy_dtype

_rooms: dict[Any, Symmetric] = {}


def room_for(use: str, shape: tuple[int, ...], dtype: Any, like: Any, group: str) -> Symmetric:
    """The room of a use, of a dtype of PyTorch, for tensors of PyTorch on the device of `like`; "" is the group of all
    ranks."""
    rooms, key = _table(), (use, shape, dtype, group, like.device)
    if key not in rooms:
        rooms[key] = Symmetric(_allocated(shape, dtype, like, group), group or None)
    return rooms[key]


def room_of(x: Symmetric, use: str, shape: tuple[int, ...], dtype: str, zeroed: bool = False) -> Symmetric:
    """The room of a use in the group of a symmetric tensor, of an element type by name, where that tensor is. With `zeroed` it
    is zero at first, on all ranks before any uses it. Raises LaunchError (kernels-ranks-capture)."""
    rooms, key = _kept(x, use, shape, dtype)
    if key not in rooms:
        if capturing(x):
            raise fail(errors.RANKS_CAPTURE, what=f"a sum or product that needs the room {use!r}")
        group = group_name(x)
        if _on_gpu(x):
            memory = _allocated(shape, getattr(import_module("torch"), dtype), x.tensor, group)
        else:
            memory = empty(shape, numpy_dtype(dtype))
        made = Symmetric(memory, group or None)
        if zeroed:
            fill_zero(made.tensor)
            meeting(made).on(None)
            if _on_gpu(x):
                # Launches of this call may go to another stream.
                import_module("torch").cuda.current_stream(x.tensor.device).synchronize()
        rooms[key] = made
    return rooms[key]


def has_room(x: Symmetric, use: str, shape: tuple[int, ...], dtype: str) -> bool:
    """Whether `room_of` has made this room."""
    rooms, key = _kept(x, use, shape, dtype)
    return key in rooms


def capturing(x: Symmetric) -> bool:
    """Whether PyTorch captures a graph, in which no rooms are made."""
    return _on_gpu(x) and bool(import_module("torch").cuda.is_current_stream_capturing())


def _kept(x: Symmetric, *room: Any) -> tuple[dict[Any, Symmetric], Any]:
    return _table(), (*room, group_name(x), x.tensor.device if _on_gpu(x) else None)


def _table() -> dict[Any, Symmetric]:
    """The rooms of this process, or of the world that runs."""
    member = current.innermost(None)
    return _rooms if member is None else member.rooms


def _on_gpu(x: Symmetric) -> bool:
    return bool(getattr(x.tensor, "is_cuda", False))


def _allocated(shape: tuple[int, ...], dtype: Any, like: Any, group: str) -> Any:
    if current.innermost(None) is None:
        world = import_module("torch.distributed").group.WORLD
        return of_torch.allocated(group or world.group_name, like.device, shape, dtype)[0]
    if like.is_cuda:
        return empty(shape, dtype)
    return import_module("torch").from_numpy(empty(shape, f"int{8 * dtype.itemsize}")).view(dtype)
