"""How fast a matrix product can be at most: an analytic model of one GPU, one kernel and one size.

A tile of C is computed by one multiprocessor, or by the pair whose blocks multiply together. The model counts, per
multiprocessor and step along K, what each resource has to do, and assumes that all of them overlap perfectly: what comes out is
an upper bound, not a forecast. What has no rate here is not counted: instruction issue, barriers, power, conflicts of banks.

- Tensor cores: operations of a step, at the rate of the datasheet's dense peak.
- Shared memory: bytes that products read of both operands, bytes that TMA writes, and both ways for the scales of a
  block-scaled product, which are copied to tensor memory, and for a tile of C on its way out.
- L2 port: bytes that come into a multiprocessor, and, the other way, bytes of C that leave it. Multicast saves reads of L2, and
  none of these. What all slices of L2 deliver together is no bound: neighbours that ask for the same lines are served by one
  read (SemiAnalysis below), and the products measured on an H200 take in more than its slices could give one by one.
- HBM: both operands at least once, again for each band (or round) of tiles as far as L2 cannot have kept them, and C.

Time is that of the busiest of them, times the rounds in which programs take tiles, and then what nothing can hide: the
first load's latency, the last tile's way out, and of every tile's what must have left before the next one is multiplied.
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
cycles of an instruction: operations at that rate, 128 for 128x256x16 of fp16. Products of two operands in shared memory \
reach it from N=128 on; below they are bound by about 128 B/cycle of shared memory: SemiAnalysis, 'Dissecting Nvidia \
Blackwell - Tensor Cores, PTX Instructions, SASS, Floorsweep, Yield', \
https://newsletter.semianalysis.com/p/dissecting-nvidia-blackwell-tensor
shared memory, 128 B/cycle: 32 banks of 32 bits per cycle, CUDA C++ Programming Guide, 'Compute Capabilities'
first load, 420 cycles to memory: 'Microbenchmarking NVIDIA's Blackwell Architecture', arXiv 2512.02189
assumed: a bank of shared memory is read or written in a cycle, so that TMA's writes compete with what products read
assumed: 64 B/cycle from L2 into a multiprocessor, and as much back; no public figure for this GPU. A slice of an A100's \
L2 gives that much (NVIDIA A100 whitepaper: 5120 B/cycle of 80 slices); the products on an H200 show more than 45
not counted, for want of a clear figure: tensor memory to registers"""
"""Where the rates of the B200 come from, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Rates of a GPU: per second of the whole GPU, or per clock cycle and multiprocessor."""

    name: str
    sms: int
    clock: float
    """Cycles per second at which the peaks hold."""
    boost: float
    """Cycles per second at most."""
    peaks: Mapping[str, float]
    """Dense operations per second by the name of the kind."""
    hbm: float
    """Bytes per second."""
    l2: float
    """Bytes that L2 holds."""
    shared: float = 128
    """Bytes per cycle that shared memory reads or writes."""
    port: float = 64
    """Bytes per cycle from L2 into a multiprocessor, and as many back."""
    duplex: bool = False
    """Shared memory reads and writes in the same cycle."""
    latency: float = 0
    """Cycles from the first request to the first data."""

    def per_cycle(self, kind: Kind) -> float:
        """Operations per cycle of one multiprocessor."""
        return self.peaks[kind.name] / self.sms / self.clock

    def boosted(self) -> Gpu:
        """The same GPU at its highest clock."""
        peaks = {kind: peak * self.boost / self.clock for kind, peak in self.peaks.items()}
        return replace(self, clock=self.boost, peaks=peaks)

    def unassumed(self) -> Gpu:
        """The same GPU with no bound on what no public figure gives: the way from L2, writes beside reads of shared memory."""
        return replace(self, port=inf, duplex=True)

    def shared_cycles(self, read: float, written: float) -> float:
        """Cycles of shared memory for so many bytes each way."""
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
    """What is multiplied: bits of an element, elements per byte of scales (0: none), and bytes of an element of C."""

    name: str
    bits: int
    scaled: int = 0
    out: int = 2

    def nbytes(self, elements: float) -> float:
        """Bytes of elements of an operand, without their scales."""
        return elements * self.bits / 8

    def scales(self, elements: float) -> float:
        """Bytes of the scales of so many elements."""
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
    """How a kernel works. `block_m` x `block_n` is the part of C of one multiprocessor; pairs load and hold half of b each."""

    name: str
    block_m: int = 128
    block_n: int = 256
    row_bytes: int = 128
    """Of a block of A along K: BLOCK_K elements."""
    pairs: bool = False
    prefetch: bool = True
    """The next tile's first loads start before this one is done; else each tile waits for its own."""
    written_first: float = 0.0
    """Share of a tile of C that must be in shared memory before the next tile can be multiplied."""
    stored_first: float = 0.0
    """Share of it that must have left the multiprocessor by then."""
    clc: bool = False
    """Programs take the next tile when they are ready, not every so many-th one."""
    band: int = 8
    """Rows of tiles that are taken together, down the columns; 0 where each program takes a run of neighbouring tiles."""
    instr_m: int = 128
    """Rows of C of an instruction in one multiprocessor; each reads all columns of b that it multiplies."""
    instr_n: int = 256
    a_in_tensor_memory: bool = False
    multicast_a: int = 1
    multicast_b: int = 1
    """Blocks of a cluster that get the same block of an operand from one read of L2."""

    @property
    def blocks(self) -> int:
        """Multiprocessors that work on a tile."""
        return 2 if self.pairs else 1


