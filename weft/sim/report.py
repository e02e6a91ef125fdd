"""What a simulated launch tells afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.errors import Loc, render


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that works but may not be meant, once per line."""

    rule: str
    message: str
    loc: Loc | None

    def __str__(self) -> str:
        return self.message if self.loc is None else f"{self.message}\n{render(self.loc)}"


@dataclass(slots=True)
class Report:
    """Programs run, seconds taken, operations executed (a tile operation counts once), advice, and what kernels printed.

    `canceled` counts the programs that others have taken over, which are not among those run."""

    programs: int = 0
    seconds: float = 0.0
    operations: int = 0
    canceled: int = 0
    advice: list[Advice] = field(default_factory=list[Advice])
    lines: list[str] = field(default_factory=list[str])

    def advise(self, rule: str, message: str, loc: Loc | None) -> None:
        """Add advice, unless this rule has already spoken about this line."""
        if all((rule, loc) != (known.rule, known.loc) for known in self.advice):
            self.advice.append(Advice(rule, message, loc))

    def __str__(self) -> str:
        taken = f" and {self.canceled} taken over" if self.canceled else ""
        head = f"{self.programs} programs{taken}, {self.operations} operations in {self.seconds:.3f} s"
        return "\n".join([head, *(f"advice: {advice}" for advice in self.advice)])
