"""Plans of block-scaled matmuls: formats, and the layouts of scales in global, shared and tensor memory.

Scales are in the order of `weft.nvidia.scaled.scale_blocks`: [rows / 128, runs / 4, 32, 4, 4] bytes. Their descriptor has the
last two dimensions as one of 16 bytes. "Rows" are rows of a or columns of b.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from weft import language as gl
from weft.kernels.config import PIECE_BYTES, MatmulConfig
from weft.kernels.epilogue_plan import Epilogue
from weft.kernels.plan import DTYPES, Form, OutputForm, TensorPlan, make_tensor_plan
from weft.language.nvidia.blackwell import TensorMemoryScalesLayout

ROWS, RUNS = 128, 4
"""Rows and runs of one contiguous block of scales."""
PIECE = (32, ROWS // 32 * RUNS)
"""Shape of such a block in bytes, as TMA copies it."""
# Tensor memory has 512 columns per multiprocessor (PTX ISA, Tensor Memory).
TENSOR_COLUMNS = 512


@dataclass(frozen=True, slots=True)
class ScaledFormat:
    """A block-scaled format: element type by array dtype, elements `per_byte`, the dtype of scales, and the `run` of elements
    along K that share a scale."""

    elements: dict[str, str]
    per_byte: int
    scales: str
    run: int

    @property
    def words(self) -> int:
        """Groups of four scales per row in a block of 128 bytes along K."""
        return PIECE_BYTES * self.per_byte // (RUNS * self.run)


FORMATS: dict[str, ScaledFormat] = {
    "mxfp8": ScaledFormat({"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}, 1, "uint8", 32),
    "mxfp4": ScaledFormat({"uint8": "e2m1"}, 2, "uint8", 32),
    "nvfp4": ScaledFormat({"uint8": "e2m1"}, 2, "float8_e4m3fn", 16),
}


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """An operand's scales in a slot: [rows, runs], loaded by TMA as `block`, with their layouts in shared and tensor memory.

    `nbytes` is the size of one CTA's share."""

    dtype: Any
    rows: int
    runs: int
    block: tuple[int, ...]
    layout: Any
    tensor_layout: Any
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class ScaledPlan(TensorPlan):
    """The plan of a kernel whose operands have scales. K and `block_k` count bytes."""

    a_type: str
    b_type: str
    a_scales: Scales
    b_scales: Scales

    @property
    def tiles(self) -> int:
        """Accumulator tiles in tensor memory, next to the scales."""
        return accumulator_tiles(self.block_n)

    @property
    def expected(self) -> int:
        """Bytes that TMA loads into a slot of one CTA."""
        return (self.a.nbytes + self.b.nbytes) // self.cluster + self.a_scales.nbytes + self.b_scales.nbytes


def accumulator_tiles(columns: int) -> int:
    """Accumulator tiles of `columns` columns that fit in tensor memory next to the scales."""
    return 2 if 2 * columns < TENSOR_COLUMNS else 1


def bytes_of_scales(config: MatmulConfig, words: int) -> int:
    """Shared memory of scales per slot and CTA."""
    return (config.block_m + config.block_n) * RUNS * words


@lru_cache(maxsize=256)
def make_scaled_plan(
    a: Form, b: Form, out: OutputForm, epilogue: Epilogue, config: MatmulConfig, format: str,  # noqa: A002
    transposable: tuple[int, ...],
) -> ScaledPlan:  # fmt: skip
    """The plan of a block-scaled matmul; as `make_tensor_plan`, for operands of a format."""
    plan = make_tensor_plan(a, b, out, epilogue, 1, config, transposable)
    known: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
    # uint8 operands hold fp4 pairs here, so their accumulators are not integers.
    known["acc_type"] = gl.float32
    row = FORMATS[format]
    return ScaledPlan(
        **known,
        a_type=row.elements[a.dtype],
        b_type=row.elements[b.dtype],
        a_scales=_scales(row, config.rows, config.cluster, 1),
        # Each CTA of a pair multiplies its rows by all columns, so it needs the scales of all columns in its tensor memory.
        b_scales=_scales(row, config.block_n, config.cluster, 0),
    )


def _scales(row: ScaledFormat, rows: int, cluster: int, split: int) -> Scales:
    """Scales of `rows` rows, which the CTAs of a cluster split (`split` 1) or all hold (0)."""
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
