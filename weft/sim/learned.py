"""What a task has learned of other programs: from strong reads of global memory whose values decide what it does.

A read that acquires what a release has published orders nothing by itself: in another run the program comes first. It orders
what follows once its value decides something (`weft.sim.steering`): for good when a loop ends because of it, and within the
region of a branch or loop, or for the access, that depends on it; behind a branch where the other way waits for others as well.

What others have done is counted by task across the launch, as in `weft.sim.races`; these arrays are never changed in place.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from weft.sim.data import Array
from weft.sim.steering import Bits

Key: TypeAlias = Hashable
"""Where something is published: an address, and for whom."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was published where a read looked; `acquires` tells that the read orders what follows, if it decides anything."""

    acquires: bool
    published: Array


def _seen() -> dict[tuple[int, Key], Seen]:
    return {}


def _noticed() -> dict[Key, Array]:
    return {}


@dataclass(slots=True, eq=False)
class Learned:
    """`world`: events of each task that come before what this one does now. `pending`: what reads saw, by their numbers, that
    has decided nothing for good yet; `active` are the reads that decided that the current region runs. `noticed`: what relaxed
    reads that did decide saw, which an acquire at the same place makes known."""

    world: Array | None = None
    pending: dict[tuple[int, Key], Seen] = field(default_factory=_seen)
    noticed: dict[Key, Array] = field(default_factory=_noticed)
    active: Bits = 0

    def see(self, reader: int, key: Key, acquires: bool, published: Array | None) -> None:
        """A read looks at a place where this is published (None: nothing)."""
        if acquires and key in self.noticed:
            self.world = later(self.world, self.noticed[key])
        if published is not None:
            self.pending[reader, key] = Seen(acquires, published)

    def decided(self, bits: Bits) -> None:
        """The values of these reads have decided what happens from now on."""
        for (reader, key), seen in list(self.pending.items()):
            if bits >> reader & 1:
                del self.pending[reader, key]
                if seen.acquires:
                    self.world = later(self.world, seen.published)
                else:
                    self.noticed[key] = later(self.noticed.get(key), seen.published)

    @contextmanager
    def within(self, bits: Bits) -> Generator[None, None, None]:
        """A region runs because of what these reads gave."""
        before = self.active
        self.active |= bits
        try:
            yield
        finally:
            self.active = before

    def knows(self, owners: Array, positions: Array, bits: Bits = 0) -> Array | bool:
        """Which events of other tasks come before what happens now, because of what is known and of these reads."""
        out: Array | bool = False
        if self.world is not None:
            # The last count is of a task that has not started.
            out = self.world.take(owners, mode="clip") > positions
        bits |= self.active
        for (reader, _), seen in self.pending.items():
            if seen.acquires and bits >> reader & 1:
                out = out | (seen.published.take(owners, mode="clip") > positions)
        return out

    def everything(self, bits: Bits = 0) -> Array | None:
        """The counts of all that comes before what happens now."""
        world, bits = self.world, bits | self.active
        for (reader, _), seen in self.pending.items():
            if seen.acquires and bits >> reader & 1:
                world = later(world, seen.published)
        return world

    def published(self) -> Learned | None:
        """What a barrier inside of the program hands on; None for nothing."""
        if self.world is None and not self.pending and not self.noticed:
            return None
        return Learned(self.everything(), dict(self.pending), dict(self.noticed))

    def join(self, other: Learned) -> None:
        """Know what another task of the program has handed on."""
        if other.world is not None:
            self.world = later(self.world, other.world)
        self.pending.update(other.pending)
        for key, counts in other.noticed.items():
            self.noticed[key] = later(self.noticed.get(key), counts)


def later(first: Array | None, second: Array) -> Array:
    """The larger count of each task. Arrays end with a task that has not started, so that longer ones go on from there."""
    if first is None or first is second:
        return second
    size = max(first.size, second.size)
    one, other = (each if each.size == size else np.pad(each, (0, size - each.size)) for each in (first, second))
    return np.maximum(one, other)
