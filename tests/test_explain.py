"""`weft explain`, as data and as text."""

from __future__ import annotations

import io
import re
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from weft import compiler, explain, settings
from weft.cli import main
from weft.errors.launch import NVRTC_SLOW
from weft.explain import Explanation, KernelFacts, Note, Times, explain_script

HEAD = """\
import numpy as np
import weft
import weft.language as gl
from weft.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

ROWS = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
COLUMNS = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
"""
TRANSPOSE = """
@weft.jit
def turn(x, y):
    rows = gl.expand_dims(gl.arange(0, 32, gl.SliceLayout(1, ROWS)), 1)
    columns = gl.expand_dims(gl.arange(0, 32, gl.SliceLayout(0, ROWS)), 0)
    buffer = gl.allocate_shared_memory(gl.float32, [32, 32], PLAIN)
    buffer.store(gl.load(x + rows * 32 + columns))
    gl.thread_barrier()
    gl.thread_barrier()
    tile = buffer.load(COLUMNS)
    gl.store(y + rows * 32 + columns, gl.convert_layout(tile, ROWS))

x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
turn[(1,)](x, y)
assert (x == y).all()
"""
STORE = """
@weft.jit
def fill(desc):
    buffer = gl.allocate_shared_memory(gl.float32, [8, 32], desc.layout)
    buffer.store(gl.full([8, 32], 1.0, gl.float32, ROWS))
    tma.async_copy_shared_to_global(desc, [0, 0], buffer)
    tma.store_wait(0)

y = np.zeros((8, 32), np.float32)
fill[(1,)](TensorDescriptor.from_tensor(y, [8, 32], gl.NVMMASharedLayout.get_default_for([8, 32], gl.float32)))
assert (y == 1).all()
"""
PARTITIONS = """
@weft.jit
def first(y):
    gl.store(y + gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0])), 1.0)

@weft.jit
def idle():
    gl.static_assert(gl.num_warps() == 1)

@weft.jit
def split(y):
    gl.warp_specialize([(first, (y,)), (first, (y + 128,)), (idle, ())], [4, 1], [192, 24])

y = np.zeros(256, np.float32)
split[(1,)](y)
assert (y == 1).all()
"""


