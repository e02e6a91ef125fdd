"""The builder: appends operations, infers their types and sets their locations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.errors import Loc, UserError
from weft.ir.core import Attrs, Func, FuncAttrs, Op, OpDef, Region, Value
from weft.ir.types import Type


class Builder:
    """Appends to the innermost open region. Each operation gets the current `loc`, which the reader updates."""

    __slots__ = ("_open", "loc")

    def __init__(self) -> None:
        self._open: list[list[Op]] = [[]]
        self.loc: Loc | None = None

    def emit(
        self, kind: OpDef, /, *operands: Value | None, regions: tuple[Region, ...] = (), name: str = "", **attrs: Any
    ) -> Any:
        """Append an operation: operands in the definition's order, attributes by name (defaults filled in).

        Returns its result, a tuple if it has several, None if it has none. Typing errors without a location get `loc`.
        """
        results = self.create(kind, operands, {**kind.defaults, **attrs} if kind.defaults else attrs, regions, name)
        if not results:
            return None
        return results[0] if len(results) == 1 else results

    def create(
        self,
        kind: OpDef,
        operands: tuple[Value | None, ...],
        attrs: Attrs,
        regions: tuple[Region, ...] = (),
        name: str = "",
    ) -> tuple[Value, ...]:
        """As `emit`, with all attributes given, and all results as a tuple."""
        try:
            types = kind.infer(operands, attrs, regions)
        except UserError as error:
            raise error.at(self.loc) from None
        results = tuple([Value(type, name) for type in types])
        self._open[-1].append(Op(kind, operands, attrs, results, regions, self.loc))
        return results

    @property
    def in_region(self) -> bool:
        """True while a region other than the function's body is open."""
        return len(self._open) > 1

    def maker(self, value: Value) -> Op | None:
        """The operation of an open region that defines a value, for messages; None if there is none."""
        for ops in reversed(self._open):
            for op in reversed(ops):
                if value in op.results:
                    return op
        return None

    def behind(self, value: Value) -> tuple[Op, ...]:
        """The operations of the innermost open region behind the one that defines a value, all of them if none does."""
        ops = self._open[-1]
        place = next((i for i in reversed(range(len(ops))) if value in ops[i].results), -1)
        return tuple(ops[place + 1 :])

    def append(self, op: Op) -> None:
        """Append an existing operation."""
        self._open[-1].append(op)

    @contextmanager
    def region(self, types: Sequence[Type] = (), names: Sequence[str] = ()) -> Iterator[OpenRegion]:
        """Open a nested region; operations are appended to it until the block ends. Afterwards `.done` is the region.

        >>> with builder.region([ScalarType(int32)], ["i"]) as body: ...  # doctest: +SKIP
        >>> builder.emit(control.for_, lower, upper, step, regions=(body.done,))  # doctest: +SKIP
        """
        padded = tuple(names) + ("",) * (len(types) - len(names))
        opened = OpenRegion(tuple(Value(type, name) for type, name in zip(types, padded, strict=True)))
        self._open.append(opened.ops)
        try:
            yield opened
        finally:
            self._open.pop()

    def func(self, name: str, params: tuple[Value, ...], attrs: FuncAttrs, loc: Loc | None = None) -> Func:
        """Close the builder's outermost region as a function."""
        (ops,) = self._open
        return Func(name, Region(params, tuple(ops)), attrs, loc)


class OpenRegion:
    """A region under construction. Its arguments are available at once, the finished region is `done`."""

    __slots__ = ("args", "ops")

    def __init__(self, args: tuple[Value, ...]) -> None:
        self.args = args
        self.ops: list[Op] = []

    @property
    def done(self) -> Region:
        """The region as built so far."""
        return Region(self.args, tuple(self.ops))
