"""What an operator promises PyTorch, checked whenever it runs in the simulator.

`torch.compile` believes three things of an operator without a way to see them: which arguments it writes to, that its results
are memory of their own, and the shapes, strides and types that its fake function gives. Where one of them is wrong, a compiled
model computes something else. A call on CPU tensors takes the time of the simulator, so all are checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

from weft.bounded import keep
from weft.errors import fail
from weft.errors import operators as errors


class Contract:
    """The promises of one operator: `name`, the names of its parameters, and which of them it writes to."""

    def __init__(self, name: str, overload: Any, parameters: Sequence[str], written: Sequence[str]) -> None:
        self._name, self._overload = name, overload
        self._parameters, self._written = tuple(parameters), frozenset(written)
        self._agreed: dict[Any, None] = {}

    def checked(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Call the host function. Raises LaunchError: operator-writes, operator-aliases, operator-fake-differs."""
        given = dict(self._tensors(args, keywords))
        # A tensor may be given twice, to be read and to be written.
        memory = {_address(value) for name, value in given.items() if name.partition("[")[0] in self._written}
        before = {name: _bytes(value) for name, value in given.items() if _address(value) not in memory}
        form = self._form(args, keywords)
        result = function(*args, **keywords)
        for name, value in before.items():
            if not value.equal(_bytes(given[name])):
                raise fail(errors.WRITES, name=self._name, argument=name)
        results = list(_flat(result))
        for index, value in enumerate(results):
            self._check_alias(index, value, given)
        if form not in self._agreed:
            self._check_fake(args, keywords, results)
            keep(self._agreed, form, None)
        return result

    def _tensors(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in (*zip(self._parameters, args, strict=False), *keywords.items()):
            if _is_tensor(value):
                yield name, value
            elif _is_list(value):
                yield from ((f"{name}[{at}]", item) for at, item in enumerate(value) if _is_tensor(item))

    def _form(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What the results' shapes may depend on."""

        def form(value: Any) -> Any:
            if _is_list(value):
                return tuple(map(form, value))
            return (value.dtype, value.shape, value.stride()) if _is_tensor(value) else (type(value), value)

        return tuple(map(form, args)), tuple((name, form(value)) for name, value in keywords.items())

    def _check_alias(self, index: int, value: Any, given: Mapping[str, Any]) -> None:
        for name, argument in given.items():
            if value.numel() and _address(value) == _address(argument):
                raise fail(errors.ALIASES, name=self._name, index=index, argument=name)

    def _check_fake(self, args: Sequence[Any], keywords: Mapping[str, Any], results: Sequence[Any]) -> None:
        fakes: Any = import_module("torch._subclasses.fake_tensor")
        mode = fakes.FakeTensorMode()

        def fake(value: Any) -> Any:
            if _is_list(value):
                return [fake(item) for item in value]
            return mode.from_tensor(value.detach()) if _is_tensor(value) else value

        stand_ins = [fake(value) for value in args], {name: fake(value) for name, value in keywords.items()}
        try:
            with mode:
                made = self._overload(*stand_ins[0], **stand_ins[1])
        except fakes.DynamicOutputShapeException:
            return  # Sizes that depend on the data are unknown to the fake function, which says so.
        for index, (value, other) in enumerate(zip(results, _flat(made), strict=True)):
            got, want = _described(value), _described(other)
            if got != want:
                raise fail(errors.FAKE_DIFFERS, name=self._name, index=index, got=got, fake=want)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple))


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _flat(result: Any) -> Iterator[Any]:
    """The tensors of a result."""
    if _is_list(result):
        for item in result:
            yield from _flat(item)
    elif _is_tensor(result):
        yield result


def _address(value: Any) -> int:
    """Where a tensor's storage begins, which it shares with its views."""
    return value.untyped_storage().data_ptr()


def _bytes(value: Any) -> Any:
    """A copy of a tensor's elements as bytes: NaN is to be equal to itself."""
    import torch

    flat = value.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8)


def _described(value: Any) -> str:
    """Type, shape, strides and device of a tensor. The stride of a dimension of one element means nothing."""
    steps = [step if size > 1 else 1 for size, step in zip(value.shape, value.stride(), strict=True)]
    strides = f" with strides {steps}" if value.numel() else ""
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}{strides} on {value.device}"