@pytest.fixture
def script(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(HEAD + textwrap.dedent(text), "utf-8")
        return path

    return write


def notes(found: Explanation, text: str) -> list[Note]:
    """Notes on the lines whose source contains a text."""
    (facts,) = found.kernels
    return [note for note in facts.notes if note.loc is not None and text in note.loc.source]


@pytest.mark.parametrize(("blocks", "words"), [(1, ""), (8, "clusters of 8 blocks"), (16, "not every GPU can place")])
def test_the_size_of_clusters(blocks, words):
    out = io.StringIO()
    facts = KernelFacts("k", "sm_90a", 4, (), (), 64, 1024, num_ctas=blocks, portable=blocks < 16)
    explain.show(Explanation((facts,)), Console(file=out, width=1000))
    assert words in out.getvalue()
    assert ("clusters" in out.getvalue()) == ("in each block" in out.getvalue()) == bool(words)


def test_conversions_conflicts_and_barriers(script):
    found = explain_script(script(TRANSPOSE))
    assert found.stopped == ""
    (conversion,) = [n for n in notes(found, "convert_layout") if n.topic == "conversion"]
    assert "cycles a warp" in conversion.text
    assert not conversion.warning
    store, load = notes(found, "buffer.store")
    assert load.topic == "global access"
    assert load.text.startswith("load: 8 times 4 bytes a thread, not 16: ")
    assert (store.topic, store.warning) == ("shared access", False)
    assert store.text == "shared.store of buffer: 2 matrix instructions, no bank conflicts"
    loads = [n for n in notes(found, "buffer.load") if n.topic == "shared access"]
    assert [n.text for n in loads] == [
        "shared.load of buffer: 8 times 4 bytes a thread, bank conflicts add 31 wavefronts to each"
    ]
    assert loads[0].warning
    assert sorted(n.text for n in notes(found, "gl.thread_barrier")) == [
        "barrier, as written",
        "barrier, as written, but it orders nothing",
    ]


ENDS = """
@weft.jit
def copied(src, dst):
    block: gl.constexpr = src.block_shape
    first: gl.constexpr = [0] * len(block)
    buffer = gl.allocate_shared_memory(src.dtype, block, src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, first, bar, buffer)
    mbarrier.wait(bar, 0)
    tma.async_copy_shared_to_global(dst, first, buffer)
    tma.store_wait(0)

for block in ([64, 112], [96, 128], [2, 320, 64]):
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16)
    x, y = np.ones(block, np.float16), np.zeros(block, np.float16)
    copied[(1,)](*(TensorDescriptor.from_tensor(each, block, layout) for each in (x, y)))
    assert (x == y).all()
"""


def test_blocks_that_are_no_powers_of_two(script):
    """The requests of TMA, and why they are many or memory is wasted."""
    notes = [[note for note in facts.notes if note.topic == "TMA"] for facts in explain_script(script(ENDS)).kernels]
    texts = [(found[0].text, found[0].warning) for found in notes]
    assert texts == [
        (
            "a block [64, 112] of float16 in 7 requests of [64, 16]; no wider swizzle than 32 bytes divides its rows of 224",
            True,
        ),
        ("a block [96, 128] of float16 in 2 requests of [96, 64]", False),
        (
            (
                "a block [2, 320, 64] of float16 in 10 requests of [1, 64, 64]; "
                "it takes 106496 bytes, of which 24576 bytes are holes"
            ),
            True,
        ),
    ]
    assert [len(found) for found in notes] == [2, 2, 2]


def test_the_bill(script):
    found = explain_script(script(STORE))
    (facts,) = found.kernels
    (buffer,) = facts.buffers
    assert (buffer.name, buffer.offset, buffer.bytes) == ("buffer", 0, 1024)
    assert buffer.lines.startswith("from line ")
    assert (facts.name, facts.num_warps, facts.shared_bytes) == ("fill", 4, 1024)
    assert facts.shared_limit == 227 * 1024
    assert (facts.registers, facts.spills, facts.problem) == (None, None, "")
    fences = [n.text for n in notes(found, "async_copy_shared_to_global") if n.topic == "sync"]
    assert [text.partition(" (written")[0] for text in fences] == [
        "fence.async, inserted before tma.store of buffer",
        "barrier, inserted before tma.store of buffer",
    ]


def test_registers_where_machine_code_is_made(script):
    (facts,) = explain_script(script(STORE), compiled=True).kernels
    assert facts.registers is not None
    assert 0 < facts.registers <= 255
    assert facts.spills == 0


def test_warps_and_registers_of_partitions(script, capsys):
    path = script(PARTITIONS)
    (facts,) = explain_script(path).kernels
    assert [(each.first_warp, each.num_warps, each.registers > 0) for each in facts.partitions] == [
        (0, 4, True), (4, 4, True), (8, 1, True),
    ]  # fmt: skip
    assert main(["explain", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"default partition: warps 0 to 3, \d+ registers a thread; worker 0: warps 4 to 7, 192 registers", text
    )
    assert "worker 1: warp 8, 24 registers a thread" in text


def test_the_text(script, capsys):
    path = script(TRANSPOSE)
    assert main(["explain", "--no-color", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("turn for sm_90a, 4 warps\n")
    assert ": tile = buffer.load(COLUMNS)\n      shared.load of buffer: " in out
    assert "  shared memory: 8192 of 232448 bytes\n" in out or "  shared memory: 4096 of 232448 bytes\n" in out
    assert "buffer    15" in out


def test_a_script_that_stops_is_explained_as_far_as_it_came(script, capsys):
    assert main(["explain", "--no-color", str(script(STORE + "\nraise ValueError('enough')\n"))]) == 1
    out = capsys.readouterr().out
    assert out.startswith("fill for sm_90a")
    assert re.search(r"the script stopped: .*script\.py:\d+: ValueError: enough\n$", out)


def test_a_script_without_kernels(script, capsys):
    assert main(["explain", str(script(""))]) == 0
    assert capsys.readouterr().out == "the script compiles no kernel\n"


def test_a_kernel_without_shared_memory(script):
    found = explain_script(
        script("@weft.jit\ndef nothing(x):\n    gl.store(x, 1)\n\nnothing[(1,)](np.zeros(1, np.int32))\n")
    )
    out = io.StringIO()
    explain.show(found, Console(file=out, width=1000))
    head, where, store, memory, times = out.getvalue().rstrip("\n").split("\n")
    assert head == "nothing for sm_90a, 4 warps"
    assert where.endswith("script.py:12: gl.store(x, 1)")
    assert (store, memory) == ("      store: 1 times 4 bytes a thread", "  no shared memory")
    assert re.fullmatch(r"  compilation: weft \d+\.\d ms, NVRTC not run \(--registers runs it\)", times)


def test_the_time_of_nvrtc(script, tmp_path):
    path = script(TRANSPOSE)
    with settings.using(cache_dir=tmp_path / "cache"):
        first, again = (explain_script(path, compiled=True).kernels[0].times for _ in range(2))
    assert first.front > 0
    assert first.nvrtc is not None
    assert (first.from_disk, again.nvrtc, again.from_disk) == (False, None, True)


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        (Times(3.0, 140.0), "  compilation: weft 3.0 ms, NVRTC 140.0 ms\n"),
        (Times(3.0, None, True), "  compilation: weft 3.0 ms, machine code from the cache on disk\n"),
        (Times(3.0, 9000.0), f"  compilation: weft 3.0 ms, NVRTC 9000.0 ms\n      {NVRTC_SLOW.fix}\n"),
    ],
)
def test_times_in_words(times, shown):
    out = io.StringIO()
    explain.show(
        Explanation((KernelFacts("k", "sm_90a", 4, (), (), 0, 0, times=times),)), Console(file=out, width=1000)
    )
    assert shown in out.getvalue()


COPIES = """
@weft.jit
def copied(x, y, TIMES: gl.constexpr, layout: gl.constexpr, memory: gl.constexpr):
    at = gl.arange(0, 128, layout)
    buffer = gl.allocate_shared_memory(gl.float32, [128], memory)
    for _ in range(TIMES):
        async_copy.async_copy_global_to_shared(buffer, x + at)
        async_copy.commit_group()
        async_copy.wait_group(0)
        gl.store(y + at, buffer.load(layout))

x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
one = gl.BlockedLayout([4], [32], [1], [0])
for times in (1, 2, 1):
    copied[(1,)](x, y, times, one, gl.SwizzledSharedLayout(1, 1, 1, [0]), num_warps=1)
"""


def test_widths_and_constants(script, capsys):
    path = script("from weft.language.nvidia.ampere import async_copy" + COPIES)
    assert main(["explain", "--no-color", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count("copied for sm_90a, 1 warp\n") == 2
    assert [out.count(f"  TIMES={times}\n") for times in (1, 2)] == [1, 1]
    assert "      async_copy.global_to_shared: 1 times 16 bytes a thread\n" in out
    assert "      store: 1 times 16 bytes a thread\n" in out
    assert "barrier" not in out


def test_a_missing_script_is_one_line(tmp_path, capsys):
    assert main(["explain", str(tmp_path / "none.py")]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_scripts_get_their_arguments_and_leave_nothing_behind(script):
    import sys

    before = list(sys.argv), list(sys.path)
    found = explain_script(script("import sys\nassert sys.argv[1:] == ['--n', '3'], sys.argv\n"), ["--n", "3"])
    assert found == Explanation((), "")
    assert (sys.argv, sys.path) == before
    assert compiler.observers == []


def test_a_script_ends_with_a_status(script):
    assert explain_script(script("import sys\nsys.exit(3)\n")).stopped == "it ended with status 3"
    assert explain_script(script("import sys\nsys.exit(0)\n")).stopped == ""


THREADS = """
SHARED, LOCAL = gl.AddressSpace.SHARED, gl.AddressSpace.LOCAL

@weft.jit
def turned(t, n):
    tile = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout.row_major(32, 4), address_space=SHARED)
    mine = gl.LayoutTensor.stack_allocation(gl.int32, gl.Layout(4), address_space=LOCAL).fill(0)
    kept = gl.LayoutTensor.stack_allocation(gl.float32, gl.Layout(2), address_space=LOCAL).fill(1)
    i = gl.thread_idx.x
    for j in gl.static_range(4):
        tile[i, j] = i
    found = tile.load[4](i, 0)
    mine[n] = found[1]
    t[i] = mine[0] + kept[1].to(gl.int32)

t = np.zeros(32, np.int32)
turned[1](weft.LayoutTensor(t), 2, block=32)
assert (t == 1).all()
"""


@pytest.mark.filterwarnings("ignore::weft.errors.PerformanceWarning")
def test_kernels_of_single_threads(script):
    (facts,) = explain_script(script(THREADS)).kernels
    at_run_time = "indexed at run time (line 22), so in local memory unless that is unrolled"
    assert [(note.topic, note.text, note.warning) for note in facts.notes if note.topic != "sync"] == [
        ("shared access", "store to shared memory of tile: 4 times 4 bytes a thread", False),
        ("shared access", "load from shared memory of tile: 1 times 16 bytes a thread", False),
        ("global access", "store: 1 times 4 bytes a thread", False),
        ("own array", f"array of mine, 4 int32 of each thread's own: {at_run_time}", True),
        ("own array", "array of kept, 2 float32 of each thread's own: in registers", False),
    ]


COLUMNS = """
from weft.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, get_tmem_32x32b_reg_layout

@weft.jit
def keep(y):
    layout: gl.constexpr = get_tmem_32x32b_reg_layout(128, 32, [128, 32], 4)
    small = allocate_tensor_memory(gl.float32, [128, 32], TensorMemoryLayout([128, 32]))
    large = allocate_tensor_memory(gl.float32, [2, 128, 64], TensorMemoryLayout([128, 64]))
    small.store(gl.full([128, 32], 1.0, gl.float32, layout))
    large.index(1).slice(0, 32).store(small.load())
    row = gl.arange(0, 128, gl.SliceLayout(1, layout))
    column = gl.arange(0, 32, gl.SliceLayout(0, layout))
    gl.store(y + row[:, None] * 32 + column[None, :], large.index(1).slice(0, 32).load())

y = np.zeros((128, 32), np.float32)
with weft.simulate(target="sm_100a"):
    keep[(1,)](y)
assert (y == 1).all()
"""


def test_the_bill_of_tensor_memory(script):
    (facts,) = explain_script(script(COLUMNS)).kernels
    assert (facts.tensor_columns, facts.tensor_limit) == (256, 512)
    found = {item.name: (item.first, item.columns) for item in facts.tensor_buffers}
    assert found == {"large": (0, 128), "small": (128, 32)}
    out = io.StringIO()
    explain.show(Explanation((facts,)), Console(file=out, width=1000))
    assert "tensor memory: 256 of 512 columns" in out.getvalue()
    assert re.search(r"large +\d+ +128 +0\b", out.getvalue())
