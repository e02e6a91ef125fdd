"""Symmetric tensors as kernel arguments: what kernels are specialised on, and the layout of the signal pads. Pure data."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

FLAGS = 4096
"""The flags of a group: each is one signal from every rank to every other."""
WORD = 4
"""Bytes of a signal's count."""


def pad_words(ranks: int) -> int:
    """The words of a rank's signal pad: for each flag and each rank the signals that have come from it, and in the second half
    those that have been waited for."""
    return 2 * FLAGS * ranks


@dataclass(frozen=True, slots=True)
class SymmetricKey:
    """The part of a symmetric tensor that a kernel is specialised on: the size of its group, whether it has a multicast
    address, for a view the view's part and the names of the view's numbers, whether it is memory of NVSHMEM, and whether
    pointers reach it on all ranks."""

    world_size: int
    multicast: bool = False
    view: Hashable = None
    view_names: tuple[str, ...] = ()
    nvshmem: bool = False
    reached: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the further parameters, in order: the rank, the tensor on every rank, the pad on every rank, the own pad,
        the multicast address, for NVSHMEM how it names the tensor on every rank, and the rank, and the numbers of the view."""
        ranks = range(self.world_size)
        return (
            "rank",
            *(f"peer_{rank}" for rank in ranks if self.reached),
            *(f"pad_{rank}" for rank in ranks),
            "pad",
            *(("multicast",) if self.multicast else ()),
            *(f"place_{rank}" for rank in ranks if self.nvshmem),
            *(f"pe_{rank}" for rank in ranks if self.nvshmem),
            *self.view_names,
        )
