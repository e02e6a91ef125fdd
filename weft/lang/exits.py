"""How a loop on the GPU is left early.

    while x < n:                        control.while carrying x, going = true, returned = false, result
        if done(x):                         {going and not returned and x < n}
            return x                        x, going, returned, result = control.if done(x)
        if x > 9:                               {x, true, true, x}
            break                               {control.if x > 9 {x, false, false, result} {x + 1, true, false, result}}
        x += 1                          control.if returned {return result} {what follows the loop}

The flags are constants where a round starts, names in the environment that `break` and `return` bind, and int1 scalars where
branches join. A loop carries those that its body changes, which is found in attempts, like the types that it carries.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Loc
from weft.ir.core import Value
from weft.ir.types import ScalarType, Type, int1
from weft.lang.carried import Edge, key_of
from weft.lang.frame import GOING, POISON, RESULT, RETURNED, Binding, Env, Frame, Unusable
from weft.lang.join import Absent
from weft.lang.statements import identifier
from weft.lang.values import materialise, placeholder, same_leaf
from weft.language import logical_and, logical_not, tensor
from weft.language.runtime_value import wrap
from weft.language.tree import Structure, flatten, unflatten

_FLAGS = {GOING: True, RETURNED: False}
"""What each flag is while the loop goes on."""


@dataclass(frozen=True, slots=True)
class _Left:
    """What the loop carries to be left: flags, and the leaves of a result, each its type if it is carried, or itself."""

    flags: tuple[str, ...] = ()
    structure: Structure | None = None
    kept: tuple[Any, ...] = ()
    types: tuple[Type | None, ...] = ()

    def same(self, other: _Left) -> bool:
        """True for what is carried alike."""
        mine, theirs = (self.flags, self.structure, self.types), (other.flags, other.structure, other.types)
        return mine == theirs and all(map(same_leaf, self.kept, other.kept))


@dataclass(slots=True)
class Exits:
    """How one loop may be left, as far as the attempts to read it have found.

    `result` is what the body's end made of the function's result, with the place of the return.
    """

    line: Loc
    key: object
    around: Env
    possible: bool
    _left: _Left
    result: Binding = field(default_factory=lambda: Binding(POISON, None))

    @classmethod
    def of(cls, frame: Frame, node: ast.For | ast.While, line: Loc) -> Exits:
        """The exits of a loop that is about to be read; what an earlier reading of it found is assumed again."""
        key, possible = key_of(frame, line), frame.source.leaves(node)
        return cls(line, key, frame.env, possible, frame.trace.left.get(key, _Left(flags=(GOING,) if possible else ())))

    @property
    def breaks(self) -> bool:
        """True when a break leaves the loop."""
        return GOING in self._left.flags

    @property
    def returns(self) -> bool:
        """True when a return leaves the loop."""
        return RETURNED in self._left.flags

    @property
    def any(self) -> bool:
        """True when the loop may be left other than by its condition."""
        return bool(self._left.flags)

    @property
    def types(self) -> list[Type]:
        """Types of the arguments that the loop carries for it."""
        return [*(ScalarType(int1) for _ in self._left.flags), *(t for t in self._left.types if t is not None)]

    @property
    def titles(self) -> list[str]:
        """Names of these arguments."""
        paths = () if self._left.structure is None else self._left.structure.paths("result")
        leaves = (identifier(p) for p, t in zip(paths, self._left.types, strict=True) if t is not None)
        return [*(flag.strip("()") for flag in self._left.flags), *leaves]

    def initial(self, frame: Frame) -> list[Value]:
        """The arguments before the first round; emits them."""
        flags = [materialise(frame.builder, _FLAGS[flag], ScalarType(int1)) for flag in self._left.flags]
        return [*flags, *(placeholder(frame.builder, t) for t in self._left.types if t is not None)]

    def go_on(self, arguments: Sequence[Value]) -> tensor | None:
        """The condition that nothing has left the loop yet; None where nothing does."""
        held: tensor | None = None
        for flag, argument in zip(self._left.flags, arguments[: len(self._left.flags)], strict=True):
            value: tensor = wrap(argument)
            value = value if _FLAGS[flag] else logical_not(value)
            held = value if held is None else logical_and(held, value)
        return held

    def enter(self, frame: Frame, arguments: Sequence[Value]) -> None:
        """Bind what leaves the loop where a round starts; `arguments` are those of the body."""
        if not self.possible:
            return
        for flag, value in _FLAGS.items():
            frame.bind(flag, value, self.line)
        carried = (number for number, type in enumerate(self._left.types) if type is not None)
        fillers = dict(zip(carried, arguments[len(self._left.flags) :], strict=True))
        frame.bind(RESULT, Absent(self.line, self.around, fillers), self.line)

    def close(self, frame: Frame, found: Edge) -> None:
        """Read at the body's end how it leaves the loop, and enter that: the next values, or that the loop is read again."""
        if not self.possible:
            return
        self.result = frame.env[RESULT]
        left = self._found(frame)
        if not left.same(self._left):
            frame.trace.left[self.key] = self._left = left
            found.again = True
            return
        found.values += [materialise(frame.builder, frame.env[flag].value, ScalarType(int1)) for flag in left.flags]
        if left.structure is not None:
            leaves = zip(flatten(self.result.value)[0], left.types, strict=True)
            found.values += [materialise(frame.builder, leaf, type) for leaf, type in leaves if type is not None]

    def _found(self, frame: Frame) -> _Left:
        flags = tuple(flag for flag, value in _FLAGS.items() if frame.env[flag].value is not value)
        value = self.result.value
        if isinstance(value, (Absent, Unusable)):
            return _Left(flags)
        leaves, structure = flatten(value)
        absent, loc = Absent(self.line, self.around, {}), self.result.loc
        paths = structure.paths(RESULT)
        types = tuple(absent.carried(path, leaf, loc) for path, leaf in zip(paths, leaves, strict=True))
        kept = tuple(leaf for leaf, type in zip(leaves, types, strict=True) if type is None)
        return _Left(flags, structure, kept, types)

    def returned(self, arguments: Sequence[Value]) -> Value:
        """The flag that says so, among the loop's results."""
        return arguments[self._left.flags.index(RETURNED)]

    def value(self, arguments: Sequence[Value]) -> Any:
        """What the function returns if it does, made of the loop's results. Raises the mistake that two returns differ."""
        value = self.result.value
        if isinstance(value, Unusable):
            if value is POISON:
                return value
            raise value.error(value.loc or self.line)
        structure = self._left.structure
        assert structure is not None
        return unflatten(structure, list(self._leaves(arguments[len(self._left.flags) :])))

    def _leaves(self, arguments: Sequence[Value]) -> Iterator[Any]:
        carried, kept = iter(arguments), iter(self._left.kept)
        for type in self._left.types:
            yield next(kept) if type is None else wrap(next(carried))
