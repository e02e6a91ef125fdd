"""A group of ranks in the simulator: one host function for each, whose launches run side by side."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from typing import Any, TypeVar, cast

import numpy as np

from weft import simulation
from weft.distributed.agreement import disagreement
from weft.distributed.current import Member, current
from weft.errors import distributed as errors
from weft.errors import fail
from weft.forms import of_torch
from weft.loading import load_module
from weft.plain import whole
from weft.runtime.arguments import HostBuffer, host_buffer
from weft.views.symmetric import pad_words

T = TypeVar("T")
MOST_RANKS = 64
"""A simulated world has at most this many ranks, each of them a thread of Python."""


class Simulated(Member["_World"]):
    """The group of a simulated world, as one rank sees it."""

    __slots__ = ()

    def barrier(self) -> None:
        """Meet the other ranks. Raises Deadlock if one never comes."""
        cast("Any", simulation.member()).barrier()

    def peers(self, owner: Any, skip: int) -> Sequence[HostBuffer] | None:
        """The memory of a symmetric array on each rank, if pointers reach it."""
        return self.places(owner, skip) if self.world.reached else None

    def pes(self) -> Sequence[int] | None:
        """The ranks' numbers in NVSHMEM, which are those in the group."""
        return range(self.size) if self.world.nvshmem else None

    def places(self, owner: Any, skip: int) -> Sequence[HostBuffer]:
        """The memory of a symmetric array on each rank."""
        own, arrays = host_buffer(owner), self.world.around(owner, self.rank)
        assert arrays is not None
        return [
            _moved(own, arrays[self.rank], each, skip, f".peer({rank})") for rank, each in enumerate(arrays)
        ]  # fmt: skip

    def agree(self, what: str, value: str) -> None:
        """Compare this rank's n-th distinct value with the n-th of every other rank that has one. Raises LaunchError
        (ranks-different): on GPUs the ranks would wait for one another."""
        own = self.world.agreed[self.rank]
        if (what, value) in own:
            return
        own.append((what, value))
        for rank, others in enumerate(self.world.agreed):
            if len(others) >= len(own) and others[len(own) - 1] != own[-1]:
                raise disagreement(self.rank, own[-1], rank, others[len(own) - 1])

    def pads(self) -> Sequence[HostBuffer]:
        """The signal pads."""
        found: list[HostBuffer] = []
        for rank, pad in enumerate(self.world.pads):
            found.append(replace(host_buffer(pad), label=f"the signals of rank {rank}", pad=(rank, self.size)))
        return found

    def copying(self, owner: Any, rank: int, source: Any) -> Callable[[], None]:
        """What copies an array to the same place on a rank."""
        self._reach(rank)
        arrays, origin = self.world.around(owner, self.rank), self.world.around(source, self.rank)
        assert arrays is not None
        elements = _elements(owner, arrays[self.rank])
        read = None if origin is None else (origin[self.rank], _elements(source, origin[self.rank]))
        member = cast("Any", simulation.member())
        return lambda: member.copy(arrays[rank], elements, _numbers(source).view(arrays[rank].dtype), read)

    def part(self, owner: Any, rank: int) -> Any:
        """The same place on a rank."""
        self._reach(rank)
        arrays = self.world.around(owner, self.rank)
        assert arrays is not None
        at = _elements(owner, arrays[self.rank])
        if not at.size:
            return owner
        found = arrays[rank].reshape(-1)[at[0] : at[0] + at.size].reshape(owner.shape)
        # Symmetric memory of CPU tensors is NumPy's, as integers of their size.
        return import_module("torch").from_numpy(found).view(owner.dtype) if of_torch(owner) else found

    def writing(self, owner: Any, rank: int, index: int, value: int) -> Callable[[], None]:
        """What sets a word on a rank."""
        self._reach(rank)
        arrays = self.world.around(owner, self.rank)
        assert arrays is not None
        at = _elements(owner, arrays[self.rank])[index : index + 1]
        member = cast("Any", simulation.member())
        return lambda: member.write_value(arrays[rank], at, value)

    def _reach(self, rank: int) -> None:
        """Raises ranks-no-peer-access."""
        if not self.world.reached and rank != self.rank:
            raise fail(errors.NO_PEER, rank=rank, own=self.rank)

    def beside(self, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
        """A rank has one stream, in which a launch that waits for other ranks' copies has to come after its own."""
        copies()
        launch()

    def multicast(self, owner: Any, skip: int) -> HostBuffer | int:
        """The multicast address of the same place, which is memory that nothing may access; 0 if the world has none."""
        if not self.world.multicast:
            return 0
        own, arrays = host_buffer(owner), self.world.around(owner, self.rank)
        assert arrays is not None
        stands_for = self.world.stand_in(arrays[self.rank])
        moved = _moved(own, arrays[self.rank], stands_for, skip, ".multicast")
        return replace(moved, multicast=tuple(self.places(owner, 0)))


def _elements(part: Any, whole: Any) -> Any:
    """The numbers of an array's elements in the one that it is a part of."""
    first: int = (host_buffer(part).pointer - whole.ctypes.data) // part.itemsize
    return np.arange(first, first + prod(part.shape))


def _numbers(source: Any) -> Any:
    """The elements of an array in a line; those of a CPU tensor as integers of their size."""
    if not of_torch(source):
        return np.ravel(source)
    torch = import_module("torch")
    return source.contiguous().view(getattr(torch, f"int{8 * source.itemsize}")).numpy().reshape(-1)


def _moved(own: HostBuffer, base: Any, other: Any, skip: int, label: str) -> HostBuffer:
    """The memory of another rank at the place of the own one."""
    distance = other.ctypes.data - base.ctypes.data
    return replace(
        own, pointer=own.pointer + distance + skip, address=own.address + distance, low=own.low + distance,
        high=own.high + distance, keepalive=other, form="", label=label,
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class _World:
    """What the ranks of a simulated world have in common: symmetric arrays by allocation, and the signal pads."""

    size: int
    world: Any
    allocations: list[Sequence[Any]]
    pads: Sequence[Any]
    multicast: bool
    nvshmem: bool
    reached: bool
    stand_ins: dict[int, Any] = field(default_factory=dict[int, Any])
    agreed: Sequence[list[tuple[str, str]]] = ()
    """For each rank what it has compared with the others, in order."""

    def __post_init__(self) -> None:
        self.agreed = [[] for _ in range(self.size)]

    def check_ends(self) -> None:
        """Raises LaunchError (ranks-different) for a rank that has compared more than another, which would wait for it."""
        most, least = (how(range(self.size), key=lambda rank: len(self.agreed[rank])) for how in (max, min))
        if len(self.agreed[most]) > len(self.agreed[least]):
            raise disagreement(most, self.agreed[most][len(self.agreed[least])], least, ("the end", ""))

    def stand_in(self, array: Any) -> Any:
        """Memory at the multicast address of an array."""
        return self.stand_ins.setdefault(array.ctypes.data, _aligned(array.shape, array.dtype))

    def tensor(self, number: int, rank: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The array of a rank in a collective allocation. Raises LaunchError (ranks-different)."""
        dtype = np.dtype(dtype)
        if number == len(self.allocations):
            self.allocations.append(_arrays(self.size, shape, dtype))
            self.world.share(self.allocations[number])
        made = self.allocations[number]
        if (made[rank].shape, made[rank].dtype) != (shape, dtype):
            one = f"an earlier rank allocated {made[rank].dtype} {made[rank].shape}"
            what = f"their symmetric array number {number}"
            raise fail(errors.DIFFERENT, what=what, one=one, other=f"rank {rank} allocates {dtype} {shape}")
        return made[rank]

    def around(self, owner: Any, rank: int) -> Sequence[Any] | None:
        """The arrays of all ranks of the allocation in which a rank has this one."""
        at = host_buffer(owner).pointer
        for arrays in self.allocations:
            first = arrays[rank].ctypes.data
            if first <= at < first + max(arrays[rank].nbytes, 1):
                return arrays
        return None


ALIGNMENT = 4096
"""Symmetric arrays begin at multiples of this many bytes, as on GPUs, where they begin at pages."""


def _arrays(ranks: int, shape: tuple[int, ...], dtype: Any) -> Sequence[Any]:
    return [_aligned(shape, dtype) for _ in range(ranks)]


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros at a multiple of the alignment, as the whole of an array of their own."""
    import ctypes

    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_uint8 * (nbytes + ALIGNMENT))()
    skip = -ctypes.addressof(memory) % ALIGNMENT
    return np.frombuffer(memory, np.uint8, nbytes, skip).view(dtype).reshape(shape)


def simulate(
    fn: Callable[[int], T],
    ranks: int = 2,
    seed: int = 0,
    *,
    multicast: bool = False,
    nvshmem: bool = False,
    peer_access: bool = True,
) -> list[T]:
    """Run `fn(rank)` for every rank of a simulated group of GPUs; returns the results by rank.

    Launches in `fn` on host arrays run on the rank's own GPU and stream, at the same time as those of other ranks: one rank's
    programs may wait for signals of another's. Inside, `weft.distributed.empty` allocates symmetric memory, and
    `weft.distributed.barrier` meets the other ranks. What the simulator checks spans all ranks and launches (`weft.errors.
    hazard`: RankRace, RankScope, SignalReused, SignalLeft, Deadlock, and all hazards of single launches); it does not depend on
    the order in which ranks run. `seed` fixes that order: another seed delays other ranks, and makes the launches' own order
    random, too, unless `weft.simulate` says otherwise. With `multicast` symmetric memory has multicast addresses
    (`gl.symmetric.multicast`), as on GPUs whose NVSwitch offers them. With `nvshmem` it is memory of NVSHMEM, for `gl.put`;
    without `peer_access` no pointers reach other ranks' memory then, as on GPUs of several hosts.

    A failure on any rank ends all of them, and is raised. Raises LaunchError (ranks-option).
    """
    count, start = whole(ranks), whole(seed)
    if count is None or not 1 <= count <= MOST_RANKS:
        expected = f"a number of ranks from 1 to {MOST_RANKS}"
        raise fail(errors.OPTION, what="simulate", option="ranks", value=ranks, expected=expected, example="ranks=4")
    if start is None:
        raise fail(errors.OPTION, what="simulate", option="seed", value=seed, expected="an integer", example="seed=7")
    if not peer_access and not nvshmem:
        expected = "possible without nvshmem=True"
        raise fail(errors.OPTION, what="simulate", option="peer_access", value=peer_access, expected=expected,
                   example="nvshmem=True, peer_access=False")  # fmt: skip
    load_module("weft.sim")
    from weft.sim.machine.turns import Stopped
    from weft.sim.machine.world import World

    way = simulation.current()
    way = replace(way, seed=way.seed or start)
    world = World(count, start, way.hazards)
    pads = _arrays(count, (pad_words(count),), np.dtype(np.int32))
    world.share(pads, watched=False)
    group = _World(count, world, [], pads, multicast, nvshmem, peer_access)
    results: list[Any] = [None] * count

    def run(rank: int) -> None:
        member = world.ranks[rank]
        try:
            member.enter()
            with simulation.ranked(member), simulation.following(way), current.block(Simulated(group, rank)):
                results[rank] = fn(rank)
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that called `simulate`
            world.turns.fail(error)
        finally:
            world.turns.leave(rank)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, rank)) for rank in range(count)]
    for thread in threads:
        thread.start()
    world.turns.begin()
    for thread in threads:
        thread.join()
    if world.turns.failed is not None:
        raise world.turns.failed
    world.finish(pads)
    group.check_ends()
    return results
