"""`weft.kernels.matmul` on shapes drawn at random, against cuBLAS: how its choices hold where nothing was tuned.

    python benchmarks/shapes.py --seed 7 --count 300                  # fp16, bf16 and fp8
    python benchmarks/shapes.py --dtypes float16 --candidates 5       # also the five next best choices of the model: its regret
    python benchmarks/shapes.py --seed 7 --first 100 --count 300 --seconds 20     # a part of them
    python benchmarks/shapes.py --merge one/shapes.jsonl other/shapes.jsonl           # the results of all parts

Sizes are log-uniform, odd, skinny, or those of model layers; operands are row- or column-major, some with padded rows. Results
are distributions of the ratio to cuBLAS, by class of shape, and one record per shape (`--out FOLDER`), from which the model of
`weft.kernels.heuristic` is fitted.

What makes the figures comparable:

- Calls of one contestant run back to back in a CUDA graph, each on other operands and another output. These are so many that
  they exceed the L2 cache several times over, so every call reads its operands from memory, as in a model with many layers.
- Blocks of some milliseconds alternate between contestants in random order, so that clocks and temperature are those of both.
- Each contestant is first checked on poisoned outputs, against products of the same inputs with float32 sums.
- Clocks and power are sampled beside the run by nvidia-smi, and recorded with each shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from threading import Thread
from typing import IO, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import harness, report  # noqa: E402 - found through the path above, also when this file is the script
from benchmarks.matmul import CUBLAS, described  # noqa: E402
from benchmarks.report import Goal, Line  # noqa: E402
from weft.kernels.operands import GRANULE  # noqa: E402

TITLE = "Matmul of shapes drawn at random"
NEEDS_GPU = True
WORST = 20
"""Shapes that are listed one by one."""
DTYPES = ("float16", "bfloat16", "float8_e4m3fn")
ROTATED_BYTES = 240 << 20
"""Bytes of operands and outputs that a graph's calls pass through: four times the L2 cache of an H200."""
MOST_CALLS = 128
"""Calls of a graph; the operands of shapes below two megabytes stay partly in the cache, for every contestant."""
BLOCK_MS = 20.0
ROUNDS = 7
JOBS = 8
LARGEST_OPERATIONS = 2.0**42
LARGEST_BYTES = 1 << 30
LAYERS = (
    (4096, 4096), (6144, 4096), (14336, 4096), (28672, 4096), (4096, 14336), (8192, 8192), (10240, 8192), (28672, 8192),
    (8192, 28672), (5120, 5120), (13824, 5120), (5120, 13824), (7168, 2048), (2112, 7168), (24576, 1536), (7168, 16384),
    (3072, 768), (768, 3072), (2304, 768), (50304, 768), (32000, 4096), (128256, 4096), (1536, 7168), (4608, 3584),
)  # fmt: skip
"""N and K of linear layers of language models."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A product to time: sizes, element type, whether a and b are transposed in memory, elements of padding after each row of a
    and b, and the way it was drawn."""

    M: int
    N: int
    K: int
    dtype: str = "float16"
    a_turned: bool = False
    b_turned: bool = False
    a_pad: int = 0
    b_pad: int = 0
    drawn: str = "given"

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element."""
        return 1 if self.dtype.startswith("float8") else 2

    @property
    def nbytes(self) -> int:
        """Bytes of operands and output without padding; the output has 2-byte elements."""
        return (self.M * self.K + self.K * self.N) * self.itemsize + 2 * self.M * self.N

    @property
    def operations(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.M * self.N * self.K

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from one row (or column, if turned) of a and b to the next."""
        return (self.M if self.a_turned else self.K) + self.a_pad, (self.K if self.b_turned else self.N) + self.b_pad

    @property
    def aligned(self) -> bool:
        """Rows of operands and output begin at multiples of 16 bytes."""
        return all(pitch * self.itemsize % GRANULE == 0 for pitch in self.pitches) and self.N * 2 % GRANULE == 0

    @property
    def kind(self) -> str:
        """The class of which the distribution is reported."""
        if not self.aligned:
            return "not aligned to 16 bytes"
        if min(self.M, self.N) <= 64:
            return "aligned, M or N <= 64"
        tiles = -(-self.M // 128) * -(-self.N // 128)
        return "aligned, fewer than 132 tiles of 128x128" if tiles < 132 else "aligned, 132 tiles and more"

    def __str__(self) -> str:
        pads = f" pad {self.a_pad},{self.b_pad}" if self.a_pad or self.b_pad else ""
        return f"{self.M}x{self.N}x{self.K} {self.dtype} {'NT'[self.a_turned]}{'NT'[self.b_turned]}{pads}"


def draw(seed: int, count: int, dtypes: Sequence[str] = DTYPES) -> list[Shape]:
    """`count` shapes, the types in turn. Equal seeds give equal shapes, and a longer list begins with the shorter one."""
    random = Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        shape = _drawn(random, dtypes[len(found) % len(dtypes)])
        if shape.operations <= LARGEST_OPERATIONS and shape.nbytes <= LARGEST_BYTES:
            found.append(shape)
    return found


def _drawn(random: Random, dtype: str) -> Shape:
    def size(low: int, high: int, step: int = 1) -> int:
        return max(step, round(low * (high / low) ** random.random() / step) * step)

    drawn = random.choice(("even", "even", "odd", "layer", "layer", "skinny"))
    if drawn == "even":
        M, N, K = (size(64, 16384, random.choice((8, 16, 64, 128))) for _ in range(3))
    elif drawn == "odd":
        M, N, K = (size(33, 8192) for _ in range(3))
    elif drawn == "layer":
        N, K = random.choice(LAYERS)
        M = size(16, 16384, random.choice((1, 8, 128)))
    else:
        M, N, K = size(1, 64), size(1024, 28672, 64), size(1024, 28672, 64)
        if random.random() < 0.25:
            M, N = N, M
    if dtype.startswith("float8"):
        # cuBLAS multiplies fp8 if both operands are contiguous along K, and K and N are multiples of 16.
        N, K = -(-N // 16) * 16, -(-K // 16) * 16
        return Shape(M, N, K, dtype, False, True, 0, 0, drawn)
    pads = (random.choice((8, 64, 1)), random.choice((8, 64, 1))) if random.random() < 0.15 else (0, 0)
    return Shape(M, N, K, dtype, random.random() < 0.3, random.random() < 0.5, *pads, drawn)


# Contestants


def operands(shape: Shape, count: int) -> tuple[list[Any], list[Any], list[Any]]:
    """`count` different operands a, b and outputs, as views of three buffers."""
    import torch

    dtype = getattr(torch, shape.dtype)

    def random(count: int, rows: int, columns: int, turned: bool, pitch: int) -> list[Any]:
        lines = columns if turned else rows
        memory = torch.randn((count, lines, pitch), device="cuda", dtype=torch.bfloat16).to(dtype)
        flat = memory[:, :, : rows if turned else columns]
        return [x.T if turned else x for x in flat]

    a_pitch, b_pitch = shape.pitches
    A = random(count, shape.M, shape.K, shape.a_turned, a_pitch)
    B = random(count, shape.K, shape.N, shape.b_turned, b_pitch)
    out = torch.bfloat16 if shape.itemsize == 1 else dtype
    C = [torch.empty((shape.M, shape.N), device="cuda", dtype=out) for _ in range(count)]
    return A, B, C


Call = Callable[[Any, Any, Any], Any]


def cublas(shape: Shape) -> Call:
    """The call of cuBLAS, through PyTorch."""
    import torch

    if shape.itemsize == 1:
        one = torch.ones((), device="cuda")
        scaled: Any = torch._scaled_mm  # noqa: SLF001 its name
        return lambda a, b, c: scaled(a, b, scale_a=one, scale_b=one, out_dtype=c.dtype, use_fast_accum=True, out=c)
    return lambda a, b, c: torch.mm(a, b, out=c)


def configurations(A: Any, B: Any, C: Any, others: int) -> dict[str, Any]:
    """The configurations that are timed: weft's choice, and the model's `others` best ones besides."""
    from weft.kernels import chosen_config, multiply
    from weft.kernels.heuristic import ranked

    chosen = chosen_config(A, B, C)
    best = ranked(multiply.problem(A, B, C), others + 1) if others else []
    rest = [config for config in best if config != chosen][:others]
    return {"weft": chosen} | {f"{number}: {described(config)}": config for number, config in enumerate(rest, 1)}


# Timing


@dataclass(slots=True)
class Record:
    """What was measured of a shape: median milliseconds per call by contestant, weft's choice in words, the configurations,
    the contestants that were wrong or did not run, clock (MHz) and power (W)."""

    shape: Shape
    chosen: str
    milliseconds: dict[str, float]
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    clock: float | None = None
    power: float | None = None

    @property
    def ratio(self) -> float | None:
        """The time of cuBLAS over weft's; None if either is missing."""
        theirs, ours = self.milliseconds.get(CUBLAS), self.milliseconds.get("weft")
        return theirs / ours if theirs and ours else None

    @property
    def regret(self) -> float | None:
        """The time of weft's choice over that of the fastest of weft's candidates, at least 1."""
        ours = {name: ms for name, ms in self.milliseconds.items() if name != CUBLAS}
        return ours["weft"] / min(ours.values()) if len(ours) > 1 and "weft" in ours else None


def measure(shape: Shape, others: int, rounds: int, block_ms: float, calls: int = 1) -> Record:
    """Check and time all contestants on one shape, with at least so many calls in a graph."""
    import torch

    from weft.kernels import matmul

    count = max(2, min(MOST_CALLS, -(-ROTATED_BYTES // shape.nbytes)))
    turns = -(-calls // count)
    A, B, C = (arrays * turns for arrays in operands(shape, count))
    configs = configurations(A[0], B[0], C[0], others)
    record = Record(shape, described(configs["weft"]), {}, {name: asdict(config) for name, config in configs.items()})
    contestants: dict[str, Call] = {CUBLAS: cublas(shape), "weft": matmul}
    contestants |= {name: partial(matmul, config=config) for name, config in configs.items() if name != "weft"}
    # The operands have no more bits than TF32.
    torch.backends.cuda.matmul.allow_tf32 = True
    want = A[0].float() @ B[0].float()
    graphs: dict[str, Any] = {}
    for name, call in contestants.items():
        try:
            C[0].fill_(float("nan"))
            call(A[0], B[0], C[0])
            if not _correct(C[0], want):
                record.wrong.append(name)
                continue
            graphs[name] = _graph(call, A, B, C)
        except Exception as error:  # noqa: BLE001 - whatever one contestant does wrong, the others are still worth measuring
            report.warn(f"{shape}: {name}: not measured: {type(error).__name__}: {error}")
            record.wrong.append(name)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    replays = {name: max(1, round(block_ms / _timed(torch, graph, 1))) for name, graph in graphs.items()}
    for number in range(rounds):
        for name in harness.shuffled(list(graphs), number):
            times[name].append(_timed(torch, graphs[name], replays[name]) / len(C))
    record.milliseconds = {name: statistics.median(found) for name, found in times.items()}
    return record


def _correct(got: Any, want: Any) -> bool:
    allowed = 2e-2 * float(want.abs().max()) + 1e-2
    return bool((got.float() - want).abs().max() <= allowed)


def _graph(call: Call, A: Sequence[Any], B: Sequence[Any], C: Sequence[Any]) -> Any:
    import torch

    graph = torch.cuda.CUDAGraph()
    call(A[0], B[0], C[0])
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for a, b, c in zip(A, B, C, strict=True):
            call(a, b, c)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _timed(torch: Any, graph: Any, replays: int) -> float:
    """Milliseconds per replay, of some back to back."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / replays


@contextmanager
def sampled(every_ms: int = 20) -> Iterator[list[tuple[float, float]]]:
    """A list that grows by samples of the clock in MHz and power in W, which nvidia-smi takes meanwhile."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", f"-lms={every_ms}"]
    samples: list[tuple[float, float]] = []
    process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        assert process.stdout is not None
        for text in process.stdout:
            clock, _, power = text.partition(",")
            try:
                samples.append((float(clock), float(power)))
            except ValueError:
                report.warn(f"nvidia-smi says {text.strip()!r}")
                return

    reader = Thread(target=read)
    reader.start()
    try:
        yield samples
    finally:
        process.terminate()
        reader.join()
        process.wait()


def prepare(work: tuple[Shape, int]) -> str:
    """Compile what a shape needs into weft's cache on disk, in a process of its own; returns what went wrong."""
    shape, others = work
    from weft.kernels import matmul

    try:
        A, B, C = (x[0] for x in operands(shape, 1))
        for config in configurations(A, B, C, others).values():
            # A launch, because one of a chain compiles also what packs and what adds.
            matmul(A, B, C, config=config)
    except Exception as error:  # noqa: BLE001 - the run says it again, where it can be attributed
        return f"{shape}: {type(error).__name__}: {error}"
    return ""


# Results


def read(file: Path) -> list[Record]:
    """The records of a file."""
    found: list[dict[str, Any]] = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
    return [Record(Shape(**record.pop("shape")), **record) for record in found]


def distribution(records: Sequence[Record], what: str, value: Callable[[Record], float | None]) -> list[Line]:
    """Geometric mean, median, 5th percentile and extreme of a value by class."""
    groups: dict[str, list[Record]] = {"all": list(records)}
    aligned = [record for record in records if record.shape.aligned]
    groups["aligned"] = aligned
    for record in records:
        groups.setdefault(record.shape.kind, []).append(record)
    for dtype in dict.fromkeys(record.shape.dtype for record in records):
        groups[f"aligned, {dtype}"] = [record for record in aligned if record.shape.dtype == dtype]
    return [line for name, members in groups.items() for line in _summary(name, what, members, value)]


GOALS = {
    ("aligned", "geometric mean"): 1.01, ("aligned", "5th percentile"): 0.95, ("aligned", "worst"): 0.90,
    ("all", "geometric mean"): 1.05, ("all", "median"): 1.00,
}  # fmt: skip
"""Goals of the ratio to cuBLAS, by class and statistic."""


def _summary(
    name: str, what: str, members: Sequence[Record], value: Callable[[Record], float | None]
) -> Iterator[Line]:
    found = {str(record.shape): number for record in members if (number := value(record)) is not None}
    if not found:
        return
    numbers = sorted(found.values())
    high = what == "regret"
    extreme = max(found, key=lambda key: found[key]) if high else min(found, key=lambda key: found[key])
    tail = numbers[min(len(numbers) - 1, int(0.95 * len(numbers)))] if high else numbers[int(0.05 * len(numbers))]
    missing = len(members) - len(numbers)
    note = f"of {len(numbers)}" + (f", {missing} without a figure" if missing else "")
    for statistic, number, remark in (
        ("geometric mean", statistics.geometric_mean(numbers), note),
        ("median", statistics.median(numbers), ""),
        ("95th percentile" if high else "5th percentile", tail, ""),
        ("worst", found[extreme], extreme),
    ):
        bound = GOALS.get((name, statistic)) if not high else None
        yield Line(f"{what}, {name}, {statistic}", number, "", {}, (Goal(bound),) if bound else (), remark)


def compile_shapes(shapes: Sequence[Shape], others: int, jobs: int) -> None:
    """Compile what the shapes need, in parallel."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for problem in filter(None, pool.map(prepare, [(shape, others) for shape in shapes])):
            report.warn(problem)


def run_shapes(
    shapes: Sequence[Shape], others: int, rounds: int, block_ms: float, seconds: float, log: IO[str] | None = None
) -> list[Record]:
    """Check and time one shape after another, for so many seconds; each is written to `log` when it is complete."""
    records: list[Record] = []
    end = time.monotonic() + seconds
    with sampled() as samples:
        for shape in shapes:
            if time.monotonic() > end:
                break
            since = len(samples)
            record = measure(shape, others, rounds, block_ms)
            if len(samples) > since:
                columns = zip(*samples[since:], strict=True)
                record.clock, record.power = (statistics.median(column) for column in columns)
            records.append(record)
            if log is not None:
                log.write(json.dumps(asdict(record)) + "\n")
                log.flush()
    return records


def lines_of(records: Sequence[Record]) -> list[Line]:
    """The distributions, and the worst shapes."""
    lines = distribution(records, "cuBLAS / weft", lambda record: record.ratio)
    lines += distribution(records, "regret", lambda record: record.regret)
    rated = sorted((record for record in records if record.ratio), key=lambda record: record.ratio or 0.0)
    for record in rated[:WORST]:
        ours, theirs = (record.shape.operations / record.milliseconds[who] / 1e9 for who in ("weft", CUBLAS))
        lines.append(Line(str(record.shape), ours, "TFLOP/s", {CUBLAS: theirs}, (), record.chosen))
    for record in records:
        lines += [Line(f"{record.shape}: {who}", None, "", {}, (), "wrong or not run") for who in record.wrong]
    return lines


def run(quick: bool) -> list[Line]:
    """The shapes of the first seed: 24 when quick, else 300."""
    shapes = draw(1, 24 if quick else 300)
    compile_shapes(shapes, 0, JOBS)
    return lines_of(run_shapes(shapes, 0, 3 if quick else ROUNDS, BLOCK_MS / (4 if quick else 1), float("inf")))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the number of the first of the shapes to measure")
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--shapes", nargs="+", metavar="MxNxK[:dtype]", help="these shapes instead of random ones")
    parser.add_argument(
        "--merge", nargs="+", type=Path, metavar="FILE", help="results of these records; nothing is timed"
    )
    parser.add_argument(
        "--candidates", type=int, default=0, help="further configurations to time: the regret of the choice"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--block", type=float, default=BLOCK_MS, help="milliseconds of a block")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes that compile beforehand, or 0")
    parser.add_argument("--compile", action="store_true", help="compile, and time nothing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop then, after the shape at hand")
    parser.add_argument("--out", type=Path, help="folder of the results (default: benchmarks/results/<device>)")
    given = parser.parse_args(argv)
    drawn = [_given(text) for text in given.shapes] if given.shapes else draw(given.seed, given.count, given.dtypes)
    shapes = drawn[given.first :]
    if given.jobs and not given.merge:
        compile_shapes(shapes, given.candidates, given.jobs)
    if given.compile:
        return 0
    if given.merge:
        records = [record for file in given.merge for record in read(file)]
        report.show(TITLE, lines_of(records))
        return 0
    facts = report.about() | {"seed": str(given.seed)}
    folder = given.out or ROOT / "benchmarks" / "results" / report.folder_of(facts["device"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "shapes.jsonl").open("w", encoding="utf-8") as log:
        records = run_shapes(shapes, given.candidates, given.rounds, given.block, given.seconds, log)
    facts["shapes"] = str(len(records))
    lines = lines_of(records)
    report.show(TITLE, lines)
    report.save(folder, "shapes", TITLE, lines, facts)
    return 0


def _given(text: str) -> Shape:
    sizes, _, dtype = text.partition(":")
    M, N, K = map(int, sizes.split("x"))
    return Shape(M, N, K, dtype or "float16", b_turned=dtype.startswith("float8"))


if __name__ == "__main__":
    sys.exit(main())
