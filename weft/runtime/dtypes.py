"""Names of element types, as dtypes of any framework and type strings spell them.

Canonical names are NumPy's and ml_dtypes' (`float32`, `bfloat16`, `float8_e4m3fn`, `bool`). This module imports neither
until a NumPy dtype is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import fail
from weft.errors.launch import ARRAY_DTYPE

if TYPE_CHECKING:
    import numpy as np

ITEMSIZE: dict[str, int] = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""Element types of arguments, with their size in bytes."""

_ALIASES: dict[str, str] = {
    "int1": "bool", "i1": "bool", "bool_": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u1": "bool", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "fp8e4nv": "float8_e4m3fn", "float8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "float8e5": "float8_e5m2",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
}  # fmt: skip


_SHORT = {name: short for short, name in reversed(_ALIASES.items())} | {"bool": "i1"}


def canonical(text: str) -> str | None:
    """The canonical name of a spelling (`fp32`, `torch.float32`, `int1`), or None when it names no element type.

    >>> canonical("fp8e4nv"), canonical("torch.int8"), canonical("complex64")
    ('float8_e4m3fn', 'int8', None)
    """
    text = text.removeprefix("torch.")
    return text if text in ITEMSIZE else _ALIASES.get(text)


def short_name(name: str) -> str:
    """The short spelling of a canonical name, as signatures have it: `fp32`, `i64`, `i1`."""
    return _SHORT.get(name, name)


def dtype_name(dtype: object) -> str:
    """The canonical name of a dtype of NumPy, PyTorch, ml_dtypes or weft, or of its string.

    Raises LaunchError (launch-array-dtype) for complex, object, structured, byte-swapped and other unsupported types.
    """
    text = _text(dtype)
    name = canonical(text)
    if name is None or getattr(dtype, "byteorder", "=") == ">":
        raise fail(ARRAY_DTYPE, dtype=dtype, known=", ".join(ITEMSIZE))
    return name


def _text(dtype: object) -> str:
    for attribute in ("name", "__name__"):
        text = getattr(dtype, attribute, None)
        if isinstance(text, str):
            return text
    return str(dtype)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a canonical name; bfloat16 and fp8 come from ml_dtypes."""
    import ml_dtypes
    import numpy as np

    return np.dtype(getattr(ml_dtypes, name) if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else name)
