"""Names keep to the author's as far as C lets them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from weft.cuda.names import BUILTINS, KEYWORDS, Names


@given(st.lists(st.text(max_size=8), max_size=20))
def test_legal_and_unique(wanted):
    names = Names(frozenset())
    given_out = [names.fresh(name) for name in wanted]
    assert len(set(given_out)) == len(given_out)
    for name in given_out:
        assert re.fullmatch(r"[A-Za-z]\w*", name, flags=re.ASCII)
        assert "__" not in name
        assert name not in KEYWORDS | BUILTINS


def test_they_stay_close():
    names = Names(frozenset({"shl"}))
    assert [names.fresh(n) for n in ("x", "x", "x", "")] == ["x", "x_1", "x_2", "t"]
    assert names.fresh("int") == "int_1"
    assert names.fresh("shl") == "shl_1"
    assert names.fresh("r") == "r_1"
    assert names.fresh("mma.acc") == "mma_acc"
    assert names.fresh("load_f32x4") == "my_load_f32x4"
