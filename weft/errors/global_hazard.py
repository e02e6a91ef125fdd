"""Mistakes with global memory that programs, threads and copies share, found while a kernel ran in the simulator.

The classes are in `weft.errors.hazard`."""

from __future__ import annotations

from weft.errors.base import row
from weft.errors.hazard import GlobalRace, MissingFence, OutOfBounds

GLOBAL_RACE = row(
    "hazard-global-race",
    GlobalRace,
    "program {program} {access} {name}[{index}], which program {other} {before}, and nothing orders the two programs",
    "let each program write elements of its own, or order them: after the first, publish with an atomic or "
    'gl.store(sem="release"); before the second, wait for that value with an atomic or gl.load(sem="acquire"){unordered}',
)
GLOBAL_THREADS = row(
    "hazard-global-thread-race",
    GlobalRace,
    "program {program} {access} {name}[{index}], which another of its threads {before}, and nothing orders the two threads",
    "call gl.barrier() between the two lines",
)
GLOBAL_BLOCKS = row(
    "hazard-global-block-race",
    GlobalRace,
    "program {program}: block {block} {access} {name}[{index}], which block {other} of its cluster {before}, and nothing "
    "orders the two",
    "call cluster.barrier() between the two lines, or let one block do both: give the tiles the same cga_layout",
)
GLOBAL_IN_FLIGHT = row(
    "hazard-global-in-flight",
    GlobalRace,
    "program {program} {access} {name}[{index}] while a copy from it that {partition} started may still read it",
    "{wait} before this line",
)
GLOBAL_STORED = row(
    "hazard-global-stored",
    GlobalRace,
    "program {program} {access} {name}[{index}], which a TMA store of {partition} {before}, but no thread knows when that "
    "arrives: tma.store_wait() waits only until the store has read shared memory",
    "access it in a later launch, or store it with gl.store() and call gl.barrier()",
)
GLOBAL_FENCE = row(
    "hazard-global-fence",
    MissingFence,
    "program {program} {access} {name}[{index}] by TMA, which threads of {partition} {before}: no fence orders global memory",
    "use gl.load(), gl.store() or async_copy for {name} here, or write it in an earlier launch",
)
GLOBAL_STORE = row(
    "hazard-global-store-race",
    GlobalRace,
    "program {program}: one store writes {name}[{index}] several times with different values",
    "store each element once: mask off the others, or combine them with an atomic",
)
SCATTER_COLUMN = row(
    "hazard-scatter-column",
    OutOfBounds,
    "program {program}: a scatter writes rows of {name} from column {column} on, but copies from shared memory have no "
    "negative columns (only rows outside are left out)",
    "begin in column 0 or behind it, with the elements that come first left out of the tile",
)
