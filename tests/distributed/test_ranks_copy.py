"""`weft.distributed.copy`: copies of the stream to the memory of other ranks, and their races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.distributed.worlds import LINE, world
from weft import language as gl
from weft.errors import Hazard, LaunchError

N = 128


@weft.jit(do_not_specialize=["rank"])
def signals(x: gl.symmetric, rank, flag: gl.constexpr):
    gl.signal(x, rank, flag)


@weft.jit(do_not_specialize=["source"])
def takes(x: gl.symmetric, source, y, LINE: gl.constexpr):
    at = gl.arange(0, 128, LINE)
    gl.wait_signal(x, source)
    gl.store(y + at, gl.load(x.local + at))
    gl.signal(x, source, 1)


@weft.jit(do_not_specialize=["rank"])
def waits(x: gl.symmetric, rank, flag: gl.constexpr):
    gl.wait_signal(x, rank, flag)


def ring(rank: int, ranks: int, own: Any, room: Any, y: Any, before: bool = True, behind: bool = True) -> None:
    """Copy to the next rank, which takes it, twice. `behind`: the signal is behind the copy; `before`: so is the copy behind
    the last one's end."""
    x, after, last = weft.Symmetric(room), (rank + 1) % ranks, (rank + ranks - 1) % ranks
    for launch in range(2):
        if launch and before:
            waits[1](x, after, 1)
        if not behind:
            signals[1](x, after, 0)
        own[:] = 10 * launch + rank
        weft.distributed.copy(x, after, own)
        if behind:
            signals[1](x, after, 0)
        takes[1](x, last, y, LINE)
    for _ in range(1 if before else 2):
        waits[1](x, after, 1)


@pytest.mark.parametrize("of", ["tile", "lowered"])
@pytest.mark.parametrize("from_symmetric", [False, True])
def test_copies_around_a_ring(from_symmetric: bool, of: str):
    def on(rank: int):
        room, y = weft.distributed.empty(N, np.float32), np.full(N, -1, np.float32)
        own = weft.distributed.empty(N, np.float32) if from_symmetric else np.empty(N, np.float32)
        ring(rank, 3, own, room, y)
        return y

    for seed in (0, 3):
        for rank, y in enumerate(world(on, 3, seed, of)):
            np.testing.assert_array_equal(y, np.full(N, 10 + (rank - 1) % 3))


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("before", "behind"), [(False, True), (True, False)])
def test_copies_that_race(before: bool, behind: bool, seed: int):
    """BUG: a copy over what the next rank may still read, or a signal before the copy that it announces."""

    def on(rank: int):
        room, own = weft.distributed.empty(N, np.float32), np.empty(N, np.float32)
        ring(rank, 2, own, room, np.zeros(N, np.float32), before, behind)

    with pytest.raises(Hazard) as found:
        world(on, 2, seed)
    assert found.value.code in ("hazard-rank-read", "hazard-rank-write")
    assert any(
        "the host of rank" in text for text in (found.value.message, *(label for label, _ in found.value.related))
    )


def test_a_copy_of_what_another_rank_writes():
    """BUG: the next rank may still copy to what this rank copies on."""

    def on(rank: int):
        one, two = (weft.distributed.empty(N, np.float32) for _ in range(2))
        weft.distributed.copy(weft.Symmetric(one), 1 - rank, np.ones(N, np.float32))
        weft.distributed.copy(weft.Symmetric(two), 1 - rank, one)

    with pytest.raises(Hazard) as found:
        world(on, 2, 1)
    assert found.value.code in ("hazard-rank-read", "hazard-rank-write")


def test_parts_are_copied():
    def on(rank: int):
        x = weft.distributed.empty((4, N), np.int32)
        weft.distributed.copy(weft.Symmetric(x[rank]), 1 - rank, np.full(N, rank + 5, np.int32))
        weft.distributed.barrier()
        return x[:2, 0].tolist()

    assert world(on, 2) == [[0, 6], [5, 0]]


MISTAKES: dict[str, Any] = {
    "ranks-option": lambda x: weft.distributed.copy(x, 2, np.zeros((4, 8), np.float32)),
    "ranks-copy": lambda x: weft.distributed.copy(x, 1, np.zeros((4, 9), np.float32)),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_in_a_copy(code: str):
    with pytest.raises(LaunchError) as found:
        world(lambda rank: MISTAKES[code](weft.Symmetric(weft.distributed.empty((4, 8), np.float32))), 2)
    assert found.value.code == code


@pytest.mark.parametrize(
    "given", [np.zeros((8, 4), np.float32).T, np.zeros((4, 8), np.int32), 1.0], ids=["order", "type", "number"]
)
def test_other_sources_are_refused(given: Any):
    with pytest.raises(LaunchError, match="float32 \\[4, 8\\]") as found:
        world(
            lambda rank: weft.distributed.copy(weft.Symmetric(weft.distributed.empty((4, 8), np.float32)), 1, given), 2
        )
    assert found.value.code == "ranks-copy"


@pytest.mark.gpu
def test_copies_of_ranks_on_one_gpu(torch: Any):
    def on(rank: int):
        room, y = weft.distributed.empty(N, torch.float32), torch.full((N,), -1.0, device="cuda")
        ring(rank, 2, torch.empty(N, device="cuda"), room, y)
        return y.cpu()

    for rank, y in enumerate(weft.distributed.on_one_gpu(on, 2)):
        assert (y == 10 + (1 - rank)).all()
