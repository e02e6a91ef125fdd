"""Name lookup (local variables, closure cells, globals, builtins) and attributes.

Every value that a kernel takes from outside is recorded as a `Read` with its longest path: a kernel that uses `cfg.block`
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

from weft.errors import Loc, UserError, fail
from weft.errors import source as errors
from weft.errors import thread as thread_errors
from weft.ir.types import DType
from weft.lang.frame import POISON, Frame, Unusable, expression, spell
from weft.lang.otherwise import instead, instead_in, instead_of_name
from weft.lang.source import Path, dotted, names_of, parameters
from weft.lang.values import class_of, is_runtime, show
from weft.language import LayoutTensor, LayoutTensorIter, constexpr
from weft.language.aggregate import is_aggregate
from weft.language.kinds import type_of
from weft.language.marks import is_computed, is_constexpr_function, jit_of, unwrap
from weft.language.promote import to_tensor
from weft.language.runtime_value import RuntimeValue, article
from weft.language.storages import ARRAYS
from weft.language.tensor import tensor
from weft.views.brackets import FINISH, is_unfinished

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Method:
    """A `@jit` or `@constexpr_function` method of an aggregate, with the instance it was looked up on."""

    function: Any
    owner: Any


@expression(ast.Name)
def name(frame: Frame, node: ast.Name) -> Any:
    """A name: the local variable, else the closure cell, global or builtin."""
    if node.id in frame.env:
        return local(frame, node)
    if node.id in frame.source.locals:
        raise fail(errors.UNASSIGNED, loc=frame.at(node), name=node.id, function=frame.source.name)
    return outer(frame, node)


@expression(ast.Attribute)
def attribute_of(frame: Frame, node: ast.Attribute) -> Any:
    """`a.b`: an attribute of a value, or a path from outside of the function."""
    if is_outside(frame, node):
        return outer(frame, node)
    owner = frame.value(node.value)
    frame.mark(node)
    return attribute(frame, owner, node.attr)


def local(frame: Frame, node: ast.Name) -> Any:
    """The value of an assigned name. The first read of a name without a value raises its error, later reads are skipped."""
    value, loc = frame.env[node.id]
    if isinstance(value, Unusable):
        frame.bind(node.id, POISON, loc)
        raise value.error(frame.at(node))
    return value


@dataclass(frozen=True, slots=True)
class Reached:
    """A value from outside of the function and the path to it; `path` is None for a value computed from one."""

    value: Any
    path: Path | None


def is_outside(frame: Frame, node: ast.expr) -> bool:
    """True for attributes and items of a name that is not local to the function."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id not in frame.env and node.id not in frame.source.locals


def outer(frame: Frame, node: ast.Name | ast.Attribute | ast.Subscript) -> Any:
    """The value of an expression outside of the function. Raises what `reach` and `take` raise."""
    path = frame.source.path(node)
    known = frame.trace.reads.get((id(frame.function), path)) if path else None
    return unwrap(known.value) if known is not None else take(frame, reach(frame, node), frame.at(node))


def reach(frame: Frame, node: ast.expr) -> Reached:
    """Follow a path from outside of the function without recording it. A part that is not a plain path is evaluated.

    Raises CompilationError: lang-undefined-name, lang-attribute, thread-host-view.
    """
    if isinstance(node, ast.Name):
        value = surrounding(frame.function, node.id)
        if value is _MISSING:
            raise _undefined(frame, node, node.id)
        return Reached(value, (("name", node.id),))
    if isinstance(node, ast.Subscript):
        return _reach_item(frame, node)
    assert isinstance(node, ast.Attribute)
    owner = reach(frame, node.value)
    if owner.path is not None and not isinstance(owner.value, constexpr) and not is_computed(owner.value):
        found = getattr(owner.value, node.attr, _MISSING)
        if found is not _MISSING:
            return Reached(found, (*owner.path, ("attribute", node.attr)))
    value = take(frame, owner, frame.at(node.value))
    frame.builder.loc = frame.at(node)
    return Reached(attribute(frame, value, node.attr), None)


def _reach_item(frame: Frame, node: ast.Subscript) -> Reached:
    owner = reach(frame, node.value)
    index = frame.value(node.slice)
    if owner.path is not None and type(owner.value) in _CONTAINERS and type(index) in _KEYS:
        try:
            return Reached(owner.value[index], (*owner.path, ("item", index)))
        except (LookupError, TypeError):
            pass  # `item` below reports the error.
    value = take(frame, owner, frame.at(node.value))
    frame.mark(node)
    return Reached(item(node, value, index), None)


