"""`torch.compile` leaves launches out of its graphs, and sees what they wrote."""

from __future__ import annotations

import pytest

import weft
from weft import language as gl
from weft.errors.hazard import OutOfBounds


@weft.jit
def add_one(x, y, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(y + at, gl.load(x + at, mask=at < n) + 1.0, mask=at < n)


@weft.jit
def add_one_by_threads(x, y, n):
    at = gl.block_idx.x * gl.block_dim.x + gl.thread_idx.x
    gl.store(y + at, gl.load(x + at, mask=at < n) + 1.0, mask=at < n)


@weft.autotune([weft.Config({"BLOCK": 128}), weft.Config({"BLOCK": 256})])
@weft.jit
def tuned(x, y, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(y + at, gl.load(x + at, mask=at < n) + 1.0, mask=at < n)


LAUNCHES = {
    "tiles": lambda x, y: add_one[(2,)](x, y, x.numel(), BLOCK=128),
    "function of the grid": lambda x, y: add_one[lambda a: (weft.cdiv(a["n"], a["BLOCK"]),)](
        x, y, x.numel(), BLOCK=128
    ),
    "threads": lambda x, y: add_one_by_threads[2, 128](x, y, x.numel()),
    "autotuned": lambda x, y: tuned[lambda a: (weft.cdiv(a["n"], a["BLOCK"]),)](x, y, x.numel()),
}


@pytest.fixture
def dynamo(torch):
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo
    torch._dynamo.reset()


def function_of(torch, launch):
    def compute(x):
        scaled = x * 2.0
        out = torch.empty_like(scaled)
        launch(scaled, out)
        return out * 3.0

    return compute


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("launch", ["tiles", "function of the grid", "threads", "autotuned"])
def test_a_compiled_function_launches(torch, dynamo, launch, backend, device_name):
    compute = function_of(torch, LAUNCHES[launch])
    compiled = torch.compile(compute, backend=backend)
    for size in (200, 200, 130):
        x = torch.arange(size, dtype=torch.float32, device=device_name)
        assert torch.equal(compiled(x), (x * 2 + 1) * 3)
    # What stands before and behind the launch is compiled nevertheless.
    assert dynamo.utils.counters["stats"]["unique_graphs"] >= 2


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_name(request):
    return request.param


def test_one_launch_ends_one_graph(torch, dynamo):
    add_one[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCK=128)
    found = dynamo.explain(function_of(torch, LAUNCHES["tiles"]))(torch.zeros(200))
    assert (found.graph_count, found.graph_break_count) == (2, 1)
    assert "a weft kernel is launched outside of the graph" in found.break_reasons[0].reason


def test_a_whole_graph_is_refused_with_the_reason(torch, dynamo):
    compiled = torch.compile(function_of(torch, LAUNCHES["tiles"]), backend="eager", fullgraph=True)
    with pytest.raises(dynamo.exc.Unsupported, match="a weft kernel is launched outside of the graph"):
        compiled(torch.zeros(200))


def test_many_launches_compile_nothing_of_weft(torch, dynamo):
    def repeated(x):
        for _ in range(12):
            out = torch.empty_like(x)
            add_one[(2,)](x, out, x.numel(), BLOCK=128)
            x = out
        return x

    compiled = torch.compile(repeated, backend="eager")
    for size in range(100, 200, 20):
        x = torch.zeros(size)
        assert torch.equal(compiled(x), x + 12)
    assert dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_dynamo_never_evaluates_a_frame_of_weft(torch, dynamo):
    def launch_by_keyword(x, y):
        add_one[(2,)](x=x, y=y, n=x.numel(), BLOCK=128)

    x = torch.arange(200, dtype=torch.float32)
    launch_by_keyword(x, torch.empty(200))  # before there is anything for Dynamo to compile
    dynamo.reset()
    compiled = torch.compile(function_of(torch, launch_by_keyword), backend="eager")
    assert torch.equal(compiled(x), (x * 2 + 1) * 3)
    seen = [code() for code in dynamo.convert_frame.input_codes.seen]
    assert any(code.co_name == "launch_by_keyword" for code in seen)
    ours = {code.co_name for code in seen if code.co_filename.startswith("<launch") or "/weft/" in code.co_filename}
    assert ours <= {"__getitem__"}  # seen once, if a graph's end reaches it before any launch, and again after a reset


def test_hazards_of_a_compiled_function_are_raised(torch, dynamo):
    compiled = torch.compile(function_of(torch, lambda x, y: add_one[(2,)](x, y[:9], 200, BLOCK=128)), backend="eager")
    with pytest.raises(OutOfBounds):
        compiled(torch.zeros(200))
