"""One Python function per kernel that binds a launch's arguments, made by `exec` from the kernel's parameters.

A launch has a few microseconds. Binding by Python's own call protocol, one tuple as the key and one dictionary look-up
leave most of them to the driver. The function is made for the classes that the arguments had, and takes others more slowly.
`launch_source` shows the text; for `def scale(x, n, BLOCK: gl.constexpr)` and a tensor and an int it reads:

    def launch(grid, x=missing, n=missing, BLOCK=missing, /, *extra, num_warps=None, ..., stream=None, **keywords):
        if keywords: [x, n, BLOCK] = take(keywords, [x, n, BLOCK])
        if num_warps is None and block is None: num_warps = 4
        if what a compiled kernel has read is not what it was: forget()
        v0, a0, b0, c0 = address, dtype, device and alignment of x
        v1, a1, b1, c1 = value, width and divisibility of n
        run = table[a0, b0, c0, a1, b1, c1, type(BLOCK), BLOCK, num_warps, ...]
        return run(grid, stream, v0, v1)

and calls `miss` instead when the table has no such key. A key decides everything `_miss` would find out, so a hit needs
no further check: dtype, device, alignment, integer width, 1 and divisibility by 16, every constexpr, every option.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from textwrap import indent
from types import FunctionType
from typing import Any, NoReturn

from weft import settings
from weft.errors import WeftError, fail
from weft.errors.launch import (
    DUPLICATE_ARGUMENT,
    MISSING_ARGUMENT,
    OPTION_VALUE,
    RESERVED_PARAMETER,
    SIGNATURE,
    TOO_MANY_ARGUMENTS,
    UNKNOWN_KEYWORD,
)
from weft.forms import of_torch
from weft.plain import as_number, whole
from weft.runtime import views
from weft.runtime.arguments import array
from weft.runtime.compiled import Options
from weft.runtime.descriptor import HostDescriptor
from weft.runtime.dynamo import opaque
from weft.runtime.foreign import meant
from weft.runtime.origin import class_of
from weft.runtime.shown import short
from weft.runtime.specialise import freeze, integer_dtype, is_view
from weft.runtime.watch import GONE, Watch

COMPILE_OPTIONS: dict[str, Any] = {entry.name: entry.default for entry in fields(Options) if entry.name != "sync"} | {
    "debug": None,
    "num_warps": None,
}
"""Launch options that change the code, with their defaults; `debug=None` leaves it to the kernel and the settings, and
`num_warps=None` to `block`."""
WARPS = Options().num_warps
"""Warps of a launch that says nothing, neither of them nor of a block of threads."""
OPTIONS = (*COMPILE_OPTIONS, "stream")


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()
"""Default of parameters that have none: found out where a launch is bound the slow way."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel. `specialise=False` keeps facts about its value (divisibility, 1) out of the code."""

    name: str
    constexpr: bool
    default: Any = MISSING
    specialise: bool = True


_SEVERAL = "give each argument its own parameter, or pass a tuple to a constexpr parameter"
_POSITIONAL: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: _SEVERAL,
    inspect.Parameter.VAR_KEYWORD: _SEVERAL,
    inspect.Parameter.KEYWORD_ONLY: "leave out the * before it: a launch may pass any parameter by keyword",
    inspect.Parameter.POSITIONAL_ONLY: "leave out the / behind it: a launch may pass any parameter by position",
}
"""What to write in place of a parameter of another kind than a kernel's."""


def signature(fn: FunctionType, do_not_specialize: Sequence[int | str] = ()) -> Signature:
    """The parameters of a kernel; constexpr ones are those annotated `gl.constexpr`, as an object or as text.

    Raises LaunchError: launch-option-value for a name in `do_not_specialize` that no parameter has, launch-signature for
    `*args` and the like, launch-reserved-parameter for a parameter `stream`, or a parameter `block` whose value is not known
    at compile time.
    """
    found: list[Parameter] = []
    known_names = [*inspect.signature(fn).parameters]
    places = (*range(len(known_names)), *known_names)
    plain: set[int | str] = set()
    for given in do_not_specialize:
        place = given if isinstance(given, str) else whole(given)
        if place is None or place not in places:
            expected = f"a parameter, of which there are {', '.join(known_names) or 'none'}"
            example = f"do_not_specialize=[{known_names[0]!r}]" if known_names else "no do_not_specialize"
            raise fail(
                OPTION_VALUE,
                option="do_not_specialize",
                value=given,
                name=fn.__name__,
                expected=expected,
                example=example,
            )
        plain.add(place)
    for index, (name, entry) in enumerate(inspect.signature(fn).parameters.items()):
        if entry.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            kind = entry.kind.description
            raise fail(SIGNATURE, name=fn.__name__, parameter=str(entry), kind=kind, instead=_POSITIONAL[entry.kind])
        known = is_constexpr_annotation(entry.annotation)
        if name == "stream" or (name == "block" and not known):
            raise fail(RESERVED_PARAMETER, name=fn.__name__, parameter=name)
        default = COMPILE_OPTIONS.get(name, MISSING) if entry.default is entry.empty else entry.default
        found.append(Parameter(name, known, default, plain.isdisjoint((index, name))))
    return Signature(fn.__name__, tuple(found))


