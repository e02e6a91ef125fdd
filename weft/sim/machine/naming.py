"""Names of threads and views in reports, and the distinction between code written per thread and code written for tiles."""

from __future__ import annotations

from weft.ir.core import Func, Op, Region, walk
from weft.ir.types import TileType
from weft.ops import async_copy, mbarrier, memory, thread

BY_REGISTER = (
    memory.load_regs, memory.load_part, memory.store_regs, memory.store_part, memory.atomic_regs, memory.reduce_regs,
    memory.atomic_cas_regs, memory.poll_regs,
)  # fmt: skip
BY_THREAD = (mbarrier.init_at, mbarrier.invalidate_at, mbarrier.arrive_at, mbarrier.arrive_in, mbarrier.probe)


class Naming:
    """The naming of one function."""

    __slots__ = ("_block", "_body", "_lowered", "_tiles")

    def __init__(self, func: Func) -> None:
        # The block's extents, x first, if the kernel is launched by threads (`block=`); None otherwise.
        self._block = func.attrs.block
        self._body = func.body
        self._lowered = func.attrs.stage == "lowered"
        self._tiles = {v.type.shape for op in walk(func.body) for v in op.uses if isinstance(v.type, TileType)}

    def thread(self, number: int) -> str:
        """The name of a thread: its number in the block, or its coordinates if the kernel is launched by threads."""
        if self._block is None:
            return f"thread {number}"
        x, y, _ = self._block
        return f"thread ({number % x}, {number // x % y}, {number // (x * y)})"

    @property
    def launched_by_threads(self) -> bool:
        """True if the kernel's launch has a `block=`."""
        return self._block is not None

    def of_threads(self, shape: tuple[int, ...], threads: int) -> bool:
        """True if an array holds one row of values per thread, and is not a tile."""
        return self._lowered or (len(shape) > 1 and shape[0] == threads and shape not in self._tiles)

    def by_threads(self, op: Op) -> bool:
        """True if the author wrote an operation per thread; False if it belongs to a tile operation."""
        if op.kind.family == "thread" or op.kind in BY_THREAD:
            return True
        alike = op.kind in BY_REGISTER or op.kind is async_copy.copy
        return alike and (self._block is not None or not self._lowered)

    def nested(self, op: Op) -> bool:
        """True if an operation is in a branch or a loop, where threads may diverge."""
        return op not in self._body.ops

    def view(self, op: Op) -> str:
        """Message text for the view that an access goes through, if a `thread.bounds` on the same line checks its indices."""
        return _view_before(self._body, op) or ""


def _view_before(region: Region, wanted: Op) -> str | None:
    """The view of the last `thread.bounds` on the same line before an operation; None if the operation is not in the region."""
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
            # A history without parentheses is a whole array or allocation, which the report names already.
            view = f" through {history}" if "(" in history else ""
    return None
