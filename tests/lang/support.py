"""Reading kernels in tests: what stands in for `@weft.jit`, and how parameters are spelled."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from weft import targets
from weft.errors import ErrorGroup, UserError
from weft.ir.core import Func, Op, walk
from weft.ir.types import DescriptorType, Pointer, float16, float32, int32
from weft.ir.verify import verify
from weft.lang import Built, ConstexprParam, DescriptorParam, RuntimeParam, build_kernel
from weft.layout import NVMMASharedLayout

POINTER = RuntimeParam(Pointer(float32), divisible=16)
INT = RuntimeParam(int32)


class jit:  # noqa: N801
    """The least that the reader asks of `@weft.jit`."""

    def __init__(self, function: FunctionType) -> None:
        self.__weft_jit__ = function

    def __call__(self, *args: Any) -> None:
        raise AssertionError("a kernel was called, not read")


def build(kernel: jit, num_warps: int = 4, target: str = "sm_90a", **params: Any) -> Built:
    """Read a kernel and verify what it became. A parameter is a RuntimeParam, a DescriptorParam, or a constant."""
    built = build_kernel(
        kernel.__weft_jit__,
        {name: param_of(value) for name, value in params.items()},
        num_warps=num_warps,
        target=targets.get(target),
    )
    verify(built.func)
    return built


def param_of(value: Any) -> RuntimeParam | DescriptorParam | ConstexprParam:
    if isinstance(value, (RuntimeParam, DescriptorParam)):
        return value
    return ConstexprParam(value)


def descriptor(name: str, block: tuple[int, ...] = (64, 64)) -> DescriptorParam:
    """A descriptor of float16 blocks in their default layout."""
    rank = len(block)
    names = (name, *(f"{name}.shape_{d}" for d in range(rank)), *(f"{name}.stride_{d}" for d in range(rank)))
    layout = NVMMASharedLayout.get_default_for(block, float16)
    return DescriptorParam(DescriptorType(float16, block, layout), names, divisible=8)


def read(kernel: jit, **params: Any) -> Func:
    return build(kernel, **params).func


def ops(func: Func, *names: str) -> list[Op]:
    """Operations of these names, outer before inner."""
    return [op for op in walk(func.body) if op.name in names]


def mistake(kernel: jit, code: str, **params: Any) -> UserError:
    """The error that a kernel makes, which must have this code and a place."""
    with pytest.raises(UserError) as caught:
        build(kernel, **params)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.loc is not None
    return caught.value


def pointed(error: UserError) -> str:
    """The text under the caret."""
    loc = error.loc
    return loc.source[loc.col : loc.end_col if loc.end_line == loc.line else None]


def kernel_line(kernel: jit) -> int:
    """The first line of a kernel, its decorator's."""
    return kernel.__weft_jit__.__code__.co_firstlineno


def group_of(kernel: jit, **params: Any) -> ErrorGroup:
    """The several mistakes that a kernel makes."""
    with pytest.raises(ErrorGroup) as caught:
        build(kernel, **params)
    return caught.value
