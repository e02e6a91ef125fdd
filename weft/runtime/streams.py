"""CUDA streams as any library gives them, and the stream a launch goes to when nobody says.

A stream is a raw handle (an int) here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

from weft.errors import fail
from weft.errors.launch import STREAM
from weft.plain import whole

_HANDLE_NAMES = ("cuda_stream", "ptr", "handle")
"""How PyTorch, CuPy and cuda-core or Numba name the raw handle."""


def raw(stream: Any) -> int:
    """The handle of a stream: an int, or an object of PyTorch, CuPy, Numba, cuda-core or cuda-bindings.

    Raises LaunchError (launch-stream).
    """
    if type(stream) is int:
        return stream
    protocol: Any = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        _, handle = cast("tuple[int, int]", protocol() if callable(protocol) else protocol)
        return int(handle)
    for name in _HANDLE_NAMES:
        handle = getattr(stream, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle))
    if type(stream).__name__ == "CUstream":
        return int(stream)
    number = whole(stream)
    if number is not None:
        return number
    raise fail(STREAM, stream=stream)


def current_of_torch() -> Callable[[int], int] | None:
    """PyTorch's own look-up of its current stream on a device, when PyTorch with CUDA is loaded."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
