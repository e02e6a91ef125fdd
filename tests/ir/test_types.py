"""Element types exist once: they are compared by identity, so a copy must be the constant itself."""

from __future__ import annotations

import copy
import pickle

import pytest

from weft.ir import types
from weft.ir.types import DType


@pytest.mark.parametrize("dtype", types.DTYPES, ids=str)
def test_copies_of_an_element_type_are_itself(dtype: DType):
    assert pickle.loads(pickle.dumps(dtype)) is dtype  # noqa: S301 - the bytes are made here
    assert copy.deepcopy(dtype) is dtype
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy(types.ScalarType(dtype)) == types.ScalarType(dtype)
