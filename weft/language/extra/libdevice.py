"""Mathematical functions under CUDA libdevice's names, implemented with functions of the language."""

from __future__ import annotations

from weft.language.arith import maximum as fmax
from weft.language.arith import minimum as fmin
from weft.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tanh,
)

fast_expf = exp
fast_logf = log
fast_log2f = log2
fast_sinf = sin
fast_cosf = cos
fast_tanhf = tanh

__all__ = [
    "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fast_cosf", "fast_expf", "fast_log2f", "fast_logf", "fast_sinf",
    "fast_tanhf", "floor", "fma", "fmax", "fmin", "log", "log2", "rsqrt", "sin", "sqrt", "sqrt_rn", "tanh",
]  # fmt: skip
