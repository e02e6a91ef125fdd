"""Operands of matmul, and the path by which each gets to shared memory.

The paths are data, `PATHS`: the first row whose conditions an operand meets is its path. Operands are indexed [rows, K], where
rows are rows of a or columns of b, so that `a.T` and `b.T` need no special cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.config import TRANSPOSABLE
from weft.kernels.machines import place_of
from weft.kernels.plan import Form, OutputForm, Path
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE

GRANULE = 16
"""TMA requires the address and all strides but the innermost to be multiples of this many bytes (CUDA driver API,
`cuTensorMapEncodeTiled`)."""
LINE = 128
"""Bytes of a cache line of L2."""
SECTOR = 32
"""Bytes of an L2 sector. With all multiprocessors loading, TMA reads rows that begin at sectors, but not at cache lines, at a
third of its speed at lines, since each 128-byte piece then lies in two lines, and others at a fifth, as five sectors of two
lines (fitted to some hundred products on an H200; docs/reference/kernels.md, "Paths")."""
COPY_BYTES = (4, 16)
"""Minimum and maximum bytes of one cp.async (PTX: 4, 8 or 16)."""
OUTPUT_BYTES = 8
"""Maximum bytes of one store of a thread in the epilogue."""
# Strides of a tensor map are less than 2**40 bytes (CUDA Driver API, cuTensorMapEncodeTiled, globalStrides).
MOST_STRIDE_BYTES = 1 << 40
DESCRIBED_EXTENT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table of paths: operands of `bits` bits that are contiguous along `contiguous` ("k", "rows" or "any"), and
    whose address, pitch and (for copies) row length are multiples of `granule` bytes, take `path`."""

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
"""The paths of operands: the first matching row applies."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: canonical dtype name, shape, strides in elements, address, device (an ordinal or `HOST`); or
    `batches` of them, `step` elements apart."""

    dtype: str
    shape: tuple[int, int]
    strides: tuple[int, int]
    pointer: int
    device: int
    batches: int = 1
    step: int = 0

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return ITEMSIZE[self.dtype]

    @property
    def transposed(self) -> Matrix:
        """The transpose."""
        (rows, columns), (down, right) = self.shape, self.strides
        return replace(self, shape=(columns, rows), strides=(right, down))

    @property
    def steps(self) -> tuple[int, int]:
        """The strides for a kernel: 0 along a dimension of one element, where a stride may be any number. 0 is a multiple of
        whatever the other dimension allows."""
        down, right = (stride if extent > 1 else 0 for extent, stride in zip(self.shape, self.strides, strict=True))
        return down, right

    @property
    def empty(self) -> bool:
        """True for a matrix without elements."""
        return 0 in (*self.shape, self.batches)

    def span(self) -> tuple[int, int]:
        """The matrix's byte range relative to its address: first byte, and the byte after the last one."""
        return span_of(self.shape, self.strides, self.itemsize)

    @property
    def place(self) -> str:
        """The device, for messages."""
        return place_of(self.device)


def matrix(name: str, value: Any) -> Matrix:
    """An array as a matrix. Raises LaunchError (kernels-array)."""
    return stack(name, value, most=2)[0]


def stack(name: str, value: Any, most: int | None = None) -> tuple[Matrix, tuple[tuple[int, int], ...]]:
    """An array as the matrix of its last two axes, and the extents and strides (in elements) of the axes before them. It has
    `most` axes at most. Raises LaunchError (kernels-array)."""
    found = array(value)
    measured = None if found is None else extents(value)
    if found is None or measured is None:
        raise fail(errors.ARRAY, name=name, got=f"a {type(value).__name__}")
    shape, strides = measured
    whole = all(isinstance(stride, int) for stride in strides)
    if len(shape) < 2 or not whole or (most is not None and len(shape) > most):
        steps = "" if whole else f" whose strides {list(strides)} are no whole elements"
        raise fail(errors.ARRAY, name=name, got=f"an array of shape {list(shape)}{steps}")
    *axes, down, right = ((int(extent), int(stride)) for extent, stride in zip(shape, strides, strict=True))
    return Matrix(found.dtype, (down[0], right[0]), (down[1], right[1]), found.pointer, found.device), tuple(axes)


