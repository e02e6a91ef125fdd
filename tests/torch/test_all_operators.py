"""What PyTorch asks of operators, of each one in `calls.py`: on CPU tensors, through the simulator."""

from __future__ import annotations

import copy

import pytest

import weft.torch
from tests.torch.calls import CALLS

FUNCTIONAL = [name for name in CALLS if not weft.torch.OPERATORS[name].mutates_args]


@pytest.fixture
def call(torch, request):
    torch.manual_seed(0)
    return CALLS[request.param](torch)


def each(names):
    return pytest.mark.parametrize(("name", "call"), [(name, name) for name in names], ids=names, indirect=["call"])


def wanting(torch, call):
    """The arguments, of which floats require gradients."""
    return [x.clone().requires_grad_() if torch.is_tensor(x) and x.is_floating_point() else x for x in call.args]


def values(torch, result):
    return [result] if torch.is_tensor(result) else list(result)


@each(CALLS)
def test_opcheck(torch, name, call):
    operator = weft.torch.OPERATORS[name]
    found = torch.library.opcheck(operator.overload, copy.deepcopy(call.args), call.keywords)
    assert set(found.values()) == {"SUCCESS"}


@each(FUNCTIONAL)
def test_numbers(torch, name, call):
    got = values(torch, weft.torch.OPERATORS[name](*call.args, **call.keywords))
    want = values(torch, call.reference(*call.args, **call.keywords))
    torch.testing.assert_close(got, want, atol=call.tolerance, rtol=call.tolerance)


@each(FUNCTIONAL)
def test_gradients(torch, name, call):
    found = []
    for function in (weft.torch.OPERATORS[name], call.reference):
        args = wanting(torch, call)
        result = values(torch, function(*args, **call.keywords))[0]
        weights = torch.linspace(-1, 1, result.numel()).reshape(result.shape)
        found.append(torch.autograd.grad((result * weights).sum(), [x for x in args if torch.is_tensor(x)]))
    torch.testing.assert_close(*found, atol=4 * call.tolerance, rtol=4 * call.tolerance)


@each(FUNCTIONAL)
def test_one_graph_with_its_backward(torch, name, call):
    operator = weft.torch.OPERATORS[name]

    def function(*args):
        return values(torch, operator(*args, **call.keywords))[0].square().sum()

    found = []
    for run in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        args = wanting(torch, call)
        result = run(*args)
        found.append([result, *torch.autograd.grad(result, [x for x in args if torch.is_tensor(x)])])
    torch.testing.assert_close(*found)
