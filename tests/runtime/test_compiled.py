"""Compiled kernels compute what is looked at, once."""

from __future__ import annotations

import threading
import time

import pytest

from weft.errors import LaunchError
from weft.runtime.compiled import Binary, CompiledKernel, CompileRequest, Options
from weft.runtime.errors import OutOfResources
from weft.runtime.specialise import Constexpr, Pointer, Scalar

REQUEST = CompileRequest(
    None, {"x": Pointer("float32", True), "n": Scalar("int32"), "BLOCK": Constexpr(64)}, Options(num_warps=8), "sm_90a"
)


def kernel(binary=lambda: Binary(b"cubin", 40, 0, 1000, 24), **stages):
    return CompiledKernel(
        REQUEST, name="copy", stages=stages, binary=binary, resident_blocks=lambda threads, regs, shared: threads
    )


def test_stages_are_made_once_and_late():
    made = []
    compiled = kernel(ir=lambda: made.append("ir") or "func", cuda=lambda: made.append("cuda") or "text")
    assert made == []
    assert (compiled.asm["ir"], compiled.asm["ir"], made) == ("func", "func", ["ir"])
    assert list(compiled.asm) == ["ir", "cuda", "cubin", "sass"]
    assert "ptx" not in compiled.asm
    assert compiled.asm["cubin"] == b"cubin"


def test_a_stage_that_is_not_there():
    with pytest.raises(LaunchError, match="ir, cubin, sass") as caught:
        kernel(ir=lambda: "func").asm["cude"]
    assert caught.value.code == "asm-unknown-stage"


def test_resources():
    compiled = kernel()
    assert (compiled.n_regs, compiled.n_spills, compiled.shared) == (40, 0, 1024)
    assert (compiled.num_warps, compiled.threads) == (8, 256)


def test_workers_have_threads_beside_the_kernels_own():
    compiled = kernel(lambda: Binary(b"cubin", 40, 0, worker_warps=4))
    assert (compiled.num_warps, compiled.threads) == (8, 384)


def test_threads_share_one_compilation():
    made = []

    def binary():
        made.append(1)
        time.sleep(0.05)
        return Binary(b"", 1, 0)

    compiled = kernel(binary)
    twins = [compiled.with_report(i) for i in range(4)]
    threads = [threading.Thread(target=lambda twin=twin: twin.n_regs) for twin in twins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert [twin.report for twin in twins] == [0, 1, 2, 3]
    assert compiled.report is None


def test_requests_compare_by_what_is_compiled():
    def request(**changes):
        given = {"arguments": {"x": Pointer("float32")}, "options": Options(), "target": "sm_90a", **changes}
        return CompileRequest(test_resources, **given)

    assert request() == request()
    assert hash(request()) == hash(request())
    others = [
        request(arguments={"x": Pointer("float16")}),
        request(arguments={"y": Pointer("float32")}),
        request(options=Options(debug=True)),
        request(target="sm_80"),
    ]
    assert len({request(), *others}) == 5
    assert list(REQUEST.run_time) == ["x", "n"]


def test_occupancy_without_a_gpu_is_the_targets_formula(no_gpu):
    assert kernel().occupancy() == 256


def test_occupancy_on_a_gpu_is_the_drivers(cuda):
    assert kernel().occupancy() == 8


def test_large_shared_memory_opts_in(cuda):
    kernel(lambda: Binary(b"", 1, 0, 100_000)).on_device(0)
    assert cuda.opted_in == 100_000


def test_too_much_shared_memory_names_the_limit(cuda):
    with pytest.raises(OutOfResources, match="232448") as caught:
        kernel(lambda: Binary(b"", 1, 0, 300_000)).on_device(0)
    assert caught.value.code == "launch-shared-memory"


def test_a_kernel_is_loaded_once_per_device(cuda):
    cuda.devices = 2
    compiled = kernel()
    for ordinal in (0, 1, 0, 1):
        assert compiled.on_device(ordinal).device.ordinal == ordinal
    assert cuda.loads == 2


def test_launch_with_bound_values(cuda):
    cuda.parameters = 2
    kernel().launch((5, 1, 1), 99, [0x1000, -2])
    (launched,) = cuda.launches
    assert (launched.grid, launched.block, launched.shared, launched.stream) == ((5, 1, 1), (256, 1, 1), 1000, 99)
    assert launched.words == (0x1000, 2**64 - 2)
