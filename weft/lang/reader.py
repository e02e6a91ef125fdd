"""Reading a whole kernel.

The readers of the single constructs are in the modules of `FAMILIES`: importing them fills the tables of `frame`.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import FunctionType
from typing import Any

from weft.errors import Loc, asynchronous, fail
from weft.errors import source as errors
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import DescriptorType, Element, ScalarType, int32, int64
from weft.lang import branches, calls, expressions, loops, names, refused, statements
from weft.lang.frame import Binding, Frame, Ran, Read, TooLong, Trace
from weft.lang.source import Source, parameters, source_of
from weft.language import tensor
from weft.language.context import Context, TargetLike, enter
from weft.language.descriptor import tensor_descriptor
from weft.language.marks import unwrap
from weft.language.storages import GlobalStorage
from weft.language.symmetric import symmetric_argument
from weft.ops import control as control_ops
from weft.views import LayoutTensor
from weft.views.symmetric import SymmetricKey

FAMILIES = (branches, calls, expressions, loops, names, refused, statements)


@dataclass(frozen=True, slots=True)
class RuntimeParam:
    """A parameter of the compiled kernel: its type, and a known divisor of its value (in bytes for a pointer)."""

    element: Element
    divisible: int = 1


@dataclass(frozen=True, slots=True)
class DescriptorParam:
    """A tensor descriptor, which becomes several parameters of the compiled kernel.

    `names` are those of the parameters: the descriptor itself, then the tensor's extents, then its strides. `divisible` is a
    known divisor of every stride but the last, in elements.
    """

    type: DescriptorType
    names: tuple[str, ...]
    divisible: int = 1

    @property
    def rank(self) -> int:
        """Dimensions of the tensor."""
        return len(self.names) // 2


@dataclass(frozen=True, slots=True)
class ViewParam:
    """A view of global memory, which becomes several parameters of the compiled kernel.

    `pointer` points to its first element. `numbers` are its run-time extents and strides by name. `key` holds everything
    known at compile time (see `weft.views.LayoutTensor.from_argument`).
    """

    pointer: RuntimeParam
    key: Hashable
    numbers: Mapping[str, RuntimeParam]


@dataclass(frozen=True, slots=True)
class ConstexprParam:
    """A parameter whose value is known at compile time; the compiled kernel does not have it."""

    value: object


@dataclass(frozen=True, slots=True)
class TupleParam:
    """A tuple, whose items are parameters by name. `form` is its class if it is a named tuple."""

    items: Mapping[str, Param]
    form: Any = None


Param = RuntimeParam | DescriptorParam | ViewParam | ConstexprParam | TupleParam
Argument = tuple[Value, ParamFacts]
"""A parameter of the compiled kernel and its facts."""


@dataclass(frozen=True, slots=True)
class Built:
    """A kernel's tile IR, and everything besides its parameters that it depends on.

    `ran` lists the calls of the author's Python. `known` holds (by identity) the functions whose reads are all recorded.
    `opened` is true when the IR depends on more than the recorded reads.
    """

    func: Func
    reads: tuple[Read, ...]
    ran: tuple[Ran, ...] = ()
    known: Mapping[int, Any] = field(default_factory=dict[int, Any])
    opened: bool = False


def build_kernel(
    fn: FunctionType,
    params: Mapping[str, Param],
    *,
    num_warps: int,
    target: TargetLike,
    num_ctas: int = 1,
    block: tuple[int, int, int] | None = None,
    name: str | None = None,
) -> Built:
    """Read a kernel's Python function into tile IR for a target and for the given kinds of parameters.

    `block` is the shape of the thread block for a kernel that is launched with one.

    Raises the errors in the source, each with its line: one CompilationError or LayoutError, or an ErrorGroup of several.
    """
    source = source_of(fn)
    trace = Trace(Builder())
    _check_target(source, params, target)
    arguments = {name: tuple(_arguments(name, p)) for name, p in params.items()}
    frame = Frame(trace, fn, source, None, _environment(source, params, arguments))
    context = Context(trace.builder, num_warps, target, _inliner(trace), num_ctas, block=block)
    with enter(context):
        _read(frame)
    trace.finish()
    trace.builder.loc = _definition(source)
    trace.builder.emit(control_ops.return_)
    known = [argument for each in arguments.values() for argument in each]
    facts = tuple(fact for _, fact in known)
    attrs = FuncAttrs(
        num_warps=num_warps, target=target.name, stage="tile", params=facts, num_ctas=num_ctas, block=block
    )
    values = tuple(value for value, _ in known)
    func = trace.builder.func(name or fn.__name__, values, attrs, _definition(source))
    return Built(func, tuple(trace.reads.values()), tuple(trace.ran.values()), trace.known, trace.opened)


def _read(frame: Frame) -> None:
    try:
        calls.read_function(frame)
    except TooLong:
        trace = frame.trace
        trace.report(
            fail(errors.TOO_LONG, loc=frame.builder.loc, function=frame.source.name, most=trace.most_statements)
        )
        trace.finish()
    except RecursionError as error:
        raise fail(errors.NESTING, loc=frame.builder.loc, function=frame.source.name) from error


def _arguments(name: str, param: Param) -> Iterator[Argument]:
    """The parameters of the compiled kernel for one parameter of the Python function."""
    if isinstance(param, RuntimeParam):
        yield Value(ScalarType(param.element), name), ParamFacts(param.divisible)
    elif isinstance(param, ViewParam):
        yield from _arguments(name, param.pointer)
        for called, number in param.numbers.items():
            yield Value(ScalarType(number.element), called), ParamFacts(number.divisible, optional=True)
    elif isinstance(param, TupleParam):
        for called, item in param.items.items():
            yield from _arguments(called, item)
    elif isinstance(param, DescriptorParam):
        handle, *parts = param.names
        yield Value(param.type, handle), ParamFacts()
        for number, part in enumerate(parts):
            element = int32 if number < param.rank else int64
            outer = param.rank <= number < 2 * param.rank - 1
            yield Value(ScalarType(element), part), ParamFacts(param.divisible if outer else 1, optional=True)


def _environment(
    source: Source, params: Mapping[str, Param], arguments: Mapping[str, tuple[Argument, ...]]
) -> dict[str, Binding]:
    places = {p.arg: _loc_of(source, p) for p in parameters(source.node)}
    values = {name: _value(name, p, [value for value, _ in arguments[name]]) for name, p in params.items()}
    return {name: Binding(value, places.get(name)) for name, value in values.items()}


def _value(name: str, param: Param, values: Sequence[Value]) -> Any:
    """The value of a parameter inside the kernel."""
    if isinstance(param, ConstexprParam):
        return unwrap(param.value)
    if isinstance(param, RuntimeParam):
        return tensor(values[0])
    if isinstance(param, TupleParam):
        rest = iter(values)
        counts = {called: sum(1 for _ in _arguments(called, item)) for called, item in param.items.items()}
        found = (_value(called, param.items[called], [*islice(rest, count)]) for called, count in counts.items())
        return tuple(found) if param.form is None else param.form._make(found)
    if isinstance(param, ViewParam):
        pointer, *numbers = map(tensor, values)
        if isinstance(param.key, SymmetricKey):
            return symmetric_argument(param.key, name, (pointer, *numbers))
        return LayoutTensor.from_argument(GlobalStorage(pointer), param.key, tuple(numbers), name)
    return tensor_descriptor.of(values[0], values[1 : 1 + param.rank], values[1 + param.rank :])


def _check_target(source: Source, params: Mapping[str, Param], target: TargetLike) -> None:
    """Refuse descriptors on targets without TMA (descriptor-target)."""
    wanting = [name for name, p in params.items() if _holds_descriptor(p)]
    if not wanting or target.has_tma:
        return
    instead = "compile for sm_90a or later"
    if target.has_cp_async:
        instead += ", or pass the array and copy tiles with cp.async (ampere.async_copy), which this target has"
    loc = next(_loc_of(source, p) for p in parameters(source.node) if p.arg == wanting[0])
    raise fail(
        asynchronous.DESCRIPTOR_TARGET,
        loc=loc,
        parameter=wanting[0],
        name=source.name,
        target=target.name,
        instead=instead,
    )


def _holds_descriptor(param: Param) -> bool:
    if isinstance(param, TupleParam):
        return any(map(_holds_descriptor, param.items.values()))
    return isinstance(param, DescriptorParam)


def _loc_of(source: Source, node: ast.arg | ast.FunctionDef) -> Loc:
    return Loc(source.file, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, source.name)


def _definition(source: Source) -> Loc:
    node = source.node
    return Loc(source.file, node.lineno, node.col_offset, function=source.name)


def _inliner(trace: Trace) -> Any:
    """The callback by which functions of the language call a helper, such as the combine function of a reduction."""

    def run(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return calls.invoke(trace.frames[-1], function, args, kwargs)

    return run
