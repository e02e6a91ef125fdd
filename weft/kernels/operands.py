"""What arrays matmul is given, and which path each takes to shared memory.

The paths are data, `PATHS`: the first row whose conditions an operand meets is its path. Operands are seen as [rows, K], that
is, rows of a or columns of b, so that `a.T` and `b.T` are nothing special.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.config import EITHER_WAY
from weft.kernels.plan import Form, OutputForm, Path
from weft.runtime.arguments import HOST, array, extents
from weft.runtime.dtypes import ITEMSIZE

GRANULE = 16
"""TMA steps and starts at multiples of so many bytes."""
SECTOR = 32
"""TMA reads rows that begin between multiples of so many bytes at half its speed."""
COPY_BYTES = (4, 16)
"""The least and the most that one cp.async copies."""
OUTPUT_BYTES = 8
"""What a thread stores at a time at most."""
MOST_STRIDE_BYTES = 1 << 40
DESCRIBED_EXTENT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table of paths: operands of `bits` bits whose elements follow one another along `contiguous` ("k", "rows" or
    "any") and whose address, rows' distance and (for copies) length are multiples of `granule` bytes take `path`."""

    bits: tuple[int, ...]
    contiguous: str
    granule: int
    path: Path
    how: str


PATHS: tuple[Rule, ...] = (
    Rule((8, 16, 32), "k", GRANULE, "descriptor", "TMA"),
    Rule((16,), "rows", GRANULE, "descriptor", "TMA; tensor cores read the block transposed"),
    Rule((8, 16, 32), "k", COPY_BYTES[0], "copies", "cp.async by four producer warps"),
    Rule((16,), "rows", COPY_BYTES[0], "copies", "cp.async by four producer warps; read transposed"),
    Rule((8, 32), "rows", 1, "loads", "four producer warps load it and turn it over on its way to shared memory"),
    Rule((8, 16, 32), "any", 1, "loads", "four producer warps load and store it element by element"),
)
"""Which path an operand takes: the first row that it meets."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: canonical dtype name, shape, strides in elements, address, device (an ordinal or `HOST`)."""

    dtype: str
    shape: tuple[int, int]
    strides: tuple[int, int]
    pointer: int
    device: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE[self.dtype]

    @property
    def turned(self) -> Matrix:
        """The transpose."""
        (rows, columns), (down, right) = self.shape, self.strides
        return Matrix(self.dtype, (columns, rows), (right, down), self.pointer, self.device)

    @property
    def empty(self) -> bool:
        """It has no elements."""
        return 0 in self.shape

    def span(self) -> tuple[int, int]:
        """Bytes from the address to the first byte of the matrix and to the one after its last."""
        steps = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        low, high = (sum(pick(step, 0) for step in steps) for pick in (min, max))
        return low * self.itemsize, 0 if self.empty else (high + 1) * self.itemsize

    @property
    def place(self) -> str:
        """Where it lies, in words."""
        return "the host" if self.device == HOST else f"GPU {self.device}"


def matrix(name: str, value: Any) -> Matrix:
    """An array as a matrix. Raises LaunchError (kernels-array)."""
    found = array(value)
    measured = None if found is None else extents(value)
    if found is None or measured is None:
        raise fail(errors.ARRAY, name=name, got=f"a {type(value).__name__}")
    shape, strides = measured
    whole = all(isinstance(stride, int) for stride in strides)
    if len(shape) != 2 or not whole:
        steps = "" if whole else f" whose strides {list(strides)} are no whole elements"
        raise fail(errors.ARRAY, name=name, got=f"an array of shape {list(shape)}{steps}")
    rows, columns = (int(extent) for extent in shape)
    down, right = (int(stride) for stride in strides)
    return Matrix(found.dtype, (rows, columns), (down, right), found.pointer, found.device)


