"""Kernels for Blackwell without a Blackwell GPU: their machine code, modelled bounds, and the simulator's speed.

    python -m benchmarks.blackwell [code|steps|bounds|simulator ...] [--quick] [--out FOLDER]

The exit status is 1 if a goal is missed. Parts:

- `code`: every kernel of the examples that Blackwell runs: registers, memory, NVRTC's time in this process (its library
  loaded, no cache, the median of a few compilations), warnings of ptxas, and counts of Blackwell's instructions.
- `steps`, `bounds`: results of `benchmarks.model`: for a step along K, and for matmuls of 8192 x 8192.
- `simulator`: matmuls of 512 x 512 x 512, compilation included, on the cores of this machine.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from benchmarks import blackwell_kernels, model, run, twin
from benchmarks.model import B200, KINDS, Gpu, Kind, Problem, Variant
from benchmarks.report import Goal, Line

NEEDS_GPU = False
STRICT = True
FOLDER = "sm_100a"
SIDE = 8192
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LATE = 16
"""Multiprocessors that begin one tile late, in the model's scenario of late starts."""
SIMULATED = 512

INSTRUCTIONS = {
    "MMA": re.compile(r"\bUTC[A-Z]MMA"),
    "LDTM": re.compile(r"\bLDTM"),
    "STTM": re.compile(r"\bSTTM"),
    "UTCBAR": re.compile(r"\bUTCBAR"),
    "UTCCP": re.compile(r"\bUTCCP"),
    "UTMALDG": re.compile(r"\bUTMALDG"),
}
"""Instructions that are counted, by their names in SASS."""
WARNING = re.compile(r"warning|\(C7\d+\)", re.IGNORECASE)
"""Words of ptxas warnings about lost performance."""

# Machine code


def code(quick: bool) -> list[Line]:
    """Two lines with the worst figures of all kernels, then a line for each kernel."""
    return code_of(list(blackwell_kernels.launches()), 1 if quick else 5)


def code_of(launches: Sequence[tuple[str, Callable[[], Any]]], count: int) -> list[Line]:
    """The lines of these launches, each compiled `count` times."""
    from weft.errors import UserError

    lines: list[Line] = []
    for name, launch in launches:
        try:
            found = blackwell_kernels.compiled(launch)
        except UserError as error:
            lines.append(Line(name, None, "ms", {}, (_milliseconds(),), str(error).partition("\n")[0]))
            continue
        lines += [_code_line(name, kernel, count) for kernel in found]
    spilled, warnings = (sum(line.facts.get(fact, 0) for line in lines) for fact in ("spilled", "warnings"))
    worst = [
        Line("bytes that threads spill, all kernels", float(spilled), "B", {}, (Goal(0, ceiling=True),)),
        Line("warnings of ptxas, all kernels", float(warnings), "", {}, (Goal(0, ceiling=True),)),
    ]
    return [*worst, *lines]


def _milliseconds() -> Goal:
    return Goal(600.0, ceiling=True)


def _code_line(name: str, kernel: Any, count: int) -> Line:
    from weft.runtime import nvrtc, sass

    text = kernel.front.cuda
    times: list[float] = []
    made = nvrtc.compile_cuda(text, name=kernel.name, arch=kernel.request.target)
    for _ in range(count):
        start = perf_counter()
        made = nvrtc.compile_cuda(text, name=kernel.name, arch=kernel.request.target)
        times.append((perf_counter() - start) * 1e3)
    attrs, listing = kernel.front.lowered.attrs, sass.disassemble(made.cubin)
    said = [line.strip() for line in made.log.splitlines() if WARNING.search(line)]
    facts = {
        "registers": made.n_regs,
        "spilled": made.n_spills,
        "shared": attrs.shared_bytes + made.shared,
        "tensor columns": attrs.tensor_columns,
        "warnings": len(said),
        **{mnemonic: len(pattern.findall(listing)) for mnemonic, pattern in INSTRUCTIONS.items()},
    }
    return Line(name, statistics.median(times), "ms", {}, (_milliseconds(),), "; ".join(said), facts)


