"""Warp specialization: partitions of a block, and named barriers between some of its warps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from weft.errors import fail
from weft.errors import partitions as errors
from weft.ir.core import Region, Value
from weft.ir.types import TileType
from weft.language.context import Context, current
from weft.language.marks import builtin, jit_of
from weft.language.runtime_value import RuntimeValue, name_of
from weft.language.tree import flatten, unflatten
from weft.ops import control, sync

WARPS = (1, 2, 4, 8, 16)
REGISTERS = range(24, 257, 8)


@builtin
def warp_specialize(
    functions_and_args: Any, worker_num_warps: Any, worker_num_regs: Any = None, *positional: Any
) -> Any:
    """Run functions concurrently on different warps of the block; returns the first function's result.

    `functions_and_args` lists `(function, (arguments, ...))`. The first is the default partition: it runs on the kernel's
    `num_warps` warps, and its arguments and result are unrestricted. Every further function is a worker partition with
    `worker_num_warps[i]` additional warps, each of whose threads has `worker_num_regs[i]` registers. Workers take scalars,
    handles, descriptors, constants and aggregates of these, and return nothing. Within a partition, `gl.num_warps()`,
    `gl.barrier()` and layouts refer to its warps. All threads of the block synchronize before and after; in between, only
    mbarriers and named barriers order accesses of different partitions.

    The older order of arguments is accepted too: default_args, default_partition, worker_args, worker_partitions,
    worker_num_warps, worker_num_regs.


    Raises CompilationError: partitions-entries, partitions-counts, partitions-warps, partitions-registers,
    partitions-nested, partitions-under-control, partitions-worker-takes, partitions-worker-returns.
    """
    if jit_of(worker_num_warps) is None and not positional:
        return _specialize(functions_and_args, worker_num_warps, worker_num_regs)
    default_args, default, worker_args = functions_and_args, worker_num_warps, worker_num_regs
    if jit_of(default) is None or len(positional) not in (2, 3) or not isinstance(positional[0], (list, tuple)):
        raise fail(errors.ENTRIES, got=f"{3 + len(positional)} arguments, the second one {_shown(default)}")
    workers, warps, *registers = positional
    return _specialize([(default, default_args), *((worker, worker_args) for worker in workers)], warps, *registers)


class named_barrier:
    """Hardware barriers (`bar.sync`, `bar.arrive`) between warps of several partitions, identified by numbers from 0."""

    @staticmethod
    @builtin
    def sync(number: int, num_warps: int) -> None:
        """Arrive, and wait until `num_warps` warps in total, including this partition's, have arrived.

        Memory accesses before the arrivals are visible after the wait. Raises CompilationError: partitions-barrier-number,
        partitions-barrier-warps, partitions-barriers.
        """
        _named(number, num_warps, arrive=False)

    @staticmethod
    @builtin
    def arrive(number: int, num_warps: int) -> None:
        """Arrive without waiting; other warps wait in `sync`. Raises the errors of `sync`."""
        _named(number, num_warps, arrive=True)


def _named(number: Any, num_warps: Any, *, arrive: bool) -> None:
    if not _is_int(number) or not 0 <= number < 16:
        raise fail(errors.BARRIER_NUMBER, number=_shown(number))
    if not _is_int(num_warps) or not 1 <= num_warps <= 32:
        raise fail(errors.BARRIER_WARPS, warps=_shown(num_warps))
    current().builder.emit(sync.named_barrier, number=number, warps=num_warps, arrive=arrive)


@dataclass(frozen=True, slots=True)
class Entry:
    """A partition's function and its arguments."""

    function: Any
    args: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The name used in messages; for a method, the name of its function."""
        function = getattr(self.function, "function", self.function)
        return getattr(jit_of(function) or function, "__name__", repr(function))


def _specialize(functions_and_args: Any, worker_num_warps: Any, worker_num_regs: Any = None) -> Any:
    context = current()
    default, *workers = _entries(functions_and_args)
    warps = _numbers("worker_num_warps", worker_num_warps, workers)
    registers = _numbers("worker_num_regs", worker_num_regs, workers) if worker_num_regs is not None else ()
    _check_place(context)
    for worker, count in zip(workers, warps, strict=True):
        if not _is_int(count) or count not in WARPS:
            raise fail(errors.WARPS, worker=worker.name, warps=_shown(count))
    for worker, count in zip(workers, registers, strict=False):
        if not _is_int(count) or count not in REGISTERS:
            raise fail(errors.REGISTERS, worker=worker.name, registers=_shown(count))
    for worker in workers:
        _check_arguments(worker)
    loc = context.loc
    first, returned = _default(context, default)
    others = [_worker(context, worker, count) for worker, count in zip(workers, warps, strict=True)]
    context.builder.loc = loc
    made: Value | tuple[Value, ...] | None = context.builder.emit(
        control.warp_specialize, regions=(first, *others), num_warps=warps, num_regs=registers
    )
    results = () if made is None else made if isinstance(made, tuple) else (made,)
    return _rebuilt(returned, results)


def _default(context: Context, entry: Entry) -> tuple[Region, Any]:
    """The default partition's region and its function's result."""
    with context.builder.region() as region, _inside(context, entry, context.num_warps):
        returned = context.inline(entry.function, list(entry.args), {})
        leaves = [leaf for leaf in flatten(returned)[0] if isinstance(leaf, RuntimeValue)]
        context.builder.emit(control.yield_, *(leaf.handle for leaf in leaves))
    return region.done, returned


def _worker(context: Context, entry: Entry, num_warps: int) -> Region:
    with context.builder.region() as region, _inside(context, entry, num_warps):
        returned = context.inline(entry.function, list(entry.args), {})
        if returned is not None:
            raise fail(errors.WORKER_RETURNS, worker=entry.name, got=_shown(returned))
        context.builder.emit(control.yield_)
    return region.done


def _rebuilt(returned: Any, results: tuple[Value, ...]) -> Any:
    """The default partition's result, its run-time leaves replaced by the operation's results."""
    leaves, structure = flatten(returned)
    rest = iter(results)
    made: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, RuntimeValue):
            made.append(leaf)
            continue
        value = next(rest)
        value.name = leaf.handle.name
        made.append(type(leaf)(value))
    return unflatten(structure, made)


@contextmanager
def _inside(context: Context, entry: Entry, num_warps: int) -> Iterator[None]:
    """The context of a partition: layouts and `num_warps()` use its number of warps."""
    outside = context.num_warps
    context.num_warps, context.partition = num_warps, entry.name
    try:
        yield
    finally:
        context.num_warps, context.partition = outside, ""


# Checks


def _entries(given: Any) -> list[Entry]:
    pairs = cast("Sequence[Any]", given) if isinstance(given, (list, tuple)) else ()
    if not pairs or not all(_is_pair(pair) for pair in pairs):
        raise fail(errors.ENTRIES, got=_shown(given))
    return [Entry(function, tuple(args)) for function, args in pairs]


def _is_pair(pair: Any) -> bool:
    parts = cast("Sequence[Any]", pair) if isinstance(pair, (list, tuple)) else ()
    return len(parts) == 2 and isinstance(parts[1], (list, tuple))


def _numbers(what: str, given: Any, workers: list[Entry]) -> tuple[Any, ...]:
    numbers = tuple(cast("Sequence[Any]", given)) if isinstance(given, (list, tuple)) else (given,)
    if len(numbers) != len(workers):
        raise fail(errors.COUNTS, workers=len(workers), what=what, count=len(numbers))
    return numbers


def _check_place(context: Context) -> None:
    if context.partition:
        raise fail(errors.NESTED, outer=context.partition)
    if context.builder.in_region:
        raise fail(errors.UNDER_CONTROL)


def _check_arguments(worker: Entry) -> None:
    for leaf in flatten(worker.args)[0]:
        if isinstance(leaf, RuntimeValue) and isinstance(leaf.handle.type, TileType):
            raise fail(errors.WORKER_TAKES, worker=worker.name, got=name_of(leaf))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return name_of(value) if isinstance(value, RuntimeValue) else repr(value)
