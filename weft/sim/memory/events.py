"""Accesses to shared and tensor memory, as shadows record and compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from weft.ir.core import Op
from weft.sim.machine.data import Array
from weft.sim.memory.spaces import Allocation

EventMode = Literal["generic", "copy", "sent", "load", "store", "product", "response", "mma", "cp"]
"""How an access is made: `generic` by threads, `copy` by cp.async, `sent` by st.async, `load` by a TMA load and `store` by a
TMA store (of both memories that they access), `product` by a wgmma, `response` by a clusterlaunchcontrol response, `mma` by
`tcgen05.mma` and `cp` by `tcgen05.cp`."""

ELECTED = 0
"""The thread of a partition that is elected for single-threaded operations."""


@dataclass(slots=True, eq=False)
class Event:
    """An access. It happens before a task's present if the task's clock of `component` is greater than `value`. `slot`: the
    task that made it. Atomic accesses do not conflict with each other."""

    component: int
    value: int
    mode: EventMode
    writes: bool
    slot: int
    op: Op
    memory: Allocation
    atomic: bool = False


@dataclass(slots=True, eq=False)
class Area:
    """The granules of an access (a slice or numbers), and the thread of each, or of all. `repeats`: a granule may appear
    several times. `excuse(earlier, mask)` is called before a conflict at the masked granules is reported, and returns True if
    the conflict is benign."""

    where: slice | Array
    threads: Array | int
    repeats: bool = False
    excuse: Callable[[Event, Array], bool] | None = None
