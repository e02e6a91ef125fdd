"""Reading simple statements: assignments, expressions, assertions, return, break and continue."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import Any, NoReturn

from weft.errors import fail
from weft.errors import source as errors
from weft.lang.calls import call_value
from weft.lang.expressions import combine
from weft.lang.frame import GOING, After, Frame, Outcome, Signal, statement
from weft.lang.names import Method, attribute, is_outside, local, variable_kind
from weft.lang.values import DROP_ANNOTATION, class_of, is_runtime, is_sequence, require_constexpr, show
from weft.language import SIMD, LayoutTensor, LayoutTensorIter, constexpr, device_assert, tensor
from weft.language.aggregate import is_aggregate, seal
from weft.language.marks import must_use
from weft.language.places import is_pointer
from weft.language.promote import place
from weft.language.runtime_value import RuntimeValue, is_handle
from weft.language.shared_memory import shared_memory_descriptor
from weft.language.tree import fields_of, flatten
from weft.views.brackets import FINISH, is_unfinished


@statement(ast.Expr)
def expression_statement(frame: Frame, node: ast.Expr, after: After) -> Outcome:
    """An expression for its effect, or a docstring. Raises lang-result-dropped."""
    if isinstance(node.value, ast.Call):
        function = frame.value(node.value.func)
        _check_used(frame, node.value, function.function if isinstance(function, Method) else function)
        call_value(frame, node.value, function)
    else:
        frame.value(node.value)
    return Signal.NEXT


def _check_used(frame: Frame, node: ast.Call, function: Any) -> None:
    """Refuse to drop the result of a function that is marked `must_use_result`."""
    if must_use(function):
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_value = isinstance(owner, (ast.Name, ast.Attribute)) and not is_outside(frame, owner)
        target = ast.unparse(owner) if owner is not None and is_value else "result"
        name, _, _ = ast.unparse(node).partition("(")
        raise fail(errors.DROPPED, loc=frame.at(node), function=name, target=target, call=ast.unparse(node))


@statement(ast.Pass)
def nothing(frame: Frame, node: ast.Pass, after: After) -> Outcome:
    """`pass`."""
    return Signal.NEXT


@statement(ast.Assign)
def assignment(frame: Frame, node: ast.Assign, after: After) -> Outcome:
    """`a = b = value`."""
    value = frame.value(node.value)
    frame.mark(node)
    for target in node.targets:
        assign(frame, target, value)
    return Signal.NEXT


@statement(ast.AnnAssign)
def annotated(frame: Frame, node: ast.AnnAssign, after: After) -> Outcome:
    """`a: gl.constexpr = value` requires a constant; `a: gl.float32 = 0` is a float. Other annotations say nothing here."""
    kind = variable_kind(frame, node.annotation)
    if node.value is None:
        return Signal.NEXT
    value = frame.value(node.value)
    frame.mark(node)
    if kind is constexpr:
        require_constexpr(value, f"{ast.unparse(node.target)!r}", DROP_ANNOTATION)
    elif kind is not None and type(value) in (int, float):
        value = place(value, kind, None)
    assign(frame, node.target, value)
    return Signal.NEXT


@statement(ast.AugAssign)
def augmented(frame: Frame, node: ast.AugAssign, after: After) -> Outcome:
    """`a += b` is `a = a + b`, since values are immutable. `view[i] += b` updates memory."""
    if isinstance(node.target, ast.Subscript):
        owner, key = _item(frame, node.target)
        old = owner[key]
        value = frame.value(node.value)
        frame.mark(node)
        owner[key] = combine(node.op, old, value)
        return Signal.NEXT
    old = _current(frame, node.target)
    value = frame.value(node.value)
    frame.mark(node)
    assign(frame, node.target, combine(node.op, old, value, in_place=is_aggregate(old)))
    return Signal.NEXT


def _current(frame: Frame, target: ast.Name | ast.Attribute) -> Any:
    if isinstance(target, ast.Attribute):
        return attribute(frame, frame.value(target.value), target.attr)
    if target.id in frame.env:
        return local(frame, target)
    raise fail(errors.UNASSIGNED, loc=frame.at(target), name=target.id, function=frame.source.name)


@statement(ast.Return)
def return_value(frame: Frame, node: ast.Return, after: After) -> Outcome:
    """`return value`."""
    value = None if node.value is None else frame.value(node.value)
    if frame.caller is None and value is not None:
        raise fail(errors.KERNEL_RETURN, function=frame.source.name, value=show(value))
    return frame.returns(value, frame.at(node))


@statement(ast.Break)
def break_loop(frame: Frame, node: ast.Break, after: After) -> Outcome:
    """`break`."""
    if frame.loops[-1]:
        return Signal.BREAK
    frame.bind(GOING, False, frame.builder.loc)
    return Signal.END


@statement(ast.Continue)
def continue_loop(frame: Frame, node: ast.Continue, after: After) -> Outcome:
    """`continue`."""
    return Signal.CONTINUE if frame.loops[-1] else Signal.END


@statement(ast.Assert)
def assertion(frame: Frame, node: ast.Assert, after: After) -> Outcome:
    """`assert`: checked at compile time for constants, on the device for run-time values."""
    condition = frame.value(node.test)
    frame.mark(node)
    if isinstance(condition, tensor):
        device_assert(condition, ast.unparse(node.test) if node.msg is None else frame.value(node.msg))
    elif not condition:
        message = ast.unparse(node.test) if node.msg is None else frame.value(node.msg)
        raise fail(errors.ASSERTION, message=message)
    return Signal.NEXT


def assign(frame: Frame, target: ast.expr, value: Any) -> None:
    """Assign to a name, a tuple of targets, or an attribute of an aggregate."""
    if isinstance(target, ast.Name):
        _name_outside(frame, value)
        value = value.named(target.id) if isinstance(value, (LayoutTensor, LayoutTensorIter)) else value
        name_leaves(target.id, value)
        frame.bind(target.id, value, frame.builder.loc)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(frame, target.elts, value)
    elif isinstance(target, ast.Attribute):
        assign(frame, target.value, with_field(frame, frame.value(target.value), target.attr, value))
    elif isinstance(target, ast.Subscript):
        _set_item(frame, target, value)
    else:
        raise fail(errors.IMMUTABLE, got=ast.unparse(target), instead="assign to a name")


def _name_outside(frame: Frame, value: Any) -> None:
    """Rename a handle that an inlined function created and named: messages use the caller's name for it."""
    if isinstance(value, RuntimeValue) and is_handle(value):
        depth, named = len(frame.trace.frames), frame.trace.named
        if value.handle.name and named.get(value.handle, 0) > depth:
            value.handle.name = ""
        if not value.handle.name:
            named[value.handle] = depth


