"""The state that all blocks of a launch share: the function, the heap, what was found, and how the run is to go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import Any, Literal, Protocol

from weft.analysis.apart import TOGETHER, apart
from weft.analysis.steering import NOTHING, steering_of
from weft.ir.core import Func, Op, Region, walk
from weft.ir.types import SharedArrayType, SharedType
from weft.layout import WARP_SIZE
from weft.ops import control, mbarrier
from weft.sim.machine.agents import Schedule
from weft.sim.machine.code import Code, compile_region
from weft.sim.machine.crewed import has_crews
from weft.sim.machine.data import Array
from weft.sim.machine.findings import Findings
from weft.sim.machine.naming import Naming
from weft.sim.machine.pending import Pending
from weft.sim.machine.report import Report
from weft.sim.memory.clocks import Clock
from weft.sim.memory.heap import GlobalPlace, Heap
from weft.sim.memory.history import History
from weft.sim.memory.launches import Dependence
from weft.sim.memory.learned import Known
from weft.sim.memory.races import Races
from weft.sim.memory.tracks import Actor, Way
from weft.targets import Target

Uninitialized = Literal["error", "poison", "ignore"]


class Member(Protocol):
    """What a launch asks of the rank of a world that it belongs to (`weft.sim.machine.world`)."""

    @property
    def rank(self) -> int:
        """The rank."""
        ...

    @property
    def log(self) -> History:
        """The history of the world."""
        ...

    @property
    def launches(self) -> int:
        """The number of launches of the world that have begun, this one included."""
        ...

    def place(self, pid: tuple[int, int, int]) -> tuple[int, int, int]:
        """A program's coordinates, which reports print with the rank."""
        ...

    def starts(self, first: int, clocks: Sequence[Clock]) -> None:
        """A program starts, whose tasks have these clocks and are numbered from `first`."""
        ...

    def rank_of(self, data: Array) -> int | None:
        """The rank that has this storage, if it is symmetric memory."""
        ...

    def puts(self, pid: tuple[int, int, int], known: Known) -> Actor:
        """An actor for the puts of a program to one rank, the first of which begins when it knows this."""
        ...

    def access(self, actor: Actor, op: Op, way: Way, place: GlobalPlace, itemsize: int) -> None:
        """A put accesses these elements. Raises RankRace, PutSource."""
        ...

    def turn(self) -> None:
        """Other ranks may run."""
        ...

    def wait(self, ready: Callable[[], bool], live: Sequence[Any], pending: int) -> None:
        """No program of the launch can continue before it is `ready`. Raises Deadlock."""
        ...


