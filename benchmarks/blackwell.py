"""Kernels for Blackwell without a Blackwell GPU: their machine code, how fast they can be at most, and the simulator's speed.

    python -m benchmarks.blackwell [code|steps|bounds|simulator ...] [--quick] [--out FOLDER]

The exit status is 1 where a goal is missed. Parts:

- `code`: every kernel of the examples that Blackwell runs: registers, memory, NVRTC's time in this process (its library
  loaded, no cache, the median of a few compilations), what ptxas warns of, and counts of the instructions of Blackwell.
- `steps`, `bounds`: what `benchmarks.model` says of the products: of a step along K, and of products of 8192 x 8192.
- `simulator`: products of 512 x 512 x 512, compilation included, on however many cores there are.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import weft
from benchmarks import blackwell_kernels, model, run, twin
from benchmarks.model import B200, KINDS, Problem, Variant
from benchmarks.report import Goal, Line

NEEDS_GPU = False
STRICT = True
FOLDER = "sm_100a"
SIDE = 8192
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
LATE = 16
"""Multiprocessors that begin a tile late, where the model is asked about that."""
SIMULATED = 512

INSTRUCTIONS = {
    "MMA": re.compile(r"\bUTC[A-Z]MMA"),
    "LDTM": re.compile(r"\bLDTM"),
    "STTM": re.compile(r"\bSTTM"),
    "UTCBAR": re.compile(r"\bUTCBAR"),
    "UTCCP": re.compile(r"\bUTCCP"),
    "UTMALDG": re.compile(r"\bUTMALDG"),
}
"""Instructions that are counted, as they stand in disassembled code."""
WARNING = re.compile(r"warning|\(C7\d+\)", re.IGNORECASE)
"""What ptxas says where it gives something up."""

# Machine code


def code(quick: bool) -> list[Line]:
    """A line for each kernel, behind two that say the worst of all."""
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

    text, times = kernel.front.cuda, []
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
        "shared": attrs["shared_bytes"] + made.shared,
        "tensor columns": attrs.get("tensor_columns", 0),
        "warnings": len(said),
        **{mnemonic: len(pattern.findall(listing)) for mnemonic, pattern in INSTRUCTIONS.items()},
    }
    return Line(name, statistics.median(times), "ms", {}, (_milliseconds(),), "; ".join(said), facts)


# The model

EXAMPLES: dict[str, tuple[Variant, ...]] = {
    "fp16": (
        Variant(name="ladder, pipelined", persistent=False, prefetch=False, overlap=False, band=0),
        Variant(name="ladder, persistent", prefetch=False, overlap=False, band=0),
        Variant(name="ladder, persistent, grouped", prefetch=False, overlap=False),
        Variant(name="ladder, persistent, pipelined", overlap=False, band=0),
        Variant(name="ladder, persistent, pipelined, grouped", overlap=False),
    )
}
"""Variants that only some kinds have, by kind."""
COMMON = (
    Variant(name="fixed tiles"),
    Variant(name="taken tiles", clc=True),
    Variant(name="fixed tiles, pairs", pairs=True),
    Variant(name="taken tiles, pairs", pairs=True, clc=True),
)
SCALED = (
    *(Variant(name=f"{columns} columns, {name}", block_n=columns, instr_n=columns, overlap=columns < 256, pairs=pairs, clc=clc)
      for columns in (128, 256)
      for name, pairs, clc in (("fixed tiles", False, False), ("fixed tiles, pairs", True, False), ("taken tiles, pairs", True, True))),
)  # fmt: skip
"""Of block-scaled products: two accumulators of 256 columns leave no room for scales in tensor memory."""


def variants() -> Iterator[tuple[str, Variant]]:
    """Each kind with each of its variants."""
    for name, kind in KINDS.items():
        for variant in (*EXAMPLES.get(name, ()), *(SCALED if kind.scaled else COMMON)):
            yield name, variant


def steps(_quick: bool) -> list[Line]:
    """What a step along K costs, and a tile's way out: cycles of each resource, and bytes."""
    lines: list[Line] = []
    for name, variant in variants():
        cost, kind = model.step(B200, KINDS[name], variant), KINDS[name]
        cycles, out = cost.cycles(B200), model.epilogue(B200, kind, variant)
        facts = {
            "tensor cores": cycles["tensor cores"],
            "shared memory": cycles["shared memory"],
            "L2 port": cycles["L2 port"],
            "bytes read by products": int(cost.read),
            "written by TMA": int(cost.written),
            "from L2": int(cost.from_l2),
            "tile's way out": max(out.values()),
            "": "hidden" if variant.overlap else "exposed",
        }
        lines.append(Line(f"{name}, {variant.name}", max(cycles.values()), "cycles", {}, (), _tile(variant), facts))
    return lines


