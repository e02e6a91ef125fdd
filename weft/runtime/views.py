"""Views as arguments of launches: what a launch needs of an object that has `__weft_view__()`.

The method gives a description of the view (`ViewArgument`), which a launch turns into several parameters of the compiled
kernel: the address of the view's first element, then its numbers, such as sizes and strides that are known at run time only.
Everything else about a view is part of what the kernel is compiled for. The view keeps its array alive, so a launch needs to
keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from weft.forms import of_torch
from weft.runtime.arguments import HostBuffer, array, host_buffer
from weft.runtime.specialise import ALIGNMENT, View, view_argument, view_type

Raw = int | tuple[int, ...]
"""What a launch is given for a view: the address of its first element, and with it the numbers where it has some."""


class ViewArgument(Protocol):
    """The description of a view.

    `array` owns the memory, and the view's first element lies `byte_offset` bytes behind the array's own. `key` is what the
    compiled kernel depends on; `numbers` are the values it is told at a launch, called `names`, all of 64 bits where the view
    is `wide`. `memo` is for launches: what they found out about this description.
    """

    array: Any
    byte_offset: int
    key: Hashable
    numbers: Sequence[int]
    names: tuple[str, ...]
    wide: bool
    memo: Any


class Memo:
    """What does not change between launches with a view.

    `address()` and `device()` are asked at each launch: where the array begins, and on which CUDA device (or `HOST`). `offset`
    and `numbers` are the view's. `exact` and `plain` stand for all that kernels are compiled for but alignment, the former with
    facts about the numbers; they are compared by identity, since launches do.
    """

    __slots__ = ("address", "device", "exact", "numbers", "offset", "plain")

    def __init__(self, argument: ViewArgument) -> None:
        kind, owner = view_type("", "", argument), argument.array
        self.numbers = tuple(argument.numbers)
        self.offset = argument.byte_offset
        library: Any = None
        if of_torch(owner) and hasattr(owner, "get_device"):
            library = owner.dtype
            self.address: Callable[[], int] = owner.data_ptr
            self.device: Callable[[], int] = owner.get_device
        else:
            self.address, self.device = partial(_address, owner), partial(_device, owner)
        common = (kind.dtype, library, kind.key, kind.names)
        bits = tuple(number.dtype for number in kind.numbers)
        self.exact = _keys.setdefault((*common, kind.numbers), object())
        self.plain = _keys.setdefault((*common, bits), object())


_keys: dict[Hashable, object] = {}


def base(value: Any) -> Any:
    """The array behind an argument: of a view its own, of anything else itself."""
    argument = view_argument(value)
    return value if argument is None else argument.array


def bind(value: Any, facts: bool) -> tuple[Any, Any, Any, Any]:
    """Value and key of a view for one launch, as `weft.runtime.binder` wants them.

    A view of what is no array gets a key that matches nothing, so that the launch goes the checked way.
    """
    argument: ViewArgument = value.__weft_view__()
    memo: Memo | None = argument.memo
    if memo is None:
        if array(argument.array) is None:
            return value, object(), None, None
        memo = argument.memo = Memo(argument)
    pointer = memo.address() + memo.offset
    numbers = memo.numbers
    raw = (pointer, *numbers) if numbers else pointer
    if not facts:
        return raw, memo.plain, memo.device(), 0
    return raw, memo.exact, memo.device(), 0 if pointer & 15 else ALIGNMENT


def raw(argument: ViewArgument) -> Raw:
    """What a launch passes for a view of an array."""
    pointer = _address(argument.array) + argument.byte_offset
    return (pointer, *argument.numbers) if argument.numbers else pointer


def names(name: str, kind: View) -> tuple[str, ...]:
    """The parameters of the compiled kernel that a view argument becomes, in order.

    >>> from weft.runtime.specialise import Pointer, Scalar
    >>> names("x", View(Pointer("float32"), "a layout", (Scalar("int32"),), ("dim_0",)))
    ('x', 'x.dim_0')
    """
    return (name, *(f"{name}.{number}" for number in kind.names))


def host_values(name: str, kind: View, value: Any) -> dict[str, HostBuffer | int]:
    """What the simulator is given for the parameters of a view of a host array, by their names."""
    argument = view_argument(value)
    buffer = host_buffer(argument.array)
    moved = replace(buffer, pointer=buffer.pointer + argument.byte_offset, form="")  # a view knows its strides
    return dict(zip(names(name, kind), (moved, *argument.numbers), strict=True))


def _address(owner: Any) -> int:
    found = array(owner)
    assert found is not None
    return found.pointer


def _device(owner: Any) -> int:
    found = array(owner)
    assert found is not None
    return found.device