class Machine:
    """The state that all blocks of one launch share."""

    __slots__ = (
        "_codes", "apart", "blocks", "crews", "dependence", "found", "func", "granule", "grid", "hazards", "heap", "idle",
        "launch", "log", "meets", "member", "names", "output", "pending", "plain", "races", "random", "report", "schedule",
        "seed", "steering", "target", "tasks", "threads", "two_ctas", "uninitialized",
    )  # fmt: skip

    def __init__(
        self,
        func: Func,
        grid: tuple[int, int, int],
        heap: Heap,
        target: Target,
        output: Callable[[str], None],
        *,
        seed: int = 0,
        hazards: bool = True,
        schedule: Schedule | None = None,
        uninitialized: Uninitialized = "error",
        keep_going: bool = False,
        dependence: Dependence | None = None,
        member: Member | None = None,
    ) -> None:
        self.func = func
        self.grid = grid
        self.heap = heap
        self.target = target
        self.output = output
        # The rank of a world whose launch this is; None for a launch by itself.
        self.member = member
        self.log = History() if member is None else member.log
        self.launch = 0 if member is None else member.launches
        # Set when the launch begins.
        self.pending = Pending((), 0)
        self.found = Findings(keep_going)
        self.report = Report(hazards=self.found.hazards)
        block = func.attrs.block
        self.threads = func.attrs.num_warps * WARP_SIZE if block is None else prod(block)
        self.seed, self.random = seed, Random(seed)
        self.schedule: Schedule = schedule or ("random" if seed else "late")
        self.hazards = hazards
        self.uninitialized: Uninitialized = uninitialized
        self.granule, self.tasks = _shared_granule(func), _task_count(func)
        self.blocks = func.attrs.num_ctas
        # Which operations each block of a cluster executes for itself; lowered operations say who executes them.
        self.apart = TOGETHER if self.lowered else apart(func)
        # True if blocks work in pairs and the even block issues the MMAs of both (`.cta_group::2`).
        self.two_ctas = func.attrs.two_ctas
        # True if there is one task, and only threads and their cp.async copies access shared memory: a barrier orders all.
        self.plain = self.tasks == self.blocks == 1 and not _uses_async_proxy(func)
        # True if threads arrive at mbarriers by themselves, so that some of them may know of accesses that others do not.
        self.meets = not func.body.kinds.isdisjoint(mbarrier.ARRIVALS)
        self.crews = self.tasks == 1 and has_crews(func)
        self.names = Naming(func)
        self.steering = steering_of(func) if hazards else NOTHING
        self.dependence = dependence or Dependence()
        rank = None if member is None else member.rank
        self.races: Races | None = None
        if hazards:
            self.races = Races(
                heap, self.tasks, self.blocks, self.steering, self.names, self.found, self.report, self.dependence, self.log,
                rank,
            )  # fmt: skip
        # For each barrier or fence of the author, how often it ran and how often it had nothing to order.
        self.idle: dict[Op, tuple[int, int]] = {}
        self._codes: dict[Region, Code] = {}

    @property
    def started(self) -> int:
        """The number of programs that have started, of all launches of its world."""
        return self.log.programs

    @property
    def lowered(self) -> bool:
        """True for a function of the lowered stage."""
        return self.func.attrs.stage == "lowered"

    def overtakes(self) -> bool:
        """True if other programs run before one whose wait has just ended; random under a seed, False without."""
        return self.seed != 0 and self.random.random() < 0.5

    def code(self, region: Region) -> Code:
        """The region prepared for execution, cached."""
        if region not in self._codes:
            self._codes[region] = compile_region(region, self.crews)
        return self._codes[region]

    def print(self, line: str) -> None:
        """Print a line of the kernel's output."""
        self.report.lines.append(line)
        self.output(line)

    def ordered(self, op: Op, useful: bool) -> None:
        """Record whether a barrier or fence of the author had anything to order."""
        if not op.attrs.get("reason") and not op.attrs.get("of"):
            runs, idle = self.idle.get(op, (0, 0))
            self.idle[op] = runs + 1, idle + (not useful)

    def advise_idle(self) -> None:
        """Advise against barriers and fences that never ordered anything."""
        for op, (runs, idle) in self.idle.items():
            if runs == idle:
                self.report.advise(
                    "redundant-sync", f"{op.name} orders nothing here: nothing happened since the last one", op.loc
                )


def _shared_granule(func: Func) -> int:
    """Size in bytes of the smallest element in shared memory."""
    types = (value.type for op in walk(func.body) for value in op.results)
    return min((t.element.itemsize for t in types if isinstance(t, (SharedType, SharedArrayType))), default=4)


def _task_count(func: Func) -> int:
    """The maximum number of tasks of a block that run concurrently."""
    kinds = (control.warp_specialize, control.partitions)
    return max((len(op.regions) for op in walk(func.body) if op.kind in kinds), default=1)


def _uses_async_proxy(func: Func) -> bool:
    """True if the async proxy (TMA, wgmma) may access shared memory."""
    effects = (effect for op in walk(func.body) for effect in op.effects)
    return any(effect.proxy == "async" or effect.completes in ("mbarrier", "bulk", "wgmma") for effect in effects)
