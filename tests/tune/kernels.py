"""A kernel that every test tunes in a way of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import weft
from weft import Config
from weft.tune import Autotuner

gl = SimpleNamespace(constexpr=type("constexpr", (), {}))


@weft.jit
def scale(x, y, n, BLOCK: gl.constexpr):
    pass


def tuned(machine: Any, blocks=(64, 128, 256), *, times=None, configs=None, key=("n",), **options: Any) -> Autotuner:
    """`scale`, tuned over BLOCKs by the machine's clock."""
    machine.times.update(times or {})
    scale.forget()
    given = [Config({"BLOCK": block}) for block in blocks] if configs is None else configs
    return weft.autotune(given, key=key, **{"bench": machine.bench, **options})(scale)
