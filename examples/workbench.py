"""Helpers of the examples: arrays on the GPU or on the host, timing, a table and a plot.

The examples run on the GPU when PyTorch sees one. Otherwise they run in the simulator on small NumPy arrays, without timings;
their tables then show figures of the compiler and of the cost models.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import weft

RATES = ("TB/s", "TFLOP/s")
"""Columns that are shown on a GPU only."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where kernels run: PyTorch's GPU, or the simulator on NumPy arrays. A `dtype` is the name of an element type."""

    gpu: bool

    def size(self, on_gpu: int, simulated: int) -> int:
        """The size on a GPU, or the smaller one in the simulator."""
        return on_gpu if self.gpu else simulated

    def random(self, *shape: int, dtype: str = "float32") -> Any:
        """Fresh normal values."""
        if self.gpu:
            import torch

            return torch.randn(shape, device="cuda").to(getattr(torch, dtype))
        return np.random.default_rng().standard_normal(shape, dtype=np.float32).astype(_numpy_dtype(dtype))

    def poisoned(self, *shape: int, dtype: str = "float32") -> Any:
        """An output filled with NaN: an element that a kernel does not write fails every comparison."""
        if self.gpu:
            import torch

            return torch.full(shape, float("nan"), device="cuda", dtype=getattr(torch, dtype))
        return np.full(shape, np.nan, dtype=_numpy_dtype(dtype))

    def array(self, values: np.ndarray) -> Any:
        """A copy of host values on the device."""
        if self.gpu:
            import torch

            if values.dtype.name.startswith("float8"):
                return torch.from_numpy(values.view(np.uint8)).cuda().view(getattr(torch, values.dtype.name))
            return torch.from_numpy(values).cuda()
        return values.copy()

    def numpy(self, array: Any) -> np.ndarray:
        """An array's values on the host, once all kernels have finished."""
        return array.cpu().numpy() if self.gpu else array

    def zeros(self, size: int) -> Any:
        """`size` zeros of type int64."""
        if self.gpu:
            import torch

            return torch.zeros(size, dtype=torch.int64, device="cuda")
        return np.zeros(size, np.int64)

    def check(self, got: Any, want: Any, relative: float = 0.0) -> None:
        """Raise AssertionError unless `got` is `want`, up to an error relative to each element."""
        if self.gpu:
            import torch

            torch.testing.assert_close(got, want.to(got.dtype), rtol=relative, atol=0.0)
        else:
            np.testing.assert_allclose(got, want, rtol=relative, atol=0.0)

    def check_product(self, C: Any, A: Any, B: Any) -> None:
        """Raise AssertionError unless C is A @ B of 16-bit matrices, summed in float32 and rounded once."""
        a, b, c = (x.float() if self.gpu else x.astype(np.float64) for x in (A, B, C))
        want, terms = a @ b, abs(a) @ abs(b)
        unit = 2.0**-8 if dtype_name(C) == "bfloat16" else 2.0**-11
        # Half a unit in the last place of the result, and the rounding error of a sum of this many float32 terms.
        wrong = int((~(abs(c - want) <= 1.01 * unit * abs(want) + 2.0**-20 * terms)).sum())
        assert not wrong, f"{wrong} elements of the product are wrong"

    def throughput(self, run: Callable[[], Any], nbytes: int) -> str:
        """TB/s of `run`, which moves `nbytes` to and from global memory; a dash in the simulator."""
        return self._rate(run, nbytes * 1e-12, 2)

    def arithmetic(self, run: Callable[[], Any], operations: int) -> str:
        """TFLOP/s of `run`, which performs `flops` operations; a dash in the simulator."""
        return self._rate(run, operations * 1e-12, 0)

    def _rate(self, run: Callable[[], Any], work: float, digits: int) -> str:
        if not self.gpu:
            return "-"
        from weft import testing

        return f"{work / testing.do_bench(run, return_mode='median') * 1e3:.{digits}f}"


def dtype_name(array: Any) -> str:
    """The name of an array's element type: `float16`, `bfloat16`, ..."""
    return str(array.dtype).removeprefix("torch.")


def gl_name(array: Any) -> str:
    """The name of the same type in kernels: `float8e4nv` for `float8_e4m3fn`."""
    name = dtype_name(array)
    return {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}.get(name, name)


def multiprocessors(array: Any) -> int:
    """How many multiprocessors work on an array: those of its GPU; 8 in the simulator, so that each gets several tiles."""
    if getattr(array, "is_cuda", False):
        import torch

        return torch.cuda.get_device_properties(array.device).multi_processor_count
    return 8


def view(array: Any, name: str, *tile: int) -> weft.LayoutTensor:
    """An array as a view that a kernel divides into tiles: masked only if the tiles do not divide it, for masks cost time."""
    even = all(size % part == 0 for size, part in zip(array.shape, tile, strict=True))
    return weft.LayoutTensor(array, masked=not even, name=name)


