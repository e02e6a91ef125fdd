"""Binding arguments to the parameters of an inlined function, by Python's rules and without `inspect`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from weft.errors import UserError, fail
from weft.errors import source as errors
from weft.lang.source import Source
from weft.language.marks import unwrap


def bind(function: FunctionType, source: Source, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every parameter. Raises CompilationError (lang-call-arguments)."""
    arguments = source.node.args
    names = [p.arg for p in (*arguments.posonlyargs, *arguments.args)]
    bound = dict(zip(names, args, strict=False))
    if len(args) > len(names) and arguments.vararg is None:
        raise _mistake(function, f"takes {_count(len(names))}, but got {len(args)}")
    if arguments.vararg is not None:
        bound[arguments.vararg.arg] = tuple(args[len(names) :])
    extra = _bind_keywords(function, source, bound, kwargs)
    if arguments.kwarg is not None:
        bound[arguments.kwarg.arg] = extra
    elif extra:
        raise _mistake(function, f"has no parameter {next(iter(extra))!r}")
    wanted = [*names, *(p.arg for p in arguments.kwonlyargs)]
    missing = [name for name in wanted if name not in bound]
    if missing:
        defaults = _defaults(function, names)
        lacking = [name for name in missing if name not in defaults]
        if lacking:
            raise _mistake(function, f"got no value for {', '.join(map(repr, lacking))}")
        bound.update({name: defaults[name] for name in missing})
    return bound


def _bind_keywords(
    function: FunctionType, source: Source, bound: dict[str, Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Bind keywords to parameters. Returns the keywords that match no parameter."""
    arguments = source.node.args
    takes = {p.arg for p in (*arguments.args, *arguments.kwonlyargs)}
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name not in takes:
            extra[name] = value
        elif name in bound:
            raise _mistake(function, f"got {name!r} twice, by position and by name")
        else:
            bound[name] = value
    return extra


def _defaults(function: FunctionType, names: Sequence[str]) -> dict[str, Any]:
    values = function.__defaults__ or ()
    by_position = dict(zip(names[len(names) - len(values) :], values, strict=True))
    return {name: unwrap(value) for name, value in (by_position | (function.__kwdefaults__ or {})).items()}


def _mistake(function: FunctionType, problem: str) -> UserError:
    name = function.__qualname__.rpartition("<locals>.")[2]
    return fail(errors.ARGUMENTS, function=name, problem=problem, signature=signature(function))


def _count(number: int) -> str:
    return {0: "no arguments", 1: "1 argument"}.get(number, f"{number} arguments")


def signature(function: Any) -> str:
    """A function's parameters without their annotations, as in `(x, axis=None)`."""
    known = inspect.signature(function)
    empty = inspect.Parameter.empty
    bare = [p.replace(annotation=empty, default=_shown(p.default)) for p in known.parameters.values()]
    return str(known.replace(parameters=bare, return_annotation=empty))


class _Named:
    """A function as a default value, by its name."""

    def __init__(self, function: Any) -> None:
        self.name = function.__name__

    def __repr__(self) -> str:
        return self.name


def _shown(default: Any) -> Any:
    return _Named(default) if inspect.isfunction(default) else default
