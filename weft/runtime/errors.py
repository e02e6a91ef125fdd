"""Exceptions of launches that programs catch by name, as an autotuner does."""

from __future__ import annotations

from weft.errors.base import DeviceError, LaunchError
from weft.errors.launch import OutOfResources

__all__ = ["DeviceError", "LaunchError", "OutOfResources"]
