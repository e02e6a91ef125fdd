"""Reading a whole kernel.

What each construct of Python becomes stands in the modules named here: importing them fills the tables of `frame`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from weft.errors import Loc, fail
from weft.errors import lang as errors
from weft.ir.build import Builder
from weft.ir.core import Func, Value
from weft.ir.types import Element, ScalarType
from weft.lang import calls, control, expressions, names, refused, statements
from weft.lang.frame import Binding, Frame, Read, Trace
from weft.lang.source import Source, parameters, source_of
from weft.language import tensor
from weft.language.context import Context, TargetLike, enter
from weft.language.marks import unwrap
from weft.ops import control as control_ops

FAMILIES = (calls, control, expressions, names, refused, statements)


@dataclass(frozen=True, slots=True)
class RuntimeParam:
    """A parameter of the compiled kernel: its type, and what it is known to be a multiple of (a pointer in bytes)."""

    element: Element
    divisible: int = 1


@dataclass(frozen=True, slots=True)
class ConstexprParam:
    """A parameter whose value is known at compile time; the compiled kernel does not have it."""

    value: object


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel's tile IR, and everything outside of its parameters that it depends on."""

    func: Func
    reads: tuple[Read, ...]


def build_kernel(
    fn: FunctionType,
    params: Mapping[str, RuntimeParam | ConstexprParam],
    *,
    num_warps: int,
    target: TargetLike,
    name: str | None = None,
) -> Built:
    """Read a kernel: its Python function, and what each parameter is, into tile IR for a target.

    Raises the author's mistakes, each with its line: one CompilationError or LayoutError, or an ErrorGroup of several.
    """
    source = source_of(fn)
    trace = Trace(Builder())
    arguments = _arguments(params)
    frame = Frame(trace, fn, source, None, _environment(source, params, arguments))
    context = Context(trace.builder, num_warps, target, _inliner(trace))
    with enter(context):
        _read(frame)
    trace.finish()
    trace.builder.loc = _definition(source)
    trace.builder.emit(control_ops.return_)
    facts = tuple(_facts(p) for p in params.values() if isinstance(p, RuntimeParam))
    attrs = {"num_warps": num_warps, "target": target.name, "params": facts, "stage": "tile"}
    func = trace.builder.func(name or fn.__name__, tuple(arguments.values()), attrs, _definition(source))
    return Built(func, tuple(trace.reads.values()))


def _read(frame: Frame) -> None:
    try:
        calls.read_function(frame)
    except RecursionError as error:
        raise fail(errors.NESTING, loc=frame.builder.loc, function=frame.source.name) from error


def _arguments(params: Mapping[str, RuntimeParam | ConstexprParam]) -> dict[str, Value]:
    return {name: Value(ScalarType(p.element), name) for name, p in params.items() if isinstance(p, RuntimeParam)}


def _environment(
    source: Source, params: Mapping[str, RuntimeParam | ConstexprParam], arguments: Mapping[str, Value]
) -> dict[str, Binding]:
    places = {p.arg: _place(source, p) for p in parameters(source.node)}
    values = {
        name: unwrap(p.value) if isinstance(p, ConstexprParam) else tensor(arguments[name])
        for name, p in params.items()
    }
    return {name: Binding(value, places.get(name)) for name, value in values.items()}


def _place(source: Source, node: ast.arg | ast.FunctionDef) -> Loc:
    return Loc(source.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, source.name)


def _definition(source: Source) -> Loc:
    node = source.node
    return Loc(source.file, node.lineno, node.col_offset, function=source.name)


def _facts(param: RuntimeParam) -> dict[str, int]:
    return {"divisible": param.divisible} if param.divisible > 1 else {}


def _inliner(trace: Trace) -> Any:
    """How functions of the language call a helper, such as the combine function of a reduction."""

    def run(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return calls.invoke(trace.frames[-1], function, args, kwargs)

    return run
