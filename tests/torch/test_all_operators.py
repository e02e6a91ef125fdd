"""What PyTorch asks of operators, of each one in `calls.py`: on CPU tensors, through the simulator."""

from __future__ import annotations

import copy

import pytest

import weft.torch
from tests.torch.calls import CALLS, ELSEWHERE, NO_GRADIENT, OF_GRADIENTS, gradient_calls

FUNCTIONAL = [name for name in CALLS if not weft.torch.OPERATORS[name].mutates_args]
DIFFERENTIABLE = [name for name in FUNCTIONAL if name not in NO_GRADIENT]


@pytest.fixture
def call(torch, request):
    import torch._dynamo

    torch._dynamo.reset()
    torch.manual_seed(0)
    return CALLS[request.param](torch)


def each(names):
    return pytest.mark.parametrize(
        ("name", "call"), [(name, name) for name in sorted(names)], ids=sorted(names), indirect=["call"]
    )


def values(torch, result):
    return [result] if torch.is_tensor(result) else list(result)


@each(CALLS)
def test_opcheck(torch, name, call):
    operator = weft.torch.OPERATORS[name]
    found = torch.library.opcheck(operator.overload, copy.deepcopy(call.args), call.keywords)
    assert set(found.values()) == {"SUCCESS"}


def test_opcheck_of_gradients(torch):
    calls = gradient_calls(torch)
    assert set(calls) == {name for name, where in ELSEWHERE.items() if where is OF_GRADIENTS}
    for name, args in calls.items():
        found = torch.library.opcheck(weft.torch.OPERATORS[name].overload, args)
        assert set(found.values()) == {"SUCCESS"}, name


@each(FUNCTIONAL)
def test_numbers(torch, name, call):
    got = values(torch, weft.torch.OPERATORS[name](*call.args, **call.keywords))
    want = values(torch, call.reference(*call.args, **call.keywords))
    torch.testing.assert_close(got, want, atol=call.tolerance, rtol=call.tolerance)


@each(DIFFERENTIABLE)
def test_gradients(torch, name, call):
    found = []
    for function in (weft.torch.OPERATORS[name], call.reference):
        args = call.wanting()
        result = values(torch, function(*args, **call.keywords))[0]
        weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape)
        found.append(
            torch.autograd.grad((result * weights).sum(), [x for x in args if torch.is_tensor(x) and x.requires_grad])
        )
    torch.testing.assert_close(*found, atol=4 * call.tolerance, rtol=4 * call.tolerance)


@each(DIFFERENTIABLE)
def test_one_graph_with_its_backward(torch, name, call):
    operator = weft.torch.OPERATORS[name]

    def function(*args):
        return values(torch, operator(*args, **call.keywords))[0].square().sum()

    found = []
    for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        args = call.wanting()
        result = run(*args)
        found.append(
            [result, *torch.autograd.grad(result, [x for x in args if torch.is_tensor(x) and x.requires_grad])]
        )
    torch.testing.assert_close(*found)


@each(NO_GRADIENT)
def test_no_gradient(torch, name, call):
    results = values(torch, weft.torch.OPERATORS[name](*call.wanting(), **call.keywords))
    result = next(x for x in results if x.is_floating_point())
    with pytest.raises(weft.errors.LaunchError, match=f"{name} has no backward function"):
        result.sum().backward()


@each(FUNCTIONAL)
def test_shapes_that_change(torch, name, call):
    """One graph serves other sizes of the first dimension: it is compiled with a symbolic size."""
    operator = weft.torch.OPERATORS[name]
    compiled = torch.compile(lambda *args: operator(*args, **call.keywords), backend="aot_eager", fullgraph=True)
    for i in call.rows:
        torch._dynamo.mark_dynamic(call.args[i], 0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for args in (call.args, call.first(2)):
            torch.testing.assert_close(compiled(*args), operator(*args, **call.keywords))


@each(FUNCTIONAL)
def test_export(torch, name, call):
    class Model(torch.nn.Module):
        def forward(self, *args):
            return weft.torch.OPERATORS[name](*args, **call.keywords)

    program = torch.export.export(Model(), call.args)
    namespace, _, short = name.partition("::")
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert getattr(getattr(torch.ops, namespace), short).default in called
    torch.testing.assert_close(program.module()(*call.args), Model()(*call.args))


@each(FUNCTIONAL)
@pytest.mark.parametrize("dim", [0, 1])
def test_vmap(torch, name, call, dim):
    def one(x):
        return weft.torch.OPERATORS[name](x, *call.args[1:], **call.keywords)

    many = torch.stack([call.args[0], call.args[0].flip(0)], dim)
    want = [one(x.contiguous()) for x in many.unbind(dim)]
    want = torch.stack(want) if torch.is_tensor(want[0]) else tuple(map(torch.stack, zip(*want, strict=True)))
    # Tensor cores add up a tile in another order than a smaller one.
    torch.testing.assert_close(torch.vmap(one, in_dims=dim)(many), want, atol=1e-5, rtol=1e-5)


def test_vmap_over_weights(torch):
    """What is no row is mapped by one call each."""
    x, weights = torch.randn(3, 5, 33), torch.randn(33, 3)
    got = torch.vmap(lambda x, w: weft.torch.rms_norm(x, w), in_dims=(0, 1))(x, weights)
    want = torch.stack([weft.torch.rms_norm(a, b.contiguous()) for a, b in zip(x, weights.t(), strict=True)])
    torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore:var_mean")
@each(FUNCTIONAL)
def test_no_rows(torch, name, call):
    args = call.first(0)
    got = values(torch, weft.torch.OPERATORS[name](*args, **call.keywords))
    want = values(torch, call.reference(*args, **call.keywords))
    assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want]


# Functions that return less than their operators


def gradients(torch, result, *leaves):
    total = sum((part * torch.linspace(-1, 1, part.numel()).reshape(part.shape)).sum() for part in result)
    return torch.autograd.grad(total, leaves)


def leaves_of(torch, *shapes):
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def test_norms_are_those_of_pytorch(torch):
    functions = torch.nn.functional
    x, residual, weight, bias = leaves_of(torch, (2, 3, 37), (2, 3, 37), (37,), (37,))
    h = x + residual
    pairs = [
        ((weft.torch.rms_norm(x, weight),), (functions.rms_norm(x, (37,), weight, 1e-6),), (x, weight)),
        ((weft.torch.layer_norm(x, weight, bias),), (functions.layer_norm(x, (37,), weight, bias),), (x, weight, bias)),
        (
            weft.torch.add_rms_norm(x, residual, weight),
            (functions.rms_norm(h, (37,), weight, 1e-6), h),
            (x, residual, weight),
        ),
        (
            weft.torch.add_layer_norm(x, residual, weight, bias),
            (functions.layer_norm(h, (37,), weight, bias), h),
            (x, residual, weight, bias),
        ),
    ]
    for got, want, leaves in pairs:
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
        found, right = (gradients(torch, result, *leaves) for result in (got, want))
        torch.testing.assert_close(found, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_cross_entropy_is_that_of_pytorch(torch, reduction):
    (logits,) = leaves_of(torch, (2, 5, 67))
    labels = torch.randint(67, (2, 5))
    labels[1, 2] = -100
    got = weft.torch.cross_entropy(logits, labels, reduction=reduction, label_smoothing=0.1)
    want = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), labels, reduction=reduction, label_smoothing=0.1)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    found, right = (gradients(torch, (result,), logits) for result in (got, want))
    torch.testing.assert_close(found, right, atol=1e-5, rtol=1e-5)
