"""One mistake with an operator each: what the error says, and that it names the operator."""

from __future__ import annotations

import pickle

import pytest

import weft.kernels
import weft.torch
from tests.torch.kernels import accumulate_kernel, launch_scale
from weft.errors import DeviceError, LaunchError


def refused(code, function, *args, kind=LaunchError, **keywords):
    """The error of a call, as text."""
    with pytest.raises(kind) as caught:
        function(*args, **keywords)
    assert caught.value.code == code
    return str(caught.value)


def test_a_name_without_a_namespace():
    text = refused("operator-name", weft.torch.operator, "scale", lambda x: x)
    assert "namespace::name" in text


def test_a_written_argument_that_is_no_parameter():
    def scale(x, out): ...

    text = refused("operator-mutates-args", weft.torch.operator, "errors::scale", scale, mutates_args=("result",))
    assert "names result, but its parameters are x, out" in text


def test_without_pytorch(monkeypatch):
    monkeypatch.setattr("weft.torch.operators.find_spec", lambda _: None)

    @weft.torch.operator("errors::absent")
    def absent(x): ...

    assert "errors::absent is an operator of PyTorch" in refused("operator-pytorch", absent, 1, kind=DeviceError)


def test_a_parameter_without_an_annotation(torch):
    def scale(x, factor: float) -> torch.Tensor: ...

    text = refused("operator-signature", weft.torch.operator, "errors::scale", scale)
    assert "operator errors::scale has no schema: Parameter x must have a type annotation" in text


def test_a_parameter_of_another_type(torch):
    def scale(x: Tensor, factor: dict) -> Tensor: ...  # noqa: F821 - the operator knows the name

    assert "Parameter factor has unsupported type" in refused(
        "operator-signature", weft.torch.operator, "errors::scale", scale
    )


@pytest.fixture
def scale(torch):
    @weft.torch.operator("errors::scale")
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        out = torch.empty_like(x)
        launch_scale(x, out, factor)
        return out

    return scale


def test_a_gradient_without_a_backward_function(torch, scale):
    x = torch.ones(5, requires_grad=True)
    y = scale(x, 2.0)
    text = refused("operator-no-backward", y.sum().backward)
    assert "errors::scale has no backward function" in text


def test_no_gradient_is_wanted(torch, scale):
    x = torch.ones(5, requires_grad=True)
    with torch.no_grad():
        assert not scale(x, 2.0).requires_grad
    assert scale(x.detach(), 2.0).equal(torch.full((5,), 2.0))


def test_errors_of_the_host_function_name_the_operator(torch):
    text = refused("kernels-topk-k", weft.torch.topk, torch.ones(5), 6)
    assert text.startswith("operator weft::topk: topk got k=6")


