"""Symmetric tensors as arguments of launches on a GPU: their parameters, and what the driver gets."""

from __future__ import annotations

import pytest

from tests.runtime.fake_driver import WARM, FakeTensor
from weft import language as gl
from weft.distributed.symmetric import Symmetric
from weft.kernel import jit
from weft.runtime.specialise import Pointer, Scalar, View, specialise


class Group:
    """Rank 1 of two, whose memory lies at given addresses."""

    rank, size = 1, 2

    def __init__(self, peers: tuple[int, int]) -> None:
        self.all: tuple[int, ...] | None = peers
        self.numbers: tuple[int, int] | None = None
        self.compared: list[tuple[str, str]] = []

    def peers(self, owner: FakeTensor, skip: int) -> tuple[int, ...] | None:
        return None if self.all is None else tuple(peer + skip for peer in self.all)

    def pes(self) -> tuple[int, int] | None:
        return self.numbers

    def places(self, owner: FakeTensor, skip: int) -> tuple[int, int]:
        return (owner.data_ptr() + skip,) * 2

    def pads(self) -> tuple[int, int]:
        return 0x7000, 0x8000

    def multicast(self, owner: FakeTensor, skip: int) -> int:
        return 0

    def agree(self, what: str, value: str) -> None:
        self.compared.append((what, value))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group((0x1000, 0x2000))
    monkeypatch.setattr("weft.distributed.symmetric._group_of", lambda owner, group: made)
    return made


def test_its_type_is_the_same_on_all_ranks(cuda, group):
    kind = specialise("kernel", "x", Symmetric(FakeTensor(0x2000)))
    assert isinstance(kind, View)
    assert kind.pointer == Pointer("float32", True)
    assert kind.numbers[:3] == (Scalar("int32"), Pointer("float32", True), Pointer("float32", True))
    assert kind.names == ("rank", "peer_0", "peer_1", "pad_0", "pad_1", "pad")
    group.rank, other = 0, FakeTensor(0x1000)
    assert specialise("kernel", "x", Symmetric(other)) == kind


def test_memory_of_nvshmem_has_names_and_numbers_for_puts(cuda, compiler, group):
    @jit
    def kernel(x, n):
        """Take a symmetric tensor and a number."""

    group.numbers = 8, 9
    reached = specialise("kernel", "x", Symmetric(FakeTensor(0x2000)))
    assert isinstance(reached, View)
    assert reached.names == (
        "rank", "peer_0", "peer_1", "pad_0", "pad_1", "pad", "place_0", "place_1", "pe_0", "pe_1"
    )  # fmt: skip
    group.all = None
    shared = Symmetric(FakeTensor(0x2000))
    remote = specialise("kernel", "x", shared)
    assert isinstance(remote, View)
    assert remote.names == ("rank", "pad_0", "pad_1", "pad", "place_0", "place_1", "pe_0", "pe_1")
    assert remote.key != reached.key
    cuda.parameters = 10
    for _ in range(WARM + 1):
        kernel[3](shared, 5)
        assert cuda.launches[-1].words == (0x2000, 1, 0x7000, 0x8000, 0x8000, 0x2000, 0x2000, 8, 9, 5)


def test_the_driver_gets_every_address(cuda, compiler, group):
    @jit
    def kernel(x, n):
        """Take a symmetric tensor and a number."""

    cuda.parameters = 8
    shared = Symmetric(FakeTensor(0x2000))
    for _ in range(WARM + 1):
        kernel[3](shared, 5)
        assert cuda.launches[-1].words == (0x2000, 1, 0x1000, 0x2000, 0x7000, 0x8000, 0x8000, 5)
    assert len(compiler.requests) == 1
    assert {what for what, _ in group.compared} == {"kernel kernel"}


def test_ranks_may_pass_other_numbers_but_no_other_constants(cuda, compiler, group):
    """What a number is specialised on is not compared: a rank may have 1 token, a multiple of 16, or any other number."""

    @jit
    def kernel(x, n, SIZE: gl.constexpr):
        """Take a symmetric tensor, a number and a constant."""

    @jit
    def other(x, n, SIZE: gl.constexpr):
        """Another text."""

    # A number that is 1 is none of the parameters.
    cuda.parameters = 7
    shared = Symmetric(FakeTensor(0x2000))
    for number in (1, 5, 48, 1 << 40):
        kernel[3](shared, number, 4)
    assert len(compiler.requests) == 4
    assert len({form for _, form in group.compared}) == 1
    for call in (lambda: kernel[3](shared, 5, 8), lambda: kernel[3](shared, None, 4), lambda: other[3](shared, 5, 4)):
        before = len({form for _, form in group.compared})
        call()
        assert len({form for _, form in group.compared}) == before + 1
