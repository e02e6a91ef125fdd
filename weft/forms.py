"""Arrays whose memory does not hold their values. Launches and views refuse them as arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import numpy as np

_LAZY = (
    ("is_neg", "is negated lazily: its memory holds the numbers with the other sign", "x.resolve_neg()"),
    ("is_conj", "is conjugated lazily: its memory holds the numbers before that", "x.resolve_conj()"),
)
_FAKE = ("torch._subclasses.fake_tensor", "FakeTensor")
_WITH_NUMBERS = "a tensor with numbers"
_TRACED = "a tensor with numbers; torch.vmap, torch.func.grad and tracers see a launch through torch.library.custom_op"


def other_form(value: Any) -> tuple[str, str] | None:
    """Why the memory of an object does not hold its values, and what to pass instead; None for ordinary arrays.

    Refused are PyTorch's lazily negated, lazily conjugated, sparse, nested and fake tensors, and NumPy's masked arrays.
    """
    if of_torch(value) and hasattr(value, "data_ptr"):
        return _of_tensor(value)
    if hasattr(value, "mask") and hasattr(value, "filled") and is_numpy(value):
        return "kernels do not see its mask", "x.filled(0), or x.data and x.mask"
    return None


def _of_tensor(value: Any) -> tuple[str, str] | None:
    for method, why, instead in _LAZY:
        if getattr(value, method, bool)():
            return f"it {why}", f"{instead}, or for results an array of its own"
    if str(getattr(value, "layout", "torch.strided")) != "torch.strided":
        return f"its layout is {value.layout}", "x.to_dense(), or its parts"
    if getattr(value, "is_nested", False):
        return "it is nested, with rows of their own lengths", "x.to_padded_tensor(0.0), or its parts"
    if any((kind.__module__, kind.__name__) == _FAKE for kind in type(value).__mro__):
        return "it has no memory", _WITH_NUMBERS
    if getattr(getattr(value, "device", None), "type", None) == "meta":
        return None  # Its device is refused elsewhere, with a message of its own.
    try:
        pointer = value.data_ptr()
    except RuntimeError:  # Wrapper tensors of a transformation (vmap, grad) or tracer have no storage.
        return "it stands for other tensors and has no memory", _TRACED
    lost = not pointer and getattr(value, "numel", int)()
    return ("it has no memory", _WITH_NUMBERS) if lost else None


def of_torch(value: object) -> bool:
    """True for arrays with a PyTorch dtype, whose launches go to PyTorch's current stream."""
    return type(getattr(value, "dtype", None)).__module__ == "torch"


def of_jax(value: object) -> bool:
    """True for JAX arrays. Launches wait until they are computed, and return after the kernel has ended."""
    return type(value).__module__.partition(".")[0] in ("jaxlib", "jax")


def library_of(value: object) -> str:
    """The library whose arrays launches order with its own work: "torch", "jax", or "" for others."""
    return "torch" if of_torch(value) else "jax" if of_jax(value) else ""


def is_numpy(value: object) -> TypeGuard[np.ndarray[Any, Any]]:
    """True for NumPy arrays. Without NumPy loaded no object is one, so NumPy is not imported for this."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
