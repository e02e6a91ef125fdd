"""From the Python source of a kernel to tile IR.

The source is interpreted, never executed as Python: constants are folded with Python's semantics, operations on run-time values
call the functions of `weft.language`, helpers are inlined, and control flow on run-time values becomes structured operations.
"""

from weft.lang.frame import Read
from weft.lang.reader import (
    Built,
    ConstexprParam,
    DescriptorParam,
    Param,
    RuntimeParam,
    TupleParam,
    ViewParam,
    build_kernel,
)
from weft.lang.source import Source, source_of

__all__ = [
    "Built", "ConstexprParam", "DescriptorParam", "Param", "Read", "RuntimeParam", "Source", "TupleParam", "ViewParam",
    "build_kernel", "source_of",
]  # fmt: skip
