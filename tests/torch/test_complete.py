"""Every function of `weft.kernels` that computes is an operator, and every operator is tested."""

from __future__ import annotations

import inspect

import pytest

import weft.torch
from tests.torch.calls import CALLS, ELSEWHERE
from weft import kernels

NO_OPERATORS = {
    "block_mask": "prepares a mask from a function, which no schema can express",
    "chosen_config": "chooses, and computes nothing",
    "chosen_softmax": "chooses, and computes nothing",
    "compile_attention": "compiles, and computes nothing",
    "compile_decode": "compiles, and computes nothing",
    "compile_matmul": "compiles, and computes nothing",
    "compile_scaled": "compiles, and computes nothing",
    "matmul_configs": "lists configurations",
    "tune_matmul": "measures configurations, and returns none of their results",
}
FEWER_RESULTS = {"rms_norm", "layer_norm", "cross_entropy"}
"""Functions that return less than their operators, whose other results are for gradients."""
FUNCTIONS = [name for name in kernels.__all__ if inspect.isfunction(getattr(kernels, name))]
OURS = {name.removeprefix("weft::") for name in weft.torch.OPERATORS if name.startswith("weft::")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_kernel_is_an_operator(name):
    assert (name in OURS) != (name in NO_OPERATORS), (
        f"weft.kernels.{name} is to be an operator in a file of weft/torch/, or to stand in NO_OPERATORS with a reason"
    )


def test_the_reasons_are_current():
    assert set(NO_OPERATORS) <= set(FUNCTIONS)


def test_operators_are_public():
    assert sorted(OURS - set(weft.torch.__all__)) == []
    operators = {name for name in OURS if getattr(getattr(weft.torch, name), "name", "") == f"weft::{name}"}
    assert operators == OURS - FEWER_RESULTS


def test_every_operator_has_a_call():
    assert {f"weft::{name}" for name in OURS} == {*CALLS, *ELSEWHERE}