def strides(array: Any) -> tuple[int, ...]:
    """An array's strides in elements."""
    return tuple(array.stride()) if hasattr(array, "stride") else tuple(s // array.itemsize for s in array.strides)


def row_stride(*matrices: Any) -> int:
    """The one row stride, in elements, of matrices of one shape whose rows are contiguous. Raises ValueError for others."""
    kinds = {(tuple(matrix.shape), strides(matrix)) for matrix in matrices}
    shape, (stride, inner) = next(iter(kinds))
    if len(kinds) > 1 or (inner != 1 and shape[1] > 1):
        raise ValueError(
            f"matrices of one shape with contiguous rows and equal strides are needed, not {sorted(kinds)}"
        )
    return stride


def flat(matrix: Any, width: int) -> Any:
    """The same memory in rows of `width` elements, if it is contiguous and `width` divides it; else the matrix itself."""
    rows, cols = matrix.shape
    whole = strides(matrix) == (cols, 1) and rows * cols % width == 0
    return matrix.reshape(-1, width) if whole else matrix


def tiled(matrices: Sequence[Any], XBLOCK: int, YBLOCK: int, in_memory_order: bool) -> tuple[list[Any], int, int]:
    """The matrices, the number of their tiles, and the number of tiles in a row.

    `in_memory_order` makes matrices `flat`, so that each tile is contiguous in memory if possible."""
    found = [flat(matrix, YBLOCK) if in_memory_order else matrix for matrix in matrices]
    rows, cols = found[0].shape
    across = -(-cols // YBLOCK)
    return found, -(-rows // XBLOCK) * across, across


def lanes_along_rows(
    shape: tuple[int, int], num_warps: int, vec: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """The arguments of a `BlockedLayout` whose lanes hold `vec` neighbours each along the rows of a tile, whose warps lie below
    each other while there are rows for them, and which broadcasts no element."""
    rows, cols = shape
    lanes = min(32, cols // vec)
    down = min(num_warps, max(rows * lanes // 32, 1))
    return [1, vec], [32 // lanes, lanes], [down, num_warps // down], [1, 0]


def accesses(compiled: Any) -> str:
    """Global loads and stores of one thread by width in bits, counted in the SASS: `LDG.128 x2, STG.128 x2`.

    A question mark where no disassembler is installed (`pip install 'weft[sass]'`).
    """
    from weft.errors import DeviceError

    try:
        code = compiled.asm["sass"]
    except DeviceError:
        return "?"
    found = re.findall(r"\b(LDG|STG)\.E((?:\.\w+)*)", code)
    counts = Counter(f"{kind}.{(re.findall(r'64|128', flags) or ['32'])[0]}" for kind, flags in found)
    return ", ".join(f"{name} x{count}" for name, count in sorted(counts.items()))


def instructions(compiled: Any) -> int | str:
    """The number of machine instructions of a kernel; a question mark where no disassembler is installed."""
    from weft.errors import DeviceError

    try:
        code = compiled.asm["sass"]
    except DeviceError:
        return "?"
    return len(re.findall(r";\s*$", code, re.MULTILINE)) - code.count(" NOP;")


def options(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line of an example: `plot` (a path or None) and `place`."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw the table too (needs matplotlib)")
    parser.add_argument("--sim", action="store_true", help="run in the simulator even where there is a GPU")
    parsed = parser.parse_args(argv)
    parsed.place = place_of(simulated=parsed.sim)
    return parsed


def place_of(simulated: bool) -> Place:
    """The GPU, if there is one and `--sim` is not given."""
    return Place(gpu=not simulated and _sees_gpu())


def has_tensor_memory() -> bool:
    """Whether PyTorch sees a GPU with tensor memory: compute capability 10."""
    if not _sees_gpu():
        return False
    import torch

    return torch.cuda.get_device_capability()[0] == 10


def report(title: str, rows: Sequence[dict[str, Any]], place: Place, plot: Path | None, bars: str) -> None:
    """Print rows as a table, and draw a bar for each: of its rate, or in the simulator of its column `bars`."""
    from rich.console import Console
    from rich.table import Table

    rows = [{name: value for name, value in row.items() if place.gpu or name not in RATES} for row in rows]
    table = Table(title=f"{title} ({'GPU' if place.gpu else 'simulator'}, every result checked)", title_justify="left")
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=None if Console().is_terminal else 150).print(table)
    if plot is not None:
        _draw(plot, title, rows, next((name for name in rows[0] if name in RATES), bars))


def _draw(path: Path, title: str, rows: Sequence[dict[str, Any]], column: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 1 + 0.45 * len(rows)), layout="constrained")
    bars = axes.barh([str(next(iter(row.values()))) for row in rows], [float(row[column]) for row in rows])
    axes.bar_label(bars, [str(row[column]) for row in rows], padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.set(title=title, xlabel=column, ylabel=next(iter(rows[0])))
    figure.savefig(path)
    plt.close(figure)


def _numpy_dtype(name: str) -> Any:
    import ml_dtypes

    return np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name))


def _sees_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
