"""Matrix products as operators: types, scales, strides, autocast, and Blackwell's block scales."""

from __future__ import annotations

import numpy as np
import pytest

import weft.torch
from weft.nvidia import scaled
from weft.settings import using


@pytest.fixture
def operands(torch):
    torch.manual_seed(0)
    return torch.randn(17, 40).bfloat16(), torch.randn(40, 24).bfloat16()


def test_types(torch, operands):
    a, b = operands
    assert weft.torch.matmul(a, b).dtype == torch.bfloat16
    assert weft.torch.matmul(a, b, out_dtype=torch.float32).dtype == torch.float32
    eight = weft.torch.matmul(a.to(torch.float8_e4m3fn), b.to(torch.float8_e5m2))
    assert eight.dtype == torch.bfloat16
    assert weft.torch.matmul(a.to(torch.int8), b.to(torch.int8)).dtype == torch.int32


def test_strides(torch, operands):
    a, b = operands
    want = a.float() @ b.float()
    for left in (a, a.t().contiguous().t(), torch.randn(34, 80).bfloat16()[::2, ::2].copy_(a)):
        torch.testing.assert_close(weft.torch.matmul(left, b).float(), want, atol=0.05, rtol=0.02)


def test_gradients_with_scales(torch, operands):
    a, b = (x.float().requires_grad_() for x in operands)
    rows, columns = torch.rand(17) + 0.5, torch.rand(24) + 0.5
    weights = torch.randn(17, 24)
    got = torch.autograd.grad((weft.torch.matmul(a, b, rows, columns) * weights).sum(), (a, b))
    want = torch.autograd.grad((rows[:, None] * (a @ b) * columns * weights).sum(), (a, b))
    torch.testing.assert_close(got, want, atol=0.1, rtol=0.02)
    one = torch.tensor([3.0])
    (got,) = torch.autograd.grad(weft.torch.matmul(a, b, one).sum(), a)
    (want,) = torch.autograd.grad((3 * (a @ b)).sum(), a)
    torch.testing.assert_close(got, want, atol=0.2, rtol=0.02)


def test_gradients_in_the_type_of_each_operand(torch, operands):
    a, b = (x.requires_grad_() for x in operands)
    weft.torch.matmul(a, b, out_dtype=torch.float32).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (torch.bfloat16, torch.bfloat16)


def test_a_gradient_of_a_gradient(torch, operands):
    a, b = (x.float().requires_grad_() for x in operands)
    (first,) = torch.autograd.grad(weft.torch.matmul(a, b).square().sum(), a, create_graph=True)
    (got,) = torch.autograd.grad(first.sum(), a)
    (first,) = torch.autograd.grad((a @ b).square().sum(), a, create_graph=True)
    (want,) = torch.autograd.grad(first.sum(), a)
    torch.testing.assert_close(got, want, atol=1.0, rtol=0.02)


def test_no_gradient_of_fp8(torch, operands):
    a, b = (x.to(torch.float8_e4m3fn) for x in operands)
    with pytest.raises(weft.errors.LaunchError, match="no gradient for operands of float8_e4m3fn"):
        weft.torch.matmul(a.requires_grad_(), b)


def test_autocast_converts_operands_and_no_scales(torch, operands):
    a, b = (x.float().requires_grad_() for x in operands)
    with torch.autocast("cpu", torch.bfloat16):
        got = weft.torch.matmul(a, b, torch.ones(17))
        assert got.dtype == torch.bfloat16
        assert weft.torch.softmax(a).dtype == torch.float32
        assert weft.torch.cumsum(operands[0]).dtype == torch.float32
    got.sum().backward()
    assert a.grad.dtype == torch.float32


@pytest.mark.parametrize("dims", [(0, None), (None, 1), (0, 0), (1, 2)])
def test_vmap(torch, dims):
    shapes = [[3, 17, 40] if dims[0] is not None else [17, 40], [3, 40, 24] if dims[1] is not None else [40, 24]]
    a, b = (torch.randn(shape).bfloat16() for shape in shapes)
    a, b = (x if dim is None else x.movedim(0, dim) for x, dim in zip((a, b), dims, strict=True))
    got = torch.vmap(weft.torch.matmul, in_dims=dims)(a, b)
    torch.testing.assert_close(got, torch.vmap(torch.matmul, in_dims=dims)(a, b), atol=0.1, rtol=0.02)


