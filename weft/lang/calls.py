"""Reading calls: functions of the language, inlined helpers, functions of constants, aggregates, and Python builtins."""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

from weft import language
from weft.errors import UserError, fail
from weft.errors import source as errors
from weft.ir.types import DType
from weft.lang import otherwise
from weft.lang.arguments import bind, signature
from weft.lang.expressions import elements, items
from weft.lang.frame import POISON, Binding, Frame, Outcome, Ran, Return, Signal, Skip, Trace, expression
from weft.lang.names import Method, annotates_constexpr, check_annotations, is_outside, length
from weft.lang.pythons import HANDLERS
from weft.lang.source import MUTATORS, parameters, source_of
from weft.lang.transparent import read_by
from weft.lang.values import (
    DROP_ANNOTATION,
    class_of,
    is_plain,
    is_runtime,
    is_sequence,
    require_constexpr,
    same_constant,
    show,
)
from weft.language import cast
from weft.language.aggregate import AGGREGATE
from weft.language.descriptor import tensor_descriptor
from weft.language.handles import memory_handle
from weft.language.marks import is_builtin, is_constexpr_function, jit_of, unwrap
from weft.language.runtime_value import RuntimeValue
from weft.language.tree import fields_of, flatten
from weft.layout.distributed.layouts import EditedLinearLayout

_SHOW_OR_ORDER = frozenset({str, repr, format, hash, sorted, min, max, round, pow, divmod, set, frozenset, dict})
"""Functions whose result depends on an object's text, order or hash, which by default derive from its address."""


@expression(ast.Call)
def call(frame: Frame, node: ast.Call) -> Any:
    """`f(a, *b, c=d)`."""
    return call_value(frame, node, frame.value(node.func))


def call_value(frame: Frame, node: ast.Call, function: Any) -> Any:
    """A call whose function expression has been evaluated."""
    if function is len and len(node.args) == 1 and is_outside(frame, node.args[0]):
        return length(frame, node.args[0])
    args, kwargs = positional(frame, node), keywords(frame, node)
    frame.mark(node)
    return invoke(frame, function, args, kwargs)


def positional(frame: Frame, node: ast.Call) -> list[Any]:
    """Positional arguments of a call, with starred ones unpacked."""
    return list(elements(frame, node.args))


def keywords(frame: Frame, node: ast.Call) -> dict[str, Any]:
    """Keyword arguments of a call, with `**mapping` unpacked."""
    found: dict[str, Any] = {}
    for keyword in node.keywords:
        value = frame.value(keyword.value)
        if keyword.arg is not None:
            found[keyword.arg] = value
        else:
            found.update({name: value[name] for name in items(value)})
    return found


