"""The report of a simulated launch."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.errors import Hazard, Loc, render
from weft.errors.base import counted


@dataclass(frozen=True, slots=True)
class Advice:
    """A remark on a line that is correct but possibly unintended; at most one per rule and line."""

    rule: str
    message: str
    loc: Loc | None

    def __str__(self) -> str:
        return self.message if self.loc is None else f"{self.message}\n{render(self.loc)}"


@dataclass(slots=True)
class Report:
    """Programs run, seconds taken, operations executed (a tile operation counts once), advice, and printed lines.

    `canceled`: the number of programs that others claimed, which are not among those run. `order`: the order in which programs
    started; another order may reveal further races. `hazards`: the hazards after which the run continued
    (`weft.simulate(keep_going=True)`)."""

    programs: int = 0
    seconds: float = 0.0
    operations: int = 0
    canceled: int = 0
    order: str = "in the order of the grid"
    hazards: list[Hazard] = field(default_factory=list[Hazard])
    advice: list[Advice] = field(default_factory=list[Advice])
    lines: list[str] = field(default_factory=list[str])

    def advise(self, rule: str, message: str, loc: Loc | None) -> None:
        """Add advice, unless this rule already has advice for this line."""
        if all((rule, loc) != (known.rule, known.loc) for known in self.advice):
            self.advice.append(Advice(rule, message, loc))

    def __str__(self) -> str:
        taken = f" and {self.canceled} claimed" if self.canceled else ""
        ran = f"{counted(self.programs, 'program')}{taken}, {counted(self.operations, 'operation')}"
        head = f"{ran} in {self.seconds:.3f} s, {self.order}"
        found = [f"hazard: {hazard}" for hazard in self.hazards]
        return "\n".join([head, *found, *(f"advice: {advice}" for advice in self.advice)])
