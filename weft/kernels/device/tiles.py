"""Iteration over a program's tiles, which all roles of a warp-specialized kernel must agree on.

    tile = Tiles.start(shared, schedule)
    while tile.valid():
        tile.request_next()                                  by the producer only
        row, column, part = schedule.place(tile.number)
        ...
        tile = tile.next()

`StaticTiles`: static schedule of a persistent kernel, with as many programs as are resident; each takes tiles at a fixed
stride. `StolenTiles`: dynamic schedule by work stealing (cluster launch control). The grid has a program per tile, and a
program that has finished its tile cancels one that the GPU has not launched yet and computes its tile, until none is left.
"""

from __future__ import annotations

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import Position, barriers_of
from weft.language.nvidia.blackwell import clc, mbarrier

READERS = 3
"""The roles that read each response: producer, MMA issuer, epilogue."""
RESPONSES = 2
"""Responses in flight: the last one, which some roles may not have read yet, and the next."""
RESPONSE_BYTES = 16


@gl.aggregate
class StaticTiles:
    """Static schedule: tile `number`, valid while it is less than `tiles`."""

    number: gl.tensor
    tiles: gl.tensor

    @staticmethod
    @jit
    def prepare(plan: gl.constexpr):
        """A static schedule needs no shared state."""

    @staticmethod
    @jit
    def start(shared, schedule):
        """The program's first tile."""
        return StaticTiles(schedule.start, schedule.tiles)

    @jit
    def valid(self):
        """Whether this tile exists."""
        return self.number < self.tiles

    @jit
    def request_next(self):
        """A static schedule requests nothing."""

    @jit
    def next(self):
        """The next tile."""
        return StaticTiles(self.number + gl.num_programs(0), self.tiles)


@gl.aggregate
class Responses:
    """Buffers for responses of cluster launch control, with barriers for their arrival and for their last read."""

    results: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    read: gl.shared_memory_descriptor


@gl.aggregate
class StolenTiles:
    """Dynamic schedule: tile `number`, valid if it was `stolen`, and the position of the next response."""

    number: gl.tensor
    stolen: gl.tensor
    at: Position
    responses: Responses

    @staticmethod
    @jit
    def prepare(plan: gl.constexpr):
        """Buffers for responses. In a pair of CTAs the first one issues the request for both, so that both arrive on its `read`
        barrier."""
        results = gl.allocate_shared_memory(gl.int64, [RESPONSES, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        return Responses(results, barriers_of(RESPONSES, 1), barriers_of(RESPONSES, READERS, plan.pairs))

    @staticmethod
    @jit
    def start(shared, schedule):
        """The program's own tile, for which it was launched."""
        return StolenTiles(schedule.start, gl.to_tensor(True), Position(0, 0, RESPONSES), shared)

    @jit
    def valid(self):
        """Whether this tile was obtained."""
        return self.stolen

    @jit
    def request_next(self):
        """Request the tile after this one."""
        bar = self.responses.ready.index(self.at.slot)
        mbarrier.wait(self.responses.read.index(self.at.slot), self.at.phase ^ 1)
        mbarrier.expect(bar, RESPONSE_BYTES)
        clc.try_cancel(self.responses.results.index(self.at.slot), bar, multicast=True)

    @jit
    def next(self):
        """Wait for the requested tile."""
        mbarrier.wait(self.responses.ready.index(self.at.slot), self.at.phase)
        response = clc.load_result(self.responses.results.index(self.at.slot))
        mbarrier.arrive(self.responses.read.index(self.at.slot), count=1)
        return StolenTiles(response.program_id(0), response.is_canceled(), self.at.next(), self.responses)
