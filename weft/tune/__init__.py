"""Autotuning: `@autotune` chooses the fastest of several configs of a kernel, or of a function that launches kernels.

A `Config` sets compile-time arguments and launch options; a `Space` is the Cartesian product of values for each. The choice is
made at the first call for a key, stored next to the compiled kernels, and can be exported to other machines.
"""

from weft.tune.config import Config, Space
from weft.tune.results import Result, Results
from weft.tune.store import Choice, choices, clear_choices, export_choices, import_choices
from weft.tune.tuner import Autotuner, autotune

__all__ = [
    "autotune",
    "Config",
    "Space",
    "Autotuner",
    "Result",
    "Results",
    "Choice",
    "choices",
    "export_choices",
    "import_choices",
    "clear_choices",
]
