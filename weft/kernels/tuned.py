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
    """Element types, ranges of M, N and K (both ends belong to them), and the configuration to take."""

    dtypes: tuple[str, ...]
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    config: MatmulConfig


ROWS: tuple[Row, ...] = ()


def tuned(dtype: str, m: int, n: int, k: int) -> MatmulConfig | None:
    """The configuration of the first row that holds a product, or None."""
    for row in ROWS:
        sizes = zip((m, n, k), (row.m, row.n, row.k), strict=True)
        if dtype in row.dtypes and all(low <= size <= high for size, (low, high) in sizes):
            return row.config
    return None
