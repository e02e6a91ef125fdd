"""CUDA streams of any library as raw handles (ints), and the default stream of a launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

from weft.errors import fail
from weft.errors.launch import STREAM
from weft.plain import whole

_HANDLE_NAMES = ("cuda_stream", "ptr", "handle")
"""Attributes with the raw handle: in PyTorch, CuPy, and cuda-core or Numba."""


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
    """PyTorch's function that returns its current stream on a device, if PyTorch with CUDA is loaded."""
    torch = sys.modules.get("torch")
    return getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
