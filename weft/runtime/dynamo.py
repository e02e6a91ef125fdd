"""Launches inside of functions that `torch.compile` compiles: the graph ends before a launch and begins anew behind it.

Dynamo would trace a launch as it does any Python, down into the simulator, with tensors that have no memory. It leaves out
functions with the attributes that `opaque` sets, and runs what they call as it is. PyTorch is not imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

F = TypeVar("F", bound=Callable[..., Any])
_REASON = "a weft kernel is launched outside of the graph"
_waiting: WeakValueDictionary[int, CodeType] = WeakValueDictionary()
"""Codes of opaque functions that PyTorch has not been told of, by `id`: two kernels' launch functions may be equal codes."""


def opaque(function: F) -> F:
    """Mark a function as one that Dynamo calls and neither traces nor, called outside of a graph, compiles by itself."""
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    code = cast("FunctionType", function).__code__
    _waiting[id(code)] = code
    pass_over()
    return function


def pass_over() -> None:
    """Have all opaque functions so far, and whatever they call, run as they are, if PyTorch is loaded.

    The attributes alone do not suffice: what stands behind the graph calls the function under Dynamo's eye, which would
    compile its frame by itself. `torch._dynamo` need not be loaded, which takes a second, and may happen after a kernel's
    first launch: its evaluation of frames is a part of PyTorch's core. Before PyTorch 2.7 there is no such strategy, and a
    launch under `torch.compile` may be traced.
    """
    evaluation: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if not hasattr(evaluation, "set_code_exec_strategy"):
        return
    action = evaluation._FrameAction  # noqa: SLF001 - `torch._dynamo.types` takes both from here
    strategy = evaluation._FrameExecStrategy(action.SKIP, action.SKIP)  # noqa: SLF001
    while _waiting:
        evaluation.set_code_exec_strategy(_waiting.popitem()[1], strategy)
