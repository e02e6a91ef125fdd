"""Groups of ranks on GPUs: PyTorch's symmetric memory, and weft's signal pads in it.

PyTorch's own signal pads belong to its kernels, which expect them to be zero between two of them, so weft allocates pads of its
own: one per group and device, zeroed once, before the first kernel. What PyTorch offers here is alpha
(`torch.distributed._symmetric_memory`); this file is all that weft knows of it: `empty`, `rendezvous`, `get_backend`, and the
handle's `rank`, `world_size`, `buffer_ptrs`, `multicast_ptr`, `get_buffer` and `barrier`.

After `set_backend("NVSHMEM")` all symmetric tensors of a process are NVSHMEM's memory, the pads among them. The address of a
rank that pointers do not reach is then 0, and a rank's number in NVSHMEM is its number in the default group.
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
    numbers: tuple[int, ...] | None = None
    """The ranks' numbers in NVSHMEM, if it is its memory."""
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Parts of other ranks' memory, as tensors."""

    @property
    def crowded(self) -> bool:
        """Each rank has a GPU of its own."""
        return False

    def peers(self, owner: Any, skip: int) -> Sequence[int] | None:
        """The address `skip` bytes after the start of a symmetric tensor, on each rank; None if memory is NVSHMEM's and not
        all of it has an address here. Raises ranks-no-peer-access."""
        if self.numbers is not None and not all(self.handle.buffer_ptrs):
            return None
        return _addresses(self.handle, owner.data_ptr() + skip)

    def pes(self) -> Sequence[int] | None:
        """The ranks' numbers in NVSHMEM, if it is its memory."""
        return self.numbers

    def places(self, owner: Any, skip: int) -> Sequence[int]:
        """NVSHMEM names the memory of any rank by the own address."""
        return (owner.data_ptr() + skip,) * self.size

    def pads(self) -> Sequence[int]:
        """The address of the signal pad of each rank, or of the own one if memory is NVSHMEM's; allocates the pads at the first
        call, on all ranks."""
        key = self.name, str(self.device)
        with _lock:
            if key not in _pads:
                pad, handle = allocated(self.name, self.device, (pad_words(self.size),), _module("torch").int32)
                self._zero(pad, handle)
                own = pad.data_ptr()
                addresses = _addresses(handle, own) if self.numbers is None else (own,) * self.size
                _pads[key] = pad, addresses
            return _pads[key][1]

    def _zero(self, pad: Any, handle: Any) -> None:
        """Zero the pad on every rank. The barrier comes last: no rank may signal a pad that another one still zeroes."""
        pad.zero_()
        if self.numbers is None:
            handle.barrier()
        else:
            # The barrier of a handle of NVSHMEM's memory does nothing (PyTorch 2.8 to 2.11).
            _module("torch").cuda.synchronize(self.device)
            compare(self.name, self.rank, self.size, "their signal pads", "zeroed")

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
            self._address(owner, rank)
            skip = (owner.data_ptr() - int(self.handle.buffer_ptrs[self.rank])) // owner.element_size()
            # Copies to it are allowed outside of inference mode, too.
            with _module("torch").inference_mode(False):
                found = self.handle.get_buffer(rank, tuple(owner.shape), owner.dtype, skip)
            keep(self.parts, key, found, MOST_PARTS)
        return found

    def writing(self, owner: Any, rank: int, index: int, value: int) -> Callable[[], None]:
        """What sets a word on a rank, on PyTorch's current stream."""
        return writing(self.device, self._address(owner, rank, 4 * index), value)

    def _address(self, owner: Any, rank: int, skip: int = 0) -> int:
        """The address of the same place on a rank. Raises ranks-no-peer-access."""
        start, own = (int(self.handle.buffer_ptrs[each]) for each in (rank, self.rank))
        if not start:
            raise fail(errors.NO_PEER, rank=rank, own=self.rank)
        return start + owner.data_ptr() + skip - own

    def beside(self, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
        """Launches, and copies on another stream."""
        beside(self.device, stream, launch, copies)

    def multicast(self, owner: Any, skip: int) -> int:
        """The multicast address of the same place; 0 if there is none."""
        handle = self.handle
        first = int(getattr(handle, "multicast_ptr", 0) or 0)
        return first and first + owner.data_ptr() + skip - int(handle.buffer_ptrs[handle.rank])


def allocated(name: str, device: Any, shape: Sequence[int], dtype: Any) -> tuple[Any, Any]:
    """A new symmetric tensor of a group, and its handle: memory that weft needs beside the user's.

    PyTorch 2.11 refuses NVSHMEM's memory of two devices in a process, and takes "cuda" for another one than "cuda:0". Which of
    them the first tensor was allocated on, neither it nor its handle tells."""
    torch, symmetric = _module("torch"), _module(_SYMMETRIC)
    nvshmem = symmetric.get_backend(device) == "NVSHMEM"
    with torch.cuda.device(device):
        for each in (torch.device("cuda"), device) if nvshmem else (device,):
            made = symmetric.empty(*shape, dtype=dtype, device=each)
            try:
                return made, symmetric.rendezvous(made, name)
            except RuntimeError as error:
                if "multiple devices" not in str(error) or each is device:
                    raise
    raise AssertionError("the last device returns or raises")


def writing(device: Any, address: int, value: int) -> Callable[[], None]:
    """What writes a word on PyTorch's current stream of a device."""
    cuda, bits = _module("torch").cuda, value & 0xFFFFFFFF

    def write() -> None:
        with cuda.device(device):
            driver.call("cuStreamWriteValue32", cuda.current_stream().cuda_stream, address, bits, 0)

    return write


def beside(device: Any, stream: Any, launch: Callable[[], object], copies: Callable[[], None]) -> None:
    """Launches on a stream of a device, by default PyTorch's current one there, and copies on another one, which both follow
    what the first was given before. Launches come first: the host takes some microseconds for each copy."""
    cuda = _module("torch").cuda
    with cuda.device(device):
        main, other = _stream(stream), _copying_stream()
        other.wait_stream(main)
        launch()
        with cuda.stream(other):
            copies()
        main.wait_stream(other)


_copying = threading.local()
"""Of each thread, by device: the stream of copies."""


def _copying_stream() -> Any:
    """The stream of copies on the current device. It is none of PyTorch's pool, whose streams a program gets more than once:
    on the stream of a launch that waits for other ranks' copies, the own ones would come behind it, and all ranks wait."""
    cuda = _module("torch").cuda
    found = _copying.__dict__.setdefault("streams", {})
    device = cuda.current_device()
    if device not in found:
        flag = driver.bindings().CUstream_flags.CU_STREAM_NON_BLOCKING
        found[device] = cuda.ExternalStream(int(driver.call("cuStreamCreate", int(flag))), device=device)
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
    process_group = _group(name)
    shape = f"{owner.dtype} {tuple(owner.shape)}"
    compare(name, process_group.rank(), process_group.size(), "their symmetric tensor", shape)
    handle = _handle(owner, name)
    numbers = _pes(process_group, owner.device)
    return TorchGroup(int(handle.rank), int(handle.world_size), name, owner.device, handle, numbers)


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


def _pes(process_group: Any, device: Any) -> tuple[int, ...] | None:
    """The numbers in NVSHMEM of the ranks of a group; None if symmetric tensors are not NVSHMEM's memory."""
    if _module(_SYMMETRIC).get_backend(device) != "NVSHMEM":
        return None
    return tuple(int(rank) for rank in _module(_C10D).get_process_group_ranks(process_group))


def _group(name: str) -> Any:
    """The process group of a name."""
    return _module(_C10D)._resolve_process_group(name)  # noqa: SLF001 - groups are known to symmetric memory by name