def form_of(operand: Matrix, either_way: tuple[int, ...] = EITHER_WAY) -> Form:
    """How an operand, seen as [rows, K], lies in memory: the first of `PATHS` that takes it.

    `either_way`: bytes of elements that tensor cores read along either dimension."""
    contiguous = contiguous_along(operand)
    if not why_undescribed(operand, either_way):
        return Form(operand.dtype, "descriptor", contiguous, GRANULE)
    unit = granule_of(operand, contiguous)
    bits = 8 * operand.itemsize
    for rule in PATHS:
        if bits not in rule.bits or rule.contiguous not in (contiguous, "any"):
            continue
        if rule.path != "descriptor" and unit >= rule.granule:
            unit = min(unit, COPY_BYTES[-1]) if rule.path == "copies" else min(unit, COPY_BYTES[0])
            return Form(operand.dtype, rule.path, contiguous, max(unit, operand.itemsize))
    raise AssertionError("the last path takes everything")


def contiguous_along(operand: Matrix) -> str:
    """The dimension of [rows, K] whose elements follow one another: "k", "rows", or "" for none.

    Of one element nothing can be said, so that it may be either; K comes first."""
    (rows, depth), (row_stride, k_stride) = operand.shape, operand.strides
    if k_stride == 1 or depth == 1:
        return "k"
    return "rows" if row_stride == 1 or rows == 1 else ""


def granule_of(operand: Matrix, contiguous: str) -> int:
    """What divides the address, the distance of rows and their length, in bytes."""
    across, along = (0, 1) if contiguous == "k" else (1, 0)
    stride = operand.strides[across] if operand.shape[across] > 1 else 0
    if not contiguous or operand.strides[along] != 1:
        return operand.itemsize
    return gcd(operand.pointer, abs(stride) * operand.itemsize, operand.shape[along] * operand.itemsize, GRANULE)


def why_undescribed(operand: Matrix, either_way: tuple[int, ...] = EITHER_WAY) -> str:
    """Why TMA cannot read the blocks of an operand, seen as [rows, K]; empty where it can."""
    contiguous = contiguous_along(operand)
    if not contiguous:
        return "its elements do not follow one another along any dimension"
    if contiguous == "rows" and operand.itemsize not in either_way:
        return f"{operand.dtype} has to be contiguous along K, the dimension that is summed"
    across = 0 if contiguous == "k" else 1
    nbytes = operand.strides[across] * operand.itemsize
    if operand.shape[across] > 1 and (nbytes % GRANULE or not 0 < nbytes < MOST_STRIDE_BYTES):
        return f"its rows are {nbytes} bytes apart, which is no positive multiple of {GRANULE} bytes"
    if operand.pointer % GRANULE:
        return f"it starts {operand.pointer % GRANULE} bytes after a multiple of {GRANULE} bytes"
    return "" if max(operand.shape) <= DESCRIBED_EXTENT else f"it is longer than {DESCRIBED_EXTENT}"


def read_slowly(operand: Matrix) -> bool:
    """Whether TMA, where it can read an operand seen as [rows, K], takes longer than for others."""
    across = 0 if contiguous_along(operand) == "k" else 1
    stride = operand.strides[across] * operand.itemsize if operand.shape[across] > 1 else 0
    return bool(stride % SECTOR or operand.pointer % SECTOR)


def output_form(out: Matrix) -> OutputForm:
    """How the output lies in memory.

    TMA writes in chunks of 16 bytes, so that for it the length of rows has to be a multiple of them too."""
    columns_first = abs(out.strides[0]) < abs(out.strides[1]) and out.shape[0] > 1
    # As an operand it would be contiguous along K.
    lies = out.turned if columns_first else out
    whole = lies.shape[1] * lies.itemsize % GRANULE == 0 and lies.strides[1] == 1
    described = whole and not why_undescribed(lies)
    # Where TMA stores it, how threads would does not matter.
    unit = 1 if described else min(granule_of(lies, "k"), OUTPUT_BYTES) // lies.itemsize
    return OutputForm(out.dtype, described, columns_first, max(unit, 1))
