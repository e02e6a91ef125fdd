"""The plan of an epilogue, a part of `weft.kernels.plan.Plan`: what a kernel does with its accumulators before it stores them.

Everything that is read with the output broadcasts over it: scales, bias, residual and a caller's extras are all `Extra`s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Extra:
    """What the epilogue reads beside the accumulators. It has an element for each of the output's `rows`, for each of its
    `columns`, for both, or one for all.

    It is in `memory`, or a number among the kernel's arguments; TMA reads it through a descriptor if `described`. Elements
    along `contiguous` ("rows", "columns" or "") adjoin, and accesses of `unit` of them are aligned."""

    memory: bool = False
    rows: bool = False
    columns: bool = False
    contiguous: str = ""
    unit: int = 1
    described: bool = False

    @property
    def transposed(self) -> Extra:
        """The same for the transposed output."""
        return replace(self, rows=self.columns, columns=self.rows, contiguous=OTHER[self.contiguous])


GROUP = 128
"""Columns of the output for which a row has one sum of squares, maximum or scale."""
WRITTEN = ("row_squares", "row_peaks", "out_scales")
"""Sum of squares, largest magnitude, and the largest magnitude divided by the largest number of the output's type."""
OTHER = {"rows": "columns", "columns": "rows", "": ""}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What becomes of the float32 sums x of a product:

    1. x * scale_a * scale_b + bias
    2. activation(x); if `gated`, that of the first half of b's columns times x of the second half
    3. x + residual
    4. function(x, rows, columns, extras)
    5. of each row and `GROUP` columns what `written` names goes to memory
    6. x / out_scale, or x / the scale that was written

    Steps without an argument are left out. If the kernel computes the transposed output, so is this epilogue: `transposed` is
    for the function, which gets rows and columns of the caller's output. `form` is the class of a named tuple of extras."""

    scale_a: Extra | None = None
    scale_b: Extra | None = None
    bias: Extra | None = None
    activation: Any = None
    gated: bool = False
    residual: Extra | None = None
    function: Any = None
    extras: tuple[Extra, ...] = ()
    form: Any = None
    out_scale: Extra | None = None
    written: tuple[str, ...] = ()
    turned: bool = False

    @property
    def transposed(self) -> Epilogue:
        """The same for the transposed output."""
        assert not self.written
        named = {name: extra and extra.transposed for name, extra in self.named.items()}
        others = tuple(extra.transposed for extra in self.extras)
        return replace(self, **named, extras=others, turned=not self.turned)

    @property
    def named(self) -> dict[str, Extra | None]:
        """What is read, other than a caller's extras."""
        scales = {"scale_a": self.scale_a, "scale_b": self.scale_b, "out_scale": self.out_scale}
        return {**scales, "bias": self.bias, "residual": self.residual}

    @property
    def straight(self) -> bool:
        """True when the kernel must compute the output itself, not its transpose."""
        return self.gated or bool(self.written)

    @property
    def slots(self) -> float:
        """About how long the epilogue of an element takes, in issue slots of a thread."""
        read = [
            SLOTS["matrix" if x.rows and x.columns else "vector"] for x in self.operands if x is not None and x.memory
        ]
        named = str(getattr(self.activation, "__name__", "")).removesuffix("_brief")
        activation = SLOTS.get(named, SLOTS["function"]) if self.activation is not None else 0
        function = SLOTS["function"] if self.function is not None else 0
        return sum(read) + activation + function + len(self.written) * SLOTS["written"]

    @property
    def plain(self) -> bool:
        """True when sums are stored as they are."""
        return self == PLAIN

    @property
    def loaded(self) -> bool:
        """True when TMA loads the residual into the buffers through which the output is stored."""
        return self.residual is not None and self.residual.described

    @property
    def operands(self) -> tuple[Extra | None, ...]:
        """All that is read, in the order of the kernel's argument."""
        return *self.named.values(), *self.extras


SLOTS = {
    "relu": 1, "relu_squared": 2, "gelu": 16, "gelu_tanh": 8, "silu": 16, "sigmoid": 16, "tanh": 8, "function": 8,
    "vector": 2.5, "matrix": 16, "written": 5,
}  # fmt: skip
"""Issue slots of a thread for an element of the output: the instructions of sm_90a's machine code; where MUFU computes them, 16
a cycle, what it takes; for a matrix, of which a warp reads 8 rows at a time, what the L1 cache takes. Those of a caller's
function are a guess."""
PLAIN = Epilogue()
"""An epilogue that only converts."""
