"""What may vary: a `Config` is one way to launch, a `Space` is every combination of values that its constraint lets through."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from weft.errors import fail
from weft.errors.launch import OPTION_VALUE
from weft.errors.tune import CONFIGS_KIND, CONSTRAINT, EMPTY_SPACE
from weft.runtime.specialise import constexpr

OPTIONS = ("num_warps", "num_ctas", "maxnreg")
"""Launch options that a config may set."""
PreHook = Callable[[dict[str, Any]], object]
"""Called before each launch with the arguments by name, the config's included."""

Where: TypeAlias = (
    Callable[[Any], bool]
    | Callable[[Any, Any], bool]
    | Callable[[Any, Any, Any], bool]
    | Callable[[Any, Any, Any, Any], bool]
    | Callable[..., bool]
)
"""A constraint on the values that its parameters name. Each number of parameters is listed, because type checkers infer those
of a lambda from a type that counts them; with `...` alone, they are of unknown type."""

_EXPECTED = {
    "num_warps": ("a power of two from 1 to 32", (1, 2, 4, 8, 16, 32)),
    "num_ctas": ("a power of two from 1 to 8", (1, 2, 4, 8)),
    "maxnreg": ("a number of registers from 16 to 255", range(16, 256)),
}


class Config:
    """One way to launch: values of compile-time arguments, and launch options.

    `Config({"BLOCK": 64}, num_warps=8)`. An option that is None is left to the launch; options may stand in `kwargs` too.
    `pre_hook` is called before each launch with the arguments by name. Hashable; equal where values (by type, too), options and
    hook are.

    Attributes: `kwargs`, `num_warps`, `num_ctas`, `maxnreg`, `pre_hook`, and `arguments`, what a call gets of all that.
    Raises LaunchError: launch-option-value, launch-constexpr-kind for a value that cannot be hashed.
    """

    __slots__ = ("_key", "arguments", "kwargs", "maxnreg", "num_ctas", "num_warps", "pre_hook")

    def __init__(
        self,
        kwargs: Mapping[str, Any] | None = None,
        *,
        num_warps: int | None = None,
        num_ctas: int | None = None,
        maxnreg: int | None = None,
        pre_hook: PreHook | None = None,
    ) -> None:
        given: dict[str, Any] = dict(kwargs or {})
        options = {"num_warps": num_warps, "num_ctas": num_ctas, "maxnreg": maxnreg}
        for name, value in options.items():
            in_kwargs = given.pop(name, None)
            options[name] = in_kwargs if value is None else value
            _check_option(name, options[name])
        self.kwargs: dict[str, Any] = given
        self.num_warps = options["num_warps"]
        self.num_ctas = options["num_ctas"]
        self.maxnreg = options["maxnreg"]
        self.pre_hook = pre_hook
        self.arguments: dict[str, Any] = given | {name: value for name, value in options.items() if value is not None}
        values = frozenset((name, constexpr("weft.Config", name, value)) for name, value in self.arguments.items())
        self._key: Hashable = (values, pre_hook)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._key == other._key

    def __str__(self) -> str:
        """The arguments and options, the same in each process: choices are kept under this text."""
        return ", ".join(f"{name}={_text(value)}" for name, value in self.arguments.items()) or "defaults"

    def __repr__(self) -> str:
        options = [f"{name}={getattr(self, name)}" for name in OPTIONS if getattr(self, name) is not None]
        return f"Config({', '.join([repr(self.kwargs), *options])})"


@dataclass(frozen=True)
class Space:
    """Every combination of values, less those that the constraint refuses.

        Space({"BLOCK_M": [64, 128], "BLOCK_N": [64, 128], "num_warps": [4, 8]}, where=lambda BLOCK_M, num_warps: ...)

    `values` maps parameters and launch options to lists of values (anything else is the only value). `where` takes those
    parameters that it names and is true for combinations to keep; `pre_hook` becomes that of each config.
    """

    values: Mapping[str, Any]
    where: Where | None = None
    pre_hook: PreHook | None = None

    def __iter__(self) -> Iterator[Config]:
        """The configs, the last parameter's values changing fastest. Raises TuningError (tune-constraint)."""
        allowed = _constraint(self.where, self.values)
        for combination in itertools.product(*map(_listed, self.values.values())):
            values = dict(zip(self.values, combination, strict=True))
            if allowed(values):
                yield Config(values, pre_hook=self.pre_hook)


Configs = Iterable["Config | Space | Mapping[str, Any]"] | Space | Mapping[str, Any]


def expand(name: str, configs: Configs) -> tuple[Config, ...]:
    """The configs of what a user gave for `name`, each once. Raises TuningError: tune-configs-kind, tune-empty-space."""
    given: Any = configs
    one = isinstance(given, (Mapping, Space)) or not isinstance(given, Iterable)
    listed: list[Any] = [given] if one else list(cast("Iterable[Any]", given))
    found = dict.fromkeys(config for given in listed for config in _configs_of(name, given))
    if not found:
        raise fail(EMPTY_SPACE, name=name, reason=_why_empty(listed))
    return tuple(found)


def _configs_of(name: str, given: object) -> Iterable[Config]:
    if isinstance(given, Config):
        return (given,)
    if isinstance(given, Mapping):
        return Space(cast("Mapping[str, Any]", given))
    if isinstance(given, Space):
        return given
    raise fail(CONFIGS_KIND, name=name, value=repr(given))


def _why_empty(listed: list[Any]) -> str:
    if not listed:
        return "the list has no entries"
    values: Mapping[str, Any] = listed[0].values if isinstance(listed[0], Space) else listed[0]
    empty = [name for name, choices in values.items() if not _listed(choices)]
    return f"{empty[0]} has no values" if empty else "the constraint refuses every combination"


def _listed(values: Any) -> tuple[Any, ...]:
    return tuple(cast("Iterable[Any]", values)) if isinstance(values, (list, tuple, range)) else (values,)


def _constraint(where: Where | None, values: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """`where` as a function of all values, of which it takes those that it names."""
    if where is None:
        return lambda values: True
    allows = cast("Callable[..., bool]", where)
    parameters = inspect.signature(allows).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return lambda values: allows(**values)
    names = [parameter.name for parameter in parameters]
    for name in names:
        if name not in values:
            raise fail(CONSTRAINT, parameter=name, known=", ".join(values))
    return lambda values: allows(**{name: values[name] for name in names})


def _check_option(name: str, value: Any) -> None:
    expected, allowed = _EXPECTED[name]
    if value is not None and value not in allowed:
        example = f"{name}={allowed[-1]}"
        raise fail(OPTION_VALUE, option=name, value=value, name="weft.Config", expected=expected, example=example)


def _text(value: Any) -> str:
    """A value as it reads in every process: functions and classes by name, not by address."""
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else repr(value)
