"""Pickling of objects that a decorator returns in place of a function: by name, as functions are pickled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Referenced:
    """Base class of objects that replace a function in its module. Copying returns the object itself."""

    __module__: str
    __qualname__: str

    def _made_by(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function and its arguments that make an object like this one."""
        raise NotImplementedError

    def __reduce__(self) -> str | tuple[Any, ...]:
        # By name if the module has the object under it. Otherwise only serialisers that copy code (cloudpickle) succeed. They
        # must copy objects of `__main__`, which is another module in the reading process. `__reduce__` is not told which
        # serialiser calls it, so the caller's module is looked up in its frame.
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        caller: str = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001
        copied = self.__module__ == "__main__" and "cloudpickle" in caller
        return self._made_by() if copied or found is not self else self.__qualname__

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Any) -> Self:
        return self
