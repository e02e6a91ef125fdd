"""What reports call threads and views, and what tells a thread's own values and accesses from those of tiles."""

from __future__ import annotations

from weft.ir.core import Func, Op, Region, walk
from weft.ir.types import TileType
from weft.ops import async_copy, memory, thread

BY_REGISTER = (memory.load_regs, memory.store_regs, memory.atomic_regs, memory.atomic_cas_regs)


class Naming:
    """The names of one function."""

    __slots__ = ("_block", "_body", "_lowered", "_tiles")

    def __init__(self, func: Func) -> None:
        # The extents of a block whose kernel is launched by threads, x first.
        self._block = func.attrs.block
        self._body = func.body
        self._lowered = func.attrs.stage == "lowered"
        self._tiles = {v.type.shape for op in walk(func.body) for v in op.uses if isinstance(v.type, TileType)}

    def thread(self, number: int) -> str:
        """Words for a thread: its number in the block, or its place in a block that is launched by threads."""
        if self._block is None:
            return f"thread {number}"
        x, y, _ = self._block
        return f"thread ({number % x}, {number // x % y}, {number // (x * y)})"

    @property
    def launched_by_threads(self) -> bool:
        """Whether the launch of the kernel had a `block=`."""
        return self._block is not None

    def of_threads(self, shape: tuple[int, ...], threads: int) -> bool:
        """Whether an array is what so many threads have each of their own, and no tile."""
        return self._lowered or (len(shape) > 1 and shape[0] == threads and shape not in self._tiles)

    def by_threads(self, op: Op) -> bool:
        """Whether the author's threads do an operation, each for itself, and not those of a tile."""
        if op.name.startswith("thread."):
            return True
        alike = op.kind in BY_REGISTER or op.kind is async_copy.copy
        return alike and (self._block is not None or not self._lowered)

    def nested(self, op: Op) -> bool:
        """Whether an operation stands in a branch or a loop, which threads may take differently."""
        return op not in self._body.ops

    def view(self, op: Op) -> str:
        """Words for the part of memory that an access goes through, where the bounds of its indices are checked beside it."""
        return _view_before(self._body, op) or ""


def _view_before(region: Region, wanted: Op) -> str | None:
    """What the last `thread.bounds` before an operation, of the same line, says of the view. None: it is not in the region."""
    view = ""
    for op in region.ops:
        if op is wanted:
            return view
        for inner in op.regions:
            found = _view_before(inner, wanted)
            if found is not None:
                return found
        if (
            op.kind is thread.bounds
            and op.loc is not None
            and wanted.loc is not None
            and str(op.loc) == str(wanted.loc)
        ):
            history: str = op.attrs["view"]
            # The whole of an array or an allocation says nothing that its name does not.
            view = f" through {history}" if "(" in history else ""
    return None