def span_of(extents: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The byte range of an array relative to its address: first byte, and the byte after the last one."""
    steps = [(extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)]
    low, high = (sum(pick(step, 0) for step in steps) for pick in (min, max))
    return low * itemsize, 0 if 0 in extents else (high + 1) * itemsize


def form_of(operand: Matrix, transposable: tuple[int, ...] = TRANSPOSABLE) -> Form:
    """The form of an operand [rows, K] in memory, with the first matching path of `PATHS`.

    `transposable`: element sizes that tensor cores read in either major-ness."""
    contiguous = contiguous_along(operand)
    if not why_undescribed(operand, transposable):
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
    """The contiguous dimension of [rows, K]: "k", "rows", or "" for none.

    A dimension of size one counts as contiguous; K is preferred."""
    (rows, depth), (row_stride, k_stride) = operand.shape, operand.strides
    if k_stride == 1 or depth == 1:
        return "k"
    return "rows" if row_stride == 1 or rows == 1 else ""


def granule_of(operand: Matrix, contiguous: str) -> int:
    """The greatest common divisor of address, pitch and row length in bytes, at most 16."""
    across, along = (0, 1) if contiguous == "k" else (1, 0)
    stride = operand.strides[across] if operand.shape[across] > 1 else 0
    if not contiguous or operand.strides[along] != 1:
        return operand.itemsize
    steps = abs(stride) * operand.itemsize, abs(operand.step) * operand.itemsize
    return gcd(operand.pointer, *steps, operand.shape[along] * operand.itemsize, GRANULE)


def why_undescribed(operand: Matrix, transposable: tuple[int, ...] = TRANSPOSABLE) -> str:
    """Why TMA cannot load blocks of an operand [rows, K] in a form that tensor cores read; empty if it can."""
    contiguous = contiguous_along(operand)
    if not contiguous:
        return "its elements do not follow one another along any dimension"
    if contiguous == "rows" and operand.itemsize not in transposable:
        return f"{operand.dtype} has to be contiguous along K, the dimension that is summed"
    across = 0 if contiguous == "k" else 1
    nbytes = operand.strides[across] * operand.itemsize
    if operand.shape[across] > 1 and (nbytes % GRANULE or not 0 < nbytes < MOST_STRIDE_BYTES):
        return f"its rows are {nbytes} bytes apart, which is no positive multiple of {GRANULE} bytes"
    apart = operand.step * operand.itemsize
    if operand.batches > 1 and (apart % GRANULE or not 0 < apart < MOST_STRIDE_BYTES):
        return f"the matrices of its batch are {apart} bytes apart, which is no positive multiple of {GRANULE} bytes"
    if operand.pointer % GRANULE:
        return f"it starts {operand.pointer % GRANULE} bytes after a multiple of {GRANULE} bytes"
    return "" if max(operand.batches, *operand.shape) <= DESCRIBED_EXTENT else f"it is longer than {DESCRIBED_EXTENT}"


def read_slowly(operand: Matrix) -> int:
    """How slowly L2 gives an operand [rows, K] to TMA: 0 if its rows begin at cache lines, 1 at sectors, 2 otherwise."""
    across = 0 if contiguous_along(operand) == "k" else 1
    stride = operand.strides[across] * operand.itemsize if operand.shape[across] > 1 else 0
    unit = gcd(stride, operand.pointer, operand.step * operand.itemsize, LINE)
    return 0 if unit == LINE else 1 if unit >= SECTOR else 2


def output_form(out: Matrix) -> OutputForm:
    """The form of the output in memory.

    TMA stores in chunks of 16 bytes, so that for it the length of rows must be a multiple of 16 bytes, too."""
    columns_first = abs(out.strides[0]) < abs(out.strides[1]) and out.shape[0] > 1
    # Indexed so that the contiguous dimension is the last one, like K of an operand.
    lies = out.transposed if columns_first else out
    whole = lies.shape[1] * lies.itemsize % GRANULE == 0 and lies.strides[1] == 1
    described = whole and not why_undescribed(lies)
    # The vector width of thread stores is irrelevant if TMA stores the output; 1 keeps equal plans equal.
    unit = 1 if described else min(granule_of(lies, "k"), OUTPUT_BYTES) // lies.itemsize
    return OutputForm(out.dtype, described, columns_first, max(unit, 1))
