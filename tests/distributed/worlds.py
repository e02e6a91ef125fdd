"""Running host functions on all ranks of a simulated world, in both stages of the IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import weft
from weft import compiler
from weft import language as gl

LINE = gl.BlockedLayout([4], [32], [4], [0])
EACH = gl.BlockedLayout([1], [32], [4], [0])


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Let the simulator run tile IR ("tile") or lowered IR ("lowered")."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler.Stages, "simulated", property(lambda stages: getattr(stages, name)))
        yield


def world(on: Callable[[int], Any], ranks: int, seed: int = 0, of: str = "tile", nvshmem: bool = False) -> list[Any]:
    """The results of a host function on every rank."""
    with stage(of):
        return weft.distributed.simulate(on, ranks=ranks, seed=seed, multicast=True, nvshmem=nvshmem)