def test_errors_of_kernels_name_the_operator_and_the_kernel(torch):
    @weft.torch.operator("errors::beyond")
    def beyond(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        launch_scale(x, out[:-1], 2.0)
        return out

    text = refused("hazard-out-of-bounds", beyond, torch.ones(5), kind=weft.errors.Hazard)
    assert text.startswith("operator errors::beyond: ")
    assert "in scale_kernel" in text


def test_the_name_survives_pickling(torch):
    with pytest.raises(LaunchError) as caught:
        weft.torch.topk(torch.ones(5), 6)
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - an error of this process
    assert str(copied) == str(caught.value)


def test_the_innermost_operator_is_named(torch):
    @weft.torch.operator("errors::outer")
    def outer(x: torch.Tensor) -> torch.Tensor:
        return weft.torch.topk(x, 6)[0]

    assert refused("kernels-topk-k", outer, torch.ones(5)).startswith("operator weft::topk: ")


def test_an_argument_that_is_written_to(torch):
    @weft.torch.operator("errors::writes")
    def writes(x: torch.Tensor, totals: list[torch.Tensor]) -> torch.Tensor:
        accumulate_kernel[(1,)](x, totals[1], x.numel())
        return torch.empty_like(x)

    text = refused("operator-writes", writes, torch.ones(5), [torch.zeros(5), torch.zeros(5)])
    assert "errors::writes has written to its argument totals[1]" in text


def test_a_result_that_is_an_argument(torch):
    @weft.torch.operator("errors::alias")
    def alias(x: torch.Tensor) -> torch.Tensor:
        return x[1:]

    assert "result 0 of errors::alias shares memory with its argument x" in refused(
        "operator-aliases", alias, torch.ones(5)
    )


def test_a_fake_function_of_another_type(torch, scale):
    scale.register_fake(lambda x, factor: x.new_empty(x.shape, dtype=torch.float16))
    text = refused("operator-fake-differs", scale, torch.ones(5), 2.0)
    assert (
        "result 0 of errors::scale is float32 [5] with strides [1] on cpu, but its fake function made float16" in text
    )


def test_a_fake_function_of_other_strides(torch, scale):
    scale.register_fake(lambda x, factor: x.new_empty(x.shape[::-1]).t())
    assert "with strides [1, 2]" in refused("operator-fake-differs", scale, torch.ones(2, 3), 2.0)


HOSTS = {
    "elements": lambda x: x * x.max().item(),
    "an address": lambda x: weft.kernels.topk(x, 2)[0],
}


@pytest.mark.parametrize("what", HOSTS)
def test_a_host_function_that_reads(torch, what):
    @weft.torch.operator("errors::reads")
    def reads(x: torch.Tensor) -> torch.Tensor:
        return HOSTS[what](x)

    text = refused("operator-no-fake", reads, torch.ones(5))
    assert "errors::reads needs a fake function: " in text
    assert "register it with reads.register_fake" in text


def test_a_compiled_call_of_a_host_function_that_reads(torch):
    @weft.torch.operator("errors::reads")
    def reads(x: torch.Tensor) -> torch.Tensor:
        return weft.kernels.topk(x, 2)[0]

    compiled = torch.compile(reads, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="errors::reads needs a fake function"):
        compiled(torch.ones(5))


@pytest.fixture
def accumulate(torch):
    @weft.torch.operator("errors::accumulate", mutates_args=("total",))
    def accumulate(x: torch.Tensor, total: torch.Tensor) -> None:
        accumulate_kernel[(1,)](x, total, x.numel())

    return accumulate


def test_a_gradient_of_a_written_argument(torch, accumulate):
    text = refused("operator-mutates-gradient", accumulate, torch.ones(5, requires_grad=True), torch.zeros(5))
    assert "errors::accumulate writes to total, which autograd cannot follow, and x requires a gradient" in text


def test_a_backward_function_of_an_operator_that_writes(torch, accumulate):
    assert "errors::accumulate writes to total" in refused(
        "operator-mutates-backward", accumulate.register_autograd, lambda ctx, grad: grad
    )
    refused("operator-mutates-backward", accumulate.register_differentiable, lambda x, total: None)


def test_no_gradient_for_scales(torch):
    a, b = torch.ones(16, 16), torch.ones(16, 16)
    text = refused("operator-no-gradient", weft.torch.matmul, a, b, torch.ones(16, requires_grad=True))
    assert "weft::matmul has no gradient for scale_a" in text


def test_mixed_devices(torch):
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.ones(16, 16), torch.ones(16, 16, device="cuda")
        text = refused("kernels-devices", weft.torch.matmul, a, b)
    assert "a lies on the host, b on GPU 0" in text


@pytest.mark.gpu
def test_mixed_devices_of_a_call():
    import torch

    refused("kernels-devices", weft.torch.matmul, torch.ones(16, 16), torch.ones(16, 16, device="cuda"))


def test_a_reduction_of_another_name(torch):
    call = weft.torch.cross_entropy
    text = refused("operator-reduction", call, torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), reduction="avg")
    assert "'avg'" in text
    assert "none, sum and mean" in text
