"""The search space: a `Config` is one set of arguments and options, a `Space` every combination that its constraint allows."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NoReturn, TypeAlias, cast

from weft.errors import fail
from weft.errors.tune import CONFIGS_KIND, CONSTRAINT, EMPTY_SPACE, OPTION_KIND
from weft.runtime.foreign import refuse_others
from weft.runtime.options import number_of
from weft.runtime.specialise import constexpr

OPTIONS = ("num_warps", "num_ctas", "maxnreg")
"""Launch options that a config may set."""
PreHook = Callable[[dict[str, Any]], object]
"""Called before each launch with the arguments by name, including the config's."""

Where: TypeAlias = (
    Callable[[Any], bool]
    | Callable[[Any, Any], bool]
    | Callable[[Any, Any, Any], bool]
    | Callable[[Any, Any, Any, Any], bool]
    | Callable[..., bool]
)
"""A constraint on the values that its parameters name. One alternative per number of parameters, because type checkers infer
a lambda's parameter types only from a callable type with explicit parameters; with `...` alone they are unknown."""


class Config:
    """Values of compile-time arguments and launch options for one launch.

    `Config({"BLOCK": 64}, num_warps=8)`. An option that is None is left to the launch; options may also be given in `kwargs`.
    `pre_hook` is called before each launch with the arguments by name. Hashable; configs are equal if their values (including
    types), options and hooks are.

    Attributes: `kwargs`, `num_warps`, `num_ctas`, `maxnreg`, `pre_hook`, and `arguments`, the keywords passed to a call.
    Raises LaunchError: launch-option-value, launch-no-option, launch-constexpr-kind for an unhashable value; TuningError:
    tune-option-kind for an argument that is not a dictionary, or not a function.
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
        **others: NoReturn,
    ) -> None:
        refuse_others("weft.Config", Config.__init__, others)
        given = _named("weft.Config", kwargs)
        check_hook("weft.Config", "pre_hook", pre_hook)
        options = {"num_warps": num_warps, "num_ctas": num_ctas, "maxnreg": maxnreg}
        for name, value in options.items():
            in_kwargs = given.pop(name, None)
            chosen = in_kwargs if value is None else value
            options[name] = None if chosen is None else number_of("weft.Config", name, chosen)
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
        """The arguments and options. The text is the same in every process, since stored choices identify configs by it."""
        return ", ".join(f"{name}={_text(value)}" for name, value in self.arguments.items()) or "defaults"

    def __repr__(self) -> str:
        options = [f"{name}={getattr(self, name)}" for name in OPTIONS if getattr(self, name) is not None]
        return f"Config({', '.join([repr(self.kwargs), *options])})"


@dataclass(frozen=True)
class Space:
    """Every combination of values that the constraint allows.

        Space({"BLOCK_M": [64, 128], "BLOCK_N": [64, 128], "num_warps": [4, 8]}, where=lambda BLOCK_M, num_warps: ...)

    `values` maps parameters and launch options to lists of values; a value that is not a list is the only one. `where` is
    called with the parameters that it names and returns True for combinations to keep. Each config gets `pre_hook`.
    """

    values: Mapping[str, Any]
    where: Where | None = None
    pre_hook: PreHook | None = None

    def __post_init__(self) -> None:
        """Raises TuningError (tune-option-kind)."""
        object.__setattr__(self, "values", _named("weft.tune.Space", self.values))
        check_hook("weft.tune.Space", "where", self.where)
        check_hook("weft.tune.Space", "pre_hook", self.pre_hook)

    def __iter__(self) -> Iterator[Config]:
        """The configs; the last parameter varies fastest. Raises TuningError: tune-constraint, tune-option-kind."""
        allowed = _constraint(self.where, self.values)
        for combination in itertools.product(*map(_listed, self.values.values())):
            values = dict(zip(self.values, combination, strict=True))
            if _truth(allowed(values)):
                yield Config(values, pre_hook=self.pre_hook)


Configs = Iterable["Config | Space | Mapping[str, Any]"] | Space | Mapping[str, Any]


def expand(name: str, configs: Configs) -> tuple[Config, ...]:
    """The distinct configs of a user's `configs` for `name`. Raises TuningError: tune-configs-kind, tune-empty-space."""
    given: Any = configs
    one = isinstance(given, (Mapping, Space, str)) or not isinstance(given, Iterable)
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
    if isinstance(values, Iterator) or hasattr(values, "__array_interface__"):
        raise fail(
            OPTION_KIND, option="the values of a parameter", name="weft.tune.Space", value=repr(cast("object", values)),
            want="a list, a tuple, a range or one value", fix="put them into a list: list(values)",
        )  # fmt: skip
    return tuple(cast("Iterable[Any]", values)) if isinstance(values, (list, tuple, range)) else (values,)


def _constraint(where: Where | None, values: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bool]:
    """`where` as a function of all values, which passes on those that it names."""
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


def _truth(result: object) -> bool:
    """The truth value of a constraint's result."""
    try:
        return bool(result)
    except (ValueError, TypeError) as error:  # An array of several elements, or a symbol.
        raise fail(
            OPTION_KIND, option="what the constraint returns", name="weft.tune.Space", value=repr(result),
            want="true or false", fix="return one condition for each combination, as numpy.all(...) is of an array",
        ) from error  # fmt: skip


def check_hook(name: str, option: str, value: object) -> None:
    """Check an optional function. Raises TuningError (tune-option-kind)."""
    if value is not None and not callable(value):
        fix = f"write a def above it, and {option}= its name"
        raise fail(OPTION_KIND, option=option, name=name, value=repr(value), want="a function", fix=fix)


def _named(name: str, given: object) -> dict[str, Any]:
    """Values by parameter. Raises TuningError (tune-option-kind) unless the argument maps names to values."""
    values = cast("Mapping[Any, Any]", {} if given is None else given)
    if not isinstance(given, (Mapping, NoneType)) or not all(isinstance(each, str) for each in values):
        want, fix = "a dictionary of values by the names of parameters", f"write {name}({{'BLOCK': 64}})"
        raise fail(
            OPTION_KIND, option="the first argument", name=name, value=repr(cast("object", given)), want=want, fix=fix
        )
    return dict(values)


def _text(value: Any) -> str:
    """A value as text that is the same in every process: functions and classes by name, not by address."""
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else repr(value)
