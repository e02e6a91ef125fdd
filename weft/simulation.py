"""Options of simulated launches: which programs of the grid run, in which order, with which checks and what progress display.

`simulate` sets them for a block of code. Whether a launch is simulated at all is decided by its arguments, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast

from weft import settings, targets
from weft.errors import fail
from weft.errors.launch import NO_SUCH_PROGRAM, OPTION_VALUE
from weft.plain import one_of, truth, whole
from weft.scoped import Scoped

Program = tuple[int, int, int]
Schedule = Literal["late", "early", "random"]
Uninitialized = Literal["error", "poison", "ignore"]
Bounds = Literal["argument", "storage"]
Order = Literal["grid", "reverse", "random"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """The options of `simulate`; `programs=None` means the whole grid."""

    programs: tuple[Program, ...] | None = None
    seed: int = 0
    progress: bool | None = None
    max_resident: int | None = None
    schedule: Schedule | None = None
    uninitialized: Uninitialized = "error"
    hazards: bool = True
    bounds: Bounds = "argument"
    order: Order | None = None
    keep_going: bool = False

    def chosen(self, kernel: str, grid: Program) -> tuple[Program, ...] | None:
        """The programs of a grid to run, None for all. Raises LaunchError (launch-no-such-program) for one outside the grid."""
        for program in self.programs or ():
            if not all(0 <= at < size for at, size in zip(program, grid, strict=True)):
                raise fail(NO_SUCH_PROGRAM, name=kernel, program=program, grid=grid)
        return self.programs


_OUTSIDE = Simulation()
_current: Scoped[Simulation] = Scoped("weft.simulation")


def current() -> Simulation:
    """The options of simulated launches in this thread or task."""
    return _current.innermost(_OUTSIDE)


@contextmanager
def simulate(
    *,
    programs: Iterable[int | tuple[int, ...]] | None = None,
    seed: int = 0,
    progress: bool | None = None,
    max_resident: int | None = None,
    schedule: Schedule | None = None,
    uninitialized: Uninitialized = "error",
    hazards: bool = True,
    bounds: Bounds = "argument",
    order: Order | None = None,
    keep_going: bool = False,
    target: str | None = None,
    **others: NoReturn,
) -> Iterator[None]:
    """Set options of the simulated launches in a block of code.

        with weft.simulate(programs=[(3, 0)], seed=7):
            kernel[grid](x, y)

    `programs`: run only these programs of the grid, in this order; each is an int or a tuple of up to three.
    `seed`: fixes the order in which programs start and in which waiting tasks take turns; another seed gives another order.
    `progress`: True shows a bar at once, False never, None on a terminal for runs of more than two seconds.
    `max_resident`: how many programs may be resident together; None for as many as the target's GPU holds. For a kernel that
    steals programs (`clc`) None is at most a quarter of the grid, so that some programs remain to be stolen.
    `schedule`: when asynchronous copies move their data: as "late" as they may, "early", or at "random" times. None is "random"
    under a seed and "late" without one. It changes the numbers that an incorrect kernel computes; what is reported changes only
    where branches depend on such numbers.
    `uninitialized`: how a read of unwritten shared memory is treated: as an "error", or as "poison", an undefined value (a NaN)
    that is reported where it affects the result, at the latest when it reaches global memory. "ignore" reports none of it, for
    kernels that read such memory on purpose; every other hazard is still found.
    `bounds`: which memory of an array argument a kernel may access. "argument": from the array's lowest byte to its highest, so
    ten elements for `x[10:20]`. "storage": all memory that the array is a view of, for kernels that get a pointer into a larger
    buffer on purpose.
    `hazards`: False turns off the detection of races and missing synchronisation, which takes time.
    `order`: the order in which programs start: that of the "grid" (or of `programs`), "reverse", or "random" by the seed. None
    is "random" under a seed without `programs`, and "grid" otherwise. Programs that may wait for others are reordered only
    among those resident at the same time. Some races show only in some orders.
    `keep_going`: True continues after hazards that leave the rest of the run meaningful and lists them in the `report` of the
    launch's result. A hazard that ends the run is still raised, with the others as its `earlier`.
    `target`: the GPU that is simulated, as in "sm_100a"; None leaves it to enclosing blocks, or to `WEFT_TARGET`.
    The options hold for the block's thread or asyncio task. Launches on a GPU ignore them. Raises LaunchError
    (launch-option-value, launch-no-option, target-unknown), and at a launch launch-no-such-program.
    """
    if others:
        from weft.runtime.foreign import refuse_others

        refuse_others("weft.simulate", simulate, others)
    start, most = whole(seed), whole(max_resident)
    if start is None:
        raise _refuse("seed", seed, "an integer", "seed=7")
    if progress is not None and truth(progress) is None:
        raise _refuse("progress", progress, "True, False or None", "progress=False")
    if truth(hazards) is None:
        raise _refuse("hazards", hazards, "True or False", "hazards=False")
    if truth(keep_going) is None:
        raise _refuse("keep_going", keep_going, "True or False", "keep_going=True")
    if programs is not None and not isinstance(cast("object", programs), Iterable):
        raise _refuse("programs", programs, "a list of ints, or of tuples of up to three", "programs=[(0, 0)]")
    if max_resident is not None and (most is None or most < 1):
        raise _refuse("max_resident", max_resident, "a number of programs", "max_resident=1")
    if not one_of(schedule, None, "late", "early", "random"):
        raise _refuse("schedule", schedule, "'late', 'early', 'random' or None", "schedule='random'")
    if not one_of(uninitialized, "error", "poison", "ignore"):
        raise _refuse("uninitialized", uninitialized, "'error', 'poison' or 'ignore'", "uninitialized='poison'")
    if not one_of(bounds, "argument", "storage"):
        raise _refuse("bounds", bounds, "'argument' or 'storage'", "bounds='storage'")
    if not one_of(order, None, "grid", "reverse", "random"):
        raise _refuse("order", order, "'grid', 'reverse', 'random' or None", "order='reverse'")
    chosen = None if programs is None else tuple(map(_program, programs))
    way = Simulation(
        chosen, start, progress, most, schedule, uninitialized, bool(hazards), bounds, order, bool(keep_going)
    )
    simulated = nullcontext() if target is None else settings.using(target=targets.get(target).name)
    with _current.block(way), simulated:
        yield


def following(way: Simulation) -> AbstractContextManager[None]:
    """Set options, already validated, for the simulated launches in a block of code."""
    return _current.block(way)


Supervisor = Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]
"""Runs a simulated launch. It gets the kernel's name, its arguments and a function that runs it once; it returns the report."""
_supervisor: Scoped[Supervisor | None] = Scoped("weft.simulation.supervisor")


