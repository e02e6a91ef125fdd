"""Groups of ranks on GPUs: PyTorch's symmetric memory, and weft's signal pads in it.

PyTorch's own signal pads belong to its kernels, which expect them to be zero between two of them, so weft allocates pads of its
own: one per group and device, zeroed once, before the first kernel. What PyTorch offers here is alpha
(`torch.distributed._symmetric_memory`); this file is all that weft knows of it: `empty`, `rendezvous`, and the handle's `rank`,
`world_size`, `buffer_ptrs`, `multicast_ptr`, `get_buffer` and `barrier`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from weft.bounded import keep
from weft.distributed.agreement import SECONDS, agree
from weft.errors import distributed as errors
from weft.errors import fail
from weft.locks import Lock
from weft.runtime import driver
from weft.runtime.streams import raw
from weft.views.symmetric import pad_words

_pads: dict[tuple[str, str], tuple[Any, tuple[int, ...]]] = {}
"""By group and device: the pad of this rank, which must stay allocated, and the addresses of all."""
_agreed: set[tuple[str, str, str]] = set()
"""What need not be compared again: groups, questions and answers."""
_asked: Counter[str] = Counter()
"""By group, the number of questions. It is the same on all ranks, which ask in the same order."""
_lock = Lock()
MOST_PARTS = 256
"""Parts of other ranks' memory that a group remembers as tensors."""