def test_epilogues(torch, operands):
    a, b = operands
    bias, residual, exact = torch.randn(24), torch.randn(17, 24).bfloat16(), a.float() @ b.float()
    got = weft.torch.matmul(a, b, None, None, bias, residual, activation="silu", out_dtype=torch.float32)
    torch.testing.assert_close(got, torch.nn.functional.silu(exact + bias) + residual, atol=0.02, rtol=0.01)
    gated = weft.torch.matmul(a, b, gated=True, activation="relu", out_dtype=torch.float32)
    torch.testing.assert_close(gated, exact[:, :12].relu() * exact[:, 12:], atol=0.05, rtol=0.01)
    compiled = torch.compile(
        lambda *x: weft.torch.matmul(*x, gated=True, activation="relu"), backend="aot_eager", fullgraph=True
    )
    torch.testing.assert_close(compiled(a, b).float(), gated, atol=0.05, rtol=0.02)


def test_statistics_of_rows(torch, operands):
    a, b = operands
    out, squares, peaks = torch.empty(17, 24).bfloat16(), torch.empty(17, 1), torch.empty(17, 1)

    def model(a, b, out, squares, peaks):
        weft.torch.matmul_out(a, b, out, row_squares=squares, row_peaks=peaks)
        return weft.torch.rms_factors(squares, 24)

    got = torch.compile(model, backend="aot_eager", fullgraph=True)(a, b, out, squares, peaks)
    exact = a.float() @ b.float()
    torch.testing.assert_close(peaks[:, 0], exact.abs().amax(-1), atol=0.05, rtol=0.01)
    torch.testing.assert_close(got, exact.square().mean(-1).rsqrt(), atol=0.01, rtol=0.01)


def test_the_residual_is_the_output(torch, operands):
    a, b = operands

    def add(x):
        weft.torch.matmul_out(a, b, x, residual=x)
        return x * 1

    want = a.float() @ b.float() + 1
    for run in (add, torch.compile(add, backend="aot_eager", fullgraph=True)):
        x = torch.ones(17, 24).bfloat16()
        assert run(x).equal(x)
        torch.testing.assert_close(x.float(), want, atol=0.1, rtol=0.02)


def test_gradients_of_what_is_added(torch, operands):
    a, b = (x.float().requires_grad_() for x in operands)
    bias, residual = torch.randn(24, requires_grad=True), torch.randn(17, 1, requires_grad=True)
    weights = torch.randn(17, 24)
    got = torch.autograd.grad(
        (weft.torch.matmul(a, b, None, None, bias, residual) * weights).sum(), (a, bias, residual)
    )
    want = torch.autograd.grad(((a @ b + bias + residual) * weights).sum(), (a, bias, residual))
    torch.testing.assert_close(got, want, atol=0.05, rtol=0.02)


ACTIVATIONS = {
    "relu": lambda torch, x: x.relu(),
    "relu_squared": lambda torch, x: x.relu().square(),
    "gelu": lambda torch, x: torch.nn.functional.gelu(x),
    "gelu_tanh": lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": lambda torch, x: torch.nn.functional.silu(x),
    "sigmoid": lambda torch, x: x.sigmoid(),
    "tanh": lambda torch, x: x.tanh(),
    None: lambda torch, x: x,
}


@pytest.mark.parametrize(
    ("activation", "gated"), [*((name, False) for name in ACTIVATIONS if name), ("silu", True), (None, True)]
)
def test_gradients_of_a_fused_activation(torch, operands, activation, gated):
    """Small numbers: their products as tf32 keep the sign of what a ReLU gets."""
    a, b = ((x.float() / 4).requires_grad_() for x in operands)
    scale, bias = torch.rand(17), torch.randn(24, requires_grad=True)
    residual, weights = torch.randn(17, 1, requires_grad=True), torch.randn(17, 12 if gated else 24)
    got = weft.torch.matmul(a, b, scale, None, bias, residual, activation=activation, gated=gated)
    x = scale[:, None] * (a @ b) + bias
    act = ACTIVATIONS[activation]
    want = (act(torch, x[:, :12]) * x[:, 12:] if gated else act(torch, x)) + residual
    torch.testing.assert_close(got, want, atol=0.02, rtol=0.02)
    ours, theirs = (torch.autograd.grad((y * weights).sum(), (a, b, bias, residual)) for y in (got, want))
    torch.testing.assert_close(ours, theirs, atol=0.05, rtol=0.02)


