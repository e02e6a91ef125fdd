"""The benchmark of batches: its contestants compute the same, on CPU tensors, and wrong ones are noticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import batched

SMALL = {
    batched.Case((3, 40, 64), (3, 64, 48)): 3,
    batched.Case((40, 64), (3, 64, 48), b_turned=True): 3,
    batched.Case((2, 3, 20, 64), (3, 64, 48), "float8_e4m3fn", b_turned=True): 2,
}


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_contestants_agree(torch, case):
    a, b = batched.operands(torch, case, "cpu")
    variants, operations = batched.variants_of(torch, case, a, b)
    assert [variant.name for variant in variants] == ["weft", "weft, one by one", "torch"][: SMALL[case]]
    for variant in variants:
        variant.poison()
        assert not variant.correct()
        variant.run()
        assert variant.correct(), variant.name
    products = operations / (2 * case.a[-2] * case.a[-1] * case.b[-1])
    assert products == (6 if len(case.a) == 4 else 3)


def test_names_of_cases():
    names = [str(case) for case in batched.CASES]
    assert len({*names}) == len(names)
    assert str(replace(batched.CASES[0], b_turned=True)) == "[64x1024x512] @ [64x512x1024, turned] bfloat16"


def test_indices():
    assert batched._indices([range(2), range(2)]) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert batched._indices([]) == [()]
