"""The hazards of one run: the first one ends it, or it goes on and keeps them all.

It can go on where the hazard leaves what follows meaningful: a race, a missing fence or wait, a read of memory that was never
written, an undefined element that is stored. An access outside of memory, an address or a branch without a value, a misused
barrier and a deadlock end the run either way, since nobody can say what would have come after them.
"""

from __future__ import annotations

from collections.abc import Hashable

from weft.errors import Hazard, UserError


class Findings:
    """What a run has found so far, each hazard once: the same rule at the same operations is the same."""

    __slots__ = ("_known", "going_on", "hazards")

    def __init__(self, going_on: bool = False) -> None:
        self.going_on = going_on
        self.hazards: list[Hazard] = []
        self._known: dict[Hashable, Hazard] = {}

    def known(self, *key: Hashable) -> bool:
        """Whether this was found before, once more then."""
        found = self._known.get(key)
        if found is None:
            return False
        found.times += 1
        return True

    def add(self, error: UserError, *key: Hashable) -> None:
        """A hazard that leaves what follows meaningful. Raises it, unless the run goes on."""
        if not self.going_on or not isinstance(error, Hazard):
            raise error
        self.hazards.append(error)
        self._known[key] = error
