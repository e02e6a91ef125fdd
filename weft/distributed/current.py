"""The world whose host function runs in this thread: ranks in the simulator, or on one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from weft.distributed.group import Group
from weft.errors import distributed as errors
from weft.errors import fail
from weft.scoped import Scoped


class Member(Group, Protocol):
    """A rank of a world in this process, which allocates symmetric memory and meets the others. `rooms`: memory that the
    operators of `weft.torch` keep."""

    @property
    def rooms(self) -> dict[Any, Any]:
        """Symmetric tensors by use."""
        ...

    def has(self, owner: Any) -> bool:
        """Whether an array is symmetric memory of this rank."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The next symmetric array of this rank."""
        ...

    def barrier(self) -> None:
        """Meet the other ranks."""
        ...


current: Scoped[Member | None] = Scoped("weft.distributed.current")


def member(what: str) -> Member:
    """The rank that this thread runs. Raises LaunchError (ranks-outside)."""
    found = current.innermost(None)
    if found is None:
        raise fail(errors.OUTSIDE, what=what)
    return found


def group_of(owner: Any) -> Member:
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
