"""`Symmetric`: a tensor that every rank of a group has, as a kernel argument.

It describes the tensor to a launch as a view whose further parameters are the rank, the addresses of the tensor and of the
signal pad on every rank, and the numbers of a view. Where these come from is the business of `weft.distributed.of_torch` on
GPUs, and of the world that runs otherwise: `weft.distributed.simulated` or `weft.distributed.one_gpu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from weft.distributed.current import current, group_of
from weft.distributed.group import Group
from weft.errors import distributed as errors
from weft.errors import fail
from weft.forms import of_torch
from weft.plain import whole
from weft.runtime.arguments import array, extents
from weft.runtime.dlpack import contiguous
from weft.runtime.specialise import Pointer, Scalar, view_argument
from weft.views.symmetric import SymmetricKey


@dataclass(eq=False, slots=True)
class SymmetricArgument:
    """The description of a symmetric tensor for a launch (`weft.runtime.views.ViewArgument`)."""

    array: Any
    byte_offset: int
    key: SymmetricKey
    numbers: tuple[Any, ...]
    kinds: tuple[Scalar | Pointer, ...]
    wide: bool = False
    memo: Any = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers."""
        return self.key.names


class Symmetric:
    """A symmetric tensor as a kernel argument: the kernel gets a `gl.symmetric`, with `peer(rank)`, `rank` and `world_size`.

    `tensor`: a tensor of `torch.distributed._symmetric_memory.empty`, of which each rank of `group` (by default all ranks) has
    one; a part of one; a `LayoutTensor` of one; or in `weft.distributed.simulate` and `weft.distributed.on_one_gpu` what
    `weft.distributed.empty` returns. The first call for a tensor and a group is collective, as `rendezvous` is: all ranks make
    it, in the same order. Make it once and pass it to many launches. `rank` and `world_size` are those of the group.

    Raises LaunchError: ranks-plain-tensor for memory that is not symmetric, ranks-outside, ranks-no-peer-access.
    """

    __slots__ = ("_argument", "calls", "group", "tensor")

    def __init__(self, tensor: Any, group: Any = None) -> None:
        view = view_argument(tensor)
        owner = tensor if view is None else view.array
        self.tensor = tensor
        # Prepared launches of the operators of `weft.kernels.distributed`, which a tensor of one place and shape repeats.
        self.calls: dict[Any, Any] = {}
        self.group = _group_of(owner, group)
        self._argument = _argument(self.group, owner, view)

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return self.group.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.group.size

    def peer(self, rank: int) -> Any:
        """The tensor on a rank, as an array for launches and copies of this process: what a kernel stores there is in that
        rank's memory, so that any kernel, also a library's, can write its output to a peer.

        Nothing orders such accesses with the rank's own: signals do (`gl.signal`). Raises LaunchError: ranks-option,
        ranks-no-peer-access, and ranks-peer for a view and for a part whose elements do not lie one after another."""
        number, form = checked_rank("Symmetric.peer", rank, self.world_size), extents(self.tensor)
        if form is None or not _is_line(*form):
            got = "a view" if form is None else f"of shape {list(form[0])} and strides {list(form[1])}"
            raise fail(errors.PEER, got=got)
        return self.group.part(self.tensor, number)

    @property
    def has_multicast(self) -> bool:
        """Whether the tensor has a multicast address, `x.multicast` in kernels."""
        return self._argument.key.multicast

    def __weft_agree__(self, kernel: str, form: str) -> AbstractContextManager[None] | None:
        """Before the first launch of a compiled kernel: compare its form, what it has in common on all ranks, with that of the
        other ranks. Raises LaunchError (ranks-different, ranks-silent). Returns a block in which to launch if it has to be
        called before every launch."""
        return self.group.agree(f"kernel {kernel}", form)

    def __weft_view__(self) -> SymmetricArgument:
        """The description for a launch."""
        return self._argument

    def __repr__(self) -> str:
        return f"Symmetric(rank {self.rank} of {self.world_size})"


def copy(x: Symmetric, rank: int, source: Any) -> None:
    """Copy `source`, an array of this rank, to the symmetric tensor `x` on a rank: a copy on this rank's stream, behind what it
    was given, as `cudaMemcpyAsync`. Between GPUs a copy engine does it, and takes no multiprocessor from kernels.

    `source` has the shape and dtype of `x.tensor`, and the elements of both lie one after another. Nothing orders the copy with
    the other rank: a kernel behind it on the stream signals that it is done, and one before it waits for what the rank may
    still read. The simulator reports races of copies as those of kernels. Raises LaunchError: ranks-copy, ranks-option."""
    _check_symmetric("copy", x)
    number, owner = checked_rank("copy", rank, x.world_size), x.tensor
    if not _alike(owner, source):
        forms = [(array(each), extents(each)) for each in (owner, source)]
        dtypes = [None if found is None else found.dtype for found, _ in forms]
        shapes = [None if form is None else form[0] for _, form in forms]
        lines = [form is not None and _is_line(*form) for _, form in forms]
        if dtypes[0] is None or dtypes[0] != dtypes[1] or shapes[0] != shapes[1] or not all(lines):
            shown = [
                f"{dtype} {list(shape or ())}{'' if line else ', with gaps or in another order'}"
                if dtype
                else "no array"
                for dtype, shape, line in zip(dtypes, shapes, lines, strict=True)
            ]
            raise fail(errors.COPY, got=shown[1], wanted=shown[0])
    x.group.copying(owner, number, source)()


