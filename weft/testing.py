"""Measuring kernels and comparing their results.

Times are milliseconds of GPU time between CUDA events, each repetition after an L2 flush. PyTorch provides events and memory;
it is imported inside the functions that measure, and nowhere else in the package.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from weft.errors import fail
from weft.errors.launch import NO_BENCHMARK_DEVICE

if TYPE_CHECKING:
    import numpy as np

ReturnMode = Literal["mean", "median", "min", "max", "all"]

_FLUSH_FACTOR = 4
"""The L2 flush writes this many times the cache's size."""
_GRAPH_RUNS = 10
_ESTIMATE_RUNS = 5

_TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}
_FP8_TOLERANCE = 0.13
"""One step of e4m3 relative to its value, rounded up."""


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
    prepare: Callable[[], Any] | None = None,
) -> Any:
    """Milliseconds that one call of `fn` takes on the GPU, with a cold L2 cache.

    Runs `fn` for about `warmup` milliseconds, then measures for about `rep`. Returns the statistic that `return_mode` names
    ("all": the list of times), or one value for each of `quantiles`. `grad_to_none` lists tensors whose gradients are dropped
    before each run; `prepare` is called before each run, outside of the measured time. Raises DeviceError
    (device-no-benchmark) without PyTorch and a GPU.
    """
    torch = torch_with_cuda()
    flush = _flusher(torch)

    def ready() -> None:
        for tensor in grad_to_none or ():
            tensor.grad = None
        if prepare is not None:
            prepare()

    def one() -> Any:
        ready()
        flush()
        begin, end = _event(torch), _event(torch)
        begin.record()
        fn()
        end.record()
        return begin, end

    ready()
    fn()
    estimate = statistics.mean(_elapsed(torch, [one() for _ in range(_ESTIMATE_RUNS)]))
    for _ in range(_runs(warmup, estimate)):
        ready()
        fn()
    times = _elapsed(torch, [one() for _ in range(_runs(rep, estimate))])
    return summarise(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: ReturnMode = "mean",
) -> Any:
    """Milliseconds that one call of `fn` takes when replayed from a CUDA graph, so without launch overhead of the host.

    The graph holds enough calls to fill about `rep` milliseconds, back to back and with a warm cache; it is replayed ten
    times. Arguments, result and errors are those of `do_bench`.
    """
    torch = torch_with_cuda()
    with torch.cuda.stream(torch.cuda.Stream()):
        fn()
        estimate = _replay_time(torch, _capture(torch, fn, grad_to_none, _ESTIMATE_RUNS)) / _ESTIMATE_RUNS
        count = _runs(rep, estimate)
        graph = _capture(torch, fn, grad_to_none, count)
        times = [_replay_time(torch, graph) / count for _ in range(_GRAPH_RUNS)]
    return summarise(times, quantiles, return_mode)


def summarise(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: ReturnMode) -> Any:
    """A statistic of measured times, or one value per quantile (linear interpolation).

    >>> summarise([4.0, 1.0, 2.0], [0.5, 1.0], "mean")
    [2.0, 4.0]
    """
    if quantiles is not None:
        return [_quantile(sorted(times), q) for q in quantiles]
    if return_mode == "all":
        return list(times)
    choose: dict[str, Callable[[Sequence[float]], float]] = {
        "mean": statistics.fmean,
        "median": statistics.median,
        "min": min,
        "max": max,
    }
    return choose[return_mode](times)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Assert that `|x - y| <= atol + rtol * |y|` for every element; NaN equals NaN, and infinities equal themselves.

    `x` and `y` are tensors of PyTorch (on any device), NumPy arrays, or numbers, of equal shapes. Tolerances default to
    the precision of `x`'s dtype: exact for integers and bools. Raises AssertionError with the worst element and its index.
    """
    left, right = _as_float_array(x), _as_float_array(y)
    prefix = f"{err_msg}\n" if err_msg else ""
    if left.shape != right.shape:
        raise AssertionError(f"{prefix}shapes differ: {left.shape} and {right.shape}")
    default = _default_tolerance(x)
    atol = default if atol is None else atol
    rtol = default if rtol is None else rtol
    report = _difference(left, right, atol, rtol)
    if report:
        raise AssertionError(prefix + report)


def _difference(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], atol: float, rtol: float) -> str:
    """A report of the difference, empty when the arrays agree."""
    import numpy as np

    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(x - y)
        allowed = atol + rtol * np.abs(y)
        # With an infinite `y` the tolerance is infinite and would allow every `x`.
        near = (distance <= allowed) & np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y)) | near
        bad = ~same
        if not bad.any():
            return ""
        # An element without a finite distance (NaN against a number) counts as worse than every finite distance.
        excess = np.where(bad, np.nan_to_num(distance - allowed, nan=np.inf, posinf=np.inf), -np.inf)
    worst = np.unravel_index(int(np.argmax(excess)), x.shape)
    place = tuple(int(i) for i in worst)
    return (
        f"{int(bad.sum())} of {x.size} elements differ by more than {atol:g} + {rtol:g} * |expected|\n"
        f"worst at {place}: got {x[worst]!s}, expected {y[worst]!s}, off by {distance[worst]:g}"
    )


def _as_float_array(value: Any) -> np.ndarray[Any, Any]:
    """The values as float64, or unchanged for 64-bit integers; bfloat16 and fp8 widen without loss."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.double() if value.is_floating_point() else value
        value = value.numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "iu" and array.dtype.itemsize == 8 else array.astype(np.float64)


def _default_tolerance(value: Any) -> float:
    name = str(getattr(value, "dtype", "float64")).removeprefix("torch.")
    return _FP8_TOLERANCE if name.startswith("float8") else _TOLERANCE.get(name, 0.0)


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def torch_with_cuda() -> Any:
    """PyTorch, with a CUDA device. Raises DeviceError (device-no-benchmark)."""
    try:
        import torch
    except ImportError as error:
        raise fail(NO_BENCHMARK_DEVICE, reason="PyTorch is not installed") from error
    if not torch.cuda.is_available():
        raise fail(NO_BENCHMARK_DEVICE, reason="PyTorch sees no CUDA device")
    return torch


def _flusher(torch: Any) -> Callable[[], Any]:
    cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return torch.empty(_FLUSH_FACTOR * cache_bytes, dtype=torch.int8, device="cuda").zero_


def _event(torch: Any) -> Any:
    return torch.cuda.Event(enable_timing=True)


def _elapsed(torch: Any, pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def _runs(milliseconds: float, estimate: float) -> int:
    return max(1, int(milliseconds / estimate)) if estimate > 0 else 1


def _capture(torch: Any, fn: Callable[[], Any], grad_to_none: Sequence[Any] | None, count: int) -> Any:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            for tensor in grad_to_none or ():
                tensor.grad = None
            fn()
    return graph


def _replay_time(torch: Any, graph: Any) -> float:
    begin, end = _event(torch), _event(torch)
    begin.record()
    graph.replay()
    end.record()
    (time,) = _elapsed(torch, [(begin, end)])
    return time
