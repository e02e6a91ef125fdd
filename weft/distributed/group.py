"""A group of ranks as symmetric arguments see it: on GPUs, or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Group(Protocol):
    """The ranks that share symmetric memory: this process's rank, how many there are, and where their memory is.

    An address is a number on GPUs, and in the simulator a `weft.runtime.arguments.HostBuffer`."""

    @property
    def rank(self) -> int:
        """This process's rank."""
        ...

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def peers(self, owner: Any, skip: int) -> Sequence[Any]:
        """The address `skip` bytes after the start of a symmetric tensor, on each rank."""
        ...

    def agree(self, what: str, value: str) -> None:
        """Compare a value with that of all ranks, once. Raises LaunchError: ranks-different, ranks-silent."""
        ...

    def pads(self) -> Sequence[Any]:
        """The address of the signal pad of each rank."""
        ...

    def multicast(self, owner: Any, skip: int) -> int:
        """The multicast address of the same place; 0 if there is none."""
        ...
