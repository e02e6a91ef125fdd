"""Schedulers: the tiles of a program in the order in which it computes them, for kernels of any kind.

    grid = Grid(rows, columns, steps, numbers, schedule)       rows and columns of tiles, steps along K of each
    shared = prepare(schedule, readers=1)
    work = begin(grid, counters, shared)
    while work.valid():
        work.request_next()
        row, column = work.place()
        first, end = work.steps()
        for k in range(first, end):
            ...
        acc, complete = combined(work, acc, partials, counters)
        if complete:
            ...                                                store the tile
        work = work.next()

All roles of a warp-specialized kernel run this loop, each with a `work` of its own, and see the same tiles: `shared` is made
before `warp_specialize`, `readers` is the number of roles, and exactly one of them, the producer, calls `request_next`, once
a tile. Where the schedule is dynamic it publishes the next tile's number to the others through shared memory and a pair of
mbarriers."""

from __future__ import annotations

from typing import Any, TypeAlias

from weft import language as gl
from weft.kernel import jit
from weft.kernels.device.rings import Position, barriers_of
from weft.language.nvidia.blackwell import clc, mbarrier
from weft.layout.distributed.infer import grain

Work: TypeAlias = "Static | Ticket | Stolen | Split | Stream"
"""A program's tile, or part of a tile; all have the same methods."""
SLOTS = 2
"""Numbers in flight: the last one, which some roles may not have read yet, and the next."""
RESPONSE_BYTES = 16
AT_ONCE = 4
"""Parts of a tile whose loads are in flight together when they are added."""


@gl.aggregate
class Grid:
    """`rows` x `columns` tiles, with `steps` blocks along K each, in the order of `schedule`; `numbers` points to a list."""

    rows: gl.tensor
    columns: gl.tensor
    steps: gl.tensor
    numbers: gl.tensor | None
    schedule: gl.constexpr

    @jit
    def tiles(self):
        """The number of tiles."""
        return self.rows * self.columns

    @jit
    def place(self, number):
        """Row and column of a tile number."""
        if self.schedule.order == "listed":
            number = gl.load(self.numbers + number)
            return number // self.columns, number % self.columns
        return place(number, self.rows, self.columns, self.schedule.order, self.schedule.group)


@jit
def place(
    number: gl.tensor, rows: gl.tensor, columns: gl.tensor, order: gl.constexpr[str], group: gl.constexpr[int]
) -> tuple[gl.tensor, gl.tensor]:
    """Row and column of a tile number in an order (see `weft.kernels.Schedule`).

    A wave of P tiles that is g tiles high and P / g wide reads g block rows of a and P / g block columns of b. The total is
    least when both have the same number of bytes (`weft.kernels.config.best_group`)."""
    if order == "rows":
        return number // columns, number % columns
    if order == "columns":
        return number % rows, number // rows
    band, row, column = in_bands(number, rows, columns, group)
    if order == "serpentine":
        column = gl.where(band & 1 == 1, columns - 1 - column, column)
    return row, column


@jit
def in_bands(number, rows, columns, group):
    """Band, row and column of a tile number, in bands of `group` rows, column by column."""
    band = number // (columns * group)
    first = band * group
    height = min(rows - first, group)
    within = number - first * columns
    column = within // height
    return band, first + within - column * height, column


@jit
def in_two_parts(number, rows, columns, group, banded):
    """Row and column of a tile number: the first `banded` columns come in bands of `group` rows, and the others behind them, of
    all rows. Where those are short tiles, they fill the multiprocessors up while the last long ones run."""
    rest = number - banded * rows
    first = rest < 0
    number, group = gl.where(first, number, rest), gl.where(first, group, rows)
    _, row, column = in_bands(number, rows, gl.where(first, banded, columns - banded), group)
    return row, gl.where(first, column, column + banded)


@jit
def prepare(schedule: gl.constexpr, readers: gl.constexpr = 1, pairs: gl.constexpr = False):
    """What the roles of a program share: None for schedules that need no exchange."""
    if schedule.kind == "ticket":
        return Messages.make(readers, pairs)
    if schedule.kind == "stolen":
        return Responses.make(readers, pairs)
    return None


@jit
def begin(grid: Grid, counters: gl.tensor | None = None, shared: Any = None) -> Work:
    """A program's first tile, or part of a tile. `counters` as `Schedule.state` makes them, `shared` as `prepare` does."""
    kind: gl.constexpr = grid.schedule.kind
    if kind == "ticket":
        return Ticket(gl.program_id(0), Position(0, 0, SLOTS), grid, counters, shared)
    if kind == "stolen":
        return Stolen(gl.program_id(0), gl.to_tensor(True), Position(0, 0, SLOTS), grid, shared)
    if kind == "stream_k":
        return Stream.start(grid)
    if kind == "split_k":
        return Split.of(gl.program_id(0), grid)
    return Static(gl.program_id(0), grid)