def length(frame: Frame, node: ast.expr) -> Any:
    """`len` of a value outside of the function. Only the length is recorded as read, not the items."""
    reached = reach(frame, node)
    if reached.path is not None and (type(reached.value) in _CONTAINERS or _is_array(reached.value)):
        count = len(reached.value)
        return frame.trace.read(frame.function, (*reached.path, ("length", None)), count)
    value = take(frame, reached, frame.at(node))
    frame.mark(node)
    return len(value)


_CONTAINERS = (tuple, list, dict)
_KEYS = (int, str, bool, type(None))


def item(node: ast.Subscript, owner: Any, index: Any) -> Any:
    """`owner[index]`. Raises CompilationError: lang-index, lang-brackets."""
    if is_runtime(index) and isinstance(owner, _INDEXED):
        raise fail(errors.INDEX, owner=show(owner), got=show(index))
    try:
        return owner[index]
    except TypeError as error:
        if hasattr(owner, "__getitem__") or hasattr(owner, "__class_getitem__"):
            raise
        raise fail(errors.BRACKETS, got=show(owner), instead=_instead_of_brackets(node, owner)) from error


def _instead_of_brackets(node: ast.Subscript, owner: Any) -> str:
    if is_unfinished(owner):
        return FINISH
    if callable(owner):
        key, method = ast.unparse(node.slice), ast.unparse(node.value)
        return f"leave out [{key}]: all arguments stand in parentheses, as in {method}(...)"
    return "take elements of a tuple, a list, a tile or a view"


_INDEXED = (tuple, list, dict, str, bytes, range)


def take(frame: Frame, reached: Reached, loc: Loc) -> Any:
    """The value that was reached, unwrapped, and recorded at its longest path. Raises CompilationError (thread-host-view)."""
    if reached.path is None:
        return reached.value
    if isinstance(reached.value, (LayoutTensor, LayoutTensorIter)) or _is_array(reached.value):
        kind = class_of(reached.value).__name__
        raise fail(thread_errors.HOST_VIEW, loc=loc, path=f"{spell(reached.path)}, {article(kind)},")
    frame.builder.loc = loc
    return unwrap(frame.trace.read(frame.function, reached.path, reached.value))


def _is_array(value: object) -> bool:
    """True for the arrays of any library, but not for NumPy scalars."""
    return hasattr(type(value), "__len__") and any(hasattr(value, protocol) for protocol in ARRAYS)