def _alike(owner: Any, source: Any) -> bool:
    """Whether both are tensors of PyTorch that certainly may be copied: what is asked of any arrays takes the host longer."""
    if (
        not of_torch(owner)
        or type(owner) is not type(source)
        or owner.dtype != source.dtype
        or owner.shape != source.shape
    ):
        return False
    return bool(owner.is_contiguous() and source.is_contiguous())


def write_value(x: Symmetric, rank: int, index: int, value: int) -> None:
    """Set a word of the symmetric tensor `x`, of int32, on a rank, in the order of this rank's stream and behind all that it
    was given: copies, launches and other writes (`cuStreamWriteValue32`, with its fence). No multiprocessor has a part in it,
    so it also takes place while a kernel that fills the GPU waits for it (`gl.wait_value`).

    A captured graph writes the same value at each replay. In the simulator it is a release of scope sys. Raises LaunchError:
    ranks-word, ranks-option."""
    _check_symmetric("write_value", x)
    number, found, form = checked_rank("write_value", rank, x.world_size), array(x.tensor), extents(x.tensor)
    if found is None or found.dtype != "int32" or form is None or not _is_line(*form):
        gaps = form is not None and not _is_line(*form)
        raise fail(errors.WORD, got="a part with gaps" if gaps else "a view" if found is None else found.dtype)
    size = prod(form[0])
    at, what = whole(index), whole(value)
    if at is None or not 0 <= at < size:
        expected = f"a word from 0 to {size - 1}"
        raise fail(errors.OPTION, what="write_value", option="index", value=index, expected=expected, example="index=0")
    if what is None or not -(1 << 31) <= what < 1 << 31:
        expected = "a number of 32 bits"
        raise fail(errors.OPTION, what="write_value", option="value", value=value, expected=expected, example="value=1")
    x.group.writing(x.tensor, number, at, what)()


def _check_symmetric(what: str, x: Any) -> None:
    """Raises LaunchError (ranks-symmetric-host)."""
    if not isinstance(x, Symmetric):
        raise fail(errors.SYMMETRIC_HOST, what=what, got=f"a {type(x).__name__}")


def checked_rank(what: str, rank: Any, ranks: int) -> int:
    """A rank of a group. Raises LaunchError (ranks-option)."""
    number = whole(rank)
    if number is None or not 0 <= number < ranks:
        expected = f"a rank from 0 to {ranks - 1}"
        raise fail(errors.OPTION, what=what, option="rank", value=rank, expected=expected, example="rank=0")
    return number


def _is_line(shape: Sequence[int], strides: Sequence[float]) -> bool:
    each = zip(shape, strides, contiguous(shape), strict=True)
    return all(size == 1 or stride == wanted for size, stride, wanted in each)


def _group_of(owner: Any, group: Any) -> Group:
    if of_torch(owner) and owner.device.type != "cpu" and current.innermost(None) is None:
        from weft.distributed import of_torch as gpus

        return gpus.group_of(owner, group)
    return group_of(owner)


def _argument(group: Group, owner: Any, view: Any) -> SymmetricArgument:
    found = array(owner)
    assert found is not None
    skip = 0 if view is None else view.byte_offset
    # Allocations begin at multiples of 16 bytes on every rank, so the own address tells the alignment of all.
    kind = Pointer(found.dtype, (found.pointer + skip) % 16 == 0)
    peers, pads, pes = group.peers(owner, skip), group.pads(), group.pes()
    multicast = group.multicast(owner, skip)
    places = () if pes is None else group.places(owner, skip)
    viewed = () if view is None else (view.key, view.names)
    key = SymmetricKey(group.size, multicast != 0, *viewed, nvshmem=pes is not None, reached=peers is not None)
    numbers = (group.rank, *(peers or ()), *pads, pads[group.rank], *((multicast,) if multicast else ()))
    numbers += (*places, *(pes or ()))
    number, pad = Scalar("int32"), Pointer("int32", True)
    kinds = (number, *[kind] * len(peers or ()), *[pad] * (group.size + 1), *([kind] if multicast else []))
    kinds += (*[kind] * len(places), *[number] * len(places))
    if view is not None:
        numbers += tuple(view.numbers)
        kinds += tuple(Scalar("int64" if view.wide else "int32") for _ in view.numbers)
    return SymmetricArgument(owner, skip, key, numbers, kinds)
