"""Where partitions stand: their warps, their registers, their barriers, and what does not fit a block."""

from __future__ import annotations

import pytest

from tests.lang.support import INT, POINTER, build, jit, read
from weft import language as gl
from weft import targets
from weft.errors import UserError
from weft.ir.core import walk
from weft.language.partitions import named_barrier
from weft.ops import sync
from weft.passes.tile.partition_plan import check_partitions, plan_partitions
from weft.passes.tile.split_partitions import split_partitions

SM80, SM90 = targets.get("sm_80"), targets.get("sm_90a")


@jit
def nothing():
    return


def plan_of(warps, registers=None, num_warps=4, target=SM90, turns=1, **attrs):
    counts = tuple(warps)

    @jit
    def kernel():
        for _ in gl.static_range(turns):
            gl.warp_specialize([(nothing, ()), *[(nothing, ()) for _ in counts]], counts, registers)

    return plan_partitions(build(kernel, num_warps).func.with_attrs(**attrs), target)


def places(plan):
    return [(role.first_warp, role.num_warps) for role in (*plan.roles, *plan.padding)]


@pytest.mark.parametrize(
    ("num_warps", "workers", "found", "total"),
    [
        (4, [1], [(0, 4), (4, 1)], 5),
        (8, [1, 1], [(0, 8), (8, 1), (9, 1)], 10),
        (4, [1, 4, 2], [(0, 4), (10, 1), (4, 4), (8, 2)], 11),
        (1, [1, 4], [(0, 1), (8, 1), (4, 4), (1, 3)], 9),
        (2, [1], [(0, 2), (2, 1)], 3),
    ],
)
def test_warps(num_warps, workers, found, total):
    plan = plan_of(workers, num_warps=num_warps)
    assert places(plan) == found
    assert plan.total_warps == total
    assert not any(role.registers for role in plan.roles)


@pytest.mark.parametrize(
    ("num_warps", "workers", "registers", "start", "found"),
    [
        # 12 warps: 65536 / 384 = 170; the default partition has what is left, at most 256.
        (8, [1], [40], 168, [(0, 8, 232), (8, 1, 40), (9, 3, 40)]),
        (4, [1, 4, 1], [24, 240, 40], 168, [(0, 4, 224), (8, 1, 40), (4, 4, 240), (9, 1, 40), (10, 2, 40)]),
        (4, [1], [24], 256, [(0, 4, 256), (4, 1, 24), (5, 3, 24)]),
        (2, [2], [24], 256, [(0, 2, 256), (4, 2, 24), (2, 2, 256), (6, 2, 24)]),
    ],
)
def test_registers(num_warps, workers, registers, start, found):
    plan = plan_of(workers, registers, num_warps)
    roles = (*plan.roles, *plan.padding)
    assert [(role.first_warp, role.num_warps, role.registers) for role in roles] == found
    assert plan.start_registers == start
    assert sum(warps * count for _, warps, count in found) <= start * plan.total_warps <= 65536 // 32
    assert plan.total_warps % 4 == 0


def test_a_cap_on_registers_is_the_pool():
    plan = plan_of([4], [24], 4, maxnreg=100)
    assert plan.start_registers == 96
    assert [role.registers for role in plan.roles] == [168, 24]


def test_workers_that_ask_for_all_registers():
    with pytest.raises(UserError) as caught:
        plan_of([4, 4], [248, 248], 4)
    assert caught.value.code == "partitions-register-pool"
    assert "leave 8 for each thread" in caught.value.message
    with pytest.raises(UserError, match="leave 0 for each"):
        plan_of([8], [240], 4, maxnreg=64)


def test_too_many_warps():
    assert plan_of([16, 8], num_warps=8).total_warps == 32
    with pytest.raises(UserError) as caught:
        plan_of([16, 8, 1], num_warps=8)
    assert caught.value.code == "partitions-too-many-warps"
    assert "8 warps and its workers' take 33 warps in all, but a block has at most 32" in caught.value.message


def test_a_target_that_cannot_move_registers():
    assert plan_of([4], target=SM80).total_warps == 8
    with pytest.raises(UserError) as caught:
        plan_of([4], [24], target=SM80)
    assert caught.value.code == "partitions-no-registers"
    assert "sm_80" in caught.value.message


def test_without_specialisation_there_is_no_plan():
    @jit
    def kernel(ptr, n):
        gl.store(ptr, n * 1.0)

    func = read(kernel, ptr=POINTER, n=INT)
    assert plan_partitions(func, SM90) is None
    assert split_partitions(func, SM90) is func
    assert check_partitions(func, SM90) is func


# Named barriers


@jit
def meet(number):
    named_barrier.sync(number, 6)


@jit
def meeting(number: gl.constexpr):
    gl.warp_specialize([(meet, (number,)), (meet, (number,))], [2])


def test_barriers_get_numbers_of_the_hardware():
    op = next(o for o in split_partitions(read(meeting, number=3), SM90).body.ops if o.regions)
    # 0 is the block's, 1 and 2 are the partitions'.
    assert [o.attrs["number"] for o in walk(op.regions[0]) if o.kind is sync.named_barrier] == [6]
    assert [o.attrs["number"] for o in walk(op.regions[1]) if o.kind is sync.named_barrier] == [6]


def test_barriers_without_partitions():
    func = split_partitions(read(meet, number=2), SM90)
    assert [o.attrs["number"] for o in func.body.ops if o.kind is sync.named_barrier] == [3]


@pytest.mark.parametrize("check", [check_partitions, split_partitions])
def test_too_many_barriers(check):
    check(read(meeting, number=12), SM90)
    with pytest.raises(UserError) as caught:
        check(read(meeting, number=13), SM90)
    assert caught.value.code == "partitions-barriers"
    assert "named barrier 13 would be hardware barrier 16, but a block has 16" in caught.value.message
    assert caught.value.loc is not None
