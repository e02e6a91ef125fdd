"""Agreement of the ranks of a group: each says what it is about to do, and none does it unless all say the same.

A kernel that meets other kernels on other ranks, or tensors of other shapes, waits for signals that never come, or writes
where it should not. So ranks compare what they pass through the store of their process group, a key for each rank and
question, before the first collective call for a tensor and before the first launch of a compiled kernel. Later launches ask
nothing.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import Protocol

from weft.errors import WeftError, fail
from weft.errors import distributed as errors

SECONDS = 300.0
"""How long a rank waits for the others, which may still compile."""
_PAUSE = 0.01
Point = tuple[str, str]
"""What a rank is about to do, and how: a value of one line, or of several, each `name: text`."""


class Store(Protocol):
    """What agreement asks of a store of `torch.distributed`."""

    def set(self, key: str, value: str, /) -> object:
        """Set a key."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value of a key that is set."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are set."""
        ...


def agree(store: Store, what: str, value: str, *, rank: int, size: int, key: str, seconds: float = SECONDS) -> None:
    """Compare a value with that of all other ranks. `what` names it in messages; `key` is the same on all ranks, and used once.

    Raises LaunchError: ranks-different with the first rank that says something else, ranks-silent with those that say nothing
    within `seconds`."""
    point = f"{what}\n{value}"
    store.set(f"weft/{key}/{rank}", point)
    missing, end = [other for other in range(size) if other != rank], monotonic() + seconds
    while missing:
        missing = [other for other in missing if not store.check([f"weft/{key}/{other}"])]
        if missing and monotonic() > end:
            raise fail(errors.SILENT, ranks=", ".join(map(str, missing)), own=rank, what=what, seconds=seconds)
        if missing:
            sleep(_PAUSE)
    for other in range(size):
        theirs = store.get(f"weft/{key}/{other}").decode()
        if theirs != point:
            theirs_what, _, theirs_value = theirs.partition("\n")
            raise disagreement(rank, (what, value), other, (theirs_what, theirs_value))


def disagreement(rank: int, own: Point, other: int, theirs: Point) -> WeftError:
    """The error ranks-different of two ranks at different points: what they are at, or else the lines of their values that the
    other one's has not."""
    (what, value), (theirs_what, theirs_value) = own, theirs
    if what != theirs_what:
        one, another = f"rank {rank} is at {what}", f"rank {other} at {theirs_what}"
        return fail(errors.DIFFERENT, what="where they meet", one=one, other=another)
    ours, others = value.splitlines(), theirs_value.splitlines()
    one, another = (
        ", ".join(line for line in lines if line not in rest) or "nothing of that"
        for lines, rest in ((ours, others), (others, ours))
    )
    return fail(errors.DIFFERENT, what=what, one=f"rank {rank} has {one}", other=f"rank {other} has {another}")
