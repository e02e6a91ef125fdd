"""The expression by which an author made a view, for messages: `t.tile[4, 4](2, 1).vectorize[1, 4]()`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class History(str):
    """The text. All histories compare equal, so that branches and loops can assign differently made views to one variable."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(History)


class Unnamed(History):
    """The placeholder name of a view without a name. In a kernel the view takes the name of its first variable."""

    __slots__ = ()


def root(name: str | None, description: str) -> History:
    """The history of a view made directly over memory: its name, or a description until it has one."""
    return Unnamed(description) if name is None else History(name)


def called(history: str, method: str, brackets: Iterable[Any] | None, arguments: Iterable[Any] = ()) -> History:
    """The history of a method's result.

    >>> called("t", "tile", (4, 4), (2, 1)), called("t", "transpose", None)
    ('t.tile[4, 4](2, 1)', 't.transpose()')
    """
    inside = "" if brackets is None else f"[{', '.join(map(spelled, brackets))}]"
    return History(f"{history}.{method}{inside}({', '.join(map(spelled, arguments))})")


def spelled(value: Any) -> str:
    """An argument in a history: a number, a slice, or the author's name of a run-time scalar (`...` if it has none).

    >>> spelled(4), spelled(slice(0, 4)), spelled(slice(None))
    ('4', '0:4', ':')
    """
    if isinstance(value, slice):
        parts: list[Any] = [value.start, value.stop, value.step]
        start, stop, step = ("" if part is None else spelled(part) for part in parts)
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if hasattr(value, "handle"):
        return getattr(value.handle, "name", "") or "..."
    return str(value)
