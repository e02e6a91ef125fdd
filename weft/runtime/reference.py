"""How what a decorator makes of a function travels between processes: by name, as functions do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Referenced:
    """Base of objects that take the place of a function in its module. Copies are the object itself."""

    __module__: str
    __qualname__: str

    def _made_by(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A function and its arguments that make an object like this one."""
        raise NotImplementedError

    def __reduce__(self) -> str | tuple[Any, ...]:
        # By name where the module has it. Else only serialisers that copy the code of functions (cloudpickle) go on; they
        # have to for what `__main__` defines, which is another module in the process that reads. Of the serialiser,
        # `__reduce__` learns no more than who called it.
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
