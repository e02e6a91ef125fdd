"""Calls that are prepared once. What a row function checks, allocates and launches depends on the shapes, strides, types,
devices and alignments of its arrays, and on its other arguments; the next call with equal ones repeats what was allocated and
launched.

Only calls with CUDA tensors of PyTorch, on the current stream, are kept; those with a symmetric tensor by the first of them,
which is then the same in each. A function takes part by `prepared`, `empty_like` and `zeros_kept` for what it allocates, and
`launched` for its launches.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from weft.bounded import keep
from weft.distributed import Symmetric
from weft.kernel import Repeated
from weft.kernels import memory
from weft.kernels.rows.plan import RowConfig

P = ParamSpec("P")
R = TypeVar("R")
PLAIN: set[type] = {type(None), bool, int, float, str, RowConfig}
"""Types of arguments that are what they are equal to."""
ALIGNMENT = 15
"""What alignment of addresses kernels are specialised on, as a mask."""


@dataclass
class Recording:
    """What a call has allocated, the array that it is like and the function that makes another; and what it has launched."""

    made: list[tuple[Any, Any, Callable[[Any], Any]]] = field(default_factory=list[Any])
    launches: list[tuple[Any, Any, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list[Any])


class _Now(threading.local):
    recording: Recording | None = None


MOST_CALLS, MOST_OF_A_TENSOR = 1024, 64
"""Calls that are kept: of all functions here, and of a symmetric tensor together with those of `weft.kernels.distributed`."""
_now = _Now()
_known: dict[Any, Prepared] = {}


def empty_like(value: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """As `weft.kernels.memory.empty_like`. Raises LaunchError (kernels-out-needed)."""
    return _made(value, lambda like: memory.empty_like(like, shape, dtype))


def zeros_kept(value: Any, count: int, stream: Any, dtype: str = "int32") -> Any:
    """As `weft.kernels.memory.zeros_kept`."""
    return _made(value, lambda like: memory.zeros_kept(like, count, stream, dtype))


def _made(value: Any, make: Callable[[Any], Any]) -> Any:
    array = make(value)
    if _now.recording is not None:
        _now.recording.made.append((array, value, make))
    return array


def launched(kernel: Any, grid: Any, arguments: tuple[Any, ...], options: dict[str, Any], stream: Any) -> None:
    """Launch a kernel."""
    if _now.recording is not None:
        _now.recording.launches.append((kernel, grid, arguments, options))
    kernel[grid](*arguments, **options, stream=stream)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call to repeat. Arrays are numbered: the caller's arguments, the tensors of those that are symmetric, then `made`,
    which are allocated like one of the former.

    `launches`: what repeats the launches of a kernel that differ in arrays, grid, arguments, which of these are arrays (place
    and number), options. `result`: numbers, None, or tuples of them. `pairs` of the caller's arrays, the first of which is
    written: whether they are the same; otherwise they lie `spans` bytes apart at least."""

    made: tuple[tuple[int, Callable[[Any], Any]], ...]
    launches: tuple[tuple[Repeated, Any, tuple[Any, ...], tuple[tuple[int, int], ...], dict[str, Any]], ...]
    result: Any
    pairs: tuple[tuple[int, int, bool], ...]
    spans: dict[int, int]

    def fits(self, arrays: Sequence[Any]) -> bool:
        """Whether these arrays overlap as those of the first call did."""
        return all(_meet(arrays, self.spans, i, j) is same for i, j, same in self.pairs)

    def repeat(self, arrays: Sequence[Any]) -> Any:
        """The call, with other arrays."""
        pool = [*arrays, *_tensors(arrays)]
        for like, make in self.made:
            pool.append(make(pool[like]))
        for repeated, grid, arguments, places, options in self.launches:
            run = repeated.ready()
            if run is not None:
                run(None, *[pool[number].data_ptr() for _, number in places])
                continue
            filled = list(arguments)
            for place, number in places:
                filled[place] = pool[number]
            repeated.launch(grid, *filled, **options)
        return _rebuilt(self.result, pool)


