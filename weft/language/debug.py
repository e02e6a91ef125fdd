"""Prints and assertions, at compile time and at run time."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from weft.errors import fail
from weft.errors import language as errors
from weft.language.advice import RUN_TIME_ASSERT
from weft.language.broadcast import common_form, fit
from weft.language.logic import compare, logical_not, logical_or, truth
from weft.language.marks import anywhere, builtin
from weft.language.promote import place_mask, to_tensor
from weft.language.runtime_value import RuntimeValue, name_of
from weft.language.tensor import apply_many
from weft.language.vector import SIMD
from weft.ops import debug


@dataclass(frozen=True, slots=True)
class Text:
    """An f-string in a kernel: constant pieces and run-time values, in order."""

    parts: tuple[str | RuntimeValue, ...]

    def __str__(self) -> str:
        return "".join(f"{{{p.handle.name or 'value'}}}" if isinstance(p, RuntimeValue) else p for p in self.parts)


@builtin
def device_print(prefix: Any, *args: Any, hex: bool = False) -> None:
    """Print `prefix` and the values from the running kernel, one line per element; `hex` prints integers in base 16.

    A scalar is printed on one line. In a kernel launched with `block=`, every thread that executes the print prints its own
    line, with its index in the block. The prefix is a string; in an f-string, each run-time value is printed after the text
    before it. Raises language-print-prefix.
    """
    if isinstance(prefix, Text):
        _print_text(prefix, hex)
        prefix = ""
        if not args:
            return
    if not isinstance(prefix, str):
        raise fail(errors.PRINT_PREFIX, got=name_of(prefix))
    values = [to_tensor(part) for x in args for part in _elements(x)]
    form = common_form("device_print", values)
    apply_many(debug.print_, [fit(x, form) for x in values], prefix=prefix, hex=bool(hex))


@builtin
def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Abort the kernel with `msg` unless the condition is true for every element for which `mask` is.

    Raises language-assert-text, language-mask-type.
    """
    if not isinstance(msg, (str, Text)):
        raise fail(errors.ASSERT_TEXT, got=name_of(msg))
    holds = truth(cond)
    form = common_form("device_assert", (holds, mask))
    apply_many(debug.assert_, (fit(holds, form), place_mask("device_assert", mask, form)), message=str(msg))


@builtin
def expect_zero(x: Any, mask: Any) -> Any:
    """`x`, which is 0 wherever `mask` is true; checked like `device_assert`, by the simulator and in debug builds."""
    zero = logical_or(compare("eq", x, 0), logical_not(mask))
    device_assert(zero, "expect_zero: x is not 0 where mask is true")
    return x


@anywhere
def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print at compile time, as Python's `print` does."""
    sys.stdout.write(sep.join(map(str, values)) + end)


@anywhere
def static_assert(cond: Any, msg: Any = "") -> None:
    """A compile-time assertion. Raises language-static-assert, language-constexpr-needed."""
    if isinstance(cond, RuntimeValue):
        raise fail(errors.CONSTEXPR_NEEDED, what="static_assert", got=name_of(cond), instead=RUN_TIME_ASSERT)
    if not cond:
        raise fail(errors.STATIC_ASSERT, message=f": {msg}" if msg else "")


def _elements(x: Any) -> list[Any]:
    """The elements of a vector; any other value as the only element."""
    return [x[index] for index in range(x.size)] if isinstance(x, SIMD) else [x]


def _print_text(text: Text, hex: bool) -> None:
    said = ""
    for part in text.parts:
        if isinstance(part, str):
            said += part
            continue
        apply_many(debug.print_, [to_tensor(x) for x in _elements(part)], prefix=said, hex=bool(hex))
        said = ""
    if said:
        apply_many(debug.print_, (), prefix=said, hex=False)
