"""What launches each kernel that is mutated: the examples at small shapes, and the kernels of `tests.mutation.kernels`.

A case launches one kernel on fresh inputs, few tiles, but enough that every buffer is used several times and the phases of
barriers repeat, and compares its result with NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from benchmarks import twin
from tests.mutation import kernels, products
from weft import language as gl
from weft.language.nvidia.blackwell import TensorMemoryLayout
from weft.nvidia.hopper import TensorDescriptor

LAYOUT = gl.BlockedLayout([1, 4], [4, 8], [2, 1], [1, 0])
ACROSS = gl.BlockedLayout([4, 1], [8, 4], [1, 2], [0, 1])
ONE_WARP = gl.BlockedLayout([1, 4], [4, 8], [1, 1], [1, 0])
ROWS = gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[1, 0])
LINE = gl.BlockedLayout([1], [32], [2], [0])
LINE_OF_ONE = gl.BlockedLayout([2], [32], [1], [0])


def fresh(*shape: int) -> Any:
    """Normal values."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def poisoned(*shape: int) -> Any:
    """An output that no test expects."""
    return np.full(shape, np.nan, np.float32)


def described(*matrices: Any, block: tuple[int, int] = (8, 32)) -> list[Any]:
    """Descriptors of matrices, in unswizzled blocks."""
    smem = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    return [TensorDescriptor.from_tensor(matrix, list(block), smem) for matrix in matrices]


def added(example: str, run: str = "run", **point: Any) -> None:
    """An example that adds, on five tiles of 8 by 32."""
    (a, b), c = fresh(2, 8, 160), poisoned(8, 160)
    getattr(twin.load(example), run)(a, b, c, XBLOCK=8, YBLOCK=32, num_warps=2, **point)
    np.testing.assert_array_equal(c, a + b)


def copied() -> None:
    """The example that copies a vector, two programs."""
    src, dst = fresh(100), poisoned(100)
    twin.load("tma_copy").run(src, dst, XBLOCK=64, num_warps=2)
    np.testing.assert_array_equal(dst, src)


def doubled() -> None:
    """The example whose faults are the author's, without any."""
    src, dst = fresh(8, 160), poisoned(8, 160)
    twin.load("broken_pipeline").run(src, dst, XBLOCK=8, YBLOCK=32)
    np.testing.assert_array_equal(dst, 2 * src)


def transposed() -> None:
    """Three tiles."""
    src, dst = fresh(16, 48), poisoned(48, 16)
    kernels.transpose[(1,)](src, dst, 3, 16, LAYOUT, ROWS, num_warps=2)
    for step in range(3):
        np.testing.assert_array_equal(dst[16 * step : 16 * step + 16], src[:, 16 * step : 16 * step + 16].T)


def read_by_others(kernel: Any) -> Callable[[], None]:
    """Five tiles, copied and read in different layouts."""

    def launch() -> None:
        src, dst = fresh(8, 160), poisoned(8, 160)
        kernel[(1,)](src, dst, 5, 8, 32, LAYOUT, ACROSS, ROWS, num_warps=2)
        np.testing.assert_array_equal(dst, src)

    return launch


def staged() -> None:
    """Three tiles."""
    src, dst = fresh(8, 96), poisoned(8, 96)
    kernels.stage_through_tma[(1,)](src, *described(dst), 96, 8, 32, LAYOUT, num_warps=2)
    np.testing.assert_array_equal(dst, src)


def doubled_in_place() -> None:
    """Six tiles through two buffers."""
    src, dst = fresh(8, 192), poisoned(8, 192)
    kernels.double_in_place[(1,)](*described(src, dst), 6, 8, 32, LAYOUT, num_warps=2)
    np.testing.assert_array_equal(dst, 2 * src)


def summed() -> None:
    """Two programs of three tiles each, small integers, so that the order of sums does not matter."""
    src = np.random.default_rng(0).integers(-99, 99, (16, 96)).astype(np.float32)
    total = np.zeros((8, 32), np.float32)
    kernels.sum_bands[(2,)](src, *described(total), 3, 8, 32, LAYOUT, num_warps=2)
    np.testing.assert_array_equal(total, src.reshape(2, 8, 3, 32).sum((0, 2)))


