"""An upper bound for the speed of a matmul: an analytic model of one GPU, one kernel and one size.

A tile of C is computed by one multiprocessor, or by those of a CTA pair. The model counts the work of each resource per
multiprocessor and step along K, and assumes that all resources overlap perfectly: the result is
an upper bound, not a forecast. Costs without a rate here are not counted: instruction issue, barriers, power, bank conflicts.

- Tensor cores: operations of a step, at the rate of the datasheet's dense peak.
- Shared memory: bytes of both operands that MMAs read, bytes that TMA writes, and both directions for the scales of a
  block-scaled matmul, which are copied to tensor memory, and for a tile of C in the epilogue.
- L2 port: bytes loaded into a multiprocessor and, in the other direction, bytes of C stored from it. Multicast saves reads of
  L2, but none of these. The combined bandwidth of all L2 slices is no bound: one read serves neighbours that request the same
  lines (SemiAnalysis below), and the matmuls measured on an H200 load more than its slices could deliver one by one.
- HBM: both operands at least once, again for each band (or wave) of tiles unless L2 can have kept them, and C.

The time is that of the busiest resource, times the number of waves, plus the time that nothing can hide: the
first load's latency, the last tile's epilogue, and the part of every epilogue that must end before the next tile can begin.
Fractions are of the peak at the GPU's clock: the datasheet's, or `boosted`, as fast as short kernels may run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

SOURCES = """\
dense peaks (2.25, 4.5 and 9 PFLOP/s of fp16, fp8 and fp4) and HBM (8 TB/s): NVIDIA DGX B200 and HGX B200 datasheets, \
whose figures with sparsity are twice those; also https://glennklockwood.com/garden/processors/B200
148 multiprocessors, L2 of 126 MB: Chips and Cheese, 'Nvidia's B200: Keeping the CUDA Juggernaut Rolling', \
https://chipsandcheese.com/p/nvidias-b200-keeping-the-cuda-juggernaut
clock: the one at which 148 multiprocessors of 8192 fp16 operations a cycle reach the peak, 1.856 GHz; also \
https://hmc-tech.com/gpus/nvidia-b200-vs-nvidia-b100 ("Tensor Clock", and the boost of 1.98 GHz)
cycles of an instruction: operations at that rate, 128 for 128x256x16 of fp16. MMAs with both operands in shared memory \
reach it from N=128 on; below they are bound by about 128 B/cycle of shared memory: SemiAnalysis, 'Dissecting Nvidia \
Blackwell - Tensor Cores, PTX Instructions, SASS, Floorsweep, Yield', \
https://newsletter.semianalysis.com/p/dissecting-nvidia-blackwell-tensor
shared memory, 128 B/cycle: 32 banks of 32 bits per cycle, CUDA C++ Programming Guide, 'Compute Capabilities'
first load, 420 cycles to memory: 'Microbenchmarking NVIDIA's Blackwell Architecture', arXiv 2512.02189
assumed: a bank of shared memory is read or written in a cycle, so that TMA's writes compete with the reads of MMAs
assumed: 64 B/cycle from L2 into a multiprocessor, and as much in the other direction; no public figure for this GPU. A slice \
of an A100's L2 gives that much (NVIDIA A100 whitepaper: 5120 B/cycle of 80 slices); matmuls on an H200 show more than 45
not counted, since no clear figure is known: tensor memory to registers"""
"""Sources of the rates of the B200, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Rates of a GPU: per second of the whole GPU, or per clock cycle and multiprocessor."""

    name: str
    sms: int
    clock: float
    """Clock rate at which the peaks hold, in Hz."""
    boost: float
    """Highest clock rate, in Hz."""
    peaks: Mapping[str, float]
    """Dense operations per second by the name of the kind."""
    hbm: float
    """Bytes per second."""
    l2: float
    """Bytes of L2."""
    shared: float = 128
    """Bytes per cycle that shared memory reads or writes."""
    port: float = 64
    """Bytes per cycle between L2 and a multiprocessor, in each direction."""
    duplex: bool = False
    """Shared memory reads and writes in the same cycle."""
    latency: float = 0
    """Latency of the first load, in cycles."""

    def per_cycle(self, kind: Kind) -> float:
        """Operations per cycle of one multiprocessor."""
        return self.peaks[kind.name] / self.sms / self.clock

    def boosted(self) -> Gpu:
        """The same GPU at its highest clock."""
        peaks = {kind: peak * self.boost / self.clock for kind, peak in self.peaks.items()}
        return replace(self, clock=self.boost, peaks=peaks)

    def unassumed(self) -> Gpu:
        """The same GPU without bounds for the assumed rates: from L2, and concurrent reads and writes of shared memory."""
        return replace(self, port=inf, duplex=True)

    def shared_cycles(self, read: float, written: float) -> float:
        """Cycles of shared memory for these bytes in each direction."""
        return (max(read, written) if self.duplex else read + written) / self.shared


B200 = Gpu(
    name="B200", sms=148, clock=2.25e15 / 148 / 8192, boost=1.98e9, hbm=8e12, l2=126e6, latency=420,
    peaks={"fp16": 2.25e15, "fp8": 4.5e15, "mxfp8": 4.5e15, "nvfp4": 9e15},
)  # fmt: skip
H200 = Gpu(
    name="H200", sms=132, clock=989.4e12 / 132 / 4096, boost=1.98e9, hbm=4.8e12, l2=50e6, latency=200,
    peaks={"fp16": 989.4e12, "fp8": 1978.9e12},
)  # fmt: skip
"""NVIDIA H200 datasheet; L2 and its latency: doi 10.1016/j.ultsonch.2023.106546, table 3; boost: hmc-tech.com/gpu."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Types of a matmul: bits of an element, elements per byte of scales (0: none), and bytes of an element of C."""

    name: str
    bits: int
    scaled: int = 0
    out: int = 2

    def nbytes(self, elements: float) -> float:
        """Bytes of elements of an operand, without their scales."""
        return elements * self.bits / 8

    def scales(self, elements: float) -> float:
        """Bytes of the scales of `elements` elements."""
        return elements / self.scaled if self.scaled else 0.0


