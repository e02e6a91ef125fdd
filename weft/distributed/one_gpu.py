"""Several ranks on one GPU: a thread of Python and a stream for each, to run kernels of several ranks where there is one GPU.

Peers' memory is that of the same GPU, so this says nothing about links or their speed.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

from weft.distributed.agreement import SECONDS
from weft.distributed.current import current
from weft.errors import distributed as errors
from weft.errors import fail
from weft.plain import whole
from weft.views.symmetric import pad_words

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _World:
    """What the ranks have in common: symmetric tensors by allocation, the signal pads, and where they meet."""

    size: int
    torch: Any
    pads: Sequence[Any]
    meeting: threading.Barrier
    allocations: list[Sequence[Any]]
    kernels: dict[tuple[str, str], threading.Barrier]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def loaded(self, what: str, value: str) -> threading.Barrier:
        """Where the ranks meet that have loaded a kernel."""
        with self.lock:
            return self.kernels.setdefault((what, value), threading.Barrier(self.size))

    def tensor(self, number: int, rank: int, shape: tuple[int, ...], dtype: Any) -> Any:
        """The tensor of a rank in a collective allocation. Raises LaunchError (ranks-different)."""
        with self.lock:
            if number == len(self.allocations):
                each = [self.torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(self.size)]
                self.torch.cuda.synchronize()
                self.allocations.append(each)
            made = self.allocations[number][rank]
        if (tuple(made.shape), made.dtype) != (shape, dtype):
            one = f"an earlier rank allocated {made.dtype} {tuple(made.shape)}"
            what = f"their symmetric tensor number {number}"
            raise fail(errors.DIFFERENT, what=what, one=one, other=f"rank {rank} allocates {dtype} {shape}")
        return made


class OnOneGpu:
    """The group of such a world, as one rank sees it."""

    __slots__ = ("_allocations", "_loaded", "_world", "rank", "rooms")

    def __init__(self, world: _World, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.rooms: dict[Any, Any] = {}
        self._allocations = 0
        self._loaded: set[tuple[str, str]] = set()

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self._world.size

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The next symmetric tensor of this rank."""
        number = self._allocations
        self._allocations += 1
        return self._world.tensor(number, self.rank, shape, dtype)

    def peers(self, owner: Any, skip: int) -> Sequence[int]:
        """The address of the same place on each rank."""
        each = self._tensors(owner)
        assert each is not None
        distance = owner.data_ptr() + skip - each[self.rank].data_ptr()
        return [tensor.data_ptr() + distance for tensor in each]

    def agree(self, what: str, value: str) -> None:
        """All ranks have loaded a kernel before the first one launches it: CUDA waits for kernels that run when it loads
        another one. There is nothing to compare, all ranks are of this process. Raises LaunchError (ranks-silent)."""
        if (what, value) in self._loaded:
            return
        self._loaded.add((what, value))
        try:
            self._world.loaded(what, value).wait(SECONDS)
        except threading.BrokenBarrierError as error:
            others = ", ".join(str(rank) for rank in range(self.size) if rank != self.rank)
            raise fail(errors.SILENT, ranks=others, own=self.rank, what=what, seconds=SECONDS) from error

    def pads(self) -> Sequence[int]:
        """The addresses of the signal pads."""
        return [pad.data_ptr() for pad in self._world.pads]

    def multicast(self, owner: Any, skip: int) -> int:
        """One GPU has no multicast addresses."""
        return 0

    def has(self, owner: Any) -> bool:
        """Whether a tensor is symmetric memory of this rank."""
        return self._tensors(owner) is not None

    def barrier(self) -> None:
        """Meet the other ranks, behind all that their streams were given."""
        self._world.torch.cuda.current_stream().synchronize()
        self._world.meeting.wait()

    def _tensors(self, owner: Any) -> Sequence[Any] | None:
        at = owner.data_ptr()
        for each in self._world.allocations:
            first = each[self.rank].data_ptr()
            if first <= at < first + max(each[self.rank].nbytes, 1):
                return each
        return None


def on_one_gpu(fn: Callable[[int], T], ranks: int = 2) -> list[T]:
    """Run `fn(rank)` for every rank of a group on the current GPU of PyTorch; returns the results by rank.

    A host function of `weft.distributed.simulate` runs so on a GPU: `weft.distributed.empty` then allocates CUDA tensors, of
    a dtype of PyTorch. Each rank is a thread with a stream of its own, and the programs of all ranks have to fit on the GPU
    together: choose grids of at most its share. CUDA waits for the GPU when it loads the code of a kernel, at its first
    launch. The ranks meet before the first launch of a kernel with symmetric tensors; where other libraries have kernels of
    their own to load, meet by `weft.distributed.barrier` behind them.

    A failure on a rank is raised when all have ended. Raises LaunchError (ranks-option).
    """
    count = whole(ranks)
    if count is None or count < 1:
        expected, example = "a positive number of ranks", "ranks=2"
        raise fail(errors.OPTION, what="on_one_gpu", option="ranks", value=ranks, expected=expected, example=example)
    torch = import_module("torch")
    pads = [torch.zeros(pad_words(count), dtype=torch.int32, device="cuda") for _ in range(count)]
    torch.cuda.synchronize()
    world = _World(count, torch, pads, threading.Barrier(count), [], {})
    device, results, failed = torch.cuda.current_device(), dict[int, T](), list[BaseException]()

    def run(rank: int) -> None:
        stream = torch.cuda.Stream(device)
        try:
            with torch.cuda.device(device), torch.cuda.stream(stream), current.block(OnOneGpu(world, rank)):
                results[rank] = fn(rank)
                stream.synchronize()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that called `on_one_gpu`
            failed.append(error)
            for meeting in (world.meeting, *world.kernels.values()):
                meeting.abort()

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, rank)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [results[rank] for rank in range(count)]
