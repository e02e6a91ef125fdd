"""Views as launch arguments: objects with `__weft_view__()`.

The method returns a description of the view (`ViewArgument`). A launch turns it into several parameters of the compiled kernel:
the address of the view's first element, then its numbers, which are run-time extents and strides. The kernel is specialised on
everything else. The view keeps its array alive, so a launch holds no reference.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from weft.forms import library_of
from weft.runtime.arguments import array, host_buffer
from weft.runtime.specialise import ALIGNMENT, Pointer, Scalar, View, view_argument, view_type

Raw = int | tuple[int, ...]
"""The value that a launch passes for a view: the address of its first element, in a tuple with its numbers if it has any."""


class ViewArgument(Protocol):
    """The description of a view.

    `array` owns the memory; the view's first element is `byte_offset` bytes after the array's. The kernel is specialised on
    `key`. `numbers` are passed at each launch under the names `names`, as int64 if the view is `wide`, or as values of `kinds`:
    those of a symmetric tensor are a rank, addresses (in the simulator memory), and the numbers of a view. `memo` caches what
    launches derive from this description.
    """

    array: Any
    byte_offset: int
    key: Hashable
    numbers: Sequence[Any]
    names: tuple[str, ...]
    wide: bool
    kinds: tuple[Scalar | Pointer, ...] | None
    memo: Any


class Memo:
    """The part of a view argument that does not change between launches.

    `address()` and `device()` are called at each launch: the array's address, and its CUDA device (or `HOST`). `offset` and
    `numbers` are the view's. `exact` and `plain` are keys of everything that kernels are specialised on except alignment;
    `exact` includes facts about the numbers. Equal keys are one object, so that launches compare them by identity.
    """

    __slots__ = ("address", "device", "exact", "numbers", "offset", "plain")

    def __init__(self, argument: ViewArgument) -> None:
        kind, owner = view_type("", "", argument), argument.array
        self.numbers = tuple(argument.numbers)
        self.offset = argument.byte_offset
        library: Any = library_of(owner)
        if library == "torch" and hasattr(owner, "get_device"):
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
    """The array behind a view; any other argument itself."""
    argument = view_argument(value)
    return value if argument is None else argument.array


def bind(value: Any, facts: bool) -> tuple[Any, Any, Any, Any]:
    """Value and key of a view for one launch, as `weft.runtime.binder` expects them.

    A view of something other than an array gets a key that matches nothing, so that the launch takes the checked path.
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
    """The value that a launch passes for a view of an array."""
    pointer = _address(argument.array) + argument.byte_offset
    return (pointer, *argument.numbers) if argument.numbers else pointer


def names(name: str, kind: View) -> tuple[str, ...]:
    """The parameters of the compiled kernel for a view argument, in order.

    >>> from weft.runtime.specialise import Pointer, Scalar
    >>> names("x", View(Pointer("float32"), "a layout", (Scalar("int32"),), ("dim_0",)))
    ('x', 'x.dim_0')
    """
    return (name, *(f"{name}.{number}" for number in kind.names))


def host_values(name: str, kind: View, value: Any) -> dict[str, Any]:
    """The simulator's values for the parameters of a view of a host array, by parameter name."""
    argument = view_argument(value)
    buffer = host_buffer(argument.array)
    # `form` warns about pointer arithmetic on a strided array; a view indexes with its own strides.
    moved = replace(buffer, pointer=buffer.pointer + argument.byte_offset, form="")
    return dict(zip(names(name, kind), (moved, *argument.numbers), strict=True))


def _address(owner: Any) -> int:
    found = array(owner)
    assert found is not None
    return found.pointer


def _device(owner: Any) -> int:
    found = array(owner)
    assert found is not None
    return found.device