def is_constexpr_annotation(annotation: object) -> bool:
    """True for `gl.constexpr` and `gl.constexpr[...]`, resolved or (under `from __future__ import annotations`) as text.

    >>> is_constexpr_annotation("gl.constexpr[int]"), is_constexpr_annotation("gl.tensor")
    (True, False)
    """
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.strip("\"' ").partition("[")[0].rpartition(".")[2].strip() == "constexpr"


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel's name and parameters, and what to say to those who launch it differently."""

    kernel: str
    known: tuple[Parameter, ...]

    @property
    def names(self) -> list[str]:
        """The parameters' names."""
        return [parameter.name for parameter in self.known]

    @property
    def listed(self) -> str:
        """The parameters' names, for a message."""
        return ", ".join(self.names) or "none"

    def bind(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by parameter, and launch options. An option that is also a parameter is in both.

        Raises LaunchError: launch-too-many-arguments, launch-duplicate-argument, launch-unknown-keyword,
        launch-missing-argument.
        """
        names = self.names
        if len(positional) > len(names):
            self.refuse_extra(positional[len(names) :])
        bound = dict(zip(names, positional, strict=False))
        for name, value in keywords.items():
            if name in bound:
                self.refuse_twice(name)
            if name in names:
                bound[name] = value
            elif name not in OPTIONS:
                self.refuse_unknown(name)
        complete = {parameter.name: bound.get(parameter.name, parameter.default) for parameter in self.known}
        self.require(complete)
        given = {name: value for name, value in keywords.items() if name in OPTIONS}
        declared = {name: complete[name] for name in COMPILE_OPTIONS if name in complete}
        options = {**COMPILE_OPTIONS, "stream": None, **given, **declared}
        if options["num_warps"] is None and options["block"] is None:
            options["num_warps"] = WARPS
            complete.update({"num_warps": WARPS} if "num_warps" in complete else {})
        return complete, options

    def require(self, bound: Mapping[str, Any]) -> None:
        """Check that every parameter has a value. Raises LaunchError (launch-missing-argument)."""
        absent = [name for name in self.names if bound[name] is MISSING]
        if absent:
            raise fail(MISSING_ARGUMENT, name=self.kernel, missing=", ".join(absent), parameters=self.listed)

    def taker(self) -> Callable[[dict[str, Any], list[Any]], list[Any]]:
        """A function that puts arguments given by name among those of all parameters, `MISSING` where there is none yet.

        It raises LaunchError: launch-duplicate-argument, launch-unknown-keyword."""
        places = {name: index for index, name in enumerate(self.names)}

        def take(keywords: dict[str, Any], values: list[Any]) -> list[Any]:
            for name, value in keywords.items():
                index = places.get(name)
                if index is None:
                    self.refuse_unknown(name)
                if values[index] is not MISSING:
                    self.refuse_twice(name)
                values[index] = value
            return values

        return take

    def refuse_extra(self, extra: Sequence[Any]) -> NoReturn:
        """Raise LaunchError (launch-too-many-arguments)."""
        expected = len(self.known)
        given = expected + len(extra)
        raise fail(TOO_MANY_ARGUMENTS, name=self.kernel, given=given, expected=expected, parameters=self.listed)

    def refuse_twice(self, parameter: str) -> NoReturn:
        """Raise LaunchError (launch-duplicate-argument)."""
        raise fail(DUPLICATE_ARGUMENT, name=self.kernel, parameter=parameter)

    def refuse_unknown(self, keyword: str) -> NoReturn:
        """Raise LaunchError (launch-unknown-keyword), with the name that the author may have meant."""
        hint = meant(keyword, (*self.names, *OPTIONS))
        options = ", ".join(OPTIONS)
        raise fail(
            UNKNOWN_KEYWORD, name=self.kernel, keyword=keyword, hint=hint, parameters=self.listed, options=options
        )


def other(value: Any, facts: bool) -> tuple[Any, Any, Any, Any]:
    """Value and key of a run-time argument of another class than the text above knows: the general, slower way.

    What no kernel takes gets a key that matches nothing, so the launch goes the checked way and says what is wrong.
    """
    if value is None:
        return 0, None, None, None
    if isinstance(value, bool):
        return value, "bool", None, None
    if isinstance(value, HostDescriptor):
        return value.tensor_map, value.tensor_map.key, None, None
    if is_view(value):
        return views.bind(value, facts)
    found = array(value)
    if found is not None:
        # PyTorch's own arrays have keys of their own: they go to PyTorch's stream.
        dtype = value.dtype if of_torch(value) else found.dtype
        return found.pointer, dtype, found.device, 16 if facts and not found.pointer & 15 else 0
    number = as_number(value)
    if isinstance(number, bool):
        return number, "bool", None, None
    if isinstance(number, float):
        return number, "float32", None, None
    if number is None:
        return value, object(), None, None
    divisible = 0 if not facts else 1 if number == 1 else 0 if number & 15 else 16
    return number, integer_dtype(number), divisible, None


def frozen(value: Any) -> Any:
    """The key of a constexpr that its own equality would confuse: floats, tuples, lists."""
    try:
        return freeze(value)
    except TypeError:
        return object()


NEEDS_FREEZING = frozenset({float, tuple, list})

# Names of the generated function's own start with `_w_`, out of the way of the author's parameters.

_RUN_TIME = """
    if {name}.__class__ is _w_class{i}{condition}:
        _w_v{i} = {value}; _w_a{i} = {kind}; _w_b{i} = {device}; _w_c{i} = {facts}
    else:
        _w_v{i}, _w_a{i}, _w_b{i}, _w_c{i} = _w_other({name}, {specialise})
"""
_VIEW = """
    _w_v{i}, _w_a{i}, _w_b{i}, _w_c{i} = (_w_view if {name}.__class__ is _w_class{i} else _w_other)({name}, {specialise})
"""
_OTHER = """
    _w_v{i}, _w_a{i}, _w_b{i}, _w_c{i} = _w_other({name}, {specialise})
"""

_DEFAULT = """
    if {name} is _w_missing:
        {name} = _w_defaults[{name!r}]"""

_LAUNCH = """\
def _w_launch(_w_grid{signature}, /, *_w_extra, {options}, **_w_keywords):
    if _w_keywords:
        [{names}] = _w_take(_w_keywords, [{names}])
    if _w_extra:
        _w_refuse_extra(_w_extra){defaults}
    if num_warps is None and block is None:
        num_warps = {warps}
{debug}    try:
        for _w_get, _w_name, _w_value in _w_watched:
            if _w_get(_w_name) is not _w_value:
                _w_forget()
                break
    except _w_gone:
        _w_forget()
{bind}
    _w_key = ({key})
    try:
        _w_run = _w_table[_w_key]
    except (KeyError, TypeError):
        _w_run = None
    if _w_run is None:
        return _w_miss(_w_key, _w_grid, ({bound}), ({given}), stream)
    if _w_grid.__class__ is not _w_tuple:
        _w_grid = _w_evaluate(_w_grid, {{{mapping}}})
    return _w_run(_w_grid, stream{values})
"""


_SHORT = """\
    except _w_error as _w_found:
        raise _w_short(_w_found)
"""
_DEBUG = """\
    if debug is None and _w_changes():
        debug = _w_debug()
"""


_FIRST = """\
def _w_launch(_w_grid, /, *_w_args, **_w_keywords):
    try:
        return _w_first(_w_grid, _w_args, _w_keywords)
    except _w_error as _w_found:
        raise _w_short(_w_found)
"""


def launch_source(
    known: Sequence[Parameter], classes: Mapping[str, type[Any] | None], *, debug: bool | None = None
) -> str:
    """The text of the launch function of a kernel with these parameters, for run-time arguments of these classes.

    It takes arguments of other classes too, in a slower way. `debug` is the kernel's own.
    """
    declared = {parameter.name for parameter in known}
    options = [f"{name}={value!r}" for name, value in COMPILE_OPTIONS.items() if name not in declared]
    key = [part for i, p in enumerate(known) for part in _key_parts(i, p)] + list(COMPILE_OPTIONS)
    text = _LAUNCH.format(
        signature="".join(f", {p.name}=_w_missing" for p in known),
        names="".join(f"{p.name}, " for p in known),
        defaults="".join(_DEFAULT.format(name=p.name) for p in known if p.default is not MISSING),
        options=", ".join([*options, "stream=None"]),
        warps=WARPS,
        debug=_DEBUG if debug is None else "",
        bind="".join(_bind_text(i, p, classes[p.name]) for i, p in enumerate(known) if not p.constexpr),
        key="".join(f"{part}, " for part in key),
        bound="".join(f"{p.name}, " for p in known),
        given="".join(f"{name}, " for name in COMPILE_OPTIONS),
        mapping=", ".join(f"{p.name!r}: {p.name}" for p in known),
        values="".join(f", _w_v{i}" for i, p in enumerate(known) if not p.constexpr),
    )
    head, _, body = text.partition("\n")
    return f"{head}\n    try:\n{indent(body, '    ')}{_SHORT}"


def _key_parts(index: int, parameter: Parameter) -> tuple[str, ...]:
    name = parameter.name
    if parameter.constexpr:
        return f"{name}.__class__", f"_w_frozen({name}) if {name}.__class__ in _w_needs_freezing else {name}"
    return tuple(f"_w_{kind}{index}" for kind in "abc")


def _bind_text(i: int, parameter: Parameter, cls: type[Any] | None) -> str:
    """Lines that set value and key of a run-time argument: what `other` answers, found out faster."""
    name, specialise = parameter.name, parameter.specialise
    if cls is int:
        divisible = f"1 if {name} == 1 else 0 if {name} & 15 else 16" if specialise else "0"
        condition, parts = f" and -2147483648 <= {name} <= 2147483647", (name, "'int32'", divisible, "None")
    elif cls is float:
        condition, parts = "", (name, "'float32'", "None", "None")
    elif cls is not None and issubclass(cls, HostDescriptor):
        condition, parts = "", (f"{name}.tensor_map", f"_w_v{i}.key", "None", "None")
    elif cls is not None and _is_tensor(cls):
        aligned = f"0 if _w_v{i} & 15 else 16" if specialise else "0"
        parts = f"{name}.data_ptr()", f"{name}.dtype", f"{name}.get_device()", aligned
        condition = f" and not {name}.is_neg()"  # a lazy minus, which `other` refuses
    else:
        text = _VIEW if hasattr(cls, "__weft_view__") else _OTHER
        return text.format(name=name, i=i, specialise=specialise)
    value, kind, device, facts = parts
    return _RUN_TIME.format(
        name=name, i=i, condition=condition, value=value, kind=kind, device=device, facts=facts, specialise=specialise
    )


def _class(example: Any) -> type[Any] | None:
    """The class to expect of an argument: of one that is None now, and optional, PyTorch's tensors."""
    return getattr(sys.modules.get("torch"), "Tensor", None) if example is None else class_of(example)


def _is_tensor(cls: type[Any]) -> bool:
    torch = sys.modules.get("torch")
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    return torch is not None and cls in (torch.Tensor, parameter)


class Binder:
    """A kernel's launch function, `launch(grid, *args, **options)`, and the tables that it looks at.

    `launch` is the same object from the start, which a partial call may hold on to. Until `make` has been called it is
    `first(grid, args, keywords)`. `table` maps keys to what runs them; `watched` lists what compiled kernels have read
    (`weft.runtime.watch.Watch`): when one of these does not hold any more, `forget` is called before the look-up.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        first: Callable[..., Any],
        miss: Callable[..., Any],
        forget: Callable[[], None],
        evaluate: Callable[..., Any],
        debug: bool | None = None,
    ) -> None:
        self.table: dict[Any, Any] = {}
        self.watched: list[Watch] = []
        self.made = False
        self._signature, self._debug = signature, debug
        names: dict[str, Any] = {
            "table": self.table, "watched": self.watched, "forget": forget, "miss": miss, "gone": GONE, "first": first,
            "evaluate": evaluate, "other": other, "frozen": frozen, "needs_freezing": NEEDS_FREEZING, "view": views.bind,
            "tuple": tuple, "refuse_extra": signature.refuse_extra, "take": signature.taker(), "missing": MISSING,
            "defaults": {parameter.name: parameter.default for parameter in signature.known},
            "error": WeftError, "short": short, "changes": settings.under_way, "debug": lambda: settings.current().debug,
        }  # fmt: skip
        self._space = {f"_w_{name}": value for name, value in names.items()}
        self.launch = self._function(_FIRST)

    def make(self, examples: Mapping[str, Any]) -> None:
        """Compile the launch function, fastest for arguments of the classes of `examples`.

        It calls `miss(key, grid, values, options, stream)` to launch the checked way, and `evaluate(grid, bound)` for a grid
        that is a function.
        """
        known = self._signature.known
        classes = {p.name: None if p.constexpr else _class(examples[p.name]) for p in known}
        self._space.update({f"_w_class{i}": cls for i, cls in enumerate(classes.values())})
        made = self._function(launch_source(known, classes, debug=self._debug))
        self.launch.__defaults__, self.launch.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
        self.launch.__code__ = made.__code__
        self.made = True

    def _function(self, text: str) -> FunctionType:
        exec(compile(text, f"<launch of {self._signature.kernel}>", "exec"), self._space)  # noqa: S102 - made above of names
        function: FunctionType = self._space["_w_launch"]
        function.__name__ = function.__qualname__ = self._signature.kernel
        return opaque(function)
