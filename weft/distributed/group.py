"""A group of ranks as symmetric arguments see it: on GPUs, or simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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

    @property
    def crowded(self) -> bool:
        """Whether the ranks share a GPU, on which all their launches have to fit together: none may take places early."""
        ...

    def peers(self, owner: Any, skip: int) -> Sequence[Any] | None:
        """The address `skip` bytes after the start of a symmetric tensor, on each rank; None if pointers do not reach all
        ranks, which is possible with NVSHMEM only."""
        ...

    def pes(self) -> Sequence[int] | None:
        """The numbers of the ranks in NVSHMEM (PEs); None if symmetric tensors are not its memory."""
        ...

    def places(self, owner: Any, skip: int) -> Sequence[Any]:
        """What names the same place on each rank in a put by NVSHMEM: on GPUs the own address for all of them."""
        ...

    def agree(self, what: str, value: str) -> AbstractContextManager[None] | None:
        """Compare a value, as what a kernel about to be launched has in common, with that of all ranks, once. Raises
        LaunchError: ranks-different, ranks-silent.

        Returns a block in which to launch where every launch has to ask, not only a kernel's first."""
        ...

    def pads(self) -> Sequence[Any]:
        """The address of the signal pad of each rank; with NVSHMEM what names it, as in `places`."""
        ...

    def copying(self, owner: Any, rank: int, source: Any) -> Callable[[], None]:
        """What copies an array to the same place as a symmetric tensor's on a rank, in the order of the stream, each time it is
        called. Both have been checked."""
        ...

    def part(self, owner: Any, rank: int) -> Any:
        """The same place as a symmetric tensor's on a rank, as an array."""
        ...

    def writing(self, owner: Any, rank: int, index: int, value: int) -> Callable[[], None]:
        """What sets a word of a symmetric tensor of int32 on a rank, in the order of the stream, each time it is called. All
        has been checked."""
        ...

    def beside(self, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
        """Call `launch`, whose launches go to `stream` (None: the current one), and `copies`, whose copies and writes go to a
        stream of their own, behind what `stream` was given before. The launches may wait for what other ranks' copies bring.
        What `stream` is given afterwards follows both. In the simulator a rank has one stream, so that no launch races with the
        own copies beside it there."""
        ...

    def multicast(self, owner: Any, skip: int) -> Any:
        """The multicast address of the same place; 0 if there is none."""
        ...
