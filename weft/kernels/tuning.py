"""`tune_matmul` and `weft tune matmul`: the choice for a shape, measured on the GPU at hand and stored for later processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft import testing
from weft.errors import fail
from weft.errors.launch import NO_BENCHMARK_DEVICE
from weft.kernels import heuristic, measured, multiply
from weft.kernels.batches import batch_of
from weft.kernels.memory import empty_like
from weft.kernels.shapes import Shape, read_shapes
from weft.runtime.arguments import HOST
from weft.tune.config import Config
from weft.tune.measure import Bench
from weft.tune.results import Results
from weft.tune.search import Call, Plan, search

CANDIDATES = 16
"""Configurations that are measured, the model's best ones."""


def tune_matmul(
    a: Any, b: Any, out: Any = None, *, out_dtype: Any = None, fast_accumulate: bool = True, candidates: int = CANDIDATES,
    bench: Bench | None = None, progress: bool | None = None,
) -> Results:  # fmt: skip
    """Measure the built-in choice and the model's best `candidates` configurations on these arrays; returns a row for each, the
    fastest first.

    From then on `matmul` takes the fastest for such arrays (of these shapes, types, alignment and memory orders) on GPUs of
    this name: in this process, and in those that start later, because it is stored in the cache folder, where `weft tune list`,
    `export`, `import` and `clear` find it. It holds until the text of weft's matmul kernels changes. `out` is overwritten.
    `bench` and `progress` are as for `weft.autotune`.

    Raises what `matmul` and a search of `weft.autotune` raise; DeviceError (device-no-benchmark) for host arrays, unless a
    `bench` is given.
    """
    problem = multiply.problem(a, b, out, out_dtype, fast_accumulate)
    if problem.device == HOST and bench is None:
        raise fail(NO_BENCHMARK_DEVICE, reason="the arrays are on the host, and matmul runs in the simulator")
    if out is None:
        batch = batch_of(a, b, None)
        out = empty_like(a, batch.shape, multiply.checked(batch.left, batch.right, None, out_dtype))
    tried = dict.fromkeys([heuristic.built_in(problem)[1], *heuristic.ranked(problem, candidates)])
    configs = {Config(measured.settings_of(config)): config for config in tried}

    def run(config: Config) -> Any:
        return multiply.matmul(a, b, out, fast_accumulate=fast_accumulate, config=configs[config])

    call = Call("matmul", {"a": a, "b": b, "out": out}, run, problem.device)
    results = search(call, list(configs), Plan(bench=bench, progress=progress))
    best = results.best
    assert best is not None
    assert best.ms is not None
    measured.keep(problem, configs[best.config], best.ms)
    multiply.forget()
    return results


def run(file: Path, candidates: int, console: Any) -> int:
    """`weft tune matmul`: tune every shape of a file. Returns the exit status. `console` is a `rich` console."""
    shapes = read_shapes(file)
    torch = testing.torch_with_cuda()
    for shape in shapes:
        a, b = operands(torch, shape)
        out_dtype = shape.out_dtype or None
        built_in = heuristic.built_in(multiply.problem(a, b, None, out_dtype))[1]
        results = tune_matmul(a, b, out_dtype=out_dtype, candidates=candidates)
        console.print(line(shape, results, Config(measured.settings_of(built_in))), markup=False)
    return 0


def operands(torch: Any, shape: Shape) -> tuple[Any, Any]:
    """Random matrices a and b of a shape on the current GPU."""

    def made(rows: int, columns: int, turned: bool, pitch: int) -> Any:
        lines, across = (columns, rows) if turned else (rows, columns)
        memory = torch.randn((lines, pitch or across), device="cuda").to(getattr(torch, shape.dtype))[:, :across]
        return memory.T if turned else memory

    a_turned, b_turned = (letter == "T" for letter in shape.layout)
    return made(shape.m, shape.k, a_turned, shape.lda), made(shape.k, shape.n, b_turned, shape.ldb)


def line(shape: Shape, results: Results, built_in: Config) -> str:
    """What was measured of a shape, as a line of text."""
    best = results.best
    assert best is not None
    assert best.ms is not None
    before = next((result.ms for result in results if result.config == built_in), None)
    gain = "" if before is None else f", {before / best.ms:.3g} times as fast as the built-in choice ({before:.4g} ms)"
    if best.config == built_in:
        gain = ", the built-in choice"
    return f"{shape}: {best.ms:.4g} ms{gain}: {best.config}"
