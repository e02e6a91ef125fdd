"""What a task that stops yields: where it stands and what it waits for, for the scheduler and for reports of deadlocks."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

from weft.errors import Loc, UserError
from weft.sim.data import Data


class Wait:
    """What a task yields when it stops: where it stands, and what it waits for."""

    __slots__ = ("loc",)
    follows = False
    """True for a wait that another one causes: for tasks of its own program to meet it or to end."""

    def __init__(self, loc: Loc | None) -> None:
        self.loc = loc

    @property
    def polls(self) -> bool:
        """True for a task that could go on, but lets others have a turn."""
        return False

    def instead(self) -> str:
        """What to write so that such a wait ends."""
        return "give each phase the arrivals and bytes that its mbarrier counts, from somebody who does not wait for the waiter"

    def ready(self) -> bool:
        """Whether the task can go on."""
        raise NotImplementedError

    def words(self) -> str:
        """What it waits for, after 'waits'."""
        return ""

    def memory(self) -> str:
        """What reports call the memory that it waits at, if any."""
        return ""

    def starved(self) -> UserError | None:
        """A better report than a deadlock, where there is one."""
        return None


Run: TypeAlias = Generator[Wait, None, tuple[Data, ...]]