@dataclass(frozen=True, slots=True, eq=False)
class TorchGroup:
    """A process group of PyTorch, as one of its ranks sees it, for a symmetric tensor of it, which PyTorch's `handle` is of."""

    rank: int
    size: int
    name: str
    device: Any
    handle: Any
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])

    def peers(self, owner: Any, skip: int) -> Sequence[int]:
        """The address `skip` bytes after the start of a symmetric tensor, on each rank. Raises ranks-no-peer-access."""
        return _addresses(self.handle, owner.data_ptr() + skip)

    def pads(self) -> Sequence[int]:
        """The address of the signal pad of each rank; allocates the pads at the first call, on all ranks."""
        key = self.name, str(self.device)
        with _lock:
            if key not in _pads:
                _pads[key] = _allocated(self.name, self.size, self.device)
            return _pads[key][1]

    def agree(self, what: str, value: str) -> None:
        """Compare a value with that of all ranks of the group, unless this has been done, or a graph is being captured. Raises
        LaunchError: ranks-different, ranks-silent."""
        if (self.name, what, value) in _agreed or _module("torch").cuda.is_current_stream_capturing():
            return
        compare(self.name, self.rank, self.size, what, value)
        _agreed.add((self.name, what, value))

    def copying(self, owner: Any, rank: int, source: Any) -> Callable[[], None]:
        """What copies a tensor to the same place on a rank, on PyTorch's current stream; between GPUs a copy engine does it."""
        return partial(self.part(owner, rank).copy_, source)

    def part(self, owner: Any, rank: int) -> Any:
        """The same place on a rank, as a tensor."""
        key = owner.data_ptr(), owner.shape, owner.dtype, rank
        found = self.parts.get(key)
        if found is None:
            skip = (owner.data_ptr() - int(self.handle.buffer_ptrs[self.rank])) // owner.element_size()
            found = self.handle.get_buffer(rank, tuple(owner.shape), owner.dtype, skip)
            keep(self.parts, key, found, MOST_PARTS)
        return found

    def writing(self, owner: Any, rank: int, index: int, value: int) -> Callable[[], None]:
        """What sets a word on a rank, on PyTorch's current stream."""
        return writing(self.peers(owner, 4 * index)[rank], value)

    def beside(self, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
        """Launches, and copies on another stream."""
        beside(stream, launch, copies)

    def multicast(self, owner: Any, skip: int) -> int:
        """The multicast address of the same place; 0 if there is none."""
        handle = self.handle
        first = int(getattr(handle, "multicast_ptr", 0) or 0)
        return first and first + owner.data_ptr() + skip - int(handle.buffer_ptrs[handle.rank])


def writing(address: int, value: int) -> Callable[[], None]:
    """What writes a word on PyTorch's current stream."""
    cuda, bits = _module("torch").cuda, value & 0xFFFFFFFF
    return lambda: driver.call("cuStreamWriteValue32", cuda.current_stream().cuda_stream, address, bits, 0)


def beside(stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
    """Launches on a stream of PyTorch, and copies on another one, which both follow what the first was given before. Launches
    come first: the host takes some microseconds for each copy."""
    cuda, main, other = _module("torch").cuda, _stream(stream), _other_stream()
    other.wait_stream(main)
    launch()
    with cuda.stream(other):
        copies()
    main.wait_stream(other)


_others = threading.local()
"""Of each thread, by device: the stream of copies."""


def _other_stream() -> Any:
    cuda = _module("torch").cuda
    found = _others.__dict__.setdefault("streams", {})
    device = cuda.current_device()
    if device not in found:
        found[device] = cuda.Stream(device)
    return found[device]


def _stream(stream: Any) -> Any:
    cuda = _module("torch").cuda
    if stream is None:
        return cuda.current_stream()
    return stream if isinstance(stream, cuda.Stream) else cuda.ExternalStream(raw(stream))


def group_of(owner: Any, group: Any) -> TorchGroup:
    """The group of a symmetric tensor: a process group, its name, or None for all ranks. Collective at the first call for a
    tensor. Raises LaunchError (ranks-plain-tensor)."""
    name = _name(group)
    resolve = _module(_C10D)._resolve_process_group  # noqa: SLF001 - groups are known to symmetric memory by name
    process_group = resolve(name)
    shape = f"{owner.dtype} {tuple(owner.shape)}"
    compare(name, process_group.rank(), process_group.size(), "their symmetric tensor", shape)
    handle = _handle(owner, name)
    return TorchGroup(int(handle.rank), int(handle.world_size), name, owner.device, handle)


_SYMMETRIC = "torch.distributed._symmetric_memory"
_C10D = "torch.distributed.distributed_c10d"


def _module(name: str) -> Any:
    """A module of PyTorch, which the tensor comes from, so that it is installed."""
    return import_module(name)


def compare(name: str, rank: int, size: int, what: str, value: str, seconds: float = SECONDS) -> None:
    """Compare a value with that of all ranks, through the store of the default process group."""
    _asked[name] += 1
    store = _module(_C10D)._get_default_store()  # noqa: SLF001 - PyTorch's own packages take it so, too
    agree(store, what, value, rank=rank, size=size, key=f"{name}/{_asked[name]}", seconds=seconds)


def _name(group: Any) -> str:
    if isinstance(group, str):
        return group
    if group is None:
        group = _module("torch.distributed").group.WORLD
    return str(getattr(group, "group_name", group))


def _handle(owner: Any, name: str) -> Any:
    """PyTorch's handle of a symmetric tensor, which it keeps. Raises LaunchError (ranks-plain-tensor)."""
    try:
        handle = _module(_SYMMETRIC).rendezvous(owner, name)
    except (RuntimeError, ValueError) as error:
        instead = (
            "allocate it with torch.distributed._symmetric_memory.empty(shape, dtype=..., device='cuda'), on every rank of the "
            "group, or copy it into such a tensor"
        )
        reason = str(error).partition("\n")[0] or repr(error)
        got = f"one that PyTorch cannot share between the ranks ({reason})"
        raise fail(errors.PLAIN, got=got, instead=instead) from error
    return handle


def _addresses(handle: Any, own: int) -> tuple[int, ...]:
    """The addresses, on each rank, of what is at an own address: pools hold several tensors, at equal distances from their
    starts. Raises LaunchError (ranks-no-peer-access)."""
    starts = [int(pointer) for pointer in handle.buffer_ptrs]
    for rank, start in enumerate(starts):
        if not start:
            raise fail(errors.NO_PEER, rank=rank, own=int(handle.rank))
    distance = own - starts[int(handle.rank)]
    return tuple(start + distance for start in starts)


def _allocated(name: str, size: int, device: Any) -> tuple[Any, tuple[int, ...]]:
    """A zeroed pad on every rank. The barrier comes last: no rank may signal a pad that another one still zeroes."""
    pad = _module(_SYMMETRIC).empty(pad_words(size), dtype=_module("torch").int32, device=device)
    pad.zero_()
    handle = _handle(pad, name)
    handle.barrier()
    return pad, _addresses(handle, pad.data_ptr())
