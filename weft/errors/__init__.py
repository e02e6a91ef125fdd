"""Locations, the catalogue of user errors, and caret rendering. Of weft it imports `weft.loading` only."""

from weft.errors.base import (
    CATALOGUE,
    CompilationError,
    DeviceError,
    ErrorGroup,
    Hazard,
    LaunchError,
    LayoutError,
    PerformanceWarning,
    Row,
    UserError,
    WeftError,
    fail,
    row,
)
from weft.errors.hazard import Deadlock
from weft.errors.location import Loc, render

__all__ = [
    "CATALOGUE",
    "CompilationError",
    "Deadlock",
    "DeviceError",
    "ErrorGroup",
    "Hazard",
    "LaunchError",
    "LayoutError",
    "Loc",
    "PerformanceWarning",
    "Row",
    "UserError",
    "WeftError",
    "fail",
    "render",
    "row",
]
