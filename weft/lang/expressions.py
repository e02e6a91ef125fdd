"""Reading expressions: constants are folded by Python, run-time values go through the operators of `tensor`."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, cast

from weft import settings
from weft.errors import fail
from weft.errors import source as errors
from weft.errors.memory import SHARED_HANDLE_OPERAND
from weft.ir.core import Op
from weft.ir.types import Pointer, int1
from weft.lang import names
from weft.lang.frame import Frame, expression
from weft.lang.values import (
    is_identity,
    is_number,
    is_plain,
    is_sequence,
    is_tile,
    require_constexpr,
    show,
    truth,
)
from weft.language import logical_and, logical_not, logical_or, tensor
from weft.language.broadcast import constant as constant_of
from weft.language.debug import Text
from weft.language.runtime_value import RuntimeValue, is_handle, wrap
from weft.ops import control
from weft.views.brackets import FINISH, is_unfinished

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow), ast.MatMult: ("@", operator.matmul), ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_), ast.BitXor: ("^", operator.xor), ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_EACH = "compare with each of the values, as in (x == 1) | (x == 2)"
_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}


@expression(ast.Constant)
def constant(frame: Frame, node: ast.Constant) -> Any:
    """A number, a string, None, True, False or ..."""
    return node.value


@expression(ast.BinOp)
def binary(frame: Frame, node: ast.BinOp) -> Any:
    """`a + b` and its relatives."""
    left, right = frame.value(node.left), frame.value(node.right)
    frame.mark(node)
    return combine(node.op, left, right)


def combine(op: ast.operator, left: Any, right: Any, in_place: bool = False) -> Any:
    """Apply a binary operator; with `in_place` through `__iadd__` and its relatives where defined.

    Raises CompilationError (lang-operator) when the operands do not support it.
    """
    symbol, apply = _BINARY[type(op)]
    if in_place:
        apply = getattr(operator, f"i{apply.__name__.removesuffix('_')}")
    if type(op) is ast.Add and is_sequence(left) and is_sequence(right):
        return type(left)([*left, *right])  # A shape may be a list or a tuple; the two can be concatenated here.
    _refuse_handles(symbol, left, right)
    try:
        return apply(left, right)
    except TypeError as error:
        if is_number(left) and is_number(right):
            raise
        instead = FINISH if is_unfinished(left) or is_unfinished(right) else "convert one of them first"
        raise fail(errors.OPERATOR, symbol=symbol, left=show(left), right=show(right), instead=instead) from error


@expression(ast.UnaryOp)
def unary(frame: Frame, node: ast.UnaryOp) -> Any:
    """`-a`, `+a`, `~a`, `not a`."""
    value = frame.value(node.operand)
    frame.mark(node)
    if not isinstance(node.op, ast.Not):
        _refuse_handles("arithmetic", value)
        return _UNARY[type(node.op)](value)
    if is_tile(value):
        instead = f"~{value.handle.name or 'x'}" if value.dtype == int1 else "x == 0 for tiles of numbers"
        raise fail(errors.TILE_LOGIC, word="'not'", got=show(value), instead=instead)
    holds = truth(value, "not")
    return logical_not(holds) if isinstance(holds, tensor) else not holds


@expression(ast.BoolOp)
def boolean(frame: Frame, node: ast.BoolOp) -> Any:
    """`a and b`, `a or b`: Python's semantics on constants, int1 logic on run-time scalars.

    An operand after a run-time one is evaluated unconditionally when its operations are pure. When it has effects, such as a
    load, it is evaluated in a `control.if`: `i < n and t[i] > 0` reads no element out of bounds."""
    is_and = isinstance(node.op, ast.And)
    known: tensor | None = None
    value: Any = None
    for operand in node.values:
        if known is None:
            value = frame.value(operand)
            holds = _condition(frame, node, value)
            ops: list[Op] = []
        else:
            with frame.builder.region() as region:
                value = frame.value(operand)
                holds = _condition(frame, node, value)
            ops = region.ops
        if not isinstance(holds, tensor):
            append(frame, ops)
            if holds is not is_and:
                # `x and False` is False for every x, and `x or 3` is true for every x.
                return holds if known is not None else value
        elif known is None:
            known = holds
        elif all(op.kind.pure for op in ops):
            append(frame, ops)
            known = (logical_and if is_and else logical_or)(known, holds)
        else:
            known = short_circuit(frame, known, holds, ops, is_and)
    return value if known is None else known


def _condition(frame: Frame, node: ast.BoolOp, value: Any) -> Any:
    frame.mark(node)
    if is_tile(value):
        word, symbol = ("'and'", "&") if isinstance(node.op, ast.And) else ("'or'", "|")
        instead = f"{symbol} for tiles, with parentheses around each comparison, as in (x > 0) {symbol} (x < n)"
        raise fail(errors.TILE_LOGIC, word=word, got=show(value), instead=instead)
    return truth(value, "a condition")


def append(frame: Frame, ops: Iterable[Op]) -> None:
    """Append operations that were read into a separate region to the current one."""
    for op in ops:
        frame.builder.append(op)


def short_circuit(frame: Frame, known: tensor, holds: tensor, ops: list[Op], is_and: bool) -> tensor:
    """`known and holds` (or `or`) with short circuit: the operations of `holds` run only if `known` leaves the result open."""
    builder = frame.builder
    with builder.region() as evaluated:
        append(frame, ops)
        builder.emit(control.yield_, holds.handle)
    with builder.region() as decided:
        builder.emit(control.yield_, constant_of(not is_and, int1).handle)
    regions = (evaluated.done, decided.done) if is_and else (decided.done, evaluated.done)
    return wrap(builder.emit(control.if_, known.handle, regions=regions))


@expression(ast.Compare)
def compare(frame: Frame, node: ast.Compare) -> Any:
    """`a < b`, and `a < b < c` as the conjunction of both comparisons."""
    _refuse_unbracketed(frame, node)
    left = frame.value(node.left)
    run_time: list[tensor] = []
    for op, operand in zip(node.ops, node.comparators, strict=True):
        right = frame.value(operand)
        frame.mark(node)
        holds = _compare(frame, op, left, right)
        left = right
        if isinstance(holds, tensor):
            run_time.append(holds)
        elif not holds:
            return holds
    if len(run_time) > 1 and any(map(is_tile, run_time)):
        tile = next(filter(is_tile, run_time))
        raise fail(errors.TILE_LOGIC, word="a chain of comparisons", got=show(tile), instead="(a < b) & (b < c)")
    return functools.reduce(logical_and, run_time) if run_time else True


def _refuse_unbracketed(frame: Frame, node: ast.Compare) -> None:
    """Raises lang-precedence for `a < b & c < d`, which Python reads as `a < (b & c) < d`."""
    found = _tighter(node)
    if found is None:
        return
    middle = found[1]
    loc = frame.at(middle)
    before = loc.source.encode()[: loc.col].rstrip()
    if before and not before.endswith(b"("):
        symbol, text = _SYMBOLS[type(middle.op)], ast.unparse(middle)
        raise fail(errors.PRECEDENCE, loc=frame.at(node), symbol=symbol, middle=text, instead=_bracketed(node))


def _tighter(node: ast.Compare) -> tuple[int, ast.BinOp] | None:
    """The first operand of a comparison chain that is an unparenthesised bitwise operation, with its index."""
    for number, middle in enumerate(node.comparators[:-1]):
        if isinstance(middle, ast.BinOp) and type(middle.op) in _SYMBOLS:
            return number, middle
    return None


def _bracketed(node: ast.Compare) -> str:
    """The text of the chain as the author meant it, with parentheses around each comparison."""
    found = _tighter(node)
    if found is None:
        return f"({ast.unparse(node)})"
    number, middle = found
    left = ast.Compare(node.left, node.ops[: number + 1], [*node.comparators[:number], middle.left])
    right = ast.Compare(middle.right, node.ops[number + 1 :], node.comparators[number + 1 :])
    return f"({ast.unparse(left)}) {_SYMBOLS[type(middle.op)]} {_bracketed(right)}"


_SYMBOLS: dict[type[ast.operator], str] = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}


def _compare(frame: Frame, op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.In, ast.NotIn)):
        require_constexpr(left, "the left side of 'in'", _EACH)
        require_constexpr(right, "the right side of 'in'", _EACH)
    if isinstance(op, (ast.Eq, ast.NotEq)) and _never_equal(left, right):
        return isinstance(op, ast.NotEq)
    if not isinstance(op, (ast.Is, ast.IsNot)):
        _refuse_handles("a comparison", left, right)
    if is_identity(left) and is_identity(right):
        # Whether two names refer to one object is not among the recorded reads: each read alone may stay the same.
        frame.trace.opened = True
    return _COMPARE[type(op)](left, right)


def _never_equal(left: Any, right: Any) -> bool:
    """True when one side is a run-time value and the other is neither that nor a number: `x == None` is False, as in Python."""
    known = [isinstance(value, RuntimeValue) for value in (left, right)]
    return any(known) and not all(is_number(value) or isinstance(value, RuntimeValue) for value in (left, right))


def _refuse_handles(what: str, *operands: Any) -> None:
    """Raise CompilationError (shared-handle-operand) for a memory handle used as an operand."""
    for operand in operands:
        if is_handle(operand):
            raise fail(SHARED_HANDLE_OPERAND, what=what, got=show(operand))


@expression(ast.Tuple)
def tuple_of(frame: Frame, node: ast.Tuple) -> tuple[Any, ...]:
    """`(a, *b)`."""
    return tuple(elements(frame, node.elts))


@expression(ast.List)
def list_of(frame: Frame, node: ast.List) -> list[Any]:
    """`[a, *b]`. Lists are immutable values in kernels, as tuples are."""
    return list(elements(frame, node.elts))


def elements(frame: Frame, nodes: list[ast.expr]) -> Iterator[Any]:
    """The values of a list display or of positional arguments, with starred ones unpacked."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from items(frame.value(node.value))
        else:
            yield frame.value(node)


