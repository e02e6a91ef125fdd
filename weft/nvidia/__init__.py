"""Host-side objects for features of NVIDIA GPUs: one module per architecture, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.nvidia import blackwell, hopper

__all__ = ["blackwell", "hopper"]


def __getattr__(name: str) -> Any:
    from weft.loading import load_module

    if name in __all__:
        return load_module(f"weft.nvidia.{name}")
    raise AttributeError(f"module 'weft.nvidia' has no attribute {name!r}")