def invoke(frame: Frame, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call. Raises CompilationError for anything that a kernel cannot call."""
    if is_builtin(function):
        return _checked(function, args, kwargs)
    if isinstance(function, Method):
        return _method(frame, function, args, kwargs)
    raw = jit_of(function)
    if raw is not None:
        return inline(frame, raw, args, kwargs)
    if isinstance(function, RuntimeValue) or not isinstance(function, Hashable):
        raise fail(errors.NOT_CALLABLE, got=show(function), instead="call a function")
    if function in HANDLERS:
        if (function in _SHOW_OR_ORDER and not all(map(is_plain, (*args, *kwargs.values())))) or function is hash:
            frame.trace.opened = True
        return HANDLERS[function](frame, *args, **kwargs)
    if isinstance(function, DType):
        return _checked(cast, args, {**kwargs, "dtype": function})
    if is_constexpr_function(function):
        _demand_static(function, args, kwargs)
        known = [arg for arg in args if not is_runtime(arg)]
        note_author_call(frame, function, known, {n: arg for n, arg in kwargs.items() if not is_runtime(arg)})
        found = (_checked if _is_ours(function) else _guarded)(function, args, kwargs)
        return require_constexpr(found, f"the result of {_name(function)}")
    if isinstance(function, type):
        return _instance(frame, function, args, kwargs)
    return _plain(function, args, kwargs)


def _method(frame: Frame, method: Method, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    raw = jit_of(method.function)
    if raw is not None:
        return inline(frame, raw, [method.owner, *args], kwargs)
    _demand_constants(method.function, args, kwargs)
    note_author_call(frame, method.function, [method.owner, *args], kwargs)
    return _guarded(method.function, [method.owner, *args], kwargs)


def _instance(frame: Frame, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if issubclass(cls, RuntimeValue):
        instead = "make tiles with gl.full, gl.arange or gl.load, and buffers with gl.allocate_shared_memory"
        raise fail(errors.NOT_CALLABLE, got=f"the type {cls.__name__}", instead=instead)
    if _is_ours(cls):
        return _checked(cls, args, kwargs)
    return _made(frame, cls, args, kwargs)


def _made(frame: Frame, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An instance of the author's class."""
    if hasattr(made, AGGREGATE):
        own = getattr(made.__init__, "__wrapped__", None)
        if isinstance(own, FunctionType):
            note_author_call(frame, own, args, kwargs)
        return _checked(made, args, kwargs)
    note_author_call(frame, made, args, kwargs)
    if fields_of(made):  # A named tuple, which may hold run-time values.
        return _guarded(made, args, kwargs)
    return _of_constants(made, args, kwargs)


def note_author_call(frame: Frame, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Record a compile-time call of the author's Python. The reads inside it are unknown, unless `read_by` can list them."""
    trace, given = frame.trace, (*args, *kwargs.values())
    # The reader records attributes of modules one by one; inside the author's function nothing records them.
    known = not any(isinstance(value, ModuleType) for value in given) and read_by(trace, function)
    trace.opened |= not known
    foreign = tuple(value for value in given if not is_plain(value))
    trace.ran.setdefault((id(function), *map(id, foreign)), Ran(function, foreign))


def _instead_of_call(value: Any) -> str:
    """The fix for a call of something that is not callable."""
    if isinstance(value, int):
        return (
            "drop the parentheses: shape and stride of a layout or view are tuples of integers here, as in t.shape[0]"
        )
    name = value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else ""
    return otherwise.instead(name) or "call a function"


def _plain(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call of a plain function or method, marked neither by the language nor by the author."""
    if not callable(function):
        raise fail(errors.NOT_CALLABLE, got=show(function), instead=_instead_of_call(function))
    owner = getattr(function, "__self__", None)
    if isinstance(owner, RuntimeValue) or _is_ours(function):
        return _checked(function, args, kwargs)
    if not isinstance(function, (BuiltinFunctionType, MethodType)) or not _is_constant_method(function, owner):
        _refuse_host_function(function)
    return _of_constants(function, args, kwargs)


def _refuse_host_function(function: Any) -> NoReturn:
    name, library = _name(function), otherwise.library_of(function)
    if library:
        advice = otherwise.instead(name) or otherwise.HOST_ONLY
        raise fail(errors.HOST_FUNCTION, function=name, kind=f"a function of {library}", instead=advice)
    instead = f"use gl.{name}, or " if name in language.__all__ else ""
    instead += (
        "decorate it with @weft.jit if it works on run-time values, or with @weft.constexpr_function if on constants"
    )
    raise fail(errors.HOST_FUNCTION, function=name, kind="a plain Python function", instead=instead)


def _is_ours(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "weft"


def _is_constant_method(function: Any, owner: Any) -> bool:
    """True for functions of `math` and methods of builtin types. Raises lang-immutable for methods that modify a container."""
    if isinstance(owner, ModuleType) or owner is None:
        return owner is math
    if isinstance(owner, (list, dict, set, bytearray)) and function.__name__ in MUTATORS:
        kind = class_of(function.__self__).__name__
        raise fail(errors.IMMUTABLE, got=f"a {kind}", instead="build a new one, as in xs + [x]")
    return isinstance(function, BuiltinFunctionType)


def _of_constants(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    _demand_constants(function, args, kwargs)
    return _guarded(function, args, kwargs)


def _demand_static(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises lang-not-constexpr for scalars and tiles. Handles, descriptors and aggregates pass: a constexpr function may read
    what is known of them at compile time, such as shapes and types."""
    got = next((value for value in (*args, *kwargs.values()) if not _is_static(value)), None)
    if got is not None:
        _demand_constants(function, [got], {})


def _is_static(value: Any) -> bool:
    if is_sequence(value):
        return all(map(_is_static, value))
    return (
        not is_runtime(value)
        or isinstance(value, (memory_handle, tensor_descriptor))
        or hasattr(class_of(value), AGGREGATE)
    )


def _demand_constants(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    got = next((value for value in (*args, *kwargs.values()) if is_runtime(value)), None)
    if got is None:
        return
    if getattr(function, "__self__", None) is math:
        name = function.__name__
        raise fail(
            errors.MATH, function=name, got=show(got), instead=otherwise.instead(name, got) or otherwise.HOST_ONLY
        )
    require_constexpr(got, f"every argument of {_name(function)}")


def _guarded(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the author's Python at compile time. An exception that it raises is reported at the kernel's line."""
    try:
        found = unwrap(function(*args, **kwargs))
        return found.settled() if isinstance(found, EditedLinearLayout) else found
    except UserError:
        raise
    except Exception as error:
        raise fail(errors.RAISED, kind=type(error).__name__, message=error) from error


def _checked(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of the language. A TypeError about its arguments is reported together with its signature."""
    try:
        return unwrap(function(*args, **kwargs))
    except UserError:
        raise
    except (TypeError, AttributeError) as error:
        name = _name(function)
        called, _, problem = str(error).partition("() ")
        told = bool(problem) and called.removesuffix(".__init__").endswith(name.rpartition(".")[2])
        if not told:
            problem = f"cannot take {_shown(args, kwargs)}"
        takes = signature(function) + otherwise.in_threads(name)
        raise fail(errors.ARGUMENTS, function=name, problem=problem, signature=takes) from (None if told else error)


def _shown(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Arguments, formatted for a message."""
    return ", ".join([*map(show, args), *(f"{name}={show(value)}" for name, value in kwargs.items())])


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


# Inlining


def inline(frame: Frame, function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Read a helper in place of its call. Returns the call's value.

    Raises CompilationError: lang-recursion, lang-call-arguments, lang-not-constexpr, and what its source raises.
    """
    trace, caller = frame.trace, frame.builder.loc
    source = source_of(function)
    bound = bind(function, source, args, kwargs)
    _check_recursion(trace, function, bound)
    inner = Frame(
        trace,
        function,
        source,
        caller,
        {name: Binding(value, caller) for name, value in bound.items()},
        arguments=bound,
    )
    _check_constants(inner)
    value = read_function(inner)
    if value is POISON:
        raise Skip
    frame.builder.loc = caller
    if source.node.name == "__init__":
        _fill(args[0], inner)
    return value


def read_function(frame: Frame) -> Any:
    """Read a function's body. Returns the function's result."""
    frame.trace.frames.append(frame)
    try:
        check_annotations(frame)
        outcome = frame.suite(frame.source.body, function_end)
    finally:
        frame.trace.frames.pop()
    return outcome.value if isinstance(outcome, Return) else None


def function_end(outcome: Outcome) -> Outcome:
    """The continuation at the end of a function: it returns None."""
    return Return(None) if outcome is Signal.NEXT else outcome


def _check_constants(frame: Frame) -> None:
    for parameter in parameters(frame.source.node):
        value = frame.env[parameter.arg].value
        # A handle of memory is known at compile time but for its address, and Gluon's kernels annotate it as a constant.
        if (
            is_runtime(value)
            and not isinstance(value, (memory_handle, tensor_descriptor))
            and annotates_constexpr(frame, parameter.annotation)
        ):
            require_constexpr(value, f"argument {parameter.arg!r} of {frame.source.name}", DROP_ANNOTATION)


def _fill(instance: Any, frame: Frame) -> None:
    """Copy the fields that an `__init__` has set from the environment's copy of `self` to the instance itself."""
    name = frame.source.node.args.args[0].arg
    made = frame.env[name].value
    for field in fields_of(class_of(instance)):
        if hasattr(made, field):
            value = getattr(made, field)
            object.__setattr__(instance, field, value)


def _check_recursion(trace: Trace, function: FunctionType, bound: Mapping[str, Any]) -> None:
    """A helper may call itself with other constants, which decide where it ends. Raises lang-recursion for a call that has the
    constants of one around it, since run-time values cannot end it, and for one that is `_DEEPEST` calls deep."""
    around = [each for each in trace.frames if each.function is function]
    if not around:
        return
    if len(around) < _DEEPEST and not any(_same_arguments(each.arguments, bound) for each in around):
        return
    chain = [each.source.name for each in trace.frames]
    if len(chain) > _SHOWN:
        chain[2 : 2 - _SHOWN] = ["..."]
    name = function.__qualname__.rpartition("<locals>.")[2]
    raise fail(errors.RECURSION, function=name, chain=" -> ".join([*chain, name]))


def _same_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the constants among the arguments are the same, at the same places."""
    first, second = (flatten(list(arguments.values())) for arguments in (one, other))
    return first[1] == second[1] and all(map(_same_argument, first[0], second[0]))


def _same_argument(one: Any, other: Any) -> bool:
    return is_runtime(other) if is_runtime(one) else not is_runtime(other) and same_constant(one, other)


_DEEPEST = 64
"""Calls of a helper to itself that are inlined in one another. Python's own limit would end deeper ones without a message."""
_SHOWN = 6
