"""The world whose host function runs in this thread: ranks in the simulator, or on one GPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from weft.distributed.group import Group
from weft.errors import distributed as errors
from weft.errors import fail
from weft.scoped import Scoped


class World(Protocol):
    """What the ranks of a world in this process have in common."""

    @property
    def size(self) -> int:
        """The number of ranks."""
        ...

    def tensor(self, number: int, rank: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The array of a rank in a collective allocation. Raises LaunchError (ranks-different)."""
        ...

    def around(self, owner: Any, rank: int) -> Sequence[Any] | None:
        """The arrays of all ranks of the allocation in which a rank has this one; None if it is no symmetric memory."""
        ...


W = TypeVar("W", bound=World)


class Member(Group, Generic[W]):
    """A rank of a world in this process, which allocates symmetric memory and meets the others. `rooms`: memory that the
    operations between ranks keep."""

    __slots__ = ("_allocations", "_rank", "rooms", "world")

    def __init__(self, world: W, rank: int) -> None:
        self.world, self._rank = world, rank
        self.rooms: dict[Any, Any] = {}
        self._allocations = 0

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.world.size

    @property
    def crowded(self) -> bool:
        """Whether the ranks share a GPU."""
        return False

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The next symmetric array of this rank. Raises LaunchError (ranks-different)."""
        number = self._allocations
        self._allocations += 1
        return self.world.tensor(number, self.rank, shape, dtype)

    def pes(self) -> Sequence[int] | None:
        """Memory is not NVSHMEM's."""
        return None

    def places(self, owner: Any, skip: int) -> Sequence[Any]:
        """What names a place on each rank in puts."""
        return self.peers(owner, skip) or ()

    def has(self, owner: Any) -> bool:
        """Whether an array is symmetric memory of this rank."""
        return self.world.around(owner, self.rank) is not None

    @abstractmethod
    def barrier(self) -> None:
        """Meet the other ranks."""


current: Scoped[Member[Any] | None] = Scoped("weft.distributed.current")


def member(what: str) -> Member[Any]:
    """The rank that this thread runs. Raises LaunchError (ranks-outside)."""
    found = current.innermost(None)
    if found is None:
        raise fail(errors.OUTSIDE, what=what)
    return found


def group_of(owner: Any) -> Member[Any]:
    """The group of an array. Raises LaunchError: ranks-outside, ranks-plain-tensor."""
    group = member("weft.Symmetric")
    if not group.has(owner):
        instead = "allocate it with weft.distributed.empty(shape, dtype), on every rank"
        raise fail(errors.PLAIN, got="an array that only this rank has", instead=instead)
    return group


def empty(shape: int | Sequence[int], dtype: Any) -> Any:
    """A symmetric array in `weft.distributed.simulate`, or a symmetric tensor in `weft.distributed.on_one_gpu`: every rank gets
    one of its own, to be passed as `weft.Symmetric(x)`.

    All ranks call it in the same order, with the same shape and dtype. The host function may read and write the array between
    launches: what it writes precedes the rank's next launch, and orders nothing on other ranks. Zeros at first, which no
    program should rely on. Raises LaunchError: ranks-outside, ranks-different."""
    group = member("weft.distributed.empty")
    sizes = (shape,) if isinstance(shape, int) else tuple(int(size) for size in shape)
    return group.empty(sizes, dtype)


def barrier() -> None:
    """Wait for all ranks of `weft.distributed.simulate` or `weft.distributed.on_one_gpu`: what each has launched and written
    before precedes what any rank does afterwards. Among processes this is a barrier of the process group behind a
    synchronisation of the device. Raises LaunchError (ranks-outside), Deadlock if a simulated rank never calls it."""
    member("weft.distributed.barrier").barrier()
