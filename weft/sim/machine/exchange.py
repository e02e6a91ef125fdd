"""Where the corresponding partitions of all blocks of a cluster meet: at barriers, and to exchange tiles in the tile stage,
where each block gives its part and gets the whole tile.

An exchange orders no accesses to memory, though barriers inside of it do: that is no promise of the language. Only what follows
the result of an atomic follows it in all blocks, also in those that did not execute it.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from math import prod

import numpy as np

from weft.errors import Loc
from weft.ir.core import Op
from weft.layout import LinearLayout
from weft.sim.machine.data import Array, Data, arange, moved, stacked
from weft.sim.machine.hardware import elements_of
from weft.sim.machine.tasks import Exchange, Task
from weft.sim.machine.wait import Run, Wait


class ExchangeWait(Wait):
    """A task that waits for the other blocks."""

    __slots__ = ("_blocks", "_exchange")
    follows = True

    def __init__(self, loc: Loc | None, exchange: Exchange, blocks: int) -> None:
        super().__init__(loc)
        self._exchange = exchange
        self._blocks = blocks

    def ready(self) -> bool:
        """True if all blocks have come."""
        return len(self._exchange.given) == self._blocks

    def words(self) -> str:
        """Message text for the blocks that are missing."""
        missing = (f"block {rank}" for rank in range(self._blocks) if rank not in self._exchange.given)
        return f" where the blocks of the cluster meet, to which {', '.join(missing)} has not come"


def meet(task: Task, op: Op, tile: Data | None, orders: bool) -> Generator[Wait, None, Exchange]:
    """Wait for the other blocks. `orders`: what a block did before precedes what the others do afterwards."""
    cluster, blocks = task.block.cluster, task.machine.blocks
    key = op, task.slot % task.machine.tasks
    exchange = cluster.exchanges.get(key)
    # A block is at most one execution ahead of another: it cannot pass the next one without it.
    if exchange is None or len(exchange.given) == blocks:
        exchange = cluster.exchanges[key] = Exchange()
    exchange.given[task.rank] = tile
    if orders:
        exchange.released.join(task.clock.release_all())
    wait = ExchangeWait(op.loc, exchange, blocks)
    if not wait.ready():
        yield wait
    if orders:
        task.clock.acquire(exchange.released)
    return exchange


def gathered(task: Task, op: Op, tile: Data, layout: LinearLayout, orders: bool) -> Run:
    """The whole tile, of which each block of the cluster holds a part by `layout`. An element that several blocks hold is that
    of the lowest rank."""
    exchange = yield from meet(task, op, tile, orders)
    if exchange.whole is None:
        shape, homes = np.shape(tile.array), _homes(layout, task.machine.blocks)
        flat = [
            moved(given, lambda array: np.reshape(array, -1)) for _, given in sorted(exchange.given.items()) if given
        ]
        whole = stacked(flat, lambda arrays: np.stack(arrays)[homes, arange(homes.size)])
        exchange.whole = moved(whole, lambda array: array.reshape(shape))
    return (exchange.whole,)


@lru_cache(maxsize=256)
def _homes(layout: LinearLayout, blocks: int) -> Array:
    """The lowest rank that holds each element."""
    homes: Array = np.zeros(prod(layout.sizes), np.int64)
    for rank in reversed(range(blocks)):
        homes[elements_of(layout, rank)] = rank
    return homes
