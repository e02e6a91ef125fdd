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
from weft.lang.carried import Edge, has_value, key_of
from weft.lang.frame import GOING, RESULT, RETURNED, Binding, Env, Frame, Unusable
from weft.lang.join import Absent
from weft.lang.statements import identifier
from weft.lang.values import materialise, placeholder, same_leaf
from weft.language import logical_and, logical_not, tensor
from weft.language.runtime_value import wrap
from weft.language.tree import Structure, flatten, unflatten

_FLAGS = {GOING: True, RETURNED: False}
"""What each flag is while the loop goes on."""


@dataclass(frozen=True, slots=True)
class _Out:
    """A name that a loop gives a value for the first time: its structure, and of each leaf the type if it is carried.

    The others are `kept`: they exist outside of the loop as they are.
    """

    name: str
    structure: Structure
    kept: tuple[Any, ...]
    types: tuple[Type | None, ...]

    @property
    def carried(self) -> list[Type]:
        """Types of the leaves that the loop carries."""
        return [type for type in self.types if type is not None]

    @property
    def titles(self) -> Iterator[str]:
        """Names of these leaves."""
        paths = self.structure.paths("result" if self.name == RESULT else self.name)
        return (identifier(path) for path, type in zip(paths, self.types, strict=True) if type is not None)

    def same(self, other: _Out) -> bool:
        """True for what is carried alike."""
        mine, theirs = (self.name, self.structure, self.types), (other.name, other.structure, other.types)
        return mine == theirs and all(map(same_leaf, self.kept, other.kept))

    def value(self, results: Iterator[Value]) -> Any:
        """What the name holds after the loop; takes its leaves from the loop's results."""
        kept = iter(self.kept)
        return unflatten(self.structure, [next(kept) if type is None else wrap(next(results)) for type in self.types])


@dataclass(frozen=True, slots=True)
class _Left:
    """What the loop carries to be left: flags, and what it hands out of its last round."""

    flags: tuple[str, ...] = ()
    outs: tuple[_Out, ...] = ()

    def same(self, other: _Left) -> bool:
        """True for what is carried alike."""
        alike = self.flags == other.flags and len(self.outs) == len(other.outs)
        return alike and all(one.same(two) for one, two in zip(self.outs, other.outs, strict=True))


@dataclass(slots=True)
class Exits:
    """How one loop may be left, as far as the attempts to read it have found.

    `locals` are names that have a value after the loop only if a round has run. `last` is what the body's end made of them, and
    of the function's result.
    """

    line: Loc
    key: object
    around: Env
    possible: bool
    locals: tuple[str, ...]
    _left: _Left
    last: Env = field(default_factory=Env)

    @classmethod
    def of(cls, frame: Frame, node: ast.For | ast.While, line: Loc) -> Exits:
        """The exits of a loop that is about to be read; what an earlier reading of it found is assumed again."""
        key, possible, env = key_of(frame, line), frame.source.leaves(node), frame.env
        names = tuple(name for name in frame.source.handed_out(node) if not has_value(env, name)) if possible else ()
        return cls(line, key, env, possible, names, frame.trace.left.get(key, _Left((GOING,) if possible else ())))

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
        return [
            *(ScalarType(int1) for _ in self._left.flags),
            *(type for out in self._left.outs for type in out.carried),
        ]

    @property
    def titles(self) -> list[str]:
        """Names of these arguments."""
        return [*(flag.strip("()") for flag in self._left.flags), *(t for out in self._left.outs for t in out.titles)]

    def initial(self, frame: Frame) -> list[Value]:
        """The arguments before the first round; emits them."""
        flags = [materialise(frame.builder, _FLAGS[flag], ScalarType(int1)) for flag in self._left.flags]
        return [*flags, *(placeholder(frame.builder, type) for out in self._left.outs for type in out.carried)]

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
        fillers: dict[int, Value] = {}
        if self._left.outs and self._left.outs[0].name == RESULT:
            carried = (number for number, type in enumerate(self._left.outs[0].types) if type is not None)
            fillers = dict(zip(carried, arguments[len(self._left.flags) :], strict=False))
        frame.bind(RESULT, Absent(self.line, self.around, fillers), self.line)

    def close(self, frame: Frame, found: Edge, runs: bool) -> None:
        """Read at the body's end how it leaves the loop, and enter that: the next values, or that the loop is read again.

        `runs`: at least one round does, so that what every round assigns has a value after the loop.
        """
        if not self.possible:
            return
        names = (name for name in (RESULT, *(self.locals if runs else ())) if name in frame.env)
        self.last = {name: self._within(name, frame.env[name]) for name in names}
        left = self._found(frame)
        if not left.same(self._left):
            frame.trace.left[self.key] = self._left = left
            found.again = True
            return
        found.values += [materialise(frame.builder, frame.env[flag].value, ScalarType(int1)) for flag in left.flags]
        for out in left.outs:
            leaves = zip(flatten(self.last[out.name].value)[0], out.types, strict=True)
            found.values += [materialise(frame.builder, leaf, type) for leaf, type in leaves if type is not None]

    def _found(self, frame: Frame) -> _Left:
        flags = tuple(flag for flag, value in _FLAGS.items() if frame.env[flag].value is not value)
        if not flags:
            return _Left()
        values = {name: x.value for name, x in self.last.items() if not isinstance(x.value, (Absent, Unusable))}
        return _Left(flags, tuple(self._out(name, value) for name, value in values.items()))

    def _out(self, name: str, value: Any) -> _Out:
        leaves, structure = flatten(value)
        types = tuple(map(Absent(self.line, self.around).carried, leaves))
        return _Out(name, structure, tuple(x for x, type in zip(leaves, types, strict=True) if type is None), types)

    def _within(self, name: str, binding: Binding) -> Binding:
        """What a name holds at the body's end, or the mistake that it exists there only."""
        if isinstance(binding.value, (Absent, Unusable)):
            return binding
        leaves, structure = flatten(binding.value)
        lost = (Absent(self.line, self.around).lost(*leaf) for leaf in zip(structure.paths(name), leaves, strict=True))
        mistake = next((x for x in lost if x is not None), None)
        return binding if mistake is None else Binding(mistake, binding.loc)

    def hand_out(self, frame: Frame, results: Sequence[Value]) -> tuple[Value | None, Any]:
        """Bind the names that the loop's last round gave a value; `results` are the loop's.

        Gives the flag that the function has returned, if it may have, and what.
        """
        for value, title in zip(results, self.titles, strict=True):
            value.name = value.name or title
        rest = iter(results)
        flags = dict(zip(self._left.flags, rest, strict=False))
        values = {out.name: out.value(rest) for out in self._left.outs}
        for name in self.locals:
            if name in self.last:
                frame.bind(name, values.get(name, self.last[name].value), self.last[name].loc)
        if not self.returns:
            return None, None
        result, loc = self.last[RESULT]
        return flags[RETURNED], values[RESULT] if RESULT in values else frame.usable(result, loc or self.line)
