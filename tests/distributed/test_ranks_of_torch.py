"""Groups of PyTorch's symmetric memory, of which a fake takes the place: addresses, the pad, and what is compared."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from weft.distributed import of_torch
from weft.errors import LaunchError
from weft.views.symmetric import pad_words

STARTS = {"tensor": [1 << 20, 2 << 20, 3 << 20], "pad": [4 << 20, 5 << 20, 6 << 20]}


class Tensor:
    """A tensor of the fake: rank 1's, some bytes behind the start of its pool."""

    device: Any = SimpleNamespace(type="cuda", index=0)
    dtype, shape = "torch.float32", (8,)

    def __init__(self, pool: str, skip: int) -> None:
        self.pool, self.skip = pool, skip

    def data_ptr(self) -> int:
        return STARTS[self.pool][1] + self.skip

    def zero_(self) -> None:
        """The pad is zeroed."""


class Fake:
    """PyTorch, as far as `of_torch` knows it."""

    int32 = "int32"
    group = SimpleNamespace(WORLD=SimpleNamespace(group_name="0"))

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: False, synchronize=self.synchronize, device=lambda device: nullcontext()
        )  # fmt: skip
        self.refused: Any = None
        self.pads: list[int] = []
        self.barriers = 0
        self.backend = "CUDA"
        self.starts = {pool: list(each) for pool, each in STARTS.items()}
        self.keys: dict[str, str] = {}

    def get_backend(self, device: Any) -> str:
        return self.backend

    def get_process_group_ranks(self, group: Any) -> list[int]:
        return [4, 5, 6]

    def synchronize(self, device: Any) -> None:
        self.barriers += 10

    def empty(self, words: int, dtype: Any, device: Any) -> Tensor:
        self.pads.append(words)
        made = Tensor("pad", 0)
        made.device = device
        return made

    def device(self, name: str) -> str:
        return name

    def rendezvous(self, tensor: Tensor, name: str) -> Any:
        if not isinstance(tensor, Tensor) or name not in ("0", "tensor parallel"):
            raise RuntimeError("not symmetric")
        if self.refused is not None and tensor.device == self.refused:
            raise RuntimeError("Detected use of TeamManager on multiple devices. This is not supported.")
        return SimpleNamespace(
            rank=1, world_size=3, buffer_ptrs=self.starts[tensor.pool], multicast_ptr=9 << 20, barrier=self.barrier
        )

    def barrier(self) -> None:
        self.barriers += 1

    def _resolve_process_group(self, name: str) -> Any:
        return SimpleNamespace(rank=lambda: 1, size=lambda: 3)

    def _get_default_store(self) -> Any:
        def put(key: str, value: str) -> None:
            for rank in range(3):
                self.keys[f"{key.rpartition('/')[0]}/{rank}"] = value

        return SimpleNamespace(set=put, get=lambda key: self.keys[key].encode(), check=lambda keys: True)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(of_torch, "_module", lambda name: made)
    monkeypatch.setattr(of_torch, "_pads", {})
    monkeypatch.setattr(of_torch, "_agreed", set())
    return made


def test_addresses_on_all_ranks(fake: Fake):
    tensor = Tensor("tensor", 512)
    group = of_torch.group_of(tensor, None)
    assert (group.rank, group.size) == (1, 3)
    assert group.peers(tensor, 0) == tuple(start + 512 for start in STARTS["tensor"])
    assert group.peers(tensor, 64)[2] == (3 << 20) + 576
    assert group.multicast(tensor, 0) == (9 << 20) + 512


def test_the_pad_is_made_once(fake: Fake):
    group = of_torch.group_of(Tensor("tensor", 0), None)
    assert group.pads() == group.pads() == tuple(STARTS["pad"])
    assert fake.pads == [pad_words(3)]
    assert fake.barriers == 1


def test_the_pad_of_nvshmem_is_on_the_device_as_pytorch_was_told_it(fake: Fake):
    """To PyTorch "cuda" and "cuda:0" are two devices."""
    fake.backend = "NVSHMEM"
    group = of_torch.group_of(Tensor("tensor", 0), None)
    for refused, tried in (("cuda", 2), (Tensor.device, 1)):
        fake.refused, fake.pads = refused, []
        of_torch._pads.clear()  # pyright: ignore[reportPrivateUsage]
        assert len(set(group.pads())) == 1
        assert len(fake.pads) == tried


def test_a_subgroup_has_a_pad_and_questions_of_its_own(fake: Fake):
    tensor = Tensor("tensor", 0)
    for name in ("0", "tensor parallel"):
        group = of_torch.group_of(tensor, SimpleNamespace(group_name=name))
        assert group.pads() == tuple(STARTS["pad"])
        group.agree("kernel f", "1234")
    assert len(fake.pads) == 2
    assert {key.split("/")[1] for key in fake.keys} == {"0", "tensor parallel"}


def test_shapes_and_kernels_are_compared(fake: Fake):
    group = of_torch.group_of(Tensor("tensor", 0), None)
    group.agree("kernel f", "1234")
    before = len(fake.keys)
    group.agree("kernel f", "1234")
    assert len(fake.keys) == before
    assert {"their symmetric tensor\ntorch.float32 (8,)", "kernel f\n1234"} == set(fake.keys.values())


def test_a_tensor_that_is_not_symmetric(fake: Fake):
    with pytest.raises(LaunchError, match="not symmetric") as found:
        of_torch.group_of(SimpleNamespace(device=None, dtype="x", shape=()), "0")
    assert found.value.code == "ranks-plain-tensor"


def test_memory_of_nvshmem(fake: Fake):
    """Ranks have their numbers in the default group, the pad is named by its own address, and the barrier is the store's."""
    fake.backend = "NVSHMEM"
    tensor = Tensor("tensor", 512)
    group = of_torch.group_of(tensor, None)
    assert group.pes() == (4, 5, 6)
    assert group.peers(tensor, 0) == tuple(start + 512 for start in STARTS["tensor"])
    assert group.places(tensor, 64) == ((2 << 20) + 576,) * 3
    before = len(fake.keys)
    assert group.pads() == (STARTS["pad"][1],) * 3
    assert fake.barriers == 10
    assert len(fake.keys) == before + 3


def test_memory_of_nvshmem_that_pointers_do_not_reach(fake: Fake):
    fake.backend = "NVSHMEM"
    fake.starts["tensor"][2] = 0
    tensor = Tensor("tensor", 0)
    group = of_torch.group_of(tensor, None)
    assert group.peers(tensor, 0) is None
    assert group.places(tensor, 0) == (2 << 20,) * 3
    with pytest.raises(LaunchError) as found:
        group.part(tensor, 2)
    assert found.value.code == "ranks-no-peer-access"