KINDS = {kind.name: kind for kind in (Kind("fp16", 16), Kind("fp8", 8), Kind("mxfp8", 8, 32), Kind("nvfp4", 4, 16))}


@dataclass(frozen=True, slots=True)
class Problem:
    """C = A @ B with A of M x K, B of K x N."""

    M: int
    N: int
    K: int

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.M * self.N * self.K


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A kernel. `block_m` x `block_n` is the part of C of one multiprocessor; CTAs of a pair load and hold half of b each."""

    name: str
    block_m: int = 128
    block_n: int = 256
    row_bytes: int = 128
    """BLOCK_K, in bytes of A."""
    pairs: bool = False
    prefetch: bool = True
    """The next tile's first loads are issued before this one is complete; else each tile waits for its own."""
    written_first: float = 0.0
    """Fraction of a tile of C that must be in shared memory before the next tile can begin."""
    stored_first: float = 0.0
    """Fraction of it that must have been stored to global memory by then."""
    clc: bool = False
    """Programs claim the next tile when they are ready (work stealing), instead of a fixed assignment."""
    band: int = 8
    """Rows of tiles in a band, numbered down the columns; 0 if each program computes a contiguous range of tiles."""
    instr_m: int = 128
    """Rows of C of an MMA in one multiprocessor; each MMA reads all its columns of b."""
    instr_n: int = 256
    a_in_tensor_memory: bool = False
    multicast_a: int = 1
    multicast_b: int = 1
    """CTAs of a cluster that receive the same block of an operand from one read of L2."""

    @property
    def blocks(self) -> int:
        """Multiprocessors per tile."""
        return 2 if self.pairs else 1