@gl.aggregate
class Static:
    """Tiles p, p + programs, ... of program p."""

    number: gl.tensor
    grid: Grid

    @jit
    def valid(self):
        """Whether this tile exists."""
        return self.number < self.grid.tiles()

    @jit
    def place(self):
        """Row and column of the tile, in tiles."""
        return self.grid.place(self.number)

    @jit
    def steps(self) -> tuple[gl.tensor, gl.tensor]:
        """First step along K, and the step after the last one."""
        return 0, self.grid.steps

    @jit
    def request_next(self):
        """The next tile is known."""

    @jit
    def next(self):
        """The next tile."""
        return Static(self.number + gl.num_programs(0), self.grid)


@gl.aggregate
class Messages:
    """Numbers that the producer publishes, with barriers for their arrival and for their last read."""

    numbers: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    read: gl.shared_memory_descriptor

    @staticmethod
    @jit
    def make(readers: gl.constexpr, pairs: gl.constexpr):
        """Empty messages."""
        gl.static_assert(not pairs, "a pair of CTAs takes no tickets")
        numbers = gl.allocate_shared_memory(gl.int32, [SLOTS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        return Messages(numbers, barriers_of(SLOTS, 1), barriers_of(SLOTS, readers))


@gl.aggregate
class Ticket:
    """The first tile has the program's number, each further one the number that its ticket gives.

    Every program that has a first tile takes tickets until one is beyond the last tile, so the launch takes exactly as many
    tickets as there are tiles. Whoever takes the last one sets the counter back to zero for the next launch."""

    number: gl.tensor
    at: Position
    grid: Grid
    counter: gl.tensor
    messages: Messages

    @jit
    def valid(self):
        """Whether this tile exists."""
        return self.number < self.grid.tiles()

    @jit
    def place(self):
        """Row and column of the tile, in tiles."""
        return self.grid.place(self.number)

    @jit
    def steps(self) -> tuple[gl.tensor, gl.tensor]:
        """First step along K, and the step after the last one."""
        return 0, self.grid.steps

    @jit
    def request_next(self):
        """Take a ticket, and publish its tile."""
        mbarrier.wait(self.messages.read.index(self.at.slot), self.at.phase ^ 1)
        ticket = gl.atomic_add(self.counter, 1, sem="relaxed")
        if ticket == self.grid.tiles() - 1:
            gl.atomic_xchg(self.counter, 0, sem="relaxed")
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        message = gl.full([1], ticket + gl.num_programs(0), gl.int32, layout)
        self.messages.numbers.index(self.at.slot).store(message)
        mbarrier.arrive(self.messages.ready.index(self.at.slot), count=1)

    @jit
    def next(self):
        """Wait for the published tile."""
        mbarrier.wait(self.messages.ready.index(self.at.slot), self.at.phase)
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        number = self.messages.numbers.index(self.at.slot).load(layout).item()
        mbarrier.arrive(self.messages.read.index(self.at.slot), count=1)
        return Ticket(number, self.at.next(), self.grid, self.counter, self.messages)


@gl.aggregate
class Responses:
    """Responses of cluster launch control, with barriers for their arrival and for their last read."""

    results: gl.shared_memory_descriptor
    ready: gl.shared_memory_descriptor
    read: gl.shared_memory_descriptor

    @staticmethod
    @jit
    def make(readers: gl.constexpr, pairs: gl.constexpr):
        """Empty responses. In a pair of CTAs the first one requests for both, so that both arrive on its `read` barrier."""
        results = gl.allocate_shared_memory(gl.int64, [SLOTS, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
        return Responses(results, barriers_of(SLOTS, 1), barriers_of(SLOTS, readers, pairs))


@gl.aggregate
class Stolen:
    """The program's own tile, for which it was launched, then tiles of programs that have not started."""

    number: gl.tensor
    found: gl.tensor
    at: Position
    grid: Grid
    responses: Responses

    @jit
    def valid(self):
        """Whether this tile was obtained."""
        return self.found

    @jit
    def place(self):
        """Row and column of the tile, in tiles."""
        return self.grid.place(self.number)

    @jit
    def steps(self) -> tuple[gl.tensor, gl.tensor]:
        """First step along K, and the step after the last one."""
        return 0, self.grid.steps

    @jit
    def request_next(self):
        """Ask for another program's tile."""
        bar = self.responses.ready.index(self.at.slot)
        mbarrier.wait(self.responses.read.index(self.at.slot), self.at.phase ^ 1)
        mbarrier.expect(bar, RESPONSE_BYTES)
        clc.try_cancel(self.responses.results.index(self.at.slot), bar, multicast=True)

    @jit
    def next(self):
        """Wait for the response."""
        mbarrier.wait(self.responses.ready.index(self.at.slot), self.at.phase)
        response = clc.load_result(self.responses.results.index(self.at.slot))
        mbarrier.arrive(self.responses.read.index(self.at.slot), count=1)
        return Stolen(response.program_id(0), response.is_canceled(), self.at.next(), self.grid, self.responses)


@gl.aggregate
class Split:
    """Split-K: parts p, p + programs, ... of program p, where the parts of a tile have consecutive numbers."""

    part: gl.tensor
    number: gl.tensor
    grid: Grid

    @staticmethod
    @jit
    def of(part, grid):
        """The part of this number."""
        return Split(part, part // grid.schedule.splits, grid)

    @jit
    def valid(self):
        """Whether this part exists."""
        return self.number < self.grid.tiles()

    @jit
    def place(self):
        """Row and column of the tile, in tiles."""
        return self.grid.place(self.number)

    @jit
    def steps(self) -> tuple[gl.tensor, gl.tensor]:
        """First step along K, and the step after the last one; parts differ by at most one step."""
        return self.boundary(self.index()), self.boundary(self.index() + 1)

    @jit
    def boundary(self, index):
        """The step at which a part begins."""
        splits: gl.constexpr = self.grid.schedule.splits
        each = self.grid.steps // splits
        return index * each + min(index, self.grid.steps - each * splits)

    @jit
    def request_next(self):
        """The next part is known."""

    @jit
    def next(self):
        """The next part."""
        return Split.of(self.part + gl.num_programs(0), self.grid)

    @jit
    def parts(self):
        """The number of parts of the tile."""
        return gl.to_tensor(self.grid.schedule.splits)

    @jit
    def index(self):
        """The number of this part in the tile."""
        return self.part % self.grid.schedule.splits

    @jit
    def slot(self, index):
        """The place of a part's sum in the workspace."""
        return self.number * self.grid.schedule.splits + index

    @jit
    def slots(self):
        """The number of places."""
        return self.grid.tiles() * self.grid.schedule.splits


@gl.aggregate
class Stream:
    """Stream-K: the steps of the first `streamed` tiles are divided evenly among the programs, which then compute whole
    tiles.

    `at` is the number of the current step among all streamed ones and `stop` that after the program's last one; a program has
    at most two tiles that it does not compute alone, the one in which it begins and the one in which it ends."""

    number: gl.tensor
    at: gl.tensor
    stop: gl.tensor
    streamed: gl.tensor
    grid: Grid

    @staticmethod
    @jit
    def start(grid):
        """The program's first part. The last wave is streamed together with the one before it, if it is not full."""
        tiles, programs = grid.tiles(), gl.num_programs(0)
        waves = tiles // programs
        streamed = gl.where(tiles % programs == 0, 0, tiles - max(waves - 1, 0) * programs)
        work = Stream(0, 0, 0, streamed, grid)
        return work.moved(work.bound(gl.program_id(0)), work.bound(gl.program_id(0) + 1))

    @jit
    def total(self):
        """The number of streamed steps."""
        return self.streamed * self.grid.steps

    @jit
    def programs(self):
        """The number of programs that have streamed steps."""
        return min(gl.num_programs(0), self.total())

    @jit
    def bound(self, program):
        """The first streamed step of a program."""
        return (min(program, self.programs()).to(gl.int64) * self.total() // max(self.programs(), 1)).to(gl.int32)

    @jit
    def owner(self, step):
        """The program that has a streamed step."""
        return (((step + 1).to(gl.int64) * self.programs() - 1) // self.total()).to(gl.int32)

    @jit
    def moved(self, at, stop):
        """The part that begins at a streamed step; the program's first whole tile if there is none."""
        whole = self.streamed + gl.program_id(0)
        return Stream(gl.where(at < stop, at // self.grid.steps, whole), at, stop, self.streamed, self.grid)

    @jit
    def valid(self):
        """Whether this part exists."""
        return self.number < self.grid.tiles()

    @jit
    def place(self):
        """Row and column of the tile, in tiles."""
        return self.grid.place(self.number)

    @jit
    def steps(self) -> tuple[gl.tensor, gl.tensor]:
        """First step along K, and the step after the last one."""
        streams = self.at < self.stop
        first = self.at % self.grid.steps
        end = min(self.grid.steps, first + self.stop - self.at)
        return gl.where(streams, first, 0), gl.where(streams, end, self.grid.steps)

    @jit
    def request_next(self):
        """The next part is known."""

    @jit
    def next(self):
        """The next part."""
        first, end = self.steps()
        following = self.moved(self.at + end - first, self.stop)
        further = Stream(self.number + gl.num_programs(0), self.at, self.stop, self.streamed, self.grid)
        streams = self.at < self.stop
        number = gl.where(streams, following.number, further.number)
        return Stream(number, gl.where(streams, following.at, self.at), self.stop, self.streamed, self.grid)

    @jit
    def parts(self):
        """The number of programs that compute parts of the tile."""
        last = self.owner((self.number + 1) * self.grid.steps - 1)
        return gl.where(self.number < self.streamed, last - self.owner(self.number * self.grid.steps) + 1, 1)

    @jit
    def index(self):
        """The number of this part in the tile."""
        return gl.program_id(0) - self.owner(self.number * self.grid.steps)

    @jit
    def slot(self, index):
        """The place of a part's sum in the workspace: a program has one for the tile that it ends in, and one for that in
        which it begins."""
        return 2 * (self.owner(self.number * self.grid.steps) + index) + min(index, 1)

    @jit
    def slots(self):
        """The number of places."""
        return 2 * gl.num_programs(0)


@jit
def combined(
    work: Any, acc: gl.tensor, partials: gl.tensor | None, counters: gl.tensor | None, partition: gl.constexpr[int] = 0
) -> tuple[gl.tensor, gl.tensor]:
    """The sum of all parts of a tile, and whether this program has it: the one that is the last to finish a part.

    Parts are added in the order of K, so that results repeat to the bit. Partitions that add up different rows or columns of
    a tile have different numbers. If the schedule divides no tiles, these are `acc` and True, and no code."""
    complete = gl.to_tensor(True)
    if work.grid.schedule.divides:
        parts = work.parts()
        if parts > 1:
            size: gl.constexpr = acc.shape[0] * acc.shape[1]
            base = partials + (work.slots() * partition).to(gl.int64) * size
            counter = counters + work.grid.tiles() * partition + work.number
            gl.store(base + work.slot(work.index()).to(gl.int64) * size + offsets_of(acc, 0, acc.shape[1]), acc)
            complete = gl.atomic_add(counter, 1, sem="acq_rel") == parts - 1
            if complete:
                acc = sum_of_parts(work, acc, base, parts)
                gl.store(counter, 0)
    return acc, complete


@jit
def offsets_of(like, first: gl.constexpr, end: gl.constexpr):
    """Row-major positions of some columns of a tile, in its layout."""
    i = gl.arange(0, like.shape[0], gl.SliceLayout(1, like.layout))
    j = gl.arange(0, like.shape[1], gl.SliceLayout(0, like.layout))
    return (i[:, None] * like.shape[1] + j[None, :])[:, first:end]


@jit
def sum_of_parts(work, like, base, parts):
    """The sum of all parts of a tile, some columns at a time: whole tiles of several parts would not fit in registers."""
    size: gl.constexpr = like.shape[0] * like.shape[1]
    width: gl.constexpr = columns_at_a_time(like.layout, like.shape)
    pieces = ()
    for first in gl.static_range(0, like.shape[1], width):
        inside = offsets_of(like, first, first + width)
        total = gl.zeros([like.shape[0], width], like.dtype, inside.layout)
        for index in range(0, parts, AT_ONCE):
            # Several loads are under way at a time; parts that do not exist are 0.
            found = ()
            for i in gl.static_range(AT_ONCE):
                place = base + work.slot(index + i).to(gl.int64) * size + inside
                found = (*found, gl.load(place, mask=index + i < parts, other=0))
            for part in found:
                total += part
        pieces = (*pieces, total)
    for _ in gl.static_range(len(pieces).bit_length() - 1):
        pairs = ()
        for i in gl.static_range(len(pieces) // 2):
            pairs = (*pairs, gl.cat(pieces[2 * i], pieces[2 * i + 1], dim=1))
        pieces = pairs
    return gl.convert_layout(pieces[0], like.layout, assert_trivial=True)


@gl.constexpr_function
def columns_at_a_time(layout, shape):
    """Columns of a tile that every thread holds a few of."""
    return min(shape[1], max(32, grain(layout, shape, 1)))
