"""Every example runs in the simulator as a script does, prints its table, draws its plot, and would notice a wrong result."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from benchmarks import twin

HEADS = {
    "copy_1d": ["bits per access", "machine code"],
    "copy_2d": ["sectors per load", "useful bytes"],
    "copy_opposite": ["conversion"],
    "all_reduce": ["meetings", "registers", "two-shot"],
    "matmul_scattered": ["tiles multiplied while sending", "overlapped"],
    "all_reduce_norm": ["launches", "fused", "apart"],
    "experts": ["rows to other ranks", "dropped"],
    "row_sum": ["shuffles", "shared bytes"],
    "softmax": ["registers", "elements per thread"],
    "tma_copy": ["requests each way", "shared bytes"],
    "add_async_copy": ["bytes per copy", "shared bytes"],
    "add_tma": ["buffers", "shared bytes"],
    "add_warp_specialized": ["buffers", "shared bytes"],
    "matmul_ladder": ["buffers", "shared bytes", "persistent, pipelined, stolen"],
    "matmul_warp_specialized": ["buffers", "shared bytes", "ping-pong"],
    "attention": ["exponentials", "registers", "2 consumers, wait behind the softmax"],
    "matmul_int4": ["registers", "shared bytes", "asynchronous"],
    "matmul_gelu": ["instructions", "registers", "approximate tanh"],
    "matmul_schedules": ["static, serpentine", "ticket", "split-K", "stream-K", "registers"],
    "matmul_blackwell": ["shared bytes", "claimed tiles, pairs", "float8_e4m3fn"],
    "matmul_scaled": ["blocks", "shared bytes", "mxfp8e4m3", "nvfp4"],
    "tma_gather": ["moved by", "columns", "threads"],
    "thread_matmul": ["shared bytes", "error in roundings", "double buffered"],
    "thread_transpose": ["shared bytes", "machine code", "blocks in tiles"],
    "layout_tensor": ["what it shows", "copied ahead"],
    "thread_stencil": ["registers", "shared bytes"],
}
SHARED = {"workbench", "matmul_parts", "matmul_timeline", "broken_pipeline", "llama_block"}
"""What others import, and what has tests of its own."""
SIMULATED = ["--sim"]


@pytest.fixture(params=HEADS)
def example(request):
    return twin.load(request.param)


def words(text):
    return " ".join(text.replace("│", " ").replace("┃", " ").split())


def test_prints_its_table(example, capsys):
    """Without an alarm, where copies and tasks take random turns."""
    with weft.simulate(schedule="random", seed=1):
        example.main(SIMULATED)
    printed = words(capsys.readouterr().out)
    assert "simulator, every result checked" in printed
    for head in HEADS[example.__name__]:
        assert all(word in printed for word in head.split())


def test_every_example_is_tested():
    assert {path.stem for path in twin.EXAMPLES.glob("*.py")} == {*HEADS, *SHARED}


def test_plot(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
    file = tmp_path / "copy.png"
    twin.load("copy_1d").main([*SIMULATED, "--plot", str(file)])
    assert file.read_bytes().startswith(b"\x89PNG")


def test_an_unwritten_element_fails_the_check():
    place = twin.load("workbench").Place(gpu=False)
    out = place.poisoned(4)
    out[:3] = 1.0
    with pytest.raises(AssertionError):
        place.check(out, np.ones(4, np.float32))


# Numbers of the cost models that the tables show.


def test_without_a_disassembler_the_machine_code_is_unknown():
    from weft.errors import DeviceError

    class Compiled:
        @property
        def asm(self):
            raise DeviceError("device-no-disassembler", "", "")

    assert twin.load("workbench").accesses(Compiled()) == "?"


def test_widths_of_a_1d_copy():
    example = twin.load("copy_1d")
    place = twin.load("workbench").Place(gpu=False)
    rows = {R: example.row(place, R) for R in (1, 2, 4, 8, 16)}
    assert [rows[R]["bits per access"] for R in rows] == [32, 64, 128, 128, 128]
    assert [rows[R]["accesses per thread"] for R in rows] == [16, 8, 4, 4, 4]


def test_opposite_layouts_waste_nothing_when_each_side_has_its_own():
    example = twin.load("copy_opposite")
    place = twin.load("workbench").Place(gpu=False)
    same = example.row(place, "same", ("src", "src"), 1)
    own = example.row(place, "own", ("src", "dst"), 1)
    assert same["useful bytes, store"] != "100%"
    assert own["useful bytes, load"] == own["useful bytes, store"] == "100%"
    assert "shared memory" in own["conversion"]


# Kernels on shapes that their tables leave out.


@pytest.mark.parametrize("shape", [(1, 1), (3, 130), (2, 4096), (5, 777)])
@pytest.mark.parametrize("name", ["plain", "threads", "persistent", "online"])
def test_softmax(name, shape):
    example = twin.load("softmax")
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * 10
    out = np.full(shape, np.nan, np.float32)
    settings = {"BLOCK": 1024} if name == "online" else {"programs": 2} if name == "persistent" else {}
    example.RUNS[name](x, out, num_warps=4, **settings)
    place = twin.load("workbench").Place(gpu=False)
    np.testing.assert_allclose(out, example.reference(place, x), rtol=1e-5)


@pytest.mark.parametrize("name", ["plain", "threads", "persistent", "online"])
def test_softmax_of_masked_scores(name):
    """-inf counts as nothing, even where some threads see nothing else; a row of the lowest number is uniform."""
    example = twin.load("softmax")
    x = np.full((3, 1024), -np.inf, np.float32)
    x[0, :7] = np.arange(7)
    x[1] = np.finfo(np.float32).min
    x[2, 1000] = 3e38
    out = np.full_like(x, np.nan)
    example.RUNS[name](x, out, num_warps=4)
    want = np.zeros_like(x)
    want[0, :7] = np.exp(np.arange(7)) / np.exp(np.arange(7)).sum()
    want[1], want[2, 1000] = 1 / 1024, 1
    np.testing.assert_allclose(out, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (130, 33), (7, 1000)])
@pytest.mark.parametrize("layout", ["lanes_across", "row_per_thread"])
def test_row_sum(layout, shape):
    example = twin.load("row_sum")
    # Small integers, so that the sum is exact in any order.
    x = np.random.default_rng(0).integers(-50, 50, shape).astype(np.float32)
    out = np.full(shape[0], np.nan, np.float32)
    example.run(x, out, getattr(example, layout)(), 4 if layout == "lanes_across" else 128, 128)
    np.testing.assert_array_equal(out, x.sum(axis=1))


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_opposite_copy_of_any_strides(turned):
    example = twin.load("copy_opposite")
    src = np.random.default_rng(0).standard_normal((150, 130), dtype=np.float32)
    dst = np.full_like(src, np.nan)
    src = np.asfortranarray(src) if turned[0] else src
    dst = np.asfortranarray(dst) if turned[1] else dst
    example.run(src, dst, example.layout_for(src), example.layout_for(dst))
    np.testing.assert_array_equal(dst, src)


def test_a_matrix_contiguous_nowhere_has_no_layout():
    with pytest.raises(ValueError, match="contiguous in no dimension"):
        twin.load("copy_opposite").layout_for(np.zeros((8, 8), np.float32)[::2, ::2])


def test_cpu_tensors_run_in_the_simulator_too(torch):
    example = twin.load("copy_2d")
    src = torch.randn(20, 300).T
    dst = torch.full((20, 300), float("nan")).T
    example.run(src, dst, example.along_columns(), 128, 4)
    assert torch.equal(dst, src)