# The model

COMMON = (
    Variant(name="fixed tiles"),
    Variant(name="claimed tiles", clc=True),
    Variant(name="fixed tiles, pairs", pairs=True),
    Variant(name="claimed tiles, pairs", pairs=True, clc=True),
)
ALONE: dict[str, Any] = {"written_first": 1.0, "stored_first": 1.0}
"""A tile is stored before the next one begins."""
LADDER = (
    Variant(name="ladder, pipelined", prefetch=False, band=0, **ALONE),
    Variant(name="ladder, persistent", prefetch=False, band=0, **ALONE),
    Variant(name="ladder, persistent, grouped", prefetch=False, **ALONE),
    Variant(name="ladder, persistent, pipelined", band=0, written_first=1.0),
    Variant(name="ladder, persistent, pipelined, grouped", written_first=1.0),
)
ONE_ACCUMULATOR: dict[str, Any] = {"written_first": 0.75, "stored_first": 0.25}
"""Two of 256 columns leave no room for scales. The next tile waits until the last quarter of this one has been read, which
waits for the buffer of the second."""
SCALED = tuple(
    replace(variant, name=f"{columns} columns, {variant.name}", block_n=columns, instr_n=columns, **alone)
    for columns, alone in ((128, {}), (256, ONE_ACCUMULATOR))
    for variant in COMMON
)
VARIANTS = {"fp16": (*LADDER, *COMMON), "fp8": COMMON, "mxfp8": SCALED, "nvfp4": SCALED}
"""The variants of the examples, by kind of operands."""
LETTERS = {"tensor cores": "T", "shared memory": "S", "L2 port": "L", "HBM": "H"}


def steps(_quick: bool) -> list[Line]:
    """The cost of a step along K and of an epilogue: cycles of each resource, and bytes."""
    lines: list[Line] = []
    for kind, variant in _variants():
        cost = model.step(B200, kind, variant)
        cycles = cost.cycles(B200)
        facts = {
            **cycles,
            "bytes read by products": int(cost.read),
            "written by TMA": int(cost.written),
            "from L2": int(cost.from_l2),
            "epilogue": max(model.epilogue(B200, kind, variant).values()),
            "exposed": model.exposed(B200, kind, variant),
        }
        lines.append(Line(f"{kind.name}, {variant.name}", max(cycles.values()), "cycles", facts=facts))
    return lines


def bounds(quick: bool) -> list[Line]:
    """The upper bound of each variant as a fraction of the peak, for each K, with the letter of the busiest resource."""
    return [
        _bound_line(gpu, kind, variant, LENGTHS[::3] if quick else LENGTHS, suffix)
        for kind, variant in _variants()
        for gpu, suffix in ((B200, ""), (B200.unassumed(), ", unassumed"))
    ]


