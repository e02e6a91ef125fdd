"""How simulated launches run: which programs of the grid, in which order, with which checks, with or without a progress bar.

`simulate` sets that for a block of code. It does not decide where a kernel runs; its arguments do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

from weft import settings, targets
from weft.errors import fail
from weft.errors.launch import NO_SUCH_PROGRAM, OPTION_VALUE
from weft.plain import one_of, truth, whole
from weft.scoped import Scoped

Program = tuple[int, int, int]
Schedule = Literal["late", "early", "random"]
Uninitialized = Literal["error", "poison"]
Bounds = Literal["argument", "storage"]
Order = Literal["grid", "reverse", "random"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """What `simulate` was given; `programs=None` stands for the whole grid."""

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
        """The programs to run of a grid. Raises LaunchError (launch-no-such-program) for one outside of it."""
        for program in self.programs or ():
            if not all(0 <= at < size for at, size in zip(program, grid, strict=True)):
                raise fail(NO_SUCH_PROGRAM, name=kernel, program=program, grid=grid)
        return self.programs


_OUTSIDE = Simulation()
_current: Scoped[Simulation] = Scoped("weft.simulation")


def current() -> Simulation:
    """What simulated launches of this thread or task follow."""
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
) -> Iterator[None]:
    """Run the simulated launches in a block of code in a way of one's own.

        with weft.simulate(programs=[(3, 0)], seed=7):
            kernel[grid](x, y)

    `programs`: run these programs of the grid only, in this order; each is an int or a tuple of up to three.
    `seed`: another one starts programs, and takes turns between waiting ones, in another order; the same one in the same.
    `progress`: True shows a bar at once, False never, None on a terminal for runs of more than two seconds.
    `max_resident`: how many programs may be under way together; None for what the target's GPU holds. Of a kernel that takes
    over programs (`clc`) None is a quarter of them at most, so that some are left to take.
    `schedule`: when asynchronous copies move their data: as "late" as they may, "early", or at "random" times; None is "random"
    under a seed and "late" without one. It changes numbers of wrong kernels, never what is reported.
    `uninitialized`: what it is to read shared memory that was never written: an "error", or "poison", an undefined value (a
    NaN) that is reported where it counts, at the latest when it reaches global memory.
    `bounds`: what of an array a kernel may access. "argument": its own memory, from its lowest byte to its highest, so that of
    `x[10:20]` ten elements are; "storage": all memory that the array is a view of, for kernels that get a pointer into a
    larger buffer on purpose.
    `hazards`: False leaves out the search for races and missing synchronisation, which takes time.
    `order`: in which order programs start, of the "grid" (or of `programs`), in "reverse", or at "random" by the seed; None is
    "random" under a seed without `programs`, and "grid" otherwise. Programs that may wait for others change places with those
    only that run at the same time. A race may show in some orders only.
    `keep_going`: True goes on after hazards that leave what follows meaningful, and lists them in the `report` of what the
    launch returns; one that ends the run all the same is raised, with those before it as `earlier`.
    `target`: the GPU that is simulated, as in "sm_100a"; None leaves it to blocks around this one, or to `WEFT_TARGET`.
    All of it holds for the thread or asyncio task of the block. Launches on a GPU are not concerned. Raises LaunchError
    (launch-option-value, target-unknown), and at a launch launch-no-such-program.
    """
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
    if not one_of(uninitialized, "error", "poison"):
        raise _refuse("uninitialized", uninitialized, "'error' or 'poison'", "uninitialized='poison'")
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
    """Run the simulated launches in a block of code in a way that is known to be valid."""
    return _current.block(way)


Supervisor = Callable[[str, Mapping[str, Any], Callable[[], Any]], Any]
"""Runs a simulated launch: gets the kernel's name, its arguments and what runs it once, and gives the launch's report."""
_supervisor: Scoped[Supervisor | None] = Scoped("weft.simulation.supervisor")


def supervisor() -> Supervisor | None:
    """Who runs the simulated launches of this thread or task, if somebody does."""
    return _supervisor.innermost(None)


def supervised(by: Supervisor) -> AbstractContextManager[None]:
    """Leave the simulated launches in a block of code to a supervisor."""
    return _supervisor.block(by)


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
