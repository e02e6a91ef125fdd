"""The tuned table: the fastest configurations measured on an H200, by element type and shape.

A row covers ranges of M, N and K; the first matching row applies. Shapes outside the table are left to the model in
`weft.kernels.heuristic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.kernels.config import MatmulConfig

ANY = (1, 1 << 31)


@dataclass(frozen=True, slots=True)
class Row:
    """Element types, inclusive ranges of M, N and K, the configuration, and of what number K is a multiple.

    Rows hold where TMA reads both operands at full speed."""

    dtypes: tuple[str, ...]
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    config: MatmulConfig
    step: int = 1


def _pipelined(block_m: int, block_n: int, block_k: int, stages: int) -> MatmulConfig:
    """The non-persistent variant with one warpgroup."""
    return MatmulConfig(
        variant="pipelined", consumers=1, block_m=block_m, block_n=block_n, block_k=block_k, stages=stages
    )


def _high(block_n: int, stages: int) -> MatmulConfig:
    """Weights as the operand with rows, in tiles so high that each program has one."""
    return MatmulConfig(
        variant="cooperative", block_m=256, block_n=block_n, block_k=64, stages=stages, consumers=2, swap=True
    )


HALVES = ("float16", "bfloat16")
FP8 = ("float8_e4m3fn", "float8_e5m2")
LARGE = (2048, 1 << 31)

ROWS: tuple[Row, ...] = (
    # Many tiles: ping-pong, which overlaps epilogue and mainloop, as long as K is short
    # enough for epilogues to matter. For long K the H200 runs at its power limit, and the cooperative kernel, which reads b
    # from shared memory less often, is as fast; the model chooses it there.
    Row(
        HALVES, LARGE, LARGE, (256, 8191),
        MatmulConfig(variant="ping_pong", block_m=128, block_n=128, block_k=64, stages=6, group=8),
    ),
    Row(
        FP8, LARGE, LARGE, (512, 1 << 31),
        MatmulConfig(variant="ping_pong", block_m=128, block_n=128, block_k=128, stages=6, group=8),
        # Where rows do not begin at cache lines (128 bytes), wide tiles are faster, which load less.
        step=128,
    ),
    # Few rows and 110 to 132 tiles of 256 columns, one for each program: of tiles half as high some programs have two.
    # 16 x 28672 x 4096 took 59.1 us instead of 63.3, where cuBLAS took 63.8.
    Row(HALVES, (9, 16), (27905, 33792), (2048, 1 << 31), _high(16, 5)),
    Row(HALVES, (17, 32), (27905, 33792), (2048, 1 << 31), _high(32, 5)),
    # Small squares.
    Row(HALVES, (65, 320), (65, 320), (1, 1024), _pipelined(64, 16, 128, 3)),
    Row(HALVES, (321, 640), (321, 640), (1, 1024), _pipelined(64, 32, 64, 8)),
    Row(HALVES, (641, 1280), (641, 1280), (1, 2048), _pipelined(64, 128, 64, 8)),
)  # fmt: skip


def tuned(dtype: str, m: int, n: int, k: int) -> MatmulConfig | None:
    """The configuration of the first matching row, or None."""
    for row in ROWS:
        sizes = zip((m, n, k), (row.m, row.n, row.k), strict=True)
        if dtype in row.dtypes and k % row.step == 0 and all(low <= size <= high for size, (low, high) in sizes):
            return row.config
    return None