def _bound_line(gpu: Gpu, kind: Kind, variant: Variant, lengths: Sequence[int], suffix: str) -> Line:
    found = {K: model.bound(gpu, kind, variant, Problem(SIDE, SIDE, K)) for K in lengths}
    late = model.bound(gpu, kind, variant, Problem(SIDE, SIDE, SIDE), LATE // variant.blocks)
    shortest, whole = found[lengths[0]], model.bound(gpu, kind, variant, Problem(SIDE, SIDE, SIDE))
    facts = {
        "PFLOP/s": whole.fraction * gpu.peaks[kind.name] / 1e15,
        **{f"K={K}": f"{bound.fraction:.1%} {LETTERS[bound.limit]}" for K, bound in found.items()},
        "waves": f"{whole.waves:.1%}",
        f"exposed at K={lengths[0]}": f"{shortest.exposed:.1%}",
        f"{LATE} late": f"{late.fraction:.1%}",
    }
    return Line(f"{kind.name}, {variant.name}{suffix}", whole.fraction, "of peak", facts=facts)


def _variants() -> Iterator[tuple[Kind, Variant]]:
    for name, variants in VARIANTS.items():
        for variant in variants:
            yield KINDS[name], variant


# The simulator


def simulator(quick: bool) -> list[Line]:
    """Seconds of the first launch of each matmul, whose result is compared."""
    size = SIMULATED // 4 if quick else SIMULATED
    return [timed(name, launch, check) for name, launch, check in simulations(size)]


def simulations(size: int) -> Iterator[tuple[str, Callable[[], Any], Callable[[], None]]]:
    """Name, launch and check of each matmul, on fresh random operands."""
    place = twin.load("workbench").Place(gpu=False)
    for dtype in ("float16", "bfloat16", "float8_e4m3fn"):
        module = twin.load("matmul_blackwell")
        for name, settings in module.RUNS.items():
            a, b, c = _matrices(place, size, dtype)
            yield f"{name}, {dtype}", partial(module.matmul, a, b, c, **settings), partial(place.check_product, c, a, b)
    for name, (function, settings) in twin.load("matmul_ladder").RUNGS.items():
        a, b, c = _matrices(place, size, "float16")
        launch = partial(function, a, b, c, **{**blackwell_kernels.TILE, **settings})
        yield f"ladder, {name}", launch, partial(place.check_product, c, a, b)
    scaled = twin.load("matmul_scaled")
    for formats in scaled.FORMATS:
        (a, a_values), (b, b_values) = (scaled.quantised(place, place.random(size, size), name) for name in formats)
        c = place.poisoned(size, size, dtype="float16")
        yield (
            f"scaled, {' by '.join(formats)}",
            partial(scaled.matmul_scaled, a, b, c),
            partial(scaled.check, place, c, a_values, b_values),
        )


def timed(name: str, launch: Callable[[], Any], check: Callable[[], None]) -> Line:
    """Seconds of a launch on the simulated GPU; no value if it is refused."""
    from weft.errors import UserError

    goals = (Goal(10.0, ceiling=True),)
    start = perf_counter()
    try:
        with blackwell_kernels.simulated():
            compiled = launch()
    except UserError as error:
        return Line(name, None, "s", {}, goals, str(error).partition("\n")[0])
    elapsed = perf_counter() - start
    check()
    return Line(name, elapsed, "s", {}, goals, f"{compiled.report.programs} programs")


def _matrices(place: Any, size: int, dtype: str) -> tuple[Any, Any, Any]:
    out = "bfloat16" if dtype == "bfloat16" else "float16"
    return (
        place.random(size, size, dtype=dtype),
        place.random(size, size, dtype=dtype),
        place.poisoned(size, size, dtype=out),
    )


PARTS = {
    "code": ("Machine code for sm_100a: NVRTC time, registers and instructions", code),
    "steps": ("Matmul on a B200: modelled cost of a step along K in one multiprocessor", steps),
    "bounds": (f"Matmul {SIDE} x {SIDE} x K on a B200: modelled upper bounds as fractions of the peak", bounds),
    "simulator": (f"Simulator: matmul {SIMULATED} x {SIMULATED} x {SIMULATED} on Blackwell", simulator),
}
MEANING = f"""\
not measured: an upper bound with perfect overlap; benchmarks/model.py says what is counted
the first figure: K={SIDE}. Letters: the busiest of tensor cores (T), shared memory (S), the path from L2 (L) and HBM (H)
waves: time lost to idle programs in the last wave; exposed: to loads and stores that are not overlapped
{LATE} late: the first figure if that many multiprocessors begin one tile later than the others
unassumed: without the two rates that are assumed"""
FOOTERS: dict[str, Sequence[str]] = {
    "steps": model.SOURCES.splitlines(),
    "bounds": [*MEANING.splitlines(), *model.SOURCES.splitlines()],
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command: parts by name, or all of them; returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    parts = [f"blackwell.{name}" for name in given if name in PARTS]
    return run.main([*(parts or ["blackwell"]), *(word for word in given if word not in PARTS)])


if __name__ == "__main__":
    sys.exit(main())
