"""The key of a stored choice: key values of the call, the dtypes of its arrays, and the GPU that it runs on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from weft.errors import fail
from weft.errors.tune import KEY_VALUE, OPTION_KIND, TUNED_NAME, UNKNOWN_NAME
from weft.plain import as_number
from weft.runtime import driver, views
from weft.runtime.arguments import HOST, array, extents
from weft.runtime.descriptor import HostDescriptor
from weft.runtime.dtypes import dtype_name
from weft.runtime.fingerprint import fingerprint
from weft.runtime.specialise import MockTensor, spread, view_argument

Part = str | Callable[[Mapping[str, Any]], Any]
"""A part of a key: the name of an argument, or a function of the arguments by name."""
Value: TypeAlias = "int | float | bool | str | tuple[Value, ...] | None"
"""A value in a stored key."""
SIMULATOR = "simulator"
"""The device name for host arrays."""


@dataclass(frozen=True, slots=True)
class Point:
    """The key of a choice apart from the kernel: key values and dtypes by name, and the device.

    `ordinal` is this process's number of the device (`HOST` for the simulator); it is not compared.
    """

    values: tuple[tuple[str, Value], ...]
    dtypes: tuple[tuple[str, str], ...]
    device: str
    arch: int
    ordinal: int = dataclasses.field(compare=False, default=HOST)

    @property
    def simulated(self) -> bool:
        """True when launches would run in the simulator."""
        return self.ordinal == HOST


@dataclass(frozen=True, slots=True)
class Keys:
    """Computes keys from the arguments of calls. Each part is a pair (label, function), as `parts_of` makes them."""

    name: str
    parts: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...]

    def quick(self, bound: Mapping[str, Any]) -> tuple[Any, ...]:
        """A cheap key for use within this process: equal quick keys imply equal points."""
        found: list[Any] = []
        for _, read in self.parts:
            value = _described(read(bound))
            shape = getattr(value, "shape", None)
            found += (value.__class__, value if shape is None else tuple(shape))
        for name, value in _arrays(bound):
            dtype = getattr(value, "dtype", None)
            if dtype is not None:
                # As a string, since device objects of some libraries are not hashable.
                found += (name, dtype, str(getattr(value, "device", None)))
        return tuple(found)

    def point(self, bound: Mapping[str, Any]) -> Point:
        """The point of a call. Raises TuningError (tune-key-value), and what the arguments' arrays raise."""
        values = tuple((label, self._kept(label, _described(read(bound)))) for label, read in self.parts)
        dtyped = {name: value for name, value in _arrays(bound) if getattr(value, "dtype", None) is not None}
        dtypes = tuple((name, dtype_name(dtyped[name].dtype)) for name in sorted(dtyped))
        ordinal = _device(dtyped.values())
        if ordinal == HOST:
            return Point(values, dtypes, SIMULATOR, driver.simulated_target().arch)
        gpu = driver.device(ordinal)
        return Point(values, dtypes, gpu.name, gpu.arch, ordinal)

    def _kept(self, label: str, value: Any) -> Value:
        if value is None or isinstance(value, (bool, int, float, str)):
            return _plain(value)
        if isinstance(value, (tuple, list)):
            return tuple(self._kept(label, item) for item in cast("Sequence[Any]", value))
        if _is_dtype(value):
            return dtype_name(value)
        number = as_number(value) if not hasattr(value, "shape") or value.shape == () else None
        if number is not None:
            return number
        found = _shape(value)
        if found is not None:
            return found
        text = fingerprint(value)
        if text is None:
            raise fail(KEY_VALUE, part=label, name=self.name, value=repr(value))
        return text


