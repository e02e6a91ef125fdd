"""Several ranks on one GPU: a thread of Python and a stream for each, to run kernels of several ranks where there is one GPU.

Peers' memory is that of the same GPU, so this says nothing about links or their speed.

Some calls of CUDA wait for all kernels that run, and let no other thread of the process launch meanwhile: with CUDA 13.0
`cudaFree` and a thread's first product of cuBLAS do, `cudaMalloc` does not. Where a kernel already waits for the launch of
another rank, neither ever ends. So the ranks launch together: from the first launch of a kernel with symmetric tensors to the
last one, no rank does anything else.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from weft.distributed import of_torch
from weft.distributed.agreement import SECONDS, Point, disagreement
from weft.distributed.current import Member, current
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
    allocations: list[Sequence[Any]] = field(default_factory=list[Sequence[Any]])
    at: dict[int, Point] = field(default_factory=dict[int, Point])
    different: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    meeting: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.meeting = threading.Barrier(self.size, self._compare)

    def meet(self, rank: int, what: str, value: str = "") -> None:
        """Wait for the other ranks, which get to the same point. Raises LaunchError: ranks-different, ranks-silent."""
        self.at[rank] = what, value
        try:
            self.meeting.wait(SECONDS)
        except threading.BrokenBarrierError as error:
            if self.different is not None:
                raise self.different from error
            others = ", ".join(str(other) for other in range(self.size) if other != rank)
            raise fail(errors.SILENT, ranks=others, own=rank, what=what, seconds=SECONDS) from error

    def _compare(self) -> None:
        """Called when all have come, before any goes on."""
        own = self.at[0]
        other = next((rank for rank, at in self.at.items() if at != own), 0)
        if other:
            self.different = disagreement(0, own, other, self.at[other])
            raise threading.BrokenBarrierError

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

    def around(self, owner: Any, rank: int) -> Sequence[Any] | None:
        """The tensors of all ranks of the allocation in which a rank has this one."""
        at = owner.data_ptr()
        for each in self.allocations:
            first = each[rank].data_ptr()
            if first <= at < first + max(each[rank].nbytes, 1):
                return each
        return None


class OnOneGpu(Member[_World]):
    """The group of such a world, as one rank sees it."""

    __slots__ = ()

    @property
    def crowded(self) -> bool:
        """The ranks share a GPU."""
        return True

    def peers(self, owner: Any, skip: int) -> Sequence[int]:
        """The address of the same place on each rank."""
        each = self.world.around(owner, self.rank)
        assert each is not None
        distance = owner.data_ptr() + skip - each[self.rank].data_ptr()
        return [tensor.data_ptr() + distance for tensor in each]

    @contextmanager
    def agree(self, what: str, value: str) -> Iterator[None]:
        """A block in which all ranks launch the kernel, and nothing else. Raises LaunchError: ranks-different, ranks-silent."""
        self.world.meet(self.rank, what, value)
        yield
        self.world.meet(self.rank, f"the end of this launch: {what}", value)

    def pads(self) -> Sequence[int]:
        """The addresses of the signal pads."""
        return [pad.data_ptr() for pad in self.world.pads]

    def copying(self, owner: Any, rank: int, source: Any) -> Callable[[], None]:
        """What copies a tensor to the same place on a rank."""
        return partial(self.part(owner, rank).copy_, source)

    def part(self, owner: Any, rank: int) -> Any:
        """The same place on a rank, as a tensor."""
        each = self.world.around(owner, self.rank)
        assert each is not None
        first = (owner.data_ptr() - each[self.rank].data_ptr()) // owner.element_size()
        return each[rank].view(-1)[first : first + owner.numel()].view(owner.shape)

    def writing(self, owner: Any, rank: int, index: int, value: int) -> Callable[[], None]:
        """What sets a word on a rank."""
        return of_torch.writing(owner.device, self.peers(owner, 4 * index)[rank], value)

    def beside(self, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
        """Launches, and copies on another stream of this rank."""
        of_torch.beside(self.world.torch.cuda.current_device(), stream, launch, copies)

    def multicast(self, owner: Any, skip: int) -> int:
        """One GPU has no multicast addresses."""
        return 0

    def barrier(self) -> None:
        """Meet the other ranks, behind all that their streams were given."""
        self.world.torch.cuda.current_stream().synchronize()
        self.world.meet(self.rank, "a barrier")


def on_one_gpu(fn: Callable[[int], T], ranks: int = 2) -> list[T]:
    """Run `fn(rank)` for every rank of a group on the current GPU of PyTorch; returns the results by rank.

    A host function of `weft.distributed.simulate` runs so on a GPU: `weft.distributed.empty` then allocates CUDA tensors, of
    a dtype of PyTorch. Each rank is a thread with a stream of its own, and the programs of all ranks have to fit on the GPU
    together: choose grids of at most its share. All ranks launch the same kernels with symmetric tensors in the same order,
    and meet before and behind each launch: a call of CUDA that waits for kernels, such as `cudaFree`, holds up the launches
    of all threads of a process. Ranks in processes of their own, as of `torchrun`, wait there for their own GPU's kernels only,
    which other processes' launches complete, so that such a call costs them time at most. A replay of a graph is no launch of
    weft's: meet by `weft.distributed.barrier` before it.

    A failure on a rank is raised when all have ended. Raises LaunchError (ranks-option).
    """
    count = whole(ranks)
    if count is None or count < 1:
        expected, example = "a positive number of ranks", "ranks=2"
        raise fail(errors.OPTION, what="on_one_gpu", option="ranks", value=ranks, expected=expected, example=example)
    torch = import_module("torch")
    pads = [torch.zeros(pad_words(count), dtype=torch.int32, device="cuda") for _ in range(count)]
    torch.cuda.synchronize()
    world = _World(count, torch, pads)
    device, results, failed = torch.cuda.current_device(), dict[int, T](), list[BaseException]()

    def run(rank: int) -> None:
        stream = torch.cuda.Stream(device)
        try:
            with torch.cuda.device(device), torch.cuda.stream(stream), current.block(OnOneGpu(world, rank)):
                results[rank] = fn(rank)
                stream.synchronize()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that called `on_one_gpu`
            failed.append(error)
            world.meeting.abort()

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, rank)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [results[rank] for rank in range(count)]
