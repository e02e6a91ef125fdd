"""mbarriers when lowered: what each operation on one takes."""

from __future__ import annotations

from tests.passes.lower.rules.test_shared import only
from tests.passes.lower.rules.tma.test_copies import barrier_and_tile, lowered
from tests.support import ops_of, tile_kernel
from weft.ir.types import SharedArrayType, int1, int64
from weft.ops import async_copy, mbarrier, shared


def test_barriers_are_eight_bytes():
    k = tile_kernel()
    _, bar, smem = barrier_and_tile(k)
    on = k.number_in(True, int1)
    k.emit(mbarrier.init, bar, count=1)
    k.emit(mbarrier.expect, bar, on, bytes=128)
    k.emit(mbarrier.arrive, bar, None, count=3)
    k.emit(mbarrier.wait, bar, k.number(0), on, smem)
    k.emit(async_copy.mbarrier_arrive, bar, increment=False)
    k.emit(mbarrier.invalidate, bar)
    func = lowered(k)
    view = next(op for op in ops_of(func, shared.view) if op.result.name == "bar")
    for kind in (
        mbarrier.init,
        mbarrier.expect,
        mbarrier.arrive,
        mbarrier.wait,
        async_copy.mbarrier_arrive,
        mbarrier.invalidate,
    ):
        assert only(func, kind).operands[0] is view.result
    assert view.result.type == SharedArrayType(int64, 1)
    assert only(func, mbarrier.arrive).attrs["count"] == 3
    assert len(only(func, mbarrier.wait).operands) == 3, "what a wait keeps alive has its place already"
