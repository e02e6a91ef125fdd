"""What the text of a block-scaled product's kernel depends on: formats, and how scales lie everywhere on their way.

Scales come in the order of `weft.nvidia.scaled.scale_blocks`: [rows / 128, runs / 4, 32, 4, 4] bytes, of which the last two
dimensions are 16 bytes to TMA. What is said of rows holds for columns of b.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.kernels.config import PIECE_BYTES, MatmulConfig
from weft.kernels.plan import DTYPES, Form, OutputForm, TensorPlan, make_tensor_plan
from weft.language.nvidia.blackwell import TensorMemoryScalesLayout

ROWS, RUNS = 128, 4
"""Rows and runs of the scales that follow one another in memory."""
PIECE = (32, ROWS // 32 * RUNS)
"""Rows of bytes that these are to TMA."""
TENSOR_COLUMNS = 512


@dataclass(frozen=True, slots=True)
class ScaledFormat:
    """A block-scaled format: names of the elements that arrays of a dtype hold, `per_byte` to a byte, and the dtype of scales,
    of which there is one for a `run` of elements along K."""

    elements: dict[str, str]
    per_byte: int
    scales: str
    run: int

    @property
    def words(self) -> int:
        """Fours of scales of a row and a block along K, of 128 bytes."""
        return PIECE_BYTES * self.per_byte // (RUNS * self.run)


FORMATS: dict[str, ScaledFormat] = {
    "mxfp8": ScaledFormat({"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}, 1, "uint8", 32),
    "mxfp4": ScaledFormat({"uint8": "e2m1"}, 2, "uint8", 32),
    "nvfp4": ScaledFormat({"uint8": "e2m1"}, 2, "float8_e4m3fn", 16),
}


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """An operand's scales in a slot: [rows, runs], which come as `block`, and lie as two layouts say in shared and in tensor
    memory. `nbytes` of them are a block's of threads."""

    dtype: Any
    rows: int
    runs: int
    block: tuple[int, ...]
    layout: Any
    tensor_layout: Any
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class ScaledPlan(TensorPlan):
    """What a kernel is compiled for whose operands have scales. K, and `block_k`, count bytes."""

    a_type: str
    b_type: str
    a_scales: Scales
    b_scales: Scales

    @property
    def tiles(self) -> int:
        """Tiles whose sums are in tensor memory at a time, beside the scales."""
        return tiles_of_sums(self.block_n)

    @property
    def expected(self) -> int:
        """Bytes that TMA brings into a slot of a block of threads."""
        return (self.a.nbytes + self.b.nbytes) // self.cluster + self.a_scales.nbytes + self.b_scales.nbytes


def tiles_of_sums(columns: int) -> int:
    """Tiles of so many columns that tensor memory holds the sums of, if there is to be anything else in it."""
    return 2 if 2 * columns < TENSOR_COLUMNS else 1


def bytes_of_scales(config: MatmulConfig, words: int) -> int:
    """Shared memory that scales take in each slot of a block of threads."""
    return (config.block_m + config.block_n) * RUNS * words


@lru_cache(maxsize=256)
def make_scaled_plan(
    a: Form, b: Form, out: OutputForm, scale_a: str, scale_b: str, config: MatmulConfig, format: str,  # noqa: A002
    either_way: tuple[int, ...],
) -> ScaledPlan:  # fmt: skip
    """The plan of a block-scaled product; as `make_tensor_plan`, for operands of a format."""
    plan = make_tensor_plan(a, b, out, scale_a, scale_b, config, either_way)
    known: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
    # Bytes that hold two elements are no integers.
    known["sums"] = gl.float32
    row = FORMATS[format]
    return ScaledPlan(
        **known,
        a_type=row.elements[a.dtype],
        b_type=row.elements[b.dtype],
        a_scales=_scales(row, config.rows, config.cluster, 1),
        # Each block of a pair multiplies its rows by all columns, whichever block reads them.
        b_scales=_scales(row, config.block_n, config.cluster, 0),
    )


def _scales(row: ScaledFormat, rows: int, cluster: int, split: int) -> Scales:
    """Scales of so many rows, of which blocks of a cluster hold parts (`split` 1) or all (0)."""
    cga = None if cluster == 1 else [[split, 0, 0, 0]]
    tensor_cga = None if cluster == 1 else [[split, 0]]
    block = (rows // ROWS, row.words, *PIECE)
    held = rows // cluster if split else rows
    return Scales(
        DTYPES[row.scales],
        rows,
        RUNS * row.words,
        block,
        gl.NVMMASharedLayout(0, 8, len(block), cga_layout=cga),
        TensorMemoryScalesLayout(cga_layout=tensor_cga),
        held * RUNS * row.words,
    )