def surrounding(function: FunctionType, name: str) -> Any:
    """The current value of a closure cell, a global or a builtin, or `_MISSING`."""
    names = function.__code__.co_freevars
    if name in names:
        cell = (function.__closure__ or ())[names.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    found = function.__globals__.get(name, _MISSING)
    return getattr(builtins, name, _MISSING) if found is _MISSING else found


def attribute(frame: Frame, owner: Any, name: str) -> Any:
    """`owner.name`, unwrapped; methods of aggregates are bound. Raises CompilationError (lang-attribute).

    A constant's `.value` is the constant itself, since the reader unwraps `constexpr` objects. A number has what a scalar has,
    too: an argument may be a scalar in one launch and the constant 1, which kernels are specialised on, in the next.
    """
    record(frame, owner, name)
    if is_aggregate(owner):
        cls = class_of(owner)
        method = getattr(cls, name, None)
        if (jit_of(method) is not None or is_constexpr_function(method)) and name not in vars(owner):
            is_static = isinstance(_in_class(cls, name), staticmethod)
            return method if is_static else Method(method, owner)
    if isinstance(owner, RuntimeValue):
        # A property that raises a user error (one of tiles, read on a scalar) must not be mistaken for a missing attribute.
        return getattr(owner, name) if hasattr(type(owner), name) else _no_attribute(owner, name)
    found = getattr(owner, name, _MISSING)
    if found is not _MISSING:
        return unwrap(found)
    if is_of_scalars(owner, name):
        return getattr(to_tensor(owner), name)
    if name == "type" and isinstance(owner, tuple):
        return type_of(owner)
    return owner if name == "value" else _no_attribute(owner, name)


def is_of_scalars(owner: Any, name: str) -> bool:
    """Whether a number has an attribute as a run-time scalar, and not as what it is in Python."""
    return type(owner) in (bool, int, float) and not hasattr(owner, name) and name in _OF_SCALARS


_OF_SCALARS = frozenset(name for name in dir(tensor) if not name.startswith("_"))


def record(frame: Frame, owner: Any, name: str) -> None:
    """Record an attribute lookup that is not on a path: in a module, a class, or the class of an object."""
    if isinstance(owner, RuntimeValue):
        return
    place: Any = owner if isinstance(owner, (type, ModuleType)) else class_of(owner)
    module = place.__name__ if isinstance(place, ModuleType) else place.__module__
    if module == "builtins" or module.partition(".")[0] == "weft":
        return
    if isinstance(place, ModuleType) or any(name in vars(base) for base in place.__mro__):
        frame.trace.read(place, (("attribute", name),), None)


def _undefined(frame: Frame, node: ast.expr, name: str) -> UserError:
    hint = suggestion(name, {*frame.env, *frame.function.__globals__, *vars(builtins)})
    advice = instead_of_name(name) or "define it before this line" + hint
    return fail(errors.UNDEFINED, loc=frame.at(node), name=name, instead=advice)


def _in_class(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _no_attribute(owner: Any, name: str, loc: Loc | None = None) -> Any:
    what = f"module {owner.__name__}" if isinstance(owner, ModuleType) else show(owner)
    advice = FINISH if is_unfinished(owner) else ""
    if isinstance(owner, ModuleType) and owner.__name__.startswith("weft.language."):
        advice = instead_in(owner.__name__, name)
    elif isinstance(owner, (RuntimeValue, ModuleType)):
        advice = instead(name, owner)
    raise fail(errors.ATTRIBUTE, loc=loc, owner=what, name=name, instead=advice or _existing(owner, name))


def _existing(owner: Any, name: str) -> str:
    """The fix for an unknown attribute: a similar name, or the list of existing ones."""
    known = [each for each in getattr(owner, "__all__", dir(owner)) if not each.startswith("_")]
    close = suggestion(name, known)
    if close:
        return "use one that exists" + close
    return f"use one of {', '.join(known)}" if 0 < len(known) <= _FEW else "use one that exists"


_FEW = 12
"""A message lists at most this many attributes."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A clause that suggests a similar name; empty when there is none."""
    close = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def annotates_constexpr(frame: Frame, annotation: ast.expr | None) -> bool:
    """True when the annotation of a parameter is `constexpr`."""
    return _annotation(frame, annotation) is constexpr


def variable_kind(frame: Frame, annotation: ast.expr) -> Any:
    """What the annotation of a variable says: `constexpr`, a floating-point type, as `gl.float32` or `t.ElementType`, or None
    for anything else. Raises lang-undefined-name, lang-attribute."""
    root, *rest = _parts(annotation)
    if root not in frame.env:
        check_annotation(frame, annotation)
        found = _annotation(frame, annotation)
    else:
        found = frame.env[root].value
        for part in () if isinstance(found, Unusable) else rest:
            found = _attribute_in(frame, annotation, found, part)
    return found if found is constexpr or (isinstance(found, DType) and found.is_floating()) else None


def check_annotations(frame: Frame) -> None:
    """Reject names and attributes in the annotations of a function that do not exist (lang-undefined-name, lang-attribute).

    The compiler would take a misspelt `gl.constexpr` for an annotation that it ignores."""
    definition = frame.source.node
    for annotation in (*(parameter.annotation for parameter in parameters(definition)), definition.returns):
        if annotation is not None:
            check_annotation(frame, annotation)


def check_annotation(frame: Frame, annotation: ast.expr) -> None:
    """As `check_annotations`, of one annotation.

    Left alone are words in quotes, expressions, and names that the file defines where Python does not: under `TYPE_CHECKING`,
    or in a function around this one, whose names annotations do not capture."""
    root, *rest = _parts(annotation)
    if not root:
        return
    value = surrounding(frame.function, root)
    if value is _MISSING:
        if not isinstance(annotation, ast.Constant) and root not in names_of(frame.function):
            raise _undefined(frame, annotation, root)
        return
    for part in rest:
        value = _attribute_in(frame, annotation, value, part)


def _attribute_in(frame: Frame, annotation: ast.expr, owner: Any, name: str) -> Any:
    found = getattr(owner, name, _MISSING)
    return _no_attribute(owner, name, frame.at(annotation)) if found is _MISSING else found


def _annotation(frame: Frame, annotation: ast.expr | None) -> Any:
    """The object outside of the function that an annotation names, or `_MISSING`."""
    root, *rest = _parts(annotation)
    if not root:
        return _MISSING
    value = surrounding(frame.function, root)
    for part in rest:
        value = getattr(value, part, _MISSING)
    frame.trace.read(frame.function, (("name", root), *(("attribute", part) for part in rest)), value)
    return value


def _parts(annotation: ast.expr | None) -> list[str]:
    """The parts of the dotted name that an annotation is: `gl` and `constexpr` of `gl.constexpr` and of `gl.constexpr[int]`,
    quoted or not; an empty one for anything else."""
    if isinstance(annotation, ast.Subscript):
        return _parts(annotation.value)
    is_text = isinstance(annotation, ast.Constant)
    parts = (str(annotation.value).partition("[")[0] if is_text else dotted(annotation)).split(".")
    return parts if all(part.isidentifier() for part in parts) else [""]
