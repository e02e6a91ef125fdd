"""What a name means: a local variable, a closure cell, a global, or one of Python's own names; and attributes.

Whatever a kernel takes from its surroundings is recorded as a `Read`, at its longest path: a kernel that uses `cfg.block`
depends on that number and not on all of `cfg`.
"""

from __future__ import annotations

import ast
import builtins
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from weft.errors import Loc, fail
from weft.errors import lang as errors
from weft.errors import thread as thread_errors
from weft.lang.frame import POISON, Frame, Read, Unusable, expression
from weft.lang.otherwise import instead, instead_of_name
from weft.lang.source import dotted
from weft.lang.values import class_of, show
from weft.language import LayoutTensor, LayoutTensorIter, constexpr
from weft.language.aggregate import is_aggregate
from weft.language.marks import is_computed, is_constexpr_function, jit_of, unwrap
from weft.language.runtime_value import RuntimeValue

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Method:
    """A `@jit` or `@constexpr_function` method of an aggregate, with the instance it was looked up on."""

    function: Any
    owner: Any


@expression(ast.Name)
def name(frame: Frame, node: ast.Name) -> Any:
    """A name: what was assigned to it here, else what it means where the function stands."""
    if node.id in frame.env:
        return local(frame, node.id, frame.at(node))
    if node.id in frame.source.locals:
        raise fail(errors.UNASSIGNED, loc=frame.at(node), name=node.id, function=frame.source.name)
    return outer(frame, node.id, frame.at(node))


@expression(ast.Attribute)
def attribute_of(frame: Frame, node: ast.Attribute) -> Any:
    """`a.b`: of a value, or a path from something outside of the function."""
    path = frame.source.path(node)
    root = path.partition(".")[0]
    if path and root not in frame.env and root not in frame.source.locals:
        return outer(frame, path, frame.at(node))
    owner = frame.value(node.value)
    frame.mark(node)
    return attribute(owner, node.attr)


def local(frame: Frame, name: str, reader: Loc) -> Any:
    """The value of an assigned name. Raises the mistake that left it without one; a second reader is passed over."""
    value = frame.env[name].value
    if isinstance(value, Unusable):
        frame.bind(name, POISON, frame.env[name].loc)
        raise value.error(reader)
    return value


def outer(frame: Frame, path: str, loc: Loc) -> Any:
    """What `a.b.c` means around the function, unwrapped.

    Raises CompilationError: lang-undefined-name, lang-attribute, thread-host-view.
    """
    known = frame.trace.reads.get((frame.function, path))
    if known is not None:
        return unwrap(known.value)
    root, *rest = path.split(".")
    value = surrounding(frame.function, root)
    if value is _MISSING:
        hint = suggestion(root, {*frame.env, *frame.function.__globals__, *vars(builtins)})
        advice = instead_of_name(root) or "define it before this line" + hint
        raise fail(errors.UNDEFINED, loc=loc, name=root, instead=advice)
    seen = [root]
    while rest and not isinstance(value, constexpr) and not is_computed(value):
        found = getattr(value, rest[0], _MISSING)
        if found is _MISSING:
            break
        value = found
        seen.append(rest.pop(0))
    path = ".".join(seen)
    if isinstance(value, (LayoutTensor, LayoutTensorIter)):
        raise fail(thread_errors.HOST_VIEW, loc=loc, path=path)
    frame.trace.reads[frame.function, path] = Read(frame.function, path, value)
    value = unwrap(value)
    frame.builder.loc = loc
    for part in rest:
        value = attribute(value, part)
    return value


def surrounding(function: FunctionType, name: str) -> Any:
    """A closure cell, a global or a builtin as it is now, or a marker when there is none."""
    names = function.__code__.co_freevars
    if name in names:
        cell = (function.__closure__ or ())[names.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    found = function.__globals__.get(name, _MISSING)
    return getattr(builtins, name, _MISSING) if found is _MISSING else found


def attribute(owner: Any, name: str) -> Any:
    """`owner.name`, unwrapped; methods of aggregates come bound. Raises CompilationError (lang-attribute).

    A constant's `.value` is the constant itself, since kernels see no `constexpr` boxes.
    """
    if is_aggregate(owner):
        cls = class_of(owner)
        method = getattr(cls, name, None)
        if (jit_of(method) is not None or is_constexpr_function(method)) and name not in vars(owner):
            is_static = isinstance(_in_class(cls, name), staticmethod)
            return method if is_static else Method(method, owner)
    if isinstance(owner, RuntimeValue):
        # A property of a tile that a scalar lacks raises the author's mistake, which must pass.
        return getattr(owner, name) if hasattr(type(owner), name) else _no_attribute(owner, name)
    found = getattr(owner, name, _MISSING)
    if found is not _MISSING:
        return unwrap(found)
    return owner if name == "value" else _no_attribute(owner, name)


def _in_class(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _no_attribute(owner: Any, name: str) -> Any:
    what = f"module {owner.__name__}" if isinstance(owner, ModuleType) else show(owner)
    advice = instead(name, owner) if isinstance(owner, (RuntimeValue, ModuleType)) else ""
    raise fail(errors.ATTRIBUTE, owner=what, name=name, instead=advice or _existing(owner, name))


def _existing(owner: Any, name: str) -> str:
    """What to write for an attribute that no table knows: a similar name, or those that there are."""
    known = [each for each in dir(owner) if not each.startswith("_")]
    close = suggestion(name, known)
    if close:
        return "use one that exists" + close
    return f"use one of {', '.join(known)}" if 0 < len(known) <= _FEW else "use one that exists"


_FEW = 12
"""How many attributes a message lists."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A clause that names a similar name; empty when there is none."""
    close = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _spelling(annotation: ast.expr | None) -> str:
    """`gl.constexpr` of itself and of `gl.constexpr[int]`, quoted or not."""
    if isinstance(annotation, ast.Subscript):
        return _spelling(annotation.value)
    return str(annotation.value).partition("[")[0] if isinstance(annotation, ast.Constant) else dotted(annotation)


def annotates_constexpr(function: FunctionType, annotation: ast.expr | None) -> bool:
    """True when an annotation means `constexpr`. Python never evaluates those of variables, so an unknown one is no mistake."""
    root, *rest = _spelling(annotation).split(".")
    value = surrounding(function, root)
    for part in rest:
        value = getattr(value, part, _MISSING)
    return value is constexpr
