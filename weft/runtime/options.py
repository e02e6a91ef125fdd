"""Launch options, checked: from what a launch was given to what a kernel is compiled for."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from weft import settings
from weft.errors import fail
from weft.errors.launch import BLOCK_CLUSTER, BLOCK_WARPS, OPTION_VALUE, OVERFLOW
from weft.runtime.compiled import WARP_SIZE, Options
from weft.runtime.grid import block_of

_POWERS = (1, 2, 4, 8, 16, 32)
_CLUSTERS = _POWERS[:4]


def checked(kernel: str, given: Mapping[str, Any], *, debug: bool | None, sync: str) -> Options:
    """The options of a launch. `given` has a value for each of `weft.runtime.binder.COMPILE_OPTIONS`.

    `debug` is what the kernel says where the launch says nothing; without either it is the settings'. Raises LaunchError:
    launch-option-value, launch-overflow, and of a block of threads launch-block-warps, launch-block-cluster.
    """
    value = dict(given)
    if value["block"] is None:
        _check(
            kernel,
            value,
            "num_warps",
            _among(value["num_warps"], _POWERS),
            "a power of two from 1 to 32",
            "num_warps=4",
        )
    else:
        value.update(_threads(kernel, value))
    _check(kernel, value, "num_ctas", _among(value["num_ctas"], _CLUSTERS), "a power of two from 1 to 8", "num_ctas=2")
    if value["sanitize_overflow"]:
        raise fail(OVERFLOW, name=kernel)
    cap = value["maxnreg"]
    allowed = cap is None or (isinstance(cap, int) and 16 <= cap <= 255)
    _check(kernel, value, "maxnreg", allowed, "a number of registers from 16 to 255", "maxnreg=128")
    if value["debug"] is None:
        value["debug"] = settings.current().debug if debug is None else debug
    return Options(**value, sync=sync)


def _threads(kernel: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a block of threads decides."""
    block = block_of(kernel, value["block"])
    threads = prod(block)
    warps, given = -(-threads // WARP_SIZE), value["num_warps"]
    if given not in (None, warps):
        raise fail(BLOCK_WARPS, name=kernel, num_warps=given, block=block, threads=threads, warps=warps)
    if value["num_ctas"] != 1:
        raise fail(BLOCK_CLUSTER, name=kernel, block=block, num_ctas=value["num_ctas"])
    return {"block": block, "num_warps": warps}


def _among(value: object, known: tuple[int, ...]) -> bool:
    """True for one of the known numbers; arrays, which compare element by element, are none."""
    return isinstance(value, int) and value in known


def _check(kernel: str, value: Mapping[str, Any], option: str, good: bool, expected: str, example: str) -> None:
    if not good:
        raise fail(OPTION_VALUE, option=option, value=value[option], name=kernel, expected=expected, example=example)
