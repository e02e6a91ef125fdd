"""How the partitions of a warp-specialized kernel agree on its next tile, which is decided at run time.

    each = Tiles.start(shared, schedule)
    while each.there():
        each.ask()                                  by one trade
        row, column, part = schedule.place(each.number)
        ...
        each = each.next()

`InTurn`: there are as many programs as run at a time, and each takes every so many-th tile. `HandedOut`: there is a program for
each tile, and one that is done takes over the tile of one that the GPU has not launched yet, until none is left.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import Place, barriers_of
from weft.language.nvidia.blackwell import clc, mbarrier

TRADES = 3
"""Who reads each answer: those that bring blocks, multiply, and store."""
ANSWERS = 2
"""Answers that are there at a time: the last that not all have read, and the next."""
ANSWER_BYTES = 16


@gl.aggregate
class InTurn:
    """Tile `number`, if that is less than how many `tiles` there are."""

    number: gl.tensor
    tiles: gl.tensor

    @staticmethod
    @jit
    def prepare(plan: gl.constexpr):
        """What all share: nothing."""

    @staticmethod
    @jit
    def start(shared, schedule):
        """The first tile."""
        return InTurn(schedule.start, schedule.tiles)

    @jit
    def there(self):
        """Whether there is a tile."""
        return self.number < self.tiles

    @jit
    def ask(self):
        """Nobody has to be asked for the next one."""

    @jit
    def next(self):
        """The next tile."""
        return InTurn(self.number + gl.num_programs(0), self.tiles)


@gl.aggregate
class Answers:
    """Where answers of the GPU come, and barriers that say of each that it is there and that all have read it."""

    results: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    read: gl.shared_memory_descriptor


@gl.aggregate
class HandedOut:
    """Tile `number`, if it was `taken`, and where the answer of who gets the next one comes."""

    number: gl.tensor
    taken: gl.tensor
    at: Place
    answers: Answers

    @staticmethod
    @jit
    def prepare(plan: gl.constexpr):
        """Memory for answers. In a pair of blocks the first one asks for both, so that both tell it what they have read."""
        results = gl.allocate_shared_memory(gl.int64, [ANSWERS, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        return Answers(results, barriers_of(ANSWERS, 1), barriers_of(ANSWERS, TRADES, plan.pairs))

    @staticmethod
    @jit
    def start(shared, schedule):
        """The program's own tile."""
        return HandedOut(schedule.start, gl.to_tensor(True), Place(0, 0, ANSWERS), shared)

    @jit
    def there(self):
        """Whether there is a tile."""
        return self.taken

    @jit
    def ask(self):
        """Ask for the tile after this one."""
        bar = self.answers.ready.index(self.at.slot)
        mbarrier.wait(self.answers.read.index(self.at.slot), self.at.phase ^ 1)
        mbarrier.expect(bar, ANSWER_BYTES)
        clc.try_cancel(self.answers.results.index(self.at.slot), bar, multicast=True)

    @jit
    def next(self):
        """The tile that was asked for."""
        mbarrier.wait(self.answers.ready.index(self.at.slot), self.at.phase)
        answer = clc.load_result(self.answers.results.index(self.at.slot))
        mbarrier.arrive(self.answers.read.index(self.at.slot), count=1)
        return HandedOut(answer.program_id(0), answer.is_canceled(), self.at.next(), self.answers)
