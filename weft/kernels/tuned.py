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
    """Element types, inclusive ranges of M, N and K, and the configuration.

    `slow`: the row applies only if TMA reads rows of b at half speed (True) or at full speed (False); None: always."""

    dtypes: tuple[str, ...]
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    config: MatmulConfig
    slow: bool | None = None


def _pipelined(block_m: int, block_n: int, block_k: int, stages: int, splits: int = 1) -> MatmulConfig:
    """The non-persistent variant with one warpgroup."""
    return MatmulConfig(
        variant="pipelined",
        consumers=1,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        splits=splits,
    )


def _one_consumer(
    block_m: int, block_n: int, block_k: int, stages: int, splits: int = 1, swap: bool = False
) -> MatmulConfig:
    """The cooperative variant with one consumer and a producer."""
    return MatmulConfig(
        consumers=1, block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, splits=splits, swap=swap
    )


HALVES = ("float16", "bfloat16")
FP8 = ("float8_e4m3fn", "float8_e5m2")
LARGE = (2048, 1 << 31)
LAYER = (2049, 8192)
"""Typical extents of a layer's weights."""

ROWS: tuple[Row, ...] = (
    # Many tiles: ping-pong, which overlaps epilogue and mainloop, as long as K is short enough for epilogues to matter. For
    # long K the H200 runs at its power limit, and the cooperative kernel, which reads b from shared memory less often, is as
    # fast; the model chooses it there.
    Row(
        HALVES, LARGE, LARGE, (256, 8191),
        MatmulConfig(variant="ping_pong", block_m=128, block_n=128, block_k=64, stages=6, group=8),
    ),
    Row(
        FP8, LARGE, LARGE, (512, 1 << 31),
        MatmulConfig(variant="ping_pong", block_m=128, block_n=128, block_k=128, stages=6, group=8),
    ),
    # Small squares.
    Row(HALVES, (65, 320), (65, 320), (1, 1024), _pipelined(64, 16, 128, 3)),
    Row(HALVES, (321, 640), (321, 640), (1, 1024), _pipelined(64, 32, 64, 8)),
    Row(HALVES, (641, 1280), (641, 1280), (1, 2048), _pipelined(64, 128, 64, 8), slow=False),
    # Few rows times a layer's weights.
    Row(HALVES, (2, 16), LAYER, LAYER, _one_consumer(64, 8, 64, 12, swap=True)),
    Row(HALVES, (17, 32), LAYER, LAYER, _one_consumer(64, 32, 64, 8, splits=2, swap=True)),
    Row(HALVES, (33, 64), LAYER, LAYER, _one_consumer(64, 32, 128, 9)),
    Row(HALVES, (33, 64), (8193, 1 << 31), LAYER, _pipelined(64, 128, 128, 4)),
    Row(HALVES, (65, 128), LAYER, LAYER, _one_consumer(64, 64, 64, 13)),
    Row(HALVES, (65, 128), (513, 2048), (4096, 16384), _pipelined(64, 64, 64, 13, splits=4)),
    Row(HALVES, (65, 128), (65, 128), (8192, 1 << 31), _pipelined(64, 64, 64, 6, splits=29)),
    Row(HALVES, (129, 256), LAYER, (2049, 1 << 31), _pipelined(64, 128, 64, 8)),
    # Few columns.
    Row(HALVES, LAYER, (33, 128), LAYER, _one_consumer(64, 64, 64, 13)),
    # Rows of b that are not aligned to L2 sectors, which TMA reads at half speed. With a cluster each CTA reads half of b:
    # 2000 x 1000 x 2000 takes 17 us instead of 21.5.
    Row(
        HALVES, (1281, 4096), (513, 2047), (1024, 8192),
        MatmulConfig(block_m=128, block_n=128, block_k=64, stages=6, cluster=2), slow=True,
    ),
    Row(
        HALVES, (129, 512), (4096, 16384), (512, 2048),
        MatmulConfig(variant="pipelined", block_m=128, block_n=256, block_k=64, stages=4), slow=True,
    ),
)  # fmt: skip


def tuned(dtype: str, m: int, n: int, k: int, slow: bool = False) -> MatmulConfig | None:
    """The configuration of the first matching row, or None; `slow`: see `Row`."""
    for row in ROWS:
        sizes = zip((m, n, k), (row.m, row.n, row.k), strict=True)
        fits = row.slow is None or row.slow == slow
        if fits and dtype in row.dtypes and all(low <= size <= high for size, (low, high) in sizes):
            return row.config
    return None
