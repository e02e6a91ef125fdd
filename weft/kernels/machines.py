"""What matmul has to know of a generation of GPUs: its variants, what its tensor cores read, and what takes how long.

Rates are for one multiprocessor and cycle. Hopper's were measured on an H200. Blackwell's were not: they are a B200's public
figures (NVIDIA Blackwell architecture technical brief: 2.25 PFLOP/s of dense fp16, 8 TB/s of memory, 148 multiprocessors, at
about 1.85 GHz), of which products get the share that Hopper's reach of theirs. What is not public is taken to be Hopper's, and
how unevenly programs run is a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from weft import targets
from weft.kernels.config import EITHER_WAY, HOPPER_VARIANTS, TENSOR_ROWS, TENSOR_VARIANTS
from weft.runtime import driver
from weft.runtime.arguments import HOST
from weft.targets import Target


@dataclass(frozen=True, slots=True)
class Rates:
    """What a model of a GPU counts with; cycles, or what one of them is enough for.

    `products`: of fp16. `memory`: bytes, where all multiprocessors ask for some; `cache`: bytes of the second-level cache;
    `shared`: bytes of shared memory that tensor cores read. `latency`: from the request for a block to its arrival; what is
    asked for in that time bounds the rate. `least_width`: columns below which an instruction takes as long as with so many: it
    reads a all the same. `tile`: what begins and ends a tile, the first blocks' way and the last pieces' way out, where nothing
    else goes on. `stored`: elements of a tile that leave. `launch`: a further kernel, which adds the parts of sums or copies
    operands. `copied`: what warps take to copy a piece, of the bytes that are aligned together, to shared memory. `uneven`: the
    share of its time by which the slowest of several programs is behind, where each has its tiles from the start.
    """

    products: float
    memory: float
    cache: float
    shared: float = inf
    latency: int = 1100
    least_width: int = 1
    tile: int = 900
    stored: int = 40
    launch: int = 3500
    copied: float = 0.15
    uneven: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A generation of GPUs. `instruction` multiplies, `rows` of a tile at a time at least, and reads elements of `either_way`
    bytes along any dimension. `variants` are those that run, `usual` the one that is taken where only sizes are asked for.

    `promotes`: sums of fp8 lose bits in the tensor core, so that threads may have to add them. `multiprocessors` is how many
    the GPU has that is simulated."""

    instruction: str
    variants: tuple[str, ...]
    usual: str
    rows: int
    either_way: tuple[int, ...]
    promotes: bool
    multiprocessors: int
    rates: Rates


HOPPER = Machine(
    "wgmma", HOPPER_VARIANTS, "cooperative", 64, EITHER_WAY, True, 132, Rates(1650, 20.0, 48.0, least_width=32)
)
BLACKWELL = Machine(
    "tcgen05.mma", TENSOR_VARIANTS, "tcgen05", TENSOR_ROWS, (1, 2), False, 148,
    # Of 4096 products the share that 1650 are of Hopper's 2048.
    replace(HOPPER.rates, products=3300, memory=29.0, shared=128.0, least_width=1, uneven=0.02),
)  # fmt: skip


def target_of(device: int) -> Target:
    """The target of a device; of the host the one that is simulated."""
    return targets.get(driver.simulated_target().arch if device == HOST else driver.device(device).arch)


def machine_of(target: Target) -> Machine:
    """The generation that a target is of; those that have no such tensor cores are taken for Hopper, for checks to refuse."""
    return BLACKWELL if target.has_tcgen05 else HOPPER


def multiprocessors_of(device: int, machine: Machine) -> int:
    """Multiprocessors of a device."""
    return machine.multiprocessors if device == HOST else driver.device(device).multiprocessors