def parts_of(name: str, key: Sequence[Part], parameters: Sequence[str], tuned: frozenset[str]) -> Keys:
    """The `Keys` of a user's `key` option. Raises TuningError: tune-unknown-name, tune-tuned-name, tune-option-kind."""
    for part in key:
        if not (isinstance(part, str) or callable(part)):
            want, fix = "the name of an argument or a function of the arguments", "write key=['n']"
            raise fail(OPTION_KIND, option="a part of key", name=name, value=repr(part), want=want, fix=fix)
    named = [part for part in key if isinstance(part, str)]
    check_names(name, "key", named, parameters, tuned)
    functions = [part for part in key if not isinstance(part, str)]
    parts = [(part, _reader(part)) for part in named]
    parts += [(f"{getattr(part, '__name__', 'key')}#{number}", part) for number, part in enumerate(functions)]
    return Keys(name, tuple(parts))


def check_names(name: str, option: str, given: Iterable[str], parameters: Sequence[str], tuned: frozenset[str]) -> None:
    """Check that an option names arguments of the call. Raises TuningError: tune-unknown-name, tune-tuned-name."""
    for parameter in given:
        if not isinstance(cast("object", parameter), str):
            want = "the name of an argument"
            fix = f"write {option}=[{parameters[0]!r}]" if parameters else f"leave {option} out"
            raise fail(OPTION_KIND, option=f"a part of {option}", name=name, value=repr(parameter), want=want, fix=fix)
        if parameter in tuned:
            raise fail(TUNED_NAME, option=option, name=name, parameter=parameter)
        if parameter not in parameters:
            hint, listed = hint_of(parameter, parameters), ", ".join(parameters)
            raise fail(UNKNOWN_NAME, option=option, name=name, parameter=parameter, hint=hint, parameters=listed)


def hint_of(name: str, known: Iterable[str]) -> str:
    """A clause that suggests a similar name, for the end of a message."""
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def distance(one: Point, other: Point) -> float:
    """The distance of two keys: the sum of |log2| of the ratios of their numbers; infinite when anything else differs."""
    if (one.dtypes, one.device, len(one.values)) != (other.dtypes, other.device, len(other.values)):
        return math.inf
    return sum(_apart(a, b) for a, b in zip(one.values, other.values, strict=True))


def _apart(one: Value, other: Value) -> float:
    if one == other:
        return 0.0
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return sum(map(_apart, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and one > 0 and other > 0:
        return abs(math.log2(one / other))
    return math.inf


def _arrays(bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments by name, with views replaced by their arrays and tuples by their items."""
    return ((name, views.base(value)) for name, value in spread(bound.items()))


def _described(value: Any) -> Any:
    """A part of a key. A view is replaced by its static description and its run-time numbers, an array in a tuple by its
    shape."""
    if isinstance(value, tuple):
        return tuple(map(_described_item, cast("tuple[Any, ...]", value)))
    argument = view_argument(value)
    return value if argument is None else (argument.key, tuple(argument.numbers))


def _described_item(item: Any) -> Any:
    found = _described(item)
    return tuple(found.shape) if getattr(found, "shape", ()) else found


def _reader(parameter: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda bound: bound.get(parameter)


def _device(arrays: Iterable[Any]) -> int:
    """The device of the first array; without arrays the current GPU, or the simulator if there is no GPU."""
    for value in arrays:
        if isinstance(value, HostDescriptor):
            found = value.tensor_map.device
        else:
            lying = array(value)
            found = None if lying is None else lying.device
        if found is not None:
            return found
    return driver.active.get_current_device() if driver.available() else HOST


def _plain(value: Value) -> Value:
    """A number or string converted to the builtin type, whose `repr` can be read back; that of enum members and NumPy scalars
    cannot."""
    if isinstance(value, str):
        return str.__str__(value)
    kind = next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)
    return value if kind is None else kind(cast("Any", value))


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, (HostDescriptor, MockTensor)):
        return tuple(getattr(value, "shape", ()))
    found = extents(value)
    return None if found is None else tuple(map(int, found[0]))


def _is_dtype(value: Any) -> bool:
    return any(kind.__name__ in ("dtype", "DType") for kind in type(value).__mro__)
