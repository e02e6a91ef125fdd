"""GPU generations for matmul: available variants, operand layouts of the tensor cores, and rates for the cost model.

Rates are per multiprocessor and cycle. Hopper's are fitted to 2,500 times of configurations on random shapes on an H200
(`benchmarks/fit.py`), but for `joined` and `launch`, on which few of these depend: small products took 0.3 us longer in
clusters, and split-K of few rows 1 to 2 us longer than by the fit. Blackwell's were not measured: they are a B200's public
figures (NVIDIA Blackwell architecture technical brief: 2.25 PFLOP/s of dense fp16, 8 TB/s of memory, 148 multiprocessors, at
1.85 GHz or so), with the MMA rate reduced to the share of peak that Hopper reaches. Unpublished rates are assumed to be
Hopper's, and the imbalance between programs is a guess.
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

    `products`: fp16 multiply-adds (Hopper's 2048, and more as the blend makes up for it). `memory`: bytes from DRAM, a
    multiprocessor's part. `port`: bytes that TMA brings into shared memory. `outside`: how much longer a row out of bounds
    takes TMA, which fills it. `cache`: a multiprocessor's part of the bytes that L2 gives to all of them, in rows that begin
    at its lines; `sectors`: at sectors of these, `unaligned`: at others. `shared`: bytes of shared memory read by tensor cores.
    `latency`: from issuing a TMA load to its arrival; the bytes in flight during it bound the load rate. `step`: fixed cost
    of a block along K, whose barriers are waited for. `joined`: fixed cost of a cluster, whose CTAs begin and end together.
    `tile`: fixed cost of a tile that nothing overlaps (fill of the pipeline, drain of the last stores). `stored`: elements
    of a tile that the epilogue stores. `launch`: cost of an additional kernel (split-K reduction, packing). `copied`: cycles
    for warps to copy a byte to shared memory, divided by the bytes per copy. `uneven`: relative lag of the slowest of
    several programs with statically assigned tiles. `sent`: bytes that a CTA gets from others of its cluster. `meeting`:
    fixed cost of the exchange of CTAs that share a tile. `tail`: how far DRAM is idle where programs have no tile in the
    last wave, relative to them. `blend`: how far parts that run side by side hide one another: the exponent of the norm that
    combines them (infinity: the maximum).
    """

    products: float
    memory: float
    port: float
    cache: float = 200.0
    sectors: float = 61.0
    unaligned: float = 21.0
    outside: float = 1.65
    shared: float = 128.0
    latency: int = 1070
    step: int = 88
    joined: int = 600
    tile: int = 277
    stored: int = 39
    launch: int = 3000
    copied: float = 0.17
    uneven: float = 0.0
    sent: float = 9.6
    meeting: int = 204
    tail: float = 0.137
    blend: float = 2.15


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


HOPPER = Machine("wgmma", HOPPER_VARIANTS, "cooperative", 64, TRANSPOSABLE, True, 132, Rates(2362, 17.5, 126.0))
BLACKWELL = Machine(
    "tcgen05.mma", TENSOR_VARIANTS, "tcgen05", TENSOR_ROWS, (1, 2), False, 148,
    # 3300 of a peak of 4096 multiply-adds: the share that large products reach on Hopper.
    Rates(
        3300, 29.0, 48.0, cache=140.0, sectors=49.0, unaligned=27.0, outside=2.0, latency=870, step=0, joined=0,
        tile=900, stored=40, launch=3500, uneven=0.02, tail=0.0, blend=3.0,
    ),
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
