"""Tuning on a GPU: real times, a real capture."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import Config, tune
from weft import language as gl
from weft.cli import main
from weft.errors import UserError
from weft.kernels import chosen_config, matmul
from weft.tune import clear_choices

pytestmark = pytest.mark.gpu


@weft.jit
def add_one(src, dst, n, BLOCK: gl.constexpr, num_warps: gl.constexpr = 4):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(dst + offsets, gl.load(src + offsets, mask=offsets < n) + 1, mask=offsets < n)


@weft.jit
def increment(values, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(values + offsets, gl.load(values + offsets, mask=offsets < n) + 1, mask=offsets < n)


@weft.jit
def fill(dst, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    tile = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    tile.store(gl.full([BLOCK], 3.0, gl.float32, layout))
    gl.store(dst + gl.arange(0, BLOCK, layout=layout), tile.load(layout))


def grid(arguments):
    return (weft.cdiv(arguments["n"], arguments["BLOCK"]),)


N = (1 << 22) + 5


@pytest.fixture
def arrays(torch):
    return torch.randn(N, device="cuda"), torch.full((N,), float("nan"), device="cuda")


def tuned(**options):
    return weft.autotune({"BLOCK": [128, 1024, 4096], "num_warps": [4, 8]}, key=["n"], rep=30, **options)(add_one)


def test_real_times_decide(torch, arrays):
    src, dst = arrays
    kernel = tuned()
    compiled = kernel[grid](src, dst, N)
    torch.testing.assert_close(dst, src + 1, rtol=0, atol=0)
    assert [result.status for result in kernel.results] == ["timed"] * 6
    times = [result.ms for result in kernel.results]
    assert times == sorted(times)
    # 32 MiB of traffic at 20 TB/s, and at 20 GB/s.
    assert 1.7e-3 < times[0] < 1.7
    assert kernel.best_config == kernel.results.best.config
    assert compiled.num_warps == kernel.best_config.num_warps
    choice = tune.choices()[0]
    assert (choice.config, choice.point.device) == (str(kernel.best_config), torch.cuda.get_device_name())


def test_another_process_would_not_measure(torch, arrays):
    tuned()[grid](*arrays, N)

    def never(run, prepare):
        raise AssertionError("measured again")

    again = tuned(bench=never)
    again[grid](*arrays, N)
    assert str(again.best_config) == tune.choices()[0].config


def test_what_a_block_cannot_hold_is_a_row(torch):
    dst = torch.zeros(1 << 17, device="cuda")
    kernel = weft.autotune({"BLOCK": [1 << 17, 4096]}, rep=10)(fill)
    kernel[1](dst)
    assert kernel.best_config == Config({"BLOCK": 4096})
    assert [result.status for result in kernel.results] == ["timed", "failed"]
    assert "[shared-memory]" in kernel.results[1].reason
    assert (dst[:4096] == 3).all()


def test_arrays_are_restored(torch):
    values = torch.randn(1000, device="cuda")
    before = values.clone()
    kernel = weft.autotune({"BLOCK": [128, 256]}, restore=["values"], rep=10)(increment)
    kernel[grid](values, 1000)
    torch.testing.assert_close(values, before + 1, rtol=0, atol=0)


def test_wrong_results_are_out(torch, arrays):
    src, dst = arrays

    def check(arguments, _):
        return arguments["BLOCK"] != 1024 and bool((arguments["dst"] == arguments["src"] + 1).all())

    kernel = tuned(check=check)
    kernel[grid](src, dst, N)
    assert {result.config.kwargs["BLOCK"] for result in kernel.results if result.status == "timed"} == {128, 4096}


def test_a_function_is_tuned_with_its_own_arrays(torch, arrays):
    src, _ = arrays

    @weft.autotune({"BLOCK": [128, 1024]}, key=["src"], rep=10)
    def plus_one(src, BLOCK):
        dst = torch.empty_like(src)
        add_one[weft.cdiv(src.numel(), BLOCK),](src, dst, src.numel(), BLOCK)
        return dst

    torch.testing.assert_close(plus_one(src), src + 1, rtol=0, atol=0)
    assert plus_one.results.best is not None


def captured(torch, launch):
    """A graph of one launch, whose kernel was loaded before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph


def test_a_capture_takes_the_stored_choice(torch, arrays):
    src, dst = arrays
    kernel = tuned()
    kernel[grid](src, dst, N)
    dst.zero_()
    again = tuned()
    graph = captured(torch, lambda: again[grid](src, dst, N))
    assert str(again.best_config) == tune.choices()[0].config
    graph.replay()
    torch.testing.assert_close(dst, src + 1, rtol=0, atol=0)


def test_a_capture_never_measures(torch, arrays):
    src, dst = arrays
    kernel = tuned()
    kernel.fn[grid](src, dst, N, **kernel.configs[0].arguments)
    dst.zero_()
    with pytest.warns(RuntimeWarning, match="takes the first config"):
        graph = captured(torch, lambda: kernel[grid](src, dst, N))
    assert (len(kernel.results), tune.choices()) == (0, [])
    graph.replay()
    torch.testing.assert_close(dst, src + 1, rtol=0, atol=0)


def test_a_capture_refuses_to_tune(torch, arrays):
    kernel = tuned()
    kernel.fn[grid](*arrays, N, **kernel.configs[0].arguments)
    codes = []

    def launch():
        with pytest.raises(UserError) as caught:
            kernel.tune(*arrays, N, grid=grid)
        codes.append(caught.value.code)
        kernel.fn[grid](*arrays, N, **kernel.configs[0].arguments)

    captured(torch, launch)
    assert codes == ["tune-capturing"]


def test_a_broken_context_is_not_blamed_on_the_rest(torch, arrays):
    """A launch with a bad pointer would end this process's tests, so only that a good context is found good."""
    from weft.tune import measure

    assert measure.lost(torch.cuda.current_device()) == ""
    assert np.isfinite(measure.gpu_bench(5, 10)(lambda: arrays[1].zero_(), lambda: None))


def test_products_are_tuned_from_a_file(torch, tmp_path, capsys):
    (tmp_path / "shapes.csv").write_text(
        "m,n,k,dtype,layout\n333,520,1000,bfloat16,NT\n4096,4096,4096,float8_e4m3fn,NT\n"
    )
    assert main(["tune", "matmul", "--shapes", str(tmp_path / "shapes.csv"), "--candidates", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "333x520x1000 bfloat16 NT", "4096x4096x4096 float8_e4m3fn NT",
    ]  # fmt: skip
    a = torch.randn((333, 1000), device="cuda", dtype=torch.bfloat16)
    b = torch.randn((520, 1000), device="cuda", dtype=torch.bfloat16).T
    assert chosen_config(a, b, explain=True).source == "measured"
    torch.testing.assert_close(matmul(a, b).double(), a.double() @ b.double(), rtol=2e-2, atol=2e-1)
    clear_choices("weft.kernels.matmul")
