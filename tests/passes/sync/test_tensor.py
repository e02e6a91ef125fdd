"""What `insert_sync` places around tcgen05 operations and accesses to tensor memory."""

from __future__ import annotations

import pytest

from tests.passes.shared import inserted
from tests.passes.tensor import ACC, COLUMNS, ROWS, TensorKernel
from weft.ir.core import walk
from weft.ops import sync, tensor_memory
from weft.passes.sync.insert_sync import unneeded


def after(steps: str, num_warps: int = 4) -> str:
    k = TensorKernel(num_warps=num_warps)
    k.do(steps)
    return k.shown()


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Operands in shared memory, which are read in the async proxy.
        ("Wx M", "W !f !| M"),
        ("Wx f | M", "W f | M"),
        ("load wait M", "load wait M"),
        ("M C wait Wx", "M C wait W"),
        ("M Wx", "M W"),
        # Threads and the elected thread in tensor memory.
        ("T M", "T !| M"),
        ("L M", "L !| M"),
        ("L1 M", "L M"),
        ("Li M", "L !| M"),
        ("L1 Mi", "L !| M"),
        ("T | M", "T | M"),
        ("M M", "M M"),
        ("M C wait L", "M C wait L"),
        ("M L", "M L"),
        ("L L", "L L"),
        ("L T", "L T"),
        ("T L", "T L"),
        # Barriers: a wait that comes late must not miss a phase.
        ("wait C", "wait !| C"),
        ("wait M C", "wait !| M C"),
        ("wait2 M C", "wait !| M C"),
        ("wait2 M", "wait M"),
        ("L1 R C", "L R C"),
        ("wait | M C", "wait | M C"),
        ("M C wait expect", "M C wait !| expect"),
        ("init M C", "init M C"),
        # Arrivals tell what all threads did.
        ("L arrive", "L !| arrive"),
        ("M arrive", "M arrive"),
        ("M C wait L arrive", "M C wait L !| arrive"),
        # Answers of cluster launch control come as TMA loads do.
        ("ask wait told", "ask wait told"),
        ("told ask", "told !f !| ask"),
        ("expect ask wait told | ask", "expect ask wait told | !f ask"),
        ("wait ask", "wait !| ask"),
    ],
)  # fmt: skip
def test_what_stands_between(steps, expected, num_warps):
    assert after(steps, num_warps) == expected


@pytest.mark.parametrize(("num_warps", "expected"), [(4, "T L"), (8, "T !| L")])
def test_several_warpgroups_meet_in_lanes(num_warps, expected):
    """A part of a tile is spread over the warps unlike the whole of it."""
    k = TensorKernel(num_warps=num_warps)
    whole = k.tensor("whole", ROWS, 2 * COLUMNS, layout=ACC)
    left = k.part(whole, 0, COLUMNS, 1)
    k.put(left)
    k.take(whole)
    assert k.shown() == expected


def test_parts_with_columns_of_their_own_do_not_meet():
    k = TensorKernel(num_warps=8)
    whole = k.tensor("whole", ROWS, 2 * COLUMNS, layout=ACC)
    k.put(k.part(whole, 0, COLUMNS, 1))
    k.take(k.part(whole, COLUMNS, COLUMNS, 1))
    k.multiply(k.part(whole, COLUMNS, COLUMNS, 1))
    func = k.result()
    assert "T L !| M" in k.named(func)
    (text,) = inserted(func)
    assert text.startswith("barrier before tcgen05.mma of whole (read at line")


def test_what_is_seen_as_another_type_is_the_same_columns():
    k = TensorKernel()
    seen = k.emit(tensor_memory.reinterpret, k.acc(0), element=k.accs.type.element, shape=(ROWS, COLUMNS), layout=ACC)
    k.take(seen)
    k.do("M1 L1 M")
    assert k.shown() == "L M L !| M"


def test_a_ring_of_loads_and_products_takes_one_barrier_a_step():
    """The seed's loop: the barrier orders the waits with what begins the next phases."""
    k = TensorKernel()
    k.loop(lambda _: k.do("expect load wait wait2 M C2"))
    assert k.shown() == "for [ expect load wait wait !| M C ]"


def test_partitions_know_nothing_of_each_other():
    k = TensorKernel()
    k.partitions(k.doing("wait2 L arrive"), k.doing("wait M C2"), warps=(1,))
    assert k.shown() == "warp_specialize [ wait L !| arrive ] [ wait !| M C ]"


def test_reasons_name_tensor_memory():
    k = TensorKernel()
    k.do("T M")
    (text,) = inserted(k.result())
    assert text.startswith("barrier before tcgen05.mma of accs (written at line")


def test_a_barrier_of_the_author_s_has_a_use():
    k = TensorKernel()
    k.do("T | M | | L")
    func = k.result()
    barriers = [op for op in walk(func.body) if op.kind is sync.barrier]
    assert [op in unneeded(func) for op in barriers] == [False, True, True]