def bounds(quick: bool) -> list[Line]:
    """The most that each variant can reach of the peak at each K; facts: how busy what is, and what is lost."""
    lengths = LENGTHS[::3] if quick else LENGTHS
    return [_bound_line(name, variant, K) for name, variant in variants() for K in lengths]


def _bound_line(name: str, variant: Variant, K: int) -> Line:
    kind, problem = KINDS[name], Problem(SIDE, SIDE, K)
    found = model.bound(B200, kind, variant, problem)
    late = model.bound(B200, kind, variant, problem, LATE // variant.blocks)
    firm = model.bound(B200.unassumed(), kind, variant, problem)
    facts = {
        "PFLOP/s": problem.operations / found.seconds / 1e15,
        "limit": found.limit,
        **{resource: f"{share:.0%}" for resource, share in found.busy.items()},
        "waves": f"{found.waves:.1%}",
        "exposed": f"{found.exposed:.1%}",
        f"{LATE} SMs late": late.fraction,
        "unassumed": firm.fraction,
        "unassumed limit": firm.limit,
    }
    return Line(f"{name}, K={K}, {variant.name}", found.fraction, "of peak", {}, (), "", facts)


def _tile(variant: Variant) -> str:
    rows = variant.block_m * variant.blocks
    return f"tiles of {rows}x{variant.block_n}{' by two' if variant.pairs else ''}, {variant.row_bytes} bytes of a row"


# The simulator


def simulator(quick: bool) -> list[Line]:
    """Seconds of the first launch of each product, whose result is compared."""
    size = SIMULATED // 4 if quick else SIMULATED
    return [timed(name, launch, check) for name, launch, check in simulations(size)]


def simulations(size: int) -> Iterator[tuple[str, Callable[[], Any], Callable[[], None]]]:
    """Name, launch and check of each product, on fresh random operands."""
    place = twin.load("workbench").Place(gpu=False)
    for dtype in ("float16", "bfloat16", "float8_e4m3fn"):
        module = twin.load("matmul_blackwell")
        for name, settings in module.RUNS.items():
            A, B, C = _matrices(place, size, dtype)
            yield f"{name}, {dtype}", partial(module.matmul, A, B, C, **settings), partial(place.check_product, C, A, B)
    for name, (function, settings) in twin.load("matmul_ladder").RUNGS.items():
        A, B, C = _matrices(place, size, "float16")
        launch = partial(function, A, B, C, **{**blackwell_kernels.TILE, **settings})
        yield f"ladder, {name}", launch, partial(place.check_product, C, A, B)
    scaled = twin.load("matmul_scaled")
    for formats in scaled.FORMATS:
        (A, a), (B, b) = (scaled.quantised(place, place.random(size, size), name) for name in formats)
        C = place.poisoned(size, size, dtype="float16")
        yield (
            f"scaled, {' by '.join(formats)}",
            partial(scaled.matmul_scaled, A, B, C),
            partial(scaled.check, place, C, a, b),
        )


def timed(name: str, launch: Callable[[], Any], check: Callable[[], None]) -> Line:
    """Seconds of a launch on the simulated GPU; no value where it is refused."""
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
    "code": ("Machine code for sm_100a: NVRTC's milliseconds, and what comes out", code),
    "steps": ("Products on a B200: a step along K in one multiprocessor, by the model", steps),
    "bounds": (f"Products {SIDE} x {SIDE} x K on a B200: the most of the peak that the model allows", bounds),
    "simulator": (f"Simulator: products {SIMULATED} x {SIMULATED} x {SIMULATED} on Blackwell", simulator),
}
MEANING = (
    "not measured: an upper bound in which all that can overlap does; benchmarks/model.py says what is counted",
    "shares of time that a resource is busy; waves: programs without a tile in the last round; exposed: loads and stores that "
    "nothing hides",
    f"{LATE} SMs late: the same where so many multiprocessors begin a tile's time after the others",
    "unassumed: the same without the rates that are assumed, those of the L2 port and of writes to shared memory",
)
FOOTERS: dict[str, Sequence[str]] = {"steps": model.B200_SOURCES, "bounds": (*MEANING, *model.B200_SOURCES)}


def main(argv: Sequence[str] | None = None) -> int:
    """The command: parts by name, or all of them; returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    parts = [f"blackwell.{name}" for name in given if name in PARTS]
    return run.main([*(parts or ["blackwell"]), *(word for word in given if word not in PARTS)])


if __name__ == "__main__":
    sys.exit(main())
