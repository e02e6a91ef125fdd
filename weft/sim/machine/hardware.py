"""Conversion between the two indexings of a distributed tile: by coordinates, and by thread and register.

Thread `warp * 32 + lane` holds element `elements_of(layout)[thread, register]`. If a layout replicates an element, its lowest
holder represents it. `rank` is the rank of a block in its cluster; holders and owners of elements that the block does not hold
are arbitrary.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from weft.ir.types import TileType
from weft.layout import WARP_SIZE, LinearLayout
from weft.layout.cluster import copies
from weft.layout.linear.ends import count, held, in_row_major
from weft.sim.machine.data import Array, Data, arange, moved


@lru_cache(maxsize=1024)
def elements_of(layout: LinearLayout, rank: int = 0) -> Array:
    """The row-major index of the element in each register of each thread, shape (threads, registers)."""
    threads = arange(layout.in_size("warp") * WARP_SIZE)[:, None]
    registers = np.array(held(layout))[None, :]
    block = rank & layout.in_size("block") - 1
    flat = layout.flat(register=registers, lane=threads % WARP_SIZE, warp=threads // WARP_SIZE, block=block)
    return np.broadcast_to(in_row_major(layout, flat), (threads.size, registers.size))


@lru_cache(maxsize=1024)
def part_of(layout: LinearLayout, rank: int) -> Array | None:
    """Mask of the elements (row-major) that a block of a cluster holds; None for all."""
    mine = np.zeros(prod(layout.sizes), bool)
    mine[elements_of(layout, rank)] = True
    return None if mine.all() else mine


@lru_cache(maxsize=1024)
def own_part_of(layout: LinearLayout, rank: int, blocks: int) -> Array | None:
    """Mask of the elements that a block holds and no block of lower rank does; None for all."""
    return np.zeros(prod(layout.sizes), bool) if rank & copies(layout, blocks) else part_of(layout, rank)


@lru_cache(maxsize=1024)
def holders_of(layout: LinearLayout, rank: int = 0) -> Array:
    """The lowest holder of each element, as `thread * registers + register`."""
    flat = elements_of(layout, rank).ravel()
    holders = np.zeros(prod(layout.sizes), np.int64)
    holders[flat[::-1]] = arange(flat.size)[::-1]
    return holders


@lru_cache(maxsize=1024)
def owners_of(layout: LinearLayout, rank: int = 0) -> Array:
    """The lowest thread that holds each element."""
    return (holders_of(layout, rank) // count(layout)).astype(np.int16)


@lru_cache(maxsize=1024)
def readers_of(layout: LinearLayout, several: int, rank: int = 0) -> Array:
    """The thread that holds each element, or `several` if more than one thread does."""
    elements = elements_of(layout, rank)
    owners = owners_of(layout, rank)
    threads = np.broadcast_to(arange(elements.shape[0])[:, None], elements.shape)
    shared = np.zeros(owners.size, bool)
    shared[elements[threads != owners[elements]]] = True
    out = owners.copy()
    out[shared] = several
    return out


def linear_of(type: TileType) -> LinearLayout:
    """The tile's layout, which must be resolved."""
    if type.linear is None:
        raise ValueError(f"{type} reached the simulator before its layout was resolved")
    return type.linear


def to_threads(data: Data, layout: LinearLayout, rank: int = 0) -> Data:
    """A tile as a (threads, registers) array."""
    elements = elements_of(layout, rank)
    return moved(data, lambda array: array.reshape(-1)[elements])


def to_tile(data: Data, layout: LinearLayout, shape: tuple[int, ...], rank: int = 0) -> Data:
    """A (threads, registers) array as a tile; as a scalar if the shape is empty."""
    holders = holders_of(layout, rank)
    return moved(data, lambda array: array.reshape(-1)[holders].reshape(shape)[()])
