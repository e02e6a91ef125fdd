"""`softmax` of the rows of a matrix: the choice of a cluster for a row length, and the launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft import language as gl
from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.device.softmax import softmax_rows
from weft.kernels.machines import machine_of, multiprocessors_of, target_of
from weft.kernels.memory import empty_like
from weft.kernels.operands import Matrix, matrix
from weft.layout import WARP_SIZE
from weft.runtime.arguments import HOST
from weft.runtime.dtypes import ITEMSIZE

DTYPES = ("float32", "float16", "bfloat16")
CLUSTERS = (1, 2, 4, 8, 16)
ACCESS_BYTES, COPY_BYTES = 16, 4
EACH = 32
"""Elements of a row in a thread's registers, as float32."""
MOST_WARPS = 32
USUAL_PART = 16384
"""Columns of a block where the cluster can be large enough, so that a multiprocessor works on several rows at a time."""
ALONE_BYTES = 65536
"""Bytes of a row that one block takes: two of them lie in the shared memory of a multiprocessor."""
LONGEST_PART = 32768
"""Columns of a block: a row of float32 takes 128 KiB of its shared memory."""


@dataclass(frozen=True, slots=True)
class SoftmaxConfig:
    """How `softmax` divides a row: among `num_ctas` blocks of a cluster, with `num_warps` warps each."""

    num_ctas: int
    num_warps: int

    def part(self, cols: int, itemsize: int) -> int:
        """Columns of a block: a power of two, with at least one access of 16 bytes for each thread."""
        least = WARP_SIZE * self.num_warps * ACCESS_BYTES // itemsize
        return max(_power_of_two(-(-cols // self.num_ctas)), least)

    def layouts(self, itemsize: int) -> tuple[Any, ...]:
        """A row over the blocks and the numbers of all blocks in each of them, in registers; and both in shared memory."""
        bits = self.num_ctas.bit_length() - 1
        spread, copies = [[1 << bit, 0] for bit in range(bits)], [[0, 0]] * bits
        warps, vec = self.num_warps, ACCESS_BYTES // itemsize
        return (
            gl.BlockedLayout([1, vec], [1, WARP_SIZE], [1, warps], [1, 0], cga_layout=spread),
            gl.BlockedLayout([1, 2], [WARP_SIZE, 1], [warps, 1], [1, 0], cga_layout=copies),
            gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=spread),
            gl.SwizzledSharedLayout(1, 1, 1, [1, 0], cga_layout=copies),
        )


_resident: dict[tuple[SoftmaxConfig, str, int, bool, bool, int], int] = {}
"""How many programs a device holds at a time, by configuration, type, columns of a block, variant and device."""


def softmax(x: Any, out: Any = None, *, config: SoftmaxConfig | None = None, stream: Any = None) -> Any:
    """Softmax of each row of x [M, N]; returns `out`, of the same shape and type.

    Rows are of float32, float16 or bfloat16 with contiguous elements, and any distance apart; exponentials and sums are
    float32. A row is read once and written once: the blocks of a cluster hold it in registers, and exchange their maxima and
    sums through distributed shared memory. `out` may be x itself. Host arrays are simulated.

    Raises LaunchError: kernels-array, kernels-softmax, kernels-softmax-out, kernels-softmax-columns, kernels-out-needed,
    kernels-out-overlaps. Clusters need Hopper or Blackwell (async-target): without one rows have up to 16,384 elements.
    """
    source = _rows("x", x)
    if out is None:
        out = empty_like(x, source.shape, source.dtype)
    target = _rows("out", out)
    if (target.dtype, target.shape, target.device) != (source.dtype, source.shape, source.device):
        raise fail(errors.SOFTMAX_OUT, got=_words(target), want=_words(source))
    _check_overlap(source, target)
    if not source.empty:
        _launch(config or chosen_softmax(source.shape[1], source.dtype), x, out, source, target, stream)
    return out


def chosen_softmax(cols: int, dtype: str) -> SoftmaxConfig:
    """The configuration that `softmax` chooses for rows of `cols` elements. Raises LaunchError (kernels-softmax-columns)."""
    blocks = next((blocks for blocks in CLUSTERS if cols <= blocks * USUAL_PART), CLUSTERS[-1])
    if cols * ITEMSIZE[dtype] <= ALONE_BYTES:
        blocks = 1
    part = max(_power_of_two(-(-cols // blocks)), WARP_SIZE * ACCESS_BYTES // ITEMSIZE[dtype])
    if part > LONGEST_PART:
        raise fail(errors.SOFTMAX_COLUMNS, cols=cols, most=CLUSTERS[-1] * LONGEST_PART)
    return SoftmaxConfig(blocks, min(max(part // (WARP_SIZE * EACH), 1), MOST_WARPS))


def _launch(config: SoftmaxConfig, x: Any, out: Any, source: Matrix, target: Matrix, stream: Any) -> None:
    (rows, cols), itemsize = source.shape, source.itemsize
    part = config.part(cols, itemsize)
    whole = part * config.num_ctas == cols
    # cp.async copies 4 bytes or more: of 16-bit elements several at a time, which are to be known to be aligned. Of a number
    # that is an argument the compiler knows whether 16 divides it.
    ahead = itemsize >= COPY_BYTES or not any(number % 16 for number in (source.pointer, cols, source.strides[0]))
    given = (x, out, rows, cols, source.strides[0], target.strides[0], part, whole, ahead, *config.layouts(itemsize))
    options: dict[str, Any] = {"num_ctas": config.num_ctas, "num_warps": config.num_warps}
    key = config, source.dtype, part, whole, ahead, source.device
    if key not in _resident:
        _resident[key] = _programs(given, options, source.device)
    softmax_rows[(min(rows, _resident[key]),)](*given, **options, stream=stream)


def _programs(given: tuple[Any, ...], options: dict[str, Any], device: int) -> int:
    """How many programs a device holds at a time; of the simulated one as many as it has multiprocessors for."""
    count = multiprocessors_of(device, machine_of(target_of(device)))
    if device == HOST:
        return max(count // options["num_ctas"], 1)
    compiled = softmax_rows.warmup(*given, **options)
    return compiled.active_clusters() if options["num_ctas"] > 1 else compiled.occupancy() * count


def _check_overlap(source: Matrix, target: Matrix) -> None:
    """An output may be the operand, but not overlap it otherwise. Raises LaunchError (kernels-out-overlaps)."""
    if (target.pointer, target.strides) == (source.pointer, source.strides):
        return
    (low, high), (first, end) = source.span(), target.span()
    if target.pointer + first < source.pointer + high and source.pointer + low < target.pointer + end:
        raise fail(errors.OUT_OVERLAPS, name="x")


def _rows(name: str, value: Any) -> Matrix:
    """The matrix. Raises LaunchError (kernels-array, kernels-softmax)."""
    found = matrix(name, value)
    contiguous = found.strides[1] == 1 or found.shape[1] <= 1 or found.empty
    if found.dtype not in DTYPES or not contiguous:
        raise fail(errors.SOFTMAX, name=name, got=f"{_words(found)} with strides {list(found.strides)}")
    return found


def _words(x: Matrix) -> str:
    return f"{x.dtype} {list(x.shape)} on {x.place}"


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << max(number - 1, 0).bit_length()