def supervisor() -> Supervisor | None:
    """The supervisor of simulated launches in this thread or task, if there is one."""
    return _supervisor.innermost(None)


def supervised(by: Supervisor) -> AbstractContextManager[None]:
    """Let a supervisor run the simulated launches in a block of code."""
    return _supervisor.block(by)


_member: Scoped[object] = Scoped("weft.simulation.member")


def member() -> object:
    """The rank of a simulated world (`weft.sim.machine.world.Rank`) that runs in this thread; None outside of one."""
    return _member.innermost(None)


def ranked(rank: object) -> AbstractContextManager[None]:
    """Let the launches in a block of code be those of a rank of a simulated world."""
    return _member.block(rank)


def _program(given: Any) -> Program:
    parts = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given,)
    found = [at for at in map(whole, parts) if at is not None]
    if not 1 <= len(parts) <= 3 or len(found) != len(parts):
        raise _refuse(
            "programs", [cast("object", given)], "a list of ints, or of tuples of up to three", "programs=[(0, 0)]"
        )
    x, y, z = (*found, 0, 0)[:3]
    return x, y, z


def _refuse(option: str, value: object, expected: str, example: str) -> Exception:
    return fail(OPTION_VALUE, option=option, value=value, name="simulate", expected=expected, example=example)
