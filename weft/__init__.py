"""weft: GPU kernels in Python with explicit layouts, run on a GPU or in a simulator.

The public names. Each is imported on first use, so that `import weft` is fast and needs neither NumPy nor a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import distributed, kernels, language, nvidia, runtime, testing, tune
    from weft.distributed.symmetric import Symmetric
    from weft.errors.launch import OutOfResources
    from weft.kernel import jit
    from weft.language import aggregate, cdiv, constexpr_function, must_use_result, next_power_of_2, vectorize
    from weft.language.views import (
        UNKNOWN,
        AddressSpace,
        ComposedLayout,
        Layout,
        LayoutTensor,
        LayoutTensorIter,
        Swizzle,
        TileTensor,
        col_major,
        row_major,
    )
    from weft.pointwise import elementwise
    from weft.simulation import simulate
    from weft.tune import Config, autotune

__version__ = "0.1.0"

_MODULES = frozenset({"distributed", "kernels", "language", "nvidia", "runtime", "testing", "torch", "tune"})
_HOMES = {
    "jit": "weft.kernel",
    "OutOfResources": "weft.errors.launch",
    "elementwise": "weft.pointwise",
    "vectorize": "weft.language",
    "constexpr_function": "weft.language",
    "must_use_result": "weft.language",
    "aggregate": "weft.language",
    "cdiv": "weft.language",
    "next_power_of_2": "weft.language",
    "LayoutTensor": "weft.language.views",
    "LayoutTensorIter": "weft.language.views",
    "TileTensor": "weft.language.views",
    "row_major": "weft.language.views",
    "col_major": "weft.language.views",
    "Layout": "weft.language.views",
    "UNKNOWN": "weft.language.views",
    "AddressSpace": "weft.language.views",
    "Swizzle": "weft.language.views",
    "ComposedLayout": "weft.language.views",
    "simulate": "weft.simulation",
    "Symmetric": "weft.distributed.symmetric",
    "autotune": "weft.tune",
    "Config": "weft.tune",
}


def __getattr__(name: str) -> Any:
    from weft.loading import load_module

    if name in _MODULES:
        return load_module(f"weft.{name}")
    if name == "amd":
        raise AttributeError("module 'weft' has no attribute 'amd': it compiles for NVIDIA's GPUs (weft.nvidia)")
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = getattr(load_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "__version__",
    "jit",
    "OutOfResources",
    "constexpr_function",
    "must_use_result",
    "aggregate",
    "cdiv",
    "next_power_of_2",
    "LayoutTensor",
    "LayoutTensorIter",
    "TileTensor",
    "row_major",
    "col_major",
    "elementwise",
    "vectorize",
    "Layout",
    "UNKNOWN",
    "AddressSpace",
    "Swizzle",
    "ComposedLayout",
    "simulate",
    "Symmetric",
    "autotune",
    "Config",
    "distributed",
    "testing",
    "tune",
    "runtime",
    "language",
    "kernels",
    "nvidia",
]
