"""Operators on a GPU: every one against the simulator, in compiled models, and in CUDA graphs."""

from __future__ import annotations

import copy

import pytest

import weft.torch
from tests.torch.calls import CALLS, NO_GRADIENT
from tests.torch.kernels import launch_scale

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
FUNCTIONAL = [name for name in CALLS if not weft.torch.OPERATORS[name].mutates_args]
DIFFERENTIABLE = [name for name in FUNCTIONAL if name not in NO_GRADIENT]


def on(device, args):
    return [x.to(device) if hasattr(x, "to") else x for x in args]


@pytest.fixture
def call(request):
    import torch

    torch.manual_seed(0)
    return CALLS[request.param](torch)


def each(names):
    return pytest.mark.parametrize(
        ("name", "call"), [(name, name) for name in sorted(names)], ids=sorted(names), indirect=["call"]
    )


def values(result):
    return [result] if hasattr(result, "dim") else list(result)


@each(CALLS)
def test_opcheck(name, call):
    import torch

    operator = weft.torch.OPERATORS[name]
    found = torch.library.opcheck(operator.overload, tuple(on(DEVICE, copy.deepcopy(call.args))), call.keywords)
    assert set(found.values()) == {"SUCCESS"}


@each(FUNCTIONAL)
def test_the_simulator_agrees(name, call):
    import torch

    operator = weft.torch.OPERATORS[name]
    got = [x.cpu() for x in values(operator(*on(DEVICE, call.args), **call.keywords))]
    torch.testing.assert_close(got, values(operator(*call.args, **call.keywords)), atol=1e-5, rtol=1e-5)


@each(DIFFERENTIABLE)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_with_gradients(name, call, mode):
    """Inductor; reduce-overhead captures forward and backward in CUDA graphs."""
    import torch

    torch._dynamo.reset()
    operator = weft.torch.OPERATORS[name]

    def function(*args):
        return values(operator(*args, **call.keywords))[0].square().sum()

    compiled = torch.compile(function, mode=mode, fullgraph=True)
    found = []
    for run in (function, compiled, compiled, compiled):
        args = call.wanting(DEVICE)
        result = run(*args)
        grads = torch.autograd.grad(result, [x for x in args if hasattr(x, "dim") and x.requires_grad])
        found.append([result.clone(), *(grad.clone() for grad in grads)])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-4, rtol=1e-4)


@each(CALLS)
def test_a_captured_call_is_replayed(name, call):
    import torch

    operator, args = weft.torch.OPERATORS[name], on(DEVICE, call.args)
    operator(*args, **call.keywords)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = operator(*args, **call.keywords)
    first, *rest = args
    first.copy_(first.flip(0))
    graph.replay()
    got = values(args[2] if result is None else result)
    want = [x.clone() for x in got]
    again = operator(*args, **call.keywords)
    torch.testing.assert_close(want, values(args[2] if again is None else again))


def test_calls_wait_for_no_one():
    """Nothing on the host waits for the GPU."""
    import torch

    calls = {name: CALLS[name](torch) for name in CALLS}
    placed = {name: on(DEVICE, call.args) for name, call in calls.items()}
    for name, args in placed.items():
        weft.torch.OPERATORS[name](*args, **calls[name].keywords)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for name, args in placed.items():
            weft.torch.OPERATORS[name](*args, **calls[name].keywords)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_another_stream():
    import torch

    @weft.torch.operator("gpu::scale")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        y = torch.empty_like(x)
        launch_scale(x, y, factor)
        return y

    x = torch.ones(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.fill_(3)
        y = scale(x, 2.0)
    torch.cuda.current_stream().wait_stream(stream)
    assert y.eq(6).all()


def test_a_call_goes_straight_to_the_device():
    """The keys of a call on ordinary CUDA tensors are those that the autograd kernel compares with."""
    import torch

    seen = []

    @weft.torch.operator("gpu::seen")
    def seen_from(x: torch.Tensor) -> torch.Tensor:
        import sys

        frame, names = sys._getframe(), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        seen.append(names)
        return torch.empty_like(x)

    seen_from(torch.ones(2, device="cuda"))
    assert seen[0][:4] == ["seen_from", "named", "kernel", "__call__"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_autocast(dtype):
    import torch

    a, b = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    with torch.autocast("cuda", getattr(torch, dtype)):
        assert weft.torch.matmul(a, b).dtype == getattr(torch, dtype)
        assert weft.torch.cumsum(a.half()).dtype == torch.float32


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [64, 96, 128, 256])
@pytest.mark.parametrize("length", [7, 129, 1000, 4096])
def test_attention_is_as_exact_as_cudnn(size, dtype, causal, length):
    """Root mean square of the errors against float64, at most 1.1 times that of cuDNN."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    generator = torch.Generator(DEVICE).manual_seed(size + length)
    shape = (1, 4, length, size)
    q, k, v = (torch.randn(shape, device=DEVICE, generator=generator).to(getattr(torch, dtype)) for _ in range(3))
    scores = q.double() @ k.double().mT * size**-0.5
    if causal:
        scores = scores.where(torch.ones(length, length, dtype=torch.bool, device=DEVICE).tril(), -torch.inf)
    exact = scores.softmax(-1) @ v.double()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        theirs = scaled_dot_product_attention(q, k, v, is_causal=causal)
    ours = weft.torch.attention(q, k, v, causal=causal)
    mine, other = (float((x.double() - exact).square().mean().sqrt()) for x in (ours, theirs))
    assert mine <= 1.1 * other