@dataclass(frozen=True, slots=True)
class Step:
    """A step along K in one multiprocessor: cycles of tensor cores, and bytes for the other resources."""

    mma: float
    read: float
    """From shared memory, by MMAs."""
    written: float
    """To shared memory, by TMA; the same bytes are loaded from L2."""
    scales: float
    """The part of `written` that is copied from shared to tensor memory."""
    from_l2: float
    """Bytes read from L2: fewer than are loaded if several CTAs receive the same bytes."""

    def cycles(self, gpu: Gpu) -> dict[str, float]:
        """Busy cycles of each resource."""
        return {
            "tensor cores": self.mma,
            "shared memory": gpu.shared_cycles(self.read + self.scales, self.written),
            "L2 port": self.written / gpu.port,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The upper bound: seconds, fraction of the peak, and fractions of the time."""

    seconds: float
    fraction: float
    busy: Mapping[str, float]
    """Busy fraction of each resource: HBM, and those of the multiprocessor with the most tiles."""
    waves: float
    """Lost to idle programs in the last wave."""
    exposed: float
    """Lost to loads and stores that are not overlapped."""

    @property
    def limit(self) -> str:
        """The busiest resource."""
        return max(self.busy, key=lambda name: self.busy[name])


def step(gpu: Gpu, kind: Kind, variant: Variant) -> Step:
    """The cost of a step along K in one multiprocessor."""
    m, n, held = variant.block_m, variant.block_n, variant.block_n / variant.blocks
    k = variant.row_bytes * 8 // kind.bits
    a, b = kind.nbytes(m * k), kind.nbytes(held * k)
    scales = kind.scales((m + n) * k)  # each CTA of a pair needs the scales of all columns
    read_a = 0.0 if variant.a_in_tensor_memory else a * ceil(n / variant.instr_n)
    return Step(
        mma=2 * m * n * k / gpu.per_cycle(kind),
        read=read_a + b * ceil(m / variant.instr_m),
        written=a + b + scales,
        scales=scales,
        from_l2=a / variant.multicast_a + b / variant.multicast_b + scales,
    )


def epilogue(gpu: Gpu, kind: Kind, variant: Variant, written: float = 1.0, stored: float = 1.0) -> dict[str, float]:
    """Cycles of each resource for fractions of a tile: written to shared memory, and stored from there."""
    nbytes = variant.block_m * variant.block_n * kind.out
    shared = gpu.shared_cycles(stored * nbytes, written * nbytes)
    return {"tensor cores": 0.0, "shared memory": shared, "L2 port": stored * nbytes / gpu.port}


def exposed(gpu: Gpu, kind: Kind, variant: Variant) -> float:
    """Cycles of a tile's epilogue during which the next tile cannot begin."""
    return max(epilogue(gpu, kind, variant, variant.written_first, variant.stored_first).values())


def rounds(tiles: int, slots: int, clc: bool = False, late: int = 0) -> int:
    """Tiles that the busiest program computes one after another, if `late` programs begin one tile later than the others.

    With a fixed assignment the number of tiles per program is fixed; with work stealing late programs compute fewer."""
    if clc:
        return ceil((tiles + min(late, slots)) / slots)
    return ceil(tiles / slots) + (1 if late else 0)


def hbm_bytes(gpu: Gpu, kind: Kind, variant: Variant, problem: Problem) -> float:
    """Bytes to and from HBM. Bands of tiles read A once and B for each band, contiguous ranges read both in each wave, except
    for bytes that L2 may have kept."""
    a, b = (kind.nbytes(size * problem.K) + kind.scales(size * problem.K) for size in (problem.M, problem.N))
    down, across, slots = _grid(gpu, variant, problem)
    if variant.band:
        band = min(variant.band, down)
        together = max(1, slots // (band * across))
        again, each = ceil(down / (band * together)) - 1, b
    else:
        again, each = ceil(down * across / slots) - 1, a + b
    return a + b + again * max(0.0, each - gpu.l2) + problem.M * problem.N * kind.out


def bound(gpu: Gpu, kind: Kind, variant: Variant, problem: Problem, late: int = 0) -> Bound:
    """The upper bound for a matmul; `late` as in `rounds`."""
    down, across, slots = _grid(gpu, variant, problem)
    steps = ceil(kind.nbytes(problem.K) / variant.row_bytes)
    one, out = step(gpu, kind, variant).cycles(gpu), epilogue(gpu, kind, variant)
    both = {name: steps * one[name] + out[name] for name in one}
    # Loads and stores of a multiprocessor have separate bandwidth.
    both["L2 port"] = max(steps * one["L2 port"], out["L2 port"])
    hidden = max(both.values())
    tile = max(hidden, steps * max(one.values()) + exposed(gpu, kind, variant))
    first = 0.0 if variant.prefetch else gpu.latency
    tiles = down * across
    turns = rounds(tiles, slots, variant.clc, late)
    # The first load, and the last tile's epilogue, unless the time of the tile includes them already.
    ends = gpu.latency - first + max(out.values()) - (tile - steps * max(one.values()))
    cycles = turns * (tile + first) + max(ends, 0.0)
    memory = hbm_bytes(gpu, kind, variant, problem) / gpu.hbm
    seconds = max(cycles / gpu.clock, memory)
    total = seconds * gpu.clock
    share = tiles / slots / total
    on_chip = {name: turns * value / total for name, value in both.items()}
    return Bound(
        seconds=seconds,
        fraction=problem.operations / seconds / gpu.peaks[kind.name],
        busy={**on_chip, "HBM": memory / seconds},
        waves=(turns - tiles / slots) * (tile + first) / total,
        exposed=(tile - hidden + first) * share + max(ends, 0.0) / total,
    )


def _grid(gpu: Gpu, variant: Variant, problem: Problem) -> tuple[int, int, int]:
    """Rows and columns of tiles, and resident programs."""
    rows = variant.block_m * variant.blocks
    return ceil(problem.M / rows), ceil(problem.N / variant.block_n), gpu.sms // variant.blocks
