"""Launches inside of functions that `torch.compile` compiles: the graph ends before a launch and begins anew behind it.

Dynamo would trace a launch as it does any Python, down into the simulator, with tensors that have no memory. It leaves out
functions with the attributes that `opaque` sets, and what runs under `outside`. PyTorch is not imported for either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_REASON = "a weft kernel is launched outside of the graph"


def opaque(function: F) -> F:
    """Mark a function as one that Dynamo calls and does not trace."""
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    return function


def outside(function: F) -> F:
    """The same function, but Dynamo does not look at what it calls either; the function itself where there is no Dynamo."""
    dynamo = sys.modules.get("torch._dynamo")
    # Another thread may be importing it.
    disable = getattr(dynamo, "disable", None)
    return function if disable is None else disable(function, reason=_REASON)


def pass_over(*functions: Callable[..., Any]) -> None:
    """Have Dynamo not compile these functions by themselves either, where their callers run outside of a graph."""
    skip = getattr(sys.modules.get("torch._dynamo"), "skip", None)
    if skip is not None:
        for function in functions:
            skip(function)
