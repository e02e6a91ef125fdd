"""What measurements on an H200 found fastest: configurations by element type and shape.

A row holds from its smallest to its largest M, N and K; the first row that a product falls into is taken. Products that no row
holds are left to the model in `weft.kernels.heuristic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.kernels.config import MatmulConfig

ANY = (1, 1 << 31)


@dataclass(frozen=True, slots=True)
class Row:
    """Element types, ranges of M, N and K (both ends belong to them), and the configuration to take.

    `slow`: only where TMA reads rows of b at half speed (True) or at full speed (False); None: either way."""

    dtypes: tuple[str, ...]
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    config: MatmulConfig
    slow: bool | None = None


def _pipelined(block_m: int, block_n: int, block_k: int, stages: int, splits: int = 1) -> MatmulConfig:
    """One program a tile, four warps."""
    return MatmulConfig(
        variant="pipelined",
        consumers=1,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        stages=stages,
        splits=splits,
    )


def _alone(block_m: int, block_n: int, block_k: int, stages: int, splits: int = 1, swap: bool = False) -> MatmulConfig:
    """One consumer, whose blocks other warps bring."""
    return MatmulConfig(
        consumers=1, block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, splits=splits, swap=swap
    )


HALVES = ("float16", "bfloat16")
FP8 = ("float8_e4m3fn", "float8_e5m2")
LARGE = (2048, 1 << 31)
LAYER = (2049, 8192)
"""Sides of the weights of a layer."""

ROWS: tuple[Row, ...] = (
    # Many tiles: two consumers in turn, as long as sums are short enough to end often. Long ones draw so much power that
    # the cooperative kernel, which reads b from shared memory less often, is as fast; the model takes it.
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
    # Few rows, by a layer's weights.
    Row(HALVES, (2, 16), LAYER, LAYER, _alone(64, 8, 64, 12, swap=True)),
    Row(HALVES, (17, 32), LAYER, LAYER, _alone(64, 32, 64, 8, splits=2, swap=True)),
    Row(HALVES, (33, 64), LAYER, LAYER, _alone(64, 32, 128, 9)),
    Row(HALVES, (33, 64), (8193, 1 << 31), LAYER, _pipelined(64, 128, 128, 4)),
    Row(HALVES, (65, 128), LAYER, LAYER, _alone(64, 64, 64, 13)),
    Row(HALVES, (65, 128), (513, 2048), (4096, 16384), _pipelined(64, 64, 64, 13, splits=4)),
    Row(HALVES, (65, 128), (65, 128), (8192, 1 << 31), _pipelined(64, 64, 64, 6, splits=29)),
    Row(HALVES, (129, 256), LAYER, (2049, 1 << 31), _pipelined(64, 128, 64, 8)),
    # Few columns.
    Row(HALVES, LAYER, (33, 128), LAYER, _alone(64, 64, 64, 13)),
    # Rows of b that begin anywhere in the lines of the cache.
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
    """The configuration of the first row that holds a product, or None; `slow`: see `Row`."""
    for row in ROWS:
        sizes = zip((m, n, k), (row.m, row.n, row.k), strict=True)
        fits = row.slow is None or row.slow == slow
        if fits and dtype in row.dtypes and all(low <= size <= high for size, (low, high) in sizes):
            return row.config
    return None
