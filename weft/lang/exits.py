"""Early exits of a run-time loop: `break` and `return` as carried flags.

    while x < n:                        control.while carrying x, going = true, returned = false, result
        if done(x):                         {going and not returned and x < n}
            return x                        x, going, returned, result = control.if done(x)
        if x > 9:                               {x, true, true, x}
            break                               {control.if x > 9 {x, false, false, result} {x + 1, true, false, result}}
        x += 1                          control.if returned {return result} {what follows the loop}

The IR is structured and has no jumps. A flag is a name in the environment: a constant at the start of an iteration, bound by
`break` and `return`, and an int1 phi where branches join. The loop carries those flags that its body changes; which ones is
part of the fixpoint over attempts, as are the types of its carried values.
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
"""The value of each flag while the loop keeps running."""


@dataclass(frozen=True, slots=True)
class _LiveOut:
    """A name whose first value is assigned in the loop: its structure, and the type of each leaf that the loop carries.

    The other leaves are `kept`: constants, and values from before the loop, which are available after it as well.
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

    def same(self, other: _LiveOut) -> bool:
        """True when both are carried in the same way."""
        mine, theirs = (self.name, self.structure, self.types), (other.name, other.structure, other.types)
        return mine == theirs and all(map(same_leaf, self.kept, other.kept))

    def value(self, results: Iterator[Value]) -> Any:
        """The name's value after the loop; takes its leaves from the loop's results."""
        kept = iter(self.kept)
        return unflatten(self.structure, [next(kept) if type is None else wrap(next(results)) for type in self.types])


@dataclass(frozen=True, slots=True)
class _ExitState:
    """What the loop carries for its exits: flags, and names that its last iteration defines."""

    flags: tuple[str, ...] = ()
    outs: tuple[_LiveOut, ...] = ()

    def same(self, other: _ExitState) -> bool:
        """True when both carry the same flags and names in the same way."""
        alike = self.flags == other.flags and len(self.outs) == len(other.outs)
        return alike and all(one.same(two) for one, two in zip(self.outs, other.outs, strict=True))


