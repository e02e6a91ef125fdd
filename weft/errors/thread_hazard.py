"""Mistakes of single threads, found while a kernel that is launched by threads ran in the simulator.

`thread` in a message is the place of a thread in its block, as in "thread (3, 0, 0)"; `view` is how the author made the view
that an access went through, or empty. The classes are in `weft.errors.hazard`.
"""

from __future__ import annotations

from weft.errors.base import row
from weft.errors.hazard import BrokenPromise, GlobalRace, InactiveLane, Misaligned, OutOfBounds, ThreadRace

VIEW_BOUNDS = row(
    "hazard-view-bounds",
    OutOfBounds,
    "program {program}: {thread} uses index {index} {where} {view}, whose size there is {size}",
    "keep indices from 0 to below the size: compare with t.dim() first, or make a tile at the edge of a view with masked=True",
)
LOCAL_INDEX = row(
    "hazard-local-index",
    OutOfBounds,
    "program {program}: {thread} {access} {name}[{index}], but its own {name} has elements 0 to {last}",
    "keep indices between 0 and {last}",
)
SHARED_ELEMENT = row(
    "hazard-shared-element",
    OutOfBounds,
    "program {program}: {thread} {access} {name}[{index}]{view}, but {name} has elements 0 to {last}",
    "keep indices between 0 and {last}, or allocate more",
)
SHARED_MISALIGNED = row(
    "hazard-shared-misaligned",
    Misaligned,
    "program {program}: {thread} {access} {bytes} bytes of {name} at byte {byte}{view}, which is {past} past a "
    "multiple of {bytes}",
    "pad rows to whole vectors, start views at multiples of the vector's width, or access narrower vectors",
)
THREADS_RACE = row(
    "hazard-threads-race",
    ThreadRace,
    "program {program}: {thread} {access} {name}{view}, which {other} {before}, and nothing orders the two threads",
    "{order}",
)
SHARED_STORE = row(
    "hazard-shared-store-race",
    ThreadRace,
    "program {program}: {thread} and {other} write {name}{view} by one store with different values",
    "let one thread write each element, or combine the values with an atomic",
)
GLOBAL_PAIR = row(
    "hazard-global-threads-race",
    GlobalRace,
    "program {program}: {thread} {access} {name}[{index}]{view}, which {other} {before}, and nothing orders the two threads",
    "{order}",
)
ASSEMBLED = row(
    "hazard-assembled",
    BrokenPromise,
    "program {program}: {thread} and {other} hold element {index} of a tile in common, but have {value} and {other_value}",
    "give all threads that hold an element the same value, or use a layout in which each element has one holder",
)
SHUFFLE_LANE = row(
    "hazard-shuffle-lane",
    InactiveLane,
    "program {program}: {thread} takes a value from lane {lane} of its warp, which {why}",
    "let all 32 threads of the warp take part: launch whole warps, and shuffle outside of divergent branches",
)