def items(value: Any) -> list[Any]:
    """The items of a constant sequence. Raises CompilationError (lang-unroll) for anything else."""
    if isinstance(value, RuntimeValue) or not isinstance(value, Iterable):
        raise fail(errors.UNROLL, value=show(value), instead=_instead_of_iterating(value))
    most = settings.current().max_statements
    found = list(islice(cast("Iterable[Any]", value), most + 1))
    if len(found) > most:
        raise fail(errors.UNROLL, value=f"more than {most} values", instead=_SHORTER)
    return found


_SHORTER = "use range, which is a loop on the GPU, or a shorter static_range; WEFT_MAX_STATEMENTS sets another bound"


def _instead_of_iterating(value: Any) -> str:
    """The fix for a loop over a value that is not a sequence."""
    if is_tile(value):
        return "compute on the whole tile, as in gl.sum(x) or x * 2; positions are gl.arange, halves come from gl.split"
    if isinstance(value, tensor) and isinstance(value.element, Pointer):
        return "loop over indices, for i in range(n), and read each element by gl.load(ptr + i)"
    if isinstance(value, tensor):
        return f"loop over range({value.handle.name or 'n'})"
    if isinstance(value, int):
        return f"loop over range({value}), or over gl.static_range({value}) to unroll"
    return "unroll over gl.static_range, a tuple or a list; a loop that runs on the GPU goes over range"


