"""Operators whose results are integers, on CPU tensors through the simulator."""

from __future__ import annotations

import pytest

import weft.torch


def calls(torch):
    ids = torch.randint(0, 6, (7, 3), dtype=torch.int32)
    order = torch.argsort(ids.flatten(), stable=True).int()
    counts = torch.bincount(ids.flatten(), minlength=6).int()
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0).int()])
    x = torch.randn(4, 5, 33)
    return {
        "argmax": ((x,), x.argmax(-1)),
        "sample": ((x, 3, 0, 0.0), x.argmax(-1)),
        "count_experts": ((ids, 6), counts),
        "sort_experts": ((ids, 6), (order, torch.argsort(order).int(), counts, offsets)),
    }


@pytest.mark.parametrize("name", ["argmax", "sample", "count_experts", "sort_experts"])
def test_numbers_and_opcheck(torch, name):
    torch.manual_seed(0)
    args, want = calls(torch)[name]
    operator = getattr(weft.torch, name)
    torch.testing.assert_close(operator(*args), want)
    compiled = torch.compile(lambda *args: operator(*args), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args), want)
    assert set(torch.library.opcheck(operator.overload, args).values()) == {"SUCCESS"}
