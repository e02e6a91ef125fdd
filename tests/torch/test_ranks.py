"""Operators between ranks on CPU tensors: two simulated ranks against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import weft
import weft.torch
from tests.torch.calls import BETWEEN_RANKS, ELSEWHERE

RANKS = 2


def numbers(torch: Any, rank: int, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).bfloat16()


def every(torch: Any, *shape: int) -> Any:
    return [numbers(torch, rank, *shape) for rank in range(RANKS)]


def collectives(torch: Any, rank: int) -> list[tuple[Any, Any]]:
    x, all_x = numbers(torch, rank, RANKS, 3, 40), every(torch, RANKS, 3, 40)
    total = (all_x[0].float() + all_x[1].float()).bfloat16()
    h = total + x.new_ones(RANKS, 3, 40)
    normed = torch.nn.functional.rms_norm(h.float(), (40,), eps=1e-6)
    out, residual = weft.torch.all_reduce_rms_norm(x, x.new_ones(RANKS, 3, 40), x.new_ones(40))
    return [
        (weft.torch.all_reduce(x), total),
        (weft.torch.all_reduce(total), total + total),
        (weft.torch.all_gather(x), torch.stack(all_x)),
        (weft.torch.reduce_scatter(x), total[rank]),
        (out, normed),
        (residual, h),
    ]


def products(torch: Any, rank: int) -> list[tuple[Any, Any]]:
    """Of one tile each: the operators choose the sizes of real machines."""
    a, b = numbers(torch, rank, 128, 32), numbers(torch, rank + 5, 32, 16)
    rows = torch.cat(every(torch, 128, 32)).float()
    total = sum(numbers(torch, r, 128, 32).float() @ numbers(torch, r + 5, 32, 16).float() for r in range(RANKS))
    return [
        (weft.torch.all_gather_matmul(a, b), rows @ b.float()),
        (weft.torch.matmul_reduce_scatter(a, b), total[64 * rank : 64 * rank + 64]),
        (weft.torch.matmul_all_reduce(a, b), total),
    ]


def experts(torch: Any, rank: int) -> list[tuple[Any, Any]]:
    x, ids = numbers(torch, rank, 2, 40), torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    rows, offsets, places = weft.torch.dispatch(x, ids, RANKS, 8)
    assert offsets.tolist() == [0, 2 * RANKS]
    assert (places >= 0).all()
    out = weft.torch.combine(rows, ids, places, torch.tensor([[1.0, 2.0]] * 2), RANKS)
    return [(out, 3 * x.float())]


@pytest.mark.parametrize("calls", [collectives, products, experts])
def test_an_operator_between_ranks(torch: Any, calls: Any):
    with weft.simulate(target="sm_90a"):
        results = weft.distributed.simulate(lambda rank: calls(torch, rank), RANKS)
    for rank in range(RANKS):
        for found, wanted in results[rank]:
            torch.testing.assert_close(found.float(), wanted.float(), rtol=0.03, atol=0.2)


def arguments(torch: Any, rank: int) -> dict[str, tuple[Any, ...]]:
    """Of each operator, for a group of one rank: what PyTorch asks of an operator does not depend on their number."""
    x, a, b = numbers(torch, rank, 1, 3, 40), numbers(torch, rank, 128, 32), numbers(torch, rank + 5, 32, 16)
    ids, places = torch.tensor([[0, 1], [1, 0]], dtype=torch.int32), torch.arange(4, dtype=torch.int32)
    return {
        "all_gather": (x,),
        "all_gather_matmul": (a, b),
        "all_reduce": (x,),
        "all_reduce_rms_norm": (x, x.new_ones(x.shape), x.new_ones(40)),
        "combine": (numbers(torch, rank, 8, 40), ids, places.reshape(2, 2), torch.ones(2, 2), 2),
        "dispatch": (numbers(torch, rank, 2, 40), ids, 2, 8),
        "matmul_all_reduce": (a, b),
        "matmul_reduce_scatter": (a, b),
        "reduce_scatter": (x,),
    }


def test_opcheck_of_every_operator_between_ranks(torch: Any):
    def checked(rank: int) -> dict[str, set[str]]:
        calls = arguments(torch, rank)
        assert {f"weft::{name}" for name in calls} == {
            name for name, where in ELSEWHERE.items() if where is BETWEEN_RANKS
        }
        return {name: _checks(torch, name, args) for name, args in calls.items()}

    with weft.simulate(target="sm_90a"):
        (found,) = weft.distributed.simulate(checked, 1)
    assert all(results == {"SUCCESS"} for results in found.values())


def _checks(torch: Any, name: str, args: tuple[Any, ...]) -> set[str]:
    return set(torch.library.opcheck(weft.torch.OPERATORS[f"weft::{name}"].overload, args).values())
