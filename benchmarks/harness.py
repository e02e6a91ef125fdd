"""Timing of variants of one job: each is checked, then all are timed in one interleaved run, then summarised.

A GPU's clocks drift by several percent under load, so only figures of one interleaved run are comparable.
A round times every variant once, in a random order: the variant before affects temperature and power budget, so no
variant may always follow the same one. The figure is the median over the rounds. Each variant is checked once on a poisoned
output before anything is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from benchmarks.report import warn

WARM_UP = 2
FLUSH_FACTOR = 4
READS = 4
"""Reads before a call. One takes about 55 us on an H200, less than the host needs for a call that allocates its outputs."""


class WrongResultError(Exception):
    """The result of a variant differs from its reference."""


@dataclass(frozen=True, slots=True)
class Variant:
    """An implementation of a job. `poison` overwrites the output, `run` does the job, `correct` checks the output."""

    name: str
    run: Callable[[], Any]
    poison: Callable[[], Any]
    correct: Callable[[], bool]


class Clock(Protocol):
    """A source of times: a GPU's events, or a fake one in tests."""

    def milliseconds(self, run: Callable[[], Any]) -> float:
        """Milliseconds of device time for one call."""
        ...


class CudaClock:
    """CUDA events on PyTorch's current stream, after large reads.

    A read fills the L2 cache with other data, with nothing to write back, and they keep the GPU busy while the host
    enqueues the call, so that the time between the events includes no host time.
    """

    def __init__(self) -> None:
        import torch

        self._torch = torch
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._read = torch.ones(FLUSH_FACTOR * size // 4, device="cuda")
        self._sum = torch.empty((), device="cuda")

    def milliseconds(self, run: Callable[[], Any]) -> float:
        """Milliseconds between two events around the call."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(READS):
            self._torch.sum(self._read, dim=0, out=self._sum)
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


class GraphClock:
    """CUDA graphs of `calls` calls back to back, one graph for each function: caches are warm, and no host time is included."""

    def __init__(self, calls: int = 10) -> None:
        import torch

        self._torch, self._calls = torch, calls
        self._graphs: dict[Callable[[], Any], Any] = {}

    def milliseconds(self, run: Callable[[], Any]) -> float:
        """Milliseconds per call of a replay."""
        graph = self._graphs.get(run)
        if graph is None:
            graph = self._graphs[run] = self._captured(run)
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / self._calls

    def _captured(self, run: Callable[[], Any]) -> Any:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for _ in range(self._calls):
                run()
        return graph


def measure(variants: Sequence[Variant], clock: Clock, rounds: int) -> dict[str, float]:
    """Median milliseconds by name, of each variant that is correct; `sound` reports the others."""
    variants = sound(variants)
    for variant in variants:
        for _ in range(WARM_UP):
            clock.milliseconds(variant.run)
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for number in range(rounds if variants else 0):
        for variant in shuffled(variants, number):
            times[variant.name].append(clock.milliseconds(variant.run))
    return {name: statistics.median(found) for name, found in times.items()}


def sound(variants: Iterable[Variant]) -> list[Variant]:
    """The variants that run and are correct; the others are reported on standard error, and have no figure."""
    found: list[Variant] = []
    for variant in variants:
        try:
            check(variant)
        except Exception as error:  # noqa: BLE001 - whatever one variant does wrong, the others are still worth measuring
            warn(f"{variant.name}: not measured: {type(error).__name__}: {error}")
        else:
            found.append(variant)
    return found


def check(variant: Variant) -> None:
    """Run a variant on a poisoned output. Raises WrongResultError for a wrong result, and what running raises."""
    variant.poison()
    variant.run()
    if not variant.correct():
        raise WrongResultError("the output differs from the reference")


def shuffled(items: Sequence[Any], seed: int) -> list[Any]:
    """The items in an order that the seed determines."""
    return Random(seed).sample(items, len(items))


def terabytes_per_second(nbytes: int, milliseconds: float) -> float:
    """Throughput of a job that reads and writes `nbytes` in total."""
    return nbytes / milliseconds / 1e9


def relative_error(got: Any, want: Any) -> float:
    """The norm of the difference over the norm of the reference, in double precision, for PyTorch tensors; NaN if any is."""
    return float((got.double() - want).norm() / want.norm())


Jobs = dict[str, dict[str, Callable[[], Any]]]
"""The jobs, by case and by compiler."""


def race(
    jobs: Jobs, clock: Clock, rounds: int, *, nbytes: int, poison: Callable[[], Any], correct: Callable[[], bool]
) -> dict[str, dict[str, float]]:
    """TB/s by case and compiler, for jobs that write one output and move `nbytes` each, interleaved in one run."""
    variants = [
        Variant(f"{case}: {who}", run, poison, correct) for case, whose in jobs.items() for who, run in whose.items()
    ]
    times = measure(variants, clock, rounds)
    return {
        case: {who: terabytes_per_second(nbytes, times[name]) for who in whose if (name := f"{case}: {who}") in times}
        for case, whose in jobs.items()
    }
