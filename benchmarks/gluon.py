"""Gluon under the names that examples import as `weft`, so that their text needs other import lines and nothing else."""

from __future__ import annotations

from triton import cdiv, next_power_of_2
from triton.experimental.gluon import constexpr_function, jit

__all__ = ["cdiv", "constexpr_function", "jit", "next_power_of_2"]