@dataclass(slots=True)
class Exits:
    """The exits of one loop, as far as the attempts to read it have found them.

    `locals` are names that have a value after the loop only if an iteration has run. `last` holds their values, and the
    function's result, at the body's end.
    """

    line: Loc
    key: object
    around: Env
    possible: bool
    locals: tuple[str, ...]
    _state: _ExitState
    last: Env = field(default_factory=Env)

    @classmethod
    def of(cls, frame: Frame, node: ast.For | ast.While, line: Loc) -> Exits:
        """The exits of a loop that is about to be read, starting from the result of an earlier reading of the same loop."""
        key, possible, env = key_of(frame, line), frame.source.leaves(node), frame.env
        names = tuple(name for name in frame.source.live_out(node) if not has_value(env, name)) if possible else ()
        return cls(line, key, env, possible, names, frame.trace.left.get(key, _ExitState((GOING,) if possible else ())))

    @property
    def breaks(self) -> bool:
        """True when a break leaves the loop."""
        return GOING in self._state.flags

    @property
    def returns(self) -> bool:
        """True when a return leaves the loop."""
        return RETURNED in self._state.flags

    @property
    def any(self) -> bool:
        """True when the loop has an exit other than its condition."""
        return bool(self._state.flags)

    @property
    def types(self) -> list[Type]:
        """Types of the loop's arguments for its exits."""
        return [
            *(ScalarType(int1) for _ in self._state.flags),
            *(type for out in self._state.outs for type in out.carried),
        ]

    @property
    def titles(self) -> list[str]:
        """Names of these arguments."""
        return [*(flag.strip("()") for flag in self._state.flags), *(t for out in self._state.outs for t in out.titles)]

    def initial(self, frame: Frame) -> list[Value]:
        """Emits the values of these arguments at the loop's entry."""
        flags = [materialise(frame.builder, _FLAGS[flag], ScalarType(int1)) for flag in self._state.flags]
        return [*flags, *(placeholder(frame.builder, type) for out in self._state.outs for type in out.carried)]

    def still_running(self, arguments: Sequence[Value]) -> tensor | None:
        """The condition that no exit has been taken, None for a loop without exits."""
        held: tensor | None = None
        for flag, argument in zip(self._state.flags, arguments[: len(self._state.flags)], strict=True):
            value: tensor = wrap(argument)
            value = value if _FLAGS[flag] else logical_not(value)
            held = value if held is None else logical_and(held, value)
        return held

    def enter(self, frame: Frame, arguments: Sequence[Value]) -> None:
        """Bind flags and result at the start of an iteration; `arguments` are those of the body."""
        if not self.possible:
            return
        for flag, value in _FLAGS.items():
            frame.bind(flag, value, self.line)
        fillers: dict[int, Value] = {}
        if self._state.outs and self._state.outs[0].name == RESULT:
            carried = (number for number, type in enumerate(self._state.outs[0].types) if type is not None)
            fillers = dict(zip(carried, arguments[len(self._state.flags) :], strict=False))
        frame.bind(RESULT, Absent(self.line, self.around, fillers), self.line)

    def close(self, frame: Frame, found: Edge, runs: bool) -> None:
        """Compare the exits at the body's end with those assumed; add the next values, or request another attempt.

        `runs`: at least one iteration runs, so that names which every iteration assigns have a value after the loop.
        """
        if not self.possible:
            return
        names = (name for name in (RESULT, *(self.locals if runs else ())) if name in frame.env)
        self.last = {name: self._within(name, frame.env[name]) for name in names}
        left = self._found(frame)
        if not left.same(self._state):
            frame.trace.left[self.key] = self._state = left
            found.again = True
            return
        found.values += [materialise(frame.builder, frame.env[flag].value, ScalarType(int1)) for flag in left.flags]
        for out in left.outs:
            leaves = zip(flatten(self.last[out.name].value)[0], out.types, strict=True)
            found.values += [materialise(frame.builder, leaf, type) for leaf, type in leaves if type is not None]

    def _found(self, frame: Frame) -> _ExitState:
        flags = tuple(flag for flag, value in _FLAGS.items() if frame.env[flag].value is not value)
        if not flags:
            return _ExitState()
        values = {name: x.value for name, x in self.last.items() if not isinstance(x.value, (Absent, Unusable))}
        return _ExitState(flags, tuple(self._out(name, value) for name, value in values.items()))

    def _out(self, name: str, value: Any) -> _LiveOut:
        leaves, structure = flatten(value)
        types = tuple(map(Absent(self.line, self.around).carried, leaves))
        return _LiveOut(name, structure, tuple(x for x, type in zip(leaves, types, strict=True) if type is None), types)

    def _within(self, name: str, binding: Binding) -> Binding:
        """A name's value at the body's end, or the error that its value does not outlive the iteration."""
        if isinstance(binding.value, (Absent, Unusable)):
            return binding
        leaves, structure = flatten(binding.value)
        lost = (Absent(self.line, self.around).lost(*leaf) for leaf in zip(structure.paths(name), leaves, strict=True))
        mistake = next((x for x in lost if x is not None), None)
        return binding if mistake is None else Binding(mistake, binding.loc)

    def bind_results(self, frame: Frame, results: Sequence[Value]) -> tuple[Value | None, Any]:
        """Bind the names that the loop's last iteration defined; `results` are the loop's results for its exits.

        Returns the flag that is true when the function has returned, and the returned value; None without a return.
        """
        for value, title in zip(results, self.titles, strict=True):
            value.name = value.name or title
        rest = iter(results)
        flags = dict(zip(self._state.flags, rest, strict=False))
        values = {out.name: out.value(rest) for out in self._state.outs}
        for name in self.locals:
            if name in self.last:
                frame.bind(name, values.get(name, self.last[name].value), self.last[name].loc)
        if not self.returns:
            return None, None
        result, loc = self.last[RESULT]
        return flags[RETURNED], values[RESULT] if RESULT in values else frame.usable(result, loc or self.line)
