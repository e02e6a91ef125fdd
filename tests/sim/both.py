"""What the simulator says to a kernel: the same on tile IR and on lowered IR, and whatever the order of events."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any
from unittest import mock

import numpy as np

import weft
from weft import compiler, sim
from weft.errors import Hazard
from weft.ir.core import Func
from weft.kernel import JITFunction
from weft.runtime.arguments import host_buffer
from weft.runtime.compiled import CompiledKernel
from weft.runtime.descriptor import HostDescriptor, host_map

Arguments = Callable[[], tuple[Any, ...]]
ORDERS: tuple[dict[str, Any], ...] = (
    {},
    {"schedule": "early"},
    {"seed": 1},
    {"seed": 2},
    {"seed": 3, "schedule": "late"},
)


def compiled_for(kernel: JITFunction, args: tuple[Any, ...], options: dict[str, Any]) -> CompiledKernel:
    """The kernel compiled for these arguments; nothing runs, and nothing that only a later stage refuses is refused."""
    seen: list[CompiledKernel] = []
    watch = seen.append
    kernel.forget()
    compiler.observers.append(watch)
    try:
        with weft.simulate(programs=[]), mock.patch.object(compiler.Stages, "accept"):
            kernel[(1,)](*args, **options)
    finally:
        compiler.observers.remove(watch)
    return seen[0]


def run_stage(
    func: Func, kernel: JITFunction, compiled: CompiledKernel, args: tuple[Any, ...], grid: int, **order: Any
) -> sim.Report:
    """Run the function of either stage. Raises the Hazard that it meets."""
    bound, _ = kernel.signature.bind(args, {})
    given = compiler.given(func, {name: _host(bound[name]) for name in compiled.request.run_time})
    target = compiled.front.target
    return sim.run(func, (grid, 1, 1), given, target=target, stdout=StringIO(), progress=False, **order)


def verdict(kernel: JITFunction, arguments: Arguments, grid: int = 1, **options: Any) -> Hazard | None:
    """The hazard that a kernel meets in tile IR (None for none)."""
    compiled = compiled_for(kernel, arguments(), options)
    found: dict[str, Hazard | None] = {}
    for stage in ("tile", "lowered"):
        for order in ORDERS:
            try:
                run_stage(getattr(compiled.front, stage), kernel, compiled, arguments(), grid, **order)
            except Hazard as hazard:
                found[f"{stage} {order}"] = hazard
            else:
                found[f"{stage} {order}"] = None
    kinds = {where: type(hazard).__name__ for where, hazard in found.items()}
    assert len(set(kinds.values())) == 1, f"verdicts differ: {kinds}\n{next(h for h in found.values() if h)}"
    return next(iter(found.values()))


def _host(value: Any) -> Any:
    if isinstance(value, HostDescriptor):
        return host_map(value)
    return host_buffer(value) if isinstance(value, np.ndarray) else value


def results(
    kernel: JITFunction, arguments: Arguments, arrays: Callable[..., list[np.ndarray]], grid: int = 1, **options: Any
) -> Any:  # fmt: skip
    """The arrays (which `arrays` picks among the arguments) after a run; the same bits in both stages and any order."""
    compiled = compiled_for(kernel, arguments(), options)
    made: list[list[np.ndarray]] = []
    for stage in ("tile", "lowered"):
        for order in ORDERS:
            args = arguments()
            run_stage(getattr(compiled.front, stage), kernel, compiled, args, grid, **order)
            made.append(arrays(*args))
    for other in made[1:]:
        for first, second in zip(made[0], other, strict=True):
            np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))
    return made[0]
