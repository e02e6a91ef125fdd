"""Happens-before inside a block: what each task knows to be done, and what barriers and fences make of it.

A *task* is a partition of a block, its threads in step. Whatever can be awaited is a *component* with a count: the events of
a task, the phases of an mbarrier, the bulk groups or the cp.async batches of a task. An event is the number `value` of its
component, and a clock `{component: count}` knows it when its count is greater.

`Clock.known` is known to all threads of a task, `each` to every thread about its own cp.async copies, `elected` to the elected
thread about its bulk groups. A partition barrier makes all of it known to all, the task's own events included. `fenced`
counts the generic-proxy events that a proxy fence has made visible to the async proxy, `own_fenced` those of each thread.
`warps` is what the threads of each warp know beyond that, which comes from barriers of that warp.
For tensor memory, `sealed` counts what a tcgen05 fence has put before what is signalled, `own_sealed` the task's own events of
that kind, each thread's for itself until they meet, and `ordered` what a fence behind a wait has put before what follows.
`before` counts what came before in time, which is more than what is known: a phase of an mbarrier comes after the copies that
it waited for were started, and so after what their task did until then, though nobody published that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from weft.sim.memory.learned import Learned
from weft.sim.memory.warps import shared_in_warps

Counts = dict[int, int]


def join(into: Counts, other: Counts) -> None:
    """Know what the other knows as well."""
    for component, count in other.items():
        if into.get(component, 0) < count:
            into[component] = count


def _counts() -> Counts:
    return {}


def _of_warps() -> dict[int, Counts]:
    return {}


@dataclass(slots=True)
class Released:
    """What somebody published: what is done, which of it is fenced, what came before in time, published or not, what of
    it is sealed, and what was learned of other programs."""

    known: Counts = field(default_factory=_counts)
    fenced: Counts = field(default_factory=_counts)
    before: Counts = field(default_factory=_counts)
    sealed: Counts = field(default_factory=_counts)
    learned: Learned | None = None

    def join(self, other: Released) -> None:
        """Publish what the other publishes as well."""
        if other.learned is not None:
            self.learned = self.learned or Learned()
            self.learned.join(other.learned)
        join(self.known, other.known)
        join(self.fenced, other.fenced)
        join(self.before, other.before)
        join(self.sealed, other.sealed)


@dataclass(slots=True, eq=False)
class Clock:
    """What one task knows. `slot` is the component of its own events, `position` their count so far, `touched` the count when
    it accessed tensor memory last."""

    slot: int
    position: int = 0
    known: Counts = field(default_factory=_counts)
    each: Counts = field(default_factory=_counts)
    elected: Counts = field(default_factory=_counts)
    fenced: Counts = field(default_factory=_counts)
    own_fenced: Counts = field(default_factory=_counts)
    before: Counts = field(default_factory=_counts)
    warps: dict[int, Counts] = field(default_factory=_of_warps)
    sealed: Counts = field(default_factory=_counts)
    own_sealed: Counts = field(default_factory=_counts)
    ordered: Counts = field(default_factory=_counts)
    touched: int = 0
    learned: Learned = field(default_factory=Learned)

    def tick(self) -> int:
        """The number of a new event of the task."""
        self.position += 1
        return self.position - 1

    @property
    def open(self) -> bool:
        """Whether a barrier would make anything known."""
        single = (*self.each.items(), *self.elected.items())
        return self.known.get(self.slot, 0) < self.position or any(self.known.get(c, 0) < count for c, count in single)

    @property
    def unfenced(self) -> bool:
        """Whether a fence would order anything that it does not order already."""
        others = any(self.fenced.get(c, 0) < count for c, count in self.known.items())
        return self.own_fenced.get(self.slot, 0) < self.position or others

    def barrier(self) -> None:
        """All threads of the task have arrived."""
        join(self.known, self.each)
        join(self.known, self.elected)
        self.known[self.slot] = self.position
        join(self.fenced, self.own_fenced)
        join(self.sealed, self.own_sealed)
        self.warps.clear()
        self.learned.meet(lambda _: None)

    def warp_barrier(self, warps: Collection[int]) -> None:
        """All threads of these warps have arrived, each at its own warp's barrier."""
        for warp in warps:
            known = self.warps.setdefault(warp, {})
            join(known, self.each)
            known[self.slot] = self.position
        self.learned.meet(lambda threads: shared_in_warps(threads, warps))

    def fence(self) -> None:
        """Each thread orders what it did, and what it knows, before later accesses of the async proxy."""
        join(self.fenced, self.known)
        join(self.own_fenced, self.each)
        self.own_fenced[self.slot] = self.position

    def seal(self, issued: Counts) -> bool:
        """Each thread puts its accesses to tensor memory before what it signals next, the elected one also what it has
        `issued`. Whether there were any since the last time."""
        useful = self.own_sealed.get(self.slot, 0) < self.touched or any(
            self.sealed.get(c, 0) < n for c, n in issued.items()
        )
        self.own_sealed[self.slot] = self.position
        join(self.sealed, issued)
        return useful

    def order(self) -> bool:
        """Accesses to tensor memory come after what is sealed by now. Whether they did not before."""
        useful = any(self.ordered.get(c, 0) < count for c, count in self.sealed.items())
        join(self.ordered, self.sealed)
        return useful

    def release(self) -> Released:
        """What the elected thread publishes."""
        known = dict(self.known)
        join(known, self.elected)
        before = dict(self.before)
        join(before, known)
        return Released(known, dict(self.fenced), before, dict(self.sealed), self.learned.published())

    def release_all(self) -> Released:
        """What all threads publish together, each for itself."""
        out = self.release()
        join(out.known, self.each)
        out.known[self.slot] = self.position
        join(out.fenced, self.own_fenced)
        join(out.sealed, self.own_sealed)
        join(out.before, out.known)
        return out

    def acquire(self, released: Released) -> None:
        """All threads learn what was published."""
        join(self.known, released.known)
        join(self.fenced, released.fenced)
        join(self.before, released.before)
        join(self.sealed, released.sealed)
        if released.learned is not None:
            self.learned.join(released.learned)
