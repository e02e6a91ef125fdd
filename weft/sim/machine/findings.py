"""The hazards of one run. The first one ends the run, or the run continues and collects them (`keep_going`).

A run can continue only if its further execution is still meaningful: after a race, a missing fence or wait, a read of memory
that was never written, or a store of an undefined element. An access out of bounds, an undefined address or branch condition, a
misused barrier and a deadlock always end the run, because what would follow is not defined.
"""

from __future__ import annotations

from collections.abc import Hashable

from weft.errors import Hazard, UserError


class Findings:
    """The hazards found so far, each once. Two hazards are equal if they have the same catalogue row and operations."""

    __slots__ = ("_known", "going_on", "hazards")

    def __init__(self, going_on: bool = False) -> None:
        self.going_on = going_on
        self.hazards: list[Hazard] = []
        self._known: dict[Hashable, Hazard] = {}

    def known(self, *key: Hashable) -> bool:
        """True if this hazard was found before; counts the repetition."""
        found = self._known.get(key)
        if found is None:
            return False
        found.times += 1
        return True

    def add(self, error: UserError, *key: Hashable) -> None:
        """Record a hazard after which the run can continue. Raises it unless `keep_going` is set."""
        if not self.going_on or not isinstance(error, Hazard):
            raise error
        self.hazards.append(error)
        self._known[key] = error