def test_no_gradient_through_the_scale_of_an_output(torch, operands):
    a, b = operands
    scale = torch.tensor([2.0])
    with pytest.raises(weft.errors.LaunchError, match="has no gradient for a product with out_scale"):
        weft.torch.matmul(a.requires_grad_(), b, out_scale=scale)
    with torch.no_grad():
        assert weft.torch.matmul(a, b, out_scale=scale).shape[0] == 17


@pytest.mark.parametrize("shapes", [((3, 17, 40), (3, 40, 24)), ((2, 1, 17, 40), (3, 40, 24)), ((17, 40), (3, 40, 24))])
def test_batches(torch, shapes):
    a, b = (torch.randn(shape).requires_grad_() for shape in shapes)
    got, want = weft.torch.matmul(a, b), a @ b
    torch.testing.assert_close(got, want, atol=0.1, rtol=0.02)
    weights = torch.randn_like(want)
    ours, theirs = (torch.autograd.grad((x * weights).sum(), (a, b)) for x in (got, want))
    torch.testing.assert_close(ours, theirs, atol=0.3, rtol=0.02)
    meta = weft.torch.matmul(a.detach().to("meta"), b.detach().to("meta"))
    assert (meta.shape, meta.dtype) == (want.shape, want.dtype)
    out = torch.empty_like(want)
    weft.torch.matmul_out(a.detach(), b.detach(), out)
    torch.testing.assert_close(out, got.detach(), atol=0, rtol=0)


def test_vmap_with_scales(torch):
    a, b, scale = torch.randn(3, 16, 32), torch.randn(32, 16), torch.rand(16)
    got = torch.vmap(lambda x: weft.torch.matmul(x, b, scale))(a)
    torch.testing.assert_close(got, scale[:, None] * (a @ b), atol=0.05, rtol=0.02)


def test_block_scales(torch):
    x, y = (np.random.default_rng(seed).standard_normal((128, 128), np.float32) for seed in (0, 1))
    with using(target="sm_100a"):
        first, second = (scaled.quantise(values, "mxfp8e4m3") for values in (x, y))
        # PyTorch takes no array of ml_dtypes: the bytes are passed.
        sides = [torch.from_numpy(q.elements.view(np.uint8)).view(torch.float8_e4m3fn) for q in (first, second)]
        scales = [torch.from_numpy(np.ascontiguousarray(scaled.scale_blocks(q.scales))) for q in (first, second)]
        bias, residual = torch.randn(128), torch.randn(128, 128)
        args = (sides[0], sides[1].t(), *scales, None, bias, residual)
        keywords = {"format": "mxfp8", "activation": "relu"}
        got = weft.torch.matmul_scaled(*args, **keywords)
        # The other checks compute with the operands, which PyTorch does not for fp8.
        checks = ("test_faketensor", "test_autograd_registration")
        torch.library.opcheck(weft.torch.matmul_scaled.overload, args, keywords, test_utils=checks)
        compiled = torch.compile(
            lambda *a: weft.torch.matmul_scaled(*a, **keywords), backend="aot_eager", fullgraph=True
        )
        assert compiled(*args).equal(got)
    want = (torch.from_numpy(x @ y.T) + bias).relu() + residual
    assert (got.float() - want).norm() / want.norm() < 0.05


def test_block_scales_need_blackwell(torch):
    with pytest.raises(weft.errors.LaunchError, match="operator weft::matmul_scaled: block-scaled matmul needs"):
        weft.torch.matmul_scaled(*(torch.ones(16, 16) for _ in range(4)), format="mxfp8")
