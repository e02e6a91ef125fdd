"""Checks of launch options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from weft import settings
from weft.errors import fail
from weft.errors.launch import BLOCK_WARPS, OPTION_VALUE
from weft.plain import one_of, several, truth, whole
from weft.runtime.compiled import FAST_MATH, WARP_SIZE, Options
from weft.runtime.grid import block_of

_NUMBERS: dict[str, tuple[Collection[int], str, str]] = {
    "num_warps": ((1, 2, 4, 8, 16, 32), "a power of two from 1 to 32", "num_warps=4"),
    "num_ctas": ((1, 2, 4, 8, 16), "a power of two from 1 to 16", "num_ctas=2"),
    "maxnreg": (range(16, 256), "a number of registers from 16 to 255", "maxnreg=128"),
}


def checked(
    kernel: str, given: Mapping[str, Any], *, debug: bool | None, sync: str, fast_math: tuple[str, ...] = ()
) -> Options:
    """The options of a launch. `given` has a value for each of `weft.runtime.binder.COMPILE_OPTIONS`.

    `debug` is the kernel's default; without it that of the settings applies. Raises LaunchError: launch-option-value,
    and for a thread block launch-block-warps.
    """
    value = dict(given)
    for option in _NUMBERS:
        free = option == "maxnreg" or (option == "num_warps" and value["block"] is not None)
        if value[option] is not None or not free:
            value[option] = number_of(kernel, option, value[option])
    if value["block"] is not None:
        value.update(_threads(kernel, value))
    for option in ("sanitize_overflow", "launch_pdl", "launch_cooperative_grid", "enable_fp_fusion"):
        value[option] = truth_of(kernel, option, value[option])
    if value["debug"] is None:
        value["debug"] = settings.current().debug if debug is None else debug
    value["debug"] = truth_of(kernel, "debug", value["debug"])
    return Options(**value, sync=sync, fast_math=fast_math)


def number_of(name: str, option: str, value: object) -> int:
    """The checked value of a numeric option of `name`. Raises LaunchError (launch-option-value)."""
    allowed, expected, example = _NUMBERS[option]
    found = whole(value)
    if found is None or found not in allowed:
        raise fail(OPTION_VALUE, option=option, value=value, name=name, expected=expected, example=example)
    return found


def fast_math_of(name: str, value: object) -> tuple[str, ...]:
    """The operations that the option `fast_math` of `name` lists, in the order of the table; True is all of them.

    Raises LaunchError (launch-option-value)."""
    found = truth(value)
    if found is not None:
        return FAST_MATH if found else ()
    listed = several(value)
    if not all(one_of(each, *FAST_MATH) and each is not None for each in listed):
        known = ", ".join(FAST_MATH)
        expected, example = f"True, False or a list of operations ({known})", "fast_math=['exp2', 'tanh']"
        raise fail(OPTION_VALUE, option="fast_math", value=value, name=name, expected=expected, example=example)
    return tuple(each for each in FAST_MATH if each in listed)


def truth_of(name: str, option: str, value: object) -> bool:
    """The checked value of a boolean option of `name`. Raises LaunchError (launch-option-value)."""
    found = truth(value)
    if found is None:
        raise fail(
            OPTION_VALUE, option=option, value=value, name=name, expected="True or False", example=f"{option}=True"
        )
    return found


def _threads(kernel: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The options that follow from a thread block."""
    block = block_of(kernel, value["block"])
    threads = prod(block)
    warps, given = -(-threads // WARP_SIZE), value["num_warps"]
    if given not in (None, warps):
        raise fail(BLOCK_WARPS, name=kernel, num_warps=given, block=block, threads=threads, warps=warps)
    return {"block": block, "num_warps": warps}
