"""Names that Gluon has for kinds of values and of types, for annotations and `isinstance`. Each stands for classes of weft."""

from __future__ import annotations

import builtins

from weft.ir.types import DType, Pointer
from weft.language.dtypes import distributed_type
from weft.language.runtime_value import RuntimeValue
from weft.language.shared_memory import shared_memory_descriptor_type

tuple = builtins.tuple
"""Python's tuple, which kernels take, pass on, index and return."""

base_value = RuntimeValue | tuple
"""Any run-time value of a kernel, or a tuple of them."""

base_type = DType | Pointer | distributed_type | shared_memory_descriptor_type
"""The type of a run-time value: of an element, of a tile, or of a buffer."""
