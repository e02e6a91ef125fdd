"""The tuner's common interface to kernels, which are launched on a grid, and host functions, which are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from weft.errors import fail
from weft.errors.tune import SUBJECT, UNKNOWN_PARAMETER
from weft.kernel import JITFunction
from weft.runtime.binder import COMPILE_OPTIONS, MISSING
from weft.tune.config import Config
from weft.tune.key import hint_of

Keywords = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel or a host function: `fn` is the object, `function` the author's Python function.

    `parameters` has the names of all parameters, `positional` of those that can be given by position. `accepts(name)` is true
    for parameters and options that a config may set. `defaults` has the default values. `call(grid, args, keywords)` makes the
    call; `check(args, keywords)` raises the same errors for mismatched arguments, without making it.
    """

    fn: Any
    function: Any
    parameters: tuple[str, ...]
    positional: tuple[str, ...]
    accepts: Callable[[str], bool]
    defaults: Mapping[str, Any]
    call: Callable[[Any, Sequence[Any], Keywords], Any]
    check: Callable[[Sequence[Any], Keywords], object]

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def takes_grid(self) -> bool:
        """True for kernels."""
        return self.fn is not self.function

    def check_config(self, config: Config) -> None:
        """Check that a config sets only acceptable parameters. Raises TuningError (tune-unknown-parameter)."""
        for name in config.arguments:
            if not self.accepts(name):
                hint, listed = hint_of(name, self.parameters), ", ".join(self.parameters)
                raise fail(
                    UNKNOWN_PARAMETER, config=config, parameter=name, name=self.name, hint=hint, parameters=listed
                )


def subject_of(fn: object) -> Subject:
    """The subject of a decorated object. Raises TuningError (tune-subject), and launch-signature for a kernel."""
    if isinstance(fn, JITFunction):
        return _kernel(cast("JITFunction[..., Any]", fn))
    if isinstance(fn, FunctionType):
        return _function(fn)
    raise fail(SUBJECT, value=repr(fn))


def _kernel(fn: JITFunction[..., Any]) -> Subject:
    """Configs of a kernel set compile-time parameters and launch options."""
    known = fn.signature.known
    names = tuple(parameter.name for parameter in known)
    settable = {parameter.name for parameter in known if parameter.constexpr} | COMPILE_OPTIONS.keys()

    def call(grid: Any, args: Sequence[Any], keywords: Keywords) -> Any:
        return fn[grid](*args, **keywords)

    return Subject(
        fn=fn,
        function=fn.fn,
        parameters=names,
        positional=names,
        accepts=settable.__contains__,
        defaults={parameter.name: parameter.default for parameter in known if parameter.default is not MISSING},
        call=call,
        check=fn.signature.bind,
    )


def _function(fn: FunctionType) -> Subject:
    """Configs of a function set its named parameters; launch options are parameters like any other."""
    signature = inspect.signature(fn)
    known = signature.parameters.values()
    named = [p for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    settable = {p.name for p in named if p.kind is not p.POSITIONAL_ONLY}
    anything = any(p.kind is p.VAR_KEYWORD for p in known)

    def call(_: Any, args: Sequence[Any], keywords: Keywords) -> Any:
        return fn(*args, **keywords)

    return Subject(
        fn=fn,
        function=fn,
        parameters=tuple(p.name for p in named),
        positional=tuple(p.name for p in named if p.kind is not p.KEYWORD_ONLY),
        accepts=lambda name: anything or name in settable,
        defaults={p.name: cast("object", p.default) for p in named if p.default is not p.empty},
        call=call,
        check=lambda args, keywords: signature.bind(*args, **keywords),
    )
