"""The least and the greatest finite number of an element type: `min_finite[gl.float32]()`, or `min_finite(gl.float32)`.

They are constants, on the host and in kernels: what a running minimum or maximum starts with.
"""

from __future__ import annotations

from weft.ir.types import DType
from weft.language.casts import check_dtype
from weft.views.brackets import Complete

FLOATS = {
    "f16": (2 - 2**-10) * 2.0**15,
    "bf16": (2 - 2**-7) * 2.0**127,
    "f32": (2 - 2**-23) * 2.0**127,
    "f64": (2 - 2**-52) * 2.0**1023,
    "f8e4m3": 448.0,
    "f8e5m2": 57344.0,
}
"""The greatest finite number of each floating-point type, by its code."""


def _greatest(_: None, dtype: DType) -> int | float:
    check_dtype(dtype)
    return FLOATS[dtype.code] if dtype.is_floating() else dtype.max_value


def _least(_: None, dtype: DType) -> int | float:
    check_dtype(dtype)
    return -FLOATS[dtype.code] if dtype.is_floating() else dtype.min_value


class Limit(Complete[int | float]):
    """`min_finite[dtype]()`, or `min_finite(dtype)`, and `max_finite` alike: a limit of a type. Raises language-dtype."""


min_finite = Limit(None, _least)
max_finite = Limit(None, _greatest)

__all__ = ["max_finite", "min_finite"]
