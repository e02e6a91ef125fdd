"""GPU generations for matmul: available variants, operand layouts of the tensor cores, and rates for the cost model.

Rates are per multiprocessor and cycle. Hopper's are fitted to times of some hundred configurations on random shapes on an H200
(`benchmarks/fit.py`). Blackwell's were not measured: they are a B200's public figures (NVIDIA Blackwell architecture technical
brief: 2.25 PFLOP/s of dense fp16, 8 TB/s of memory, 148 multiprocessors, at about 1.85 GHz), with the MMA rate reduced to the
share of peak that Hopper reaches. Unpublished rates are assumed to be Hopper's, and the imbalance between programs is a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import targets
from weft.kernels.config import HOPPER_VARIANTS, TENSOR_ROWS, TENSOR_VARIANTS, TRANSPOSABLE
from weft.runtime import driver
from weft.runtime.arguments import HOST
from weft.targets import Target


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of the cost model, per cycle of a multiprocessor, and latencies in cycles.

    `products`: fp16 multiply-adds. `memory`: bytes from DRAM with all multiprocessors loading, `alone`: with few. `cache`:
    bytes from L2, `lines`: of rows that begin at its lines, `sectors`: at sectors of these, `unaligned`: of others. `narrow`:
    how much longer rows of b take, relative, where the swizzle span, and so a TMA request, is half a line.
    `shared`: bytes of shared memory read by tensor cores. `latency`: from issuing a TMA load to its arrival; the bytes in
    flight during it bound the load rate. `tile`: fixed cost of a tile that nothing overlaps (fill of the pipeline, drain of
    the last stores). `stored`: elements of a tile that the epilogue stores. `launch`: cost of an additional kernel (split-K
    reduction, packing). `copied`: cycles for warps to copy a byte to shared memory, divided by the bytes per copy. `uneven`:
    relative lag of the slowest of several programs with statically assigned tiles. `sent`: bytes that a CTA gets from others
    of its cluster. `meeting`: fixed cost of the exchange of CTAs that share a tile.
    """

    products: float
    memory: float
    cache: float
    shared: float = 128.0
    latency: int = 870
    tile: int = 100
    stored: int = 19
    launch: int = 4250
    copied: float = 0.17
    uneven: float = 0.0
    sent: float = 21.0
    meeting: int = 1040
    lines: float = 140.0
    sectors: float = 49.0
    unaligned: float = 27.0
    narrow: float = 0.72
    alone: float = 54.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU generation. `instruction` is its MMA, with at least `rows` rows; it reads elements of `transposable` bytes in
    either major-ness. `variants` lists the variants that run, `usual` is the default one.

    `promotes`: fp8 accumulators lose bits in the tensor core, so that threads may have to accumulate in float32.
    `multiprocessors` is the number of the simulated GPU."""

    instruction: str
    variants: tuple[str, ...]
    usual: str
    rows: int
    transposable: tuple[int, ...]
    promotes: bool
    multiprocessors: int
    rates: Rates


_GROUPED = np.zeros(17, np.int64)
_GROUPED[[1, 2, 4, 8, 16]] = 100, 100, 91, 94, 88
# Percentage of a GPU's multiprocessors that clusters of each size can use, on an H200: 66, 30, 15 and 7 clusters.


def programs_at_a_time(ctas: Any, multiprocessors: int) -> Any:
    """Clusters of `ctas` CTAs that run at a time, one CTA to a multiprocessor: a number, or an array of them. A cluster's
    multiprocessors are of one group (GPC), of which some have a number that no larger cluster divides."""
    return np.maximum(1, multiprocessors // ctas * _GROUPED[ctas] // 100)


HOPPER = Machine("wgmma", HOPPER_VARIANTS, "cooperative", 64, TRANSPOSABLE, True, 132, Rates(2048, 20.0, 76.0))
BLACKWELL = Machine(
    "tcgen05.mma", TENSOR_VARIANTS, "tcgen05", TENSOR_ROWS, (1, 2), False, 148,
    # 3300 of a peak of 4096 multiply-adds: the share that large products reach on Hopper.
    Rates(3300, 29.0, 48.0, tile=900, stored=40, launch=3500, uneven=0.02),
)  # fmt: skip


def target_of(device: int) -> Target:
    """The target of a device; for the host the simulated one."""
    return targets.get(driver.simulated_target().arch if device == HOST else driver.device(device).arch)


def machine_of(target: Target) -> Machine:
    """The generation of a target. Older targets count as Hopper here; `check_target` refuses them."""
    return BLACKWELL if target.has_tcgen05 else HOPPER


def multiprocessors_of(device: int, machine: Machine) -> int:
    """Multiprocessors of a device."""
    return machine.multiprocessors if device == HOST else driver.device(device).multiprocessors


def place_of(device: int) -> str:
    """A device, for messages."""
    return "the host" if device == HOST else f"GPU {device}"