@expression(ast.Subscript)
def subscript(frame: Frame, node: ast.Subscript) -> Any:
    """`a[i]`: indexing of a tile or view, or the item of a constant."""
    if names.is_outside(frame, node):
        return names.outer(frame, node)
    owner, index = frame.value(node.value), frame.value(node.slice)
    frame.mark(node)
    return names.item(node, owner, index)


@expression(ast.Slice)
def slice_of(frame: Frame, node: ast.Slice) -> slice:
    """`a:b:c` in brackets."""
    parts = (None if part is None else frame.value(part) for part in (node.lower, node.upper, node.step))
    return slice(*parts)


@expression(ast.JoinedStr)
def format_string(frame: Frame, node: ast.JoinedStr) -> str | Text:
    """An f-string: a `str` for constants; with run-time values a `Text` whose parts `device_print` prints."""
    parts = [_piece(frame, value) for value in node.values]
    if all(isinstance(part, str) for part in parts):
        return "".join(map(str, parts))
    return Text(tuple(parts))


def _piece(frame: Frame, node: ast.expr) -> Any:
    if not isinstance(node, ast.FormattedValue):
        return frame.value(node)
    value = frame.value(node.value)
    if isinstance(value, RuntimeValue):
        if node.conversion != -1 or node.format_spec is not None:
            raise fail(
                errors.UNSUPPORTED, loc=frame.at(node), what=f"a format of the run-time value {show(value)}",
                instead=f"write {{{ast.unparse(node.value)}}} alone; gl.device_print(text, value, hex=True) prints in base 16",
            )  # fmt: skip
        return value
    convert = _CONVERSIONS.get(node.conversion)
    frame.trace.opened |= not is_plain(value)
    return format(
        value if convert is None else convert(value),
        "" if node.format_spec is None else str(frame.value(node.format_spec)),
    )


@expression(ast.ListComp)
def list_comprehension(frame: Frame, node: ast.ListComp) -> list[Any]:
    """`[f(x) for x in constants if constant]`, element by element."""
    return _comprehension(frame, node.elt, node.generators)


@expression(ast.GeneratorExp)
def generator(frame: Frame, node: ast.GeneratorExp) -> list[Any]:
    """`f(x) for x in constants`: the list of its values."""
    return _comprehension(frame, node.elt, node.generators)


def _comprehension(frame: Frame, element: ast.expr, generators: list[ast.comprehension]) -> list[Any]:
    from weft.lang.statements import assign

    outside = frame.env
    frame.env = dict(outside)
    found: list[Any] = []

    def run(depth: int) -> None:
        if depth == len(generators):
            found.append(frame.value(element))
            return
        level = generators[depth]
        for item in items(frame.value(level.iter)):
            frame.trace.count()
            assign(frame, level.target, item)
            if all(require_constexpr(frame.value(test), "the condition of a comprehension") for test in level.ifs):
                run(depth + 1)

    try:
        run(0)
    finally:
        frame.env = outside
    return found