def prepared(*written: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A row function whose calls are prepared once; `written` are its parameters that are outputs."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        order = list(inspect.signature(function).parameters)

        @wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            given = (*args, *keywords.values())
            names = (*order[: len(args)], *keywords)
            if "stream" in keywords and keywords["stream"] is not None:
                return function(*args, **keywords)
            try:
                key = function, names, _alike(given), *map(_form, given)
                known: dict[Any, Any] = next((x.calls for x in given if isinstance(x, Symmetric)), _known)
                found = known.get(key)
            except (AttributeError, TypeError, RuntimeError):
                # Not CUDA tensors of PyTorch, or tensors without memory.
                return function(*args, **keywords)
            if found is not None:
                return found.repeat(given) if found.fits(given) else function(*args, **keywords)
            before, _now.recording = _now.recording, Recording()
            try:
                result = function(*args, **keywords)
                made = _prepared(_now.recording, result, given, [i for i, name in enumerate(names) if name in written])
            finally:
                _now.recording = before
            if made is not None:
                keep(known, key, made, MOST_CALLS if known is _known else MOST_OF_A_TENSOR)
            return result

        return cast("Callable[P, R]", call)

    return decorate


def _form(value: Any) -> Any:
    """What a call depends on, of an argument. Raises AttributeError, TypeError and RuntimeError where calls are not kept."""
    if type(value) in PLAIN:
        return type(value), value
    if isinstance(value, Symmetric):
        if not getattr(value.tensor, "is_cuda", False):
            raise TypeError
        return value
    device = value.get_device()
    if device < 0 or value.is_neg():
        # A repeated launch would read what a lazily negated tensor holds, which has the other sign.
        raise TypeError
    return value.dtype, value.shape, value.stride(), value.data_ptr() & ALIGNMENT, device


def _tensors(given: Sequence[Any]) -> list[Any]:
    """The tensors of symmetric arguments."""
    return [x.tensor for x in given if isinstance(x, Symmetric)]


def _is_array(value: Any) -> bool:
    return type(value) not in PLAIN and not isinstance(value, Symmetric)


def _alike(given: Sequence[Any]) -> tuple[int, ...]:
    """Which arrays are one and the same object."""
    every = [id(x) for x in given if _is_array(x)]
    return tuple(map(every.index, every))


def _prepared(recording: Recording, result: Any, given: Sequence[Any], written: list[int]) -> Prepared | None:
    """The recorded call; None where it cannot be repeated: an array is none of the caller's nor allocated, or written ones
    overlap others in part."""
    numbers = {id(x): i for i, x in enumerate(given) if _is_array(x)}
    own = {id(x): i for i, x in enumerate(_tensors(given), len(given))}
    if not recording.launches or any(id(like) not in {**own, **numbers} for _, like, _ in recording.made):
        return None
    used = {id(x) for _, _, arguments, _ in recording.launches for x in arguments} | _leaves(result)
    kept = [each for each in recording.made if id(each[0]) in used]
    pool = {**own, **numbers, **{id(x): len(given) + len(own) + i for i, (x, *_) in enumerate(kept)}}
    launches: list[Any] = []
    for kernel, grid, arguments, options in recording.launches:
        arrays = [i for i, x in enumerate(arguments) if hasattr(x, "data_ptr")]
        if any(id(arguments[i]) not in pool for i in arrays):
            return None
        rest = tuple(None if i in arrays else x for i, x in enumerate(arguments))
        repeated = Repeated(kernel, _numbers_of(kernel, arguments, arrays))
        launches.append((repeated, grid, rest, tuple((i, pool[id(arguments[i])]) for i in arrays), options))
    numbered = _numbered(result, pool)
    spans = {i: _span(given[i]) for i in numbers.values()}
    every = [(i, j, _meet(given, spans, i, j)) for i in written if i in spans for j in spans if i != j]
    if numbered is _ELSEWHERE or any(same is None for _, _, same in every):
        return None
    made = tuple((pool[id(like)], make) for _, like, make in kept)
    return Prepared(made, tuple(launches), numbered, cast("Any", tuple(every)), spans)


def _numbers_of(kernel: Any, arguments: Sequence[Any], arrays: Sequence[int]) -> list[int]:
    """The numbers of arrays among a kernel's run-time values, where those of tuples count one by one."""
    counts = [0 if p.constexpr else _count(x) for p, x in zip(kernel.params, arguments, strict=False)]
    return [sum(counts[:i]) for i in arrays]


def _count(value: Any) -> int:
    return sum(map(_count, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else 1


_ELSEWHERE = object()


def _leaves(result: Any) -> set[int]:
    if isinstance(result, tuple):
        return set[int]().union(*map(_leaves, cast("tuple[Any, ...]", result)))
    return {id(result)}


def _numbered(result: Any, pool: dict[int, int]) -> Any:
    """A result with numbers for arrays."""
    if isinstance(result, tuple):
        parts = [_numbered(x, pool) for x in cast("tuple[Any, ...]", result)]
        return _ELSEWHERE if _ELSEWHERE in parts else (type(cast("Any", result)), parts)
    return None if result is None else pool.get(id(result), _ELSEWHERE)


def _rebuilt(numbered: Any, pool: list[Any]) -> Any:
    if not isinstance(numbered, tuple):
        return None if numbered is None else pool[numbered]
    kind, parts = cast("tuple[Any, list[Any]]", numbered)
    each = [_rebuilt(x, pool) for x in parts]
    return tuple(each) if kind is tuple else kind(*each)


def _span(x: Any) -> int:
    """Bytes from the first element to the end of the last."""
    last = sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size()


def _meet(arrays: Sequence[Any], spans: dict[int, int], i: int, j: int) -> bool | None:
    """Whether two arrays begin at the same address; None if they overlap otherwise."""
    one, other = arrays[i].data_ptr(), arrays[j].data_ptr()
    if one == other:
        return True
    return False if one + spans[i] <= other or other + spans[j] <= one else None
