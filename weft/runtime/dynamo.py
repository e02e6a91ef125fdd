"""Launches inside functions compiled by `torch.compile`: each launch is a graph break.

Dynamo would trace into a launch as into any Python function, down into the simulator, with fake tensors that have no memory.
It does not trace functions with the attributes that `opaque` sets. PyTorch is not imported for this.
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
"""Code objects of opaque functions that are not yet registered with PyTorch. The key is the `id`, because the launch functions
of two kernels may have equal code objects."""


def opaque(function: F) -> F:
    """Mark a function that Dynamo must neither trace nor, when it is called outside of a graph, compile as a frame."""
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    code = cast("FunctionType", function).__code__
    _waiting[id(code)] = code
    pass_over()
    return function


def pass_over() -> None:
    """If PyTorch is loaded, register all opaque functions with Dynamo's frame evaluation, so that it skips them and their
    callees.

    The attributes alone do not suffice: the code after a graph break calls the function with Dynamo's frame hook active, which
    would compile its frame. The hook is part of PyTorch's core, so `torch._dynamo`, whose import takes a second, need not be
    loaded and may be loaded later. PyTorch before 2.7 has no such strategy; a launch under `torch.compile` may be traced there.
    """
    evaluation: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if not hasattr(evaluation, "set_code_exec_strategy"):
        return
    action = evaluation._FrameAction  # noqa: SLF001 - `torch._dynamo.types` takes both from here
    strategy = evaluation._FrameExecStrategy(action.SKIP, action.SKIP)  # noqa: SLF001
    while _waiting:
        evaluation.set_code_exec_strategy(_waiting.popitem()[1], strategy)
