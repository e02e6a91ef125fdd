"""Measurement: the timer, restoring arrays between runs, and detection of graph captures and lost contexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import testing
from weft.errors import DeviceError, fail
from weft.errors.tune import RESTORE_KIND
from weft.runtime import driver, streams
from weft.runtime.arguments import HOST

Bench = Callable[[Callable[[], Any], Callable[[], None]], float]
"""`bench(run, prepare)`: the time of `run()` in milliseconds; `prepare()` is called before each run and not measured."""

_CAPTURE_IMPLICIT = 906
"""CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy default stream is queried while another stream captures."""


def gpu_bench(warmup: float, rep: float) -> Bench:
    """The timer for a GPU: the median of `weft.testing.do_bench`, which flushes the L2 cache and measures for `rep` ms."""

    def bench(run: Callable[[], Any], prepare: Callable[[], None]) -> float:
        return testing.do_bench(run, warmup=warmup, rep=rep, return_mode="median", prepare=prepare)

    return bench


class Originals:
    """Arrays of a call that are restored (`restore`) or filled with zeros (`reset`) before each run.

    Raises TuningError (tune-restore-kind) for arguments that can be neither copied nor filled.
    """

    def __init__(self, name: str, bound: Mapping[str, Any], restore: Sequence[str], reset: Sequence[str]) -> None:
        self._restore = [(array, _copy(name, parameter, array)) for parameter, array in _given(bound, restore)]
        self._reset = [_fillable(name, parameter, array) for parameter, array in _given(bound, reset)]

    def put_back(self) -> None:
        """Restore or reset the arrays."""
        for array, original in self._restore:
            _assign(array, original)
        for array in self._reset:
            _assign(array, 0)


def _given(bound: Mapping[str, Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    return [(name, bound[name]) for name in names if bound.get(name) is not None]


def _copy(name: str, parameter: str, array: Any) -> Any:
    copy = getattr(array, "clone", None) or getattr(array, "copy", None)
    if copy is None or not hasattr(array, "dtype"):
        raise _unfit("restore", name, parameter, array, "copied")
    return copy()


def _fillable(name: str, parameter: str, array: Any) -> Any:
    if not hasattr(array, "__setitem__") or not hasattr(array, "dtype"):
        raise _unfit("reset", name, parameter, array, "filled")
    return array


def _unfit(option: str, name: str, parameter: str, array: object, done: str) -> Exception:
    kind = type(array)
    return fail(RESTORE_KIND, option=option, name=name, parameter=parameter, value=f"a {kind.__name__}", done=done)


def _assign(array: Any, value: Any) -> None:
    # PyTorch refuses in-place writes to a leaf tensor that requires gradients, but not to its detached view.
    target = array.detach() if hasattr(array, "detach") else array
    target[...] = value


def here() -> int:
    """The current GPU, or `HOST` without a GPU."""
    return driver.active.get_current_device() if driver.available() else HOST


def capturing(bound: Mapping[str, Any], ordinal: int) -> bool:
    """True while the stream of a call with these arguments is captured into a CUDA graph."""
    stream, current = bound.get("stream"), streams.current_of_torch()
    with driver.current_context(driver.device(ordinal)):
        raw = streams.raw(stream) if stream is not None else current(ordinal) if current is not None else 0
        cuda = driver.bindings()
        status, state = cuda.cuStreamIsCapturing(cuda.CUstream(raw))
    return int(status) == _CAPTURE_IMPLICIT or (int(status) == 0 and int(state) != 0)


def lost(ordinal: int) -> str:
    """The error of a broken CUDA context of a device; empty while the context works."""
    try:
        with driver.current_context(driver.device(ordinal)):
            driver.call("cuCtxSynchronize")
    except DeviceError as error:
        return error.message
    return ""