def swapped() -> None:
    """Three turns."""
    src, dst = fresh(64), poisoned(64)
    kernels.swap_through_global[(1,)](src, dst, 3, 64, LINE, num_warps=2)
    np.testing.assert_array_equal(dst, src[np.arange(64) ^ 1])


def waited_per_tile() -> None:
    """Three tiles."""
    src, dst = fresh(8, 96), poisoned(8, 96)
    kernels.barrier_per_tile[(1,)](*described(src), dst, 3, 8, 32, LAYOUT, num_warps=2)
    np.testing.assert_array_equal(dst, src)


def shared_by_two() -> None:
    """Three tiles, and the number of each element added to it."""
    src, dst = np.random.default_rng(0).integers(-99, 99, (8, 96)).astype(np.float32), poisoned(8, 96)
    kernels.share_bytes[(1,)](*described(src), dst, 3, 8, 32, LAYOUT, ACROSS, num_warps=2)
    np.testing.assert_array_equal(dst, src + np.arange(8 * 96, dtype=np.float32).reshape(8, 96))


def stored_for_others() -> None:
    """Four tiles."""
    src, dst = fresh(8, 128), poisoned(8, 128)
    kernels.store_for_others[(1,)](src, *described(dst), 4, 8, 32, LAYOUT, num_warps=2)
    np.testing.assert_array_equal(dst, src)


def told_of_global() -> None:
    """Two rows."""
    src, middle, dst = fresh(128), poisoned(128), poisoned(128)
    kernels.tell_of_global[(1,)](src, middle, dst, 2, 64, LINE, LINE_OF_ONE, num_warps=2)
    np.testing.assert_array_equal(dst, src)


def handed_over(kernel: Any, *constants: Any) -> Callable[[], None]:
    """Six tiles from one partition to another."""

    def launch() -> None:
        src, dst = fresh(8, 192), poisoned(8, 192)
        kernel[(1,)](src, dst, 6, 8, 32, LAYOUT, ONE_WARP, ROWS, *constants, num_warps=2)
        np.testing.assert_array_equal(dst, src)

    return launch


