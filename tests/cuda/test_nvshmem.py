"""Calls of NVSHMEM compile, for all targets and in partitions, without NVSHMEM; they are left to the linker."""

from __future__ import annotations

import pytest

from tests.cuda.build import ARCHITECTURES, Kernel, needs_nvrtc, pointer
from weft import targets
from weft.cuda import emit
from weft.ir.types import float32, int32, int64
from weft.ops import arith, memory, nvshmem, regs
from weft.runtime.nvrtc import compile_cuda

pytestmark = needs_nvrtc


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_calls(arch: str):
    k = Kernel(("x", pointer(float32)), ("y", pointer(float32)), ("pad", pointer(int32)), ("n", int64), ("pe", int32))
    x, y, pad, n, pe = k.params
    k.emit(nvshmem.put, x, y, n, pe)
    flag = k.emit(arith.cmp, k.thread(), k.number(1), predicate="lt")
    places = k.emit(regs.concat, *[k.emit(memory.addptr, pad, k.number(i)) for i in range(2)])
    for mask in (None, k.emit(regs.splat, flag, count=2)):
        k.emit(nvshmem.signal_regs, places, k.number(1, int32, 2), k.emit(regs.splat, pe, count=2), mask)
    k.emit(nvshmem.acquire)
    k.emit(nvshmem.quiet)
    func = k.done()
    text = emit(func, targets.get(arch))
    assert "weft_nvshmem_put(x, y, (u64)n * 4, pe, threadIdx.x, 128);" in text
    assert compile_cuda(text, name=func.name, arch=arch, relocatable=True).n_regs > 0