def name_leaves(name: str, value: Any) -> None:
    """Give the author's name to the unnamed run-time values in a value; a field is named as in `mma_acc`."""
    if isinstance(value, RuntimeValue):
        value.handle.name = value.handle.name or name
    elif is_runtime(value):
        leaves, structure = flatten(value)
        for leaf, path in zip(leaves, structure.paths(name), strict=True):
            if isinstance(leaf, RuntimeValue) and not leaf.handle.name:
                # The memory of a view is named as the view, without the fields that lead to it.
                leaf.handle.name = identifier(path.removesuffix(".storage.memory"))


def identifier(path: str) -> str:
    """A path as one identifier: `pair[0].acc` is `pair_0_acc`."""
    return path.replace("[", "_").replace("]", "").replace(".", "_")


def _unpack(frame: Frame, targets: list[ast.expr], value: Any) -> None:
    if not is_sequence(value) and not isinstance(value, (range, str)):
        raise fail(errors.NOT_SEQUENCE, got=show(value))
    values: Sequence[Any] = value
    star = next((i for i, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if star is not None:
        behind = len(targets) - star - 1
        middle = list(values[star : len(values) - behind])
        if len(values) >= len(targets) - 1:
            values = [*values[:star], middle, *values[len(values) - behind :]]
    if len(values) != len(targets):
        raise fail(errors.UNPACK, count=len(values), targets=len(targets))
    for target, item in zip(targets, values, strict=True):
        assign(frame, target.value if isinstance(target, ast.Starred) else target, item)


def with_field(frame: Frame, owner: Any, name: str, value: Any) -> Any:
    """A copy of an aggregate with one field replaced. Aggregates have value semantics: another name keeps the old value.

    Raises CompilationError: lang-immutable for anything but an aggregate, view-immutable for a view, lang-attribute for an
    unknown field.
    """
    if not is_aggregate(owner):
        raise fail(errors.IMMUTABLE, got=show(owner), instead="use a variable, or a field of an aggregate")
    fields = fields_of(class_of(owner))
    if isinstance(owner, (LayoutTensor, LayoutTensorIter)):
        setattr(owner, name, value)  # Views raise view-immutable here.
    if name not in fields:
        instead = f"use one that exists: its fields are {', '.join(fields)}"
        raise fail(errors.ATTRIBUTE, owner=type(owner).__name__, name=name, instead=instead)
    changed = copy.copy(owner)
    object.__setattr__(changed, name, value)
    # `__init__` sets the fields one by one; the aggregate checks all of them when it is done.
    return changed if frame.source.node.name == "__init__" else seal(changed)


def _set_item(frame: Frame, target: ast.Subscript, value: Any) -> None:
    loc = frame.builder.loc
    owner, key = _item(frame, target)
    frame.builder.loc = loc
    owner[key] = value


def _item(frame: Frame, target: ast.Subscript) -> tuple[Any, Any]:
    """Owner and key of an assignment to `owner[key]`, which writes memory. Raises lang-immutable for other owners."""
    owner = frame.value(target.value)
    written = is_pointer(owner) if isinstance(owner, tensor) else hasattr(owner, "__setitem__")
    if isinstance(owner, (list, dict)) or not written:
        _immutable(owner)
    return owner, frame.value(target.slice)


def _immutable(owner: Any) -> NoReturn:
    instead = "write gl.where(condition, new, old) for some elements of a tile, or gl.store to memory"
    if isinstance(owner, shared_memory_descriptor):
        owner.check_brackets()
    if is_handle(owner):
        instead = "write smem.store(value), or bufs.index(i).store(value) where it holds several tiles"
    elif isinstance(owner, SIMD):
        instead = (
            f"make a new one: gl.SIMD[gl.{owner.dtype.name}, {owner.size}](values), or gl.where(condition, new, old)"
        )
    elif is_unfinished(owner):
        instead = FINISH
    elif not isinstance(owner, tensor):
        instead = "build a new tuple or list with the value in it"
    raise fail(errors.IMMUTABLE, got=show(owner), instead=instead)
