"""Kernels under construction without the reader: a builder in a context, run-time values by name, and the operations made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from weft import language as gl
from weft.errors import UserError
from weft.ir.build import Builder
from weft.ir.core import FuncAttrs, Value
from weft.ir.types import DescriptorType, ScalarType, tile_type
from weft.language.context import Context, enter
from weft.language.descriptor import tensor_descriptor
from weft.targets import get

BLOCKED = gl.BlockedLayout([1], [32], [4], [0])
MATRIX = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])


@dataclass
class Kernel:
    """A context, and what has been emitted into it."""

    builder: Builder = field(default_factory=Builder)

    def scalar(self, element: Any, name: str = "s") -> gl.tensor:
        return gl.tensor(Value(ScalarType(element), name))

    def tile(self, element: Any = gl.float32, shape: Any = (128,), layout: Any = None, name: str = "x") -> gl.tensor:
        layout = layout or (BLOCKED if len(shape) == 1 else MATRIX)
        return gl.tensor(Value(tile_type(element, tuple(shape), layout), name))

    def pointer(self, element: Any = gl.float32, name: str = "ptr") -> gl.tensor:
        return self.scalar(gl.pointer_type(element), name)

    def descriptor(
        self, element: Any = gl.float16, block: Any = (64, 64), layout: Any = None, mode: Any = "tiled", rank: int = 0
    ) -> tensor_descriptor:
        """A descriptor as a kernel gets it for an argument named `desc`."""
        layout = layout or gl.NVMMASharedLayout.get_default_for(block, element)
        handle = Value(DescriptorType(element, tuple(block), layout, mode), "desc")
        sizes, steps = ([Value(ScalarType(t)) for _ in range(rank or len(block))] for t in (gl.int32, gl.int64))
        return tensor_descriptor.of(handle, sizes, steps)

    @property
    def ops(self) -> tuple[Any, ...]:
        return self.builder.func("kernel", (), FuncAttrs(num_warps=4, stage="tile")).body.ops

    @property
    def names(self) -> list[str]:
        return [op.name for op in self.ops]

    def last(self, name: str) -> Any:
        """The last operation, whose name is as expected."""
        op = self.ops[-1]
        assert op.name == name
        return op


def inline(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return function.__weft_jit__(*args, **kwargs)


class jit:  # noqa: N801 spelled as authors spell it
    """The least that the language asks of a `@jit` function object."""

    def __init__(self, function: Any) -> None:
        self.__weft_jit__ = function


@contextmanager
def building(num_warps: int = 4, target: str = "sm_90a", num_ctas: int = 1) -> Iterator[Kernel]:
    """A kernel under construction in a fresh context."""
    made = Kernel()
    with enter(
        Context(builder=made.builder, num_warps=num_warps, target=get(target), inline=inline, num_ctas=num_ctas)
    ):
        yield made


@dataclass
class Found:
    """The error that a `mistake` led to."""

    error: Any = None

    @property
    def text(self) -> str:
        return str(self.error)


@contextmanager
def mistake(code: str) -> Iterator[Found]:
    """The block ends in the user error of this code."""
    found = Found()
    with pytest.raises(UserError) as caught:
        yield found
    assert caught.value.code == code, caught.value
    found.error = caught.value