@dataclass(frozen=True, slots=True)
class Step:
    """A step along K in one multiprocessor: cycles of tensor cores, bytes of the rest."""

    mma: float
    read: float
    """From shared memory, by products."""
    written: float
    """To shared memory, by TMA; as many come in from L2."""
    scales: float
    """Among `written`; copied from shared to tensor memory."""
    from_l2: float
    """Read of L2: less than come in where several blocks get the same bytes."""

    def cycles(self, gpu: Gpu) -> dict[str, float]:
        """Cycles that each resource is busy."""
        return {
            "tensor cores": self.mma,
            "shared memory": gpu.shared_cycles(self.read + self.scales, self.written),
            "L2 port": self.written / gpu.port,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that is possible: seconds, fraction of the peak, and shares of time."""

    seconds: float
    fraction: float
    busy: Mapping[str, float]
    """In which each resource works: HBM, and those of the multiprocessor with the most tiles."""
    waves: float
    """Lost to programs without a tile in the last round."""
    exposed: float
    """Lost to loads and stores that nothing hides."""

    @property
    def limit(self) -> str:
        """The busiest resource."""
        return max(self.busy, key=lambda name: self.busy[name])


def step(gpu: Gpu, kind: Kind, variant: Variant) -> Step:
    """What a step along K costs in one multiprocessor."""
    m, n, held = variant.block_m, variant.block_n, variant.block_n / variant.blocks
    k = variant.row_bytes * 8 // kind.bits
    a, b = kind.nbytes(m * k), kind.nbytes(held * k)
    scales = kind.scales((m + n) * k)  # each block of a pair needs those of all columns
    read_a = 0.0 if variant.a_in_tensor_memory else a * ceil(n / variant.instr_n)
    return Step(
        mma=2 * m * n * k / gpu.per_cycle(kind),
        read=read_a + b * ceil(m / variant.instr_m),
        written=a + b + scales,
        scales=scales,
        from_l2=a / variant.multicast_a + b / variant.multicast_b + scales,
    )


def way_out(gpu: Gpu, kind: Kind, variant: Variant, written: float = 1.0, stored: float = 1.0) -> dict[str, float]:
    """Cycles of each resource for shares of a tile: written to shared memory, and from there out of the multiprocessor."""
    nbytes = variant.block_m * variant.block_n * kind.out
    shared = gpu.shared_cycles(stored * nbytes, written * nbytes)
    return {"tensor cores": 0.0, "shared memory": shared, "L2 port": stored * nbytes / gpu.port}


def exposed(gpu: Gpu, kind: Kind, variant: Variant) -> float:
    """Cycles of a tile's way out in which the next one cannot be multiplied yet."""
    return max(way_out(gpu, kind, variant, variant.written_first, variant.stored_first).values())


def rounds(tiles: int, slots: int, clc: bool = False, late: int = 0) -> int:
    """Tiles that the busiest program computes one after another, if `late` programs begin a tile's time after the others.

    In a fixed order everybody's share stays what it is; who takes tiles when ready leaves more of them to the others."""
    if clc:
        return ceil((tiles + min(late, slots)) / slots)
    return ceil(tiles / slots) + (1 if late else 0)


def hbm_bytes(gpu: Gpu, kind: Kind, variant: Variant, problem: Problem) -> float:
    """Bytes to and from HBM. Bands of tiles read A once and B for each band, runs of tiles both in each round, but for what L2
    may have kept."""
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
    """The upper bound for a product; `late` as `rounds` has it."""
    down, across, slots = _grid(gpu, variant, problem)
    steps = ceil(kind.nbytes(problem.K) / variant.row_bytes)
    one, out = step(gpu, kind, variant).cycles(gpu), way_out(gpu, kind, variant)
    both = {name: steps * one[name] + out[name] for name in one}
    # In and out of a multiprocessor are ways of their own.
    both["L2 port"] = max(steps * one["L2 port"], out["L2 port"])
    hidden = max(both.values())
    tile = max(hidden, steps * max(one.values()) + exposed(gpu, kind, variant))
    first = 0.0 if variant.prefetch else gpu.latency
    tiles = down * across
    turns = rounds(tiles, slots, variant.clc, late)
    # The first load of all, and the last tile's way out, as far as its turn does not count them already.
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
    """Rows and columns of tiles, and programs that run at a time."""
    rows = variant.block_m * variant.blocks
    return ceil(problem.M / rows), ceil(problem.N / variant.block_n), gpu.sms // variant.blocks