def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Small integers, of which products and sums are exact, and a poisoned product."""
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float16)


def blocks(*matrices: tuple[Any, list[int]]) -> list[Any]:
    """Descriptors of fp16 matrices, in blocks of these shapes."""
    return [
        TensorDescriptor.from_tensor(matrix, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for matrix, block in matrices
    ]


def multiplied(kernel: str, warps: int, width: int, depth: int, piece: int, *constants: Any) -> Callable[[], None]:
    """A rung of the ladder: one program, tiles of 16 rows a warp and `width` columns that take five steps of `depth`.

    C leaves `piece` columns wide."""

    def launch() -> None:
        ladder, parts = twin.load("matmul_ladder"), twin.load("matmul_parts")
        persistent, rows = kernel.startswith("persistent"), 16 * warps
        a, b, c = operands(rows * (3 if persistent else 1), width, 5 * depth)
        schedule = (parts.PersistentTileScheduler,) if persistent else ()
        given = blocks((a, [rows, depth]), (b, [depth, width]), (c, [rows, piece]))
        getattr(ladder, kernel)[(1,)](*given, parts.WGMMA, *schedule, *constants, num_warps=warps)
        np.testing.assert_array_equal(c, a @ b)

    return launch


def specialised(consume: Any, rows: int, readers: int) -> Callable[[], None]:
    """Four tiles of `rows` x 16 in three steps of 16 each, through two buffers."""

    def launch() -> None:
        a, b, c = operands(4 * rows, 16, 48)
        given = blocks((a, [rows, 16]), (b, [16, 16]), (c, [64, 16]))
        layout = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 16, 16])
        products.specialised[(1,)](*given, 4, 3, consume, readers, 2, layout, num_warps=4)
        np.testing.assert_array_equal(c, a @ b)

    return launch


def blackwell(two_ctas: bool, clc: bool) -> Callable[[], None]:
    """Products in tensor memory, three steps of 16 to a tile, through two buffers; a tile leaves in two pieces.

    One program computes five tiles below each other, or claims seven."""

    def launch() -> None:
        example, tiles = twin.load("matmul_blackwell"), 7 if clc else 5
        rows, width, halves = (128, 32, [[1, 0]]) if two_ctas else (64, 16, None)
        high = rows * (2 if two_ctas else 1)
        a, b, c = operands(tiles * high, width, 48)
        given = (
            example.describe(a, [high, 16], halves),
            example.describe(b, [16, width], [[0, 1]] if two_ctas else None),
            example.describe(c, [high, width // 2], halves),
            TensorMemoryLayout([rows, width], col_stride=1, cga_layout=halves, two_ctas=two_ctas),
        )
        scheduler, programs = (example.ClcScheduler, tiles) if clc else (example.StaticScheduler, 1)
        with weft.simulate(target="sm_100a", max_resident=1):
            example.matmul_kernel[(programs,)](*given, scheduler, 8, 2, num_warps=4, num_ctas=2 if two_ctas else 1)
        np.testing.assert_array_equal(c, a @ b)

    return launch


def add(example: str, run: str = "run", **point: Any) -> Callable[[], None]:
    """`added`, later."""
    return lambda: added(example, run, **point)


FLAT = {"swizzle": 128, "flat": False, "programs": 1}
CASES: dict[str, Callable[[], None]] = {
    "tma_copy": copied,
    "add_async_1": add("add_async_copy", num_buffers=1),
    "add_async_2": add("add_async_copy", num_buffers=2),
    "add_async_3": add("add_async_copy", num_buffers=3),
    "add_bands_1": add("add_tma", num_buffers=1),
    "add_bands_2": add("add_tma", num_buffers=2),
    "add_bands_3": add("add_tma", num_buffers=3),
    "add_dealt": add("add_tma", "run_dealt", num_buffers=2, num_stores=2, **FLAT),
    "add_warp_specialized": add("add_warp_specialized", num_buffers=2, num_stores=2, **FLAT),
    "broken_pipeline": doubled,
    "transpose": transposed,
    "copy_for_others": read_by_others(kernels.copy_for_others),
    "copies_tell_all": read_by_others(kernels.copies_tell_all),
    "stage_through_tma": staged,
    "swap_through_global": swapped,
    "barrier_per_tile": waited_per_tile,
    "share_bytes": shared_by_two,
    "store_for_others": stored_for_others,
    "tell_of_global": told_of_global,
    "double_in_place": doubled_in_place,
    "sum_bands": summed,
    "hand_over": handed_over(kernels.hand_over),
    "copies_that_arrive": handed_over(kernels.copies_that_arrive, False),
    "copies_that_add_arrivals": handed_over(kernels.copies_that_arrive, True),
    "ping_pong": handed_over(kernels.ping_pong),
    "products": multiplied("matmul_pipelined_kernel", 8, 16, 16, 16, 3),
    "products_spread": multiplied("matmul_pipelined_kernel", 8, 256, 64, 256, 3),
    "products_persistent": multiplied("persistent_matmul_pipelined_kernel", 8, 16, 16, 16, 3, False),
    "products_stolen": multiplied("persistent_matmul_pipelined_kernel", 4, 32, 32, 16, 4, True),
    "products_cooperative": specialised(products.cooperate, 128, 2),
    "products_in_turns": specialised(products.take_turns, 64, 1),
    "blackwell_static": blackwell(two_ctas=False, clc=False),
    "blackwell_clc": blackwell(two_ctas=False, clc=True),
    "blackwell_static_pairs": blackwell(two_ctas=True, clc=False),
    "blackwell_clc_pairs": blackwell(two_ctas=True, clc=True),
}
"""What launches each kernel, by the name of its table."""
