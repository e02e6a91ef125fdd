"""The epilogue of a product as its caller gives it: checks, and the kernel's argument.

`weft.kernels.epilogue_plan` is what kernels are specialised on, `weft.kernels.device.epilogue` what they do.
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from keyword import iskeyword
from math import gcd
from typing import Any, NamedTuple, cast

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernel import JITFunction
from weft.kernels.arrays import address, key_of
from weft.kernels.checks import FP8, scale_kind
from weft.kernels.config import WARPGROUP_ROWS, WIDTHS, MatmulConfig
from weft.kernels.device.activations import ACTIVATIONS, BRIEF
from weft.kernels.epilogue_plan import GROUP, PLAIN, WRITTEN, Epilogue, Extra
from weft.kernels.machines import place_of
from weft.kernels.operands import GRANULE, Matrix, matrix, stack
from weft.plain import as_number
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE

LEAST_GATED = 32
"""Minimum tile width of a gated product: each half is at least the columns that a cluster can share."""
_BRIEF_BYTES = 2
"""Outputs of at most this size take the short forms of activations."""
_MEASURED = f"product whose rows are measured by {GROUP} columns"
_KINDS: dict[str, Extra] = {
    "number": Extra(),
    "one": Extra(memory=True),
    "each": Extra(memory=True, rows=True, contiguous="rows"),
}


class Given(NamedTuple):
    """What a caller asks of the epilogue: the parameters of `matmul` of these names."""

    scale_a: Any = None
    scale_b: Any = None
    bias: Any = None
    activation: Any = None
    gated: bool = False
    residual: Any = None
    epilogue: Any = None
    extras: Any = None
    out_scale: Any = None
    out_scales: Any = None
    row_squares: Any = None
    row_peaks: Any = None

    @property
    def nothing(self) -> bool:
        """Whether the product is a plain one."""
        return all(x is None or x is False for x in self)

    @property
    def values(self) -> tuple[Any, ...]:
        """All that is read, in the order of `Epilogue.operands`, and what is written."""
        read = (self.scale_a, self.scale_b, self.out_scale, self.bias, self.residual)
        if self.extras is self.row_squares is self.row_peaks is self.out_scales is None:
            return read
        return *read, *_items(self.extras), *self.written.values()

    @property
    def written(self) -> dict[str, Any]:
        """The arrays that the epilogue writes, by name."""
        return {name: value for name in WRITTEN if (value := getattr(self, name)) is not None}

    @property
    def key(self) -> tuple[Any, ...]:
        """Whatever the epilogue's plan depends on, of PyTorch tensors and numbers. Raises AttributeError for others."""
        extras: Any = self.extras
        if extras is None:
            return tuple([x if type(x) in _THEMSELVES else _key_of(x) for x in self])
        form = tuple(cast("dict[str, Any]", extras)) if isinstance(extras, dict) else cast("Any", type(extras))
        return form, *map(_key_of, self._replace(extras=None)), *map(_key_of, _items(extras))


def _items(extras: Any) -> tuple[Any, ...]:
    if isinstance(extras, dict):
        return tuple(cast("dict[Any, Any]", extras).values())
    return () if extras is None else tuple(extras)


def _key_of(value: Any) -> Any:
    kind = cast("Any", type(value))
    if kind in _THEMSELVES:
        return value
    if kind is int:
        # What integers have the same width and sign of.
        return kind, value.bit_length() // 32, value < 0
    return kind if kind is float else key_of(value)


_THEMSELVES = {type(None), bool, str, JITFunction}
"""Types of arguments that prepared products are distinguished by, value by value."""


def _number(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Read:
    """Memory that the epilogue reads or writes: the place among its arguments, a name for messages, its byte range relative to
    its address, and whether the output may be the same memory, element for element."""

    place: int
    name: str
    low: int
    high: int
    same: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """The epilogue of a prepared product: its plan, and the strides of what it reads from memory (None for numbers)."""

    plan: Epilogue = PLAIN
    strides: tuple[tuple[int, int] | None, ...] = ()
    reads: tuple[Read, ...] = ()
    residual: Matrix | None = None

    @property
    def halves(self) -> int:
        """Operands b of a tile."""
        return 2 if self.plan.gated else 1

    @property
    def transposed(self) -> Ending:
        """That of the transposed output."""
        if self.plan.plain:
            return self
        turned = tuple(None if pair is None else (pair[1], pair[0]) for pair in self.strides)
        return replace(
            self, plan=self.plan.transposed, strides=turned, residual=self.residual and self.residual.transposed
        )

    @property
    def least_columns(self) -> int:
        """Minimum columns of b that a tile has: those of a group of which a row has one number, in each half."""
        if self.plan.written:
            return GROUP * self.halves
        return LEAST_GATED if self.plan.gated else 1

    def argument(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The kernel's argument from arrays and numbers."""
        if self.plan.plain:
            return None
        return tuple(
            value if pair is None else (value, *pair) for value, pair in zip(values, self.strides, strict=True)
        )

    @property
    def reading(self) -> tuple[tuple[int, Callable[[Any], Any]], ...]:
        """What differs between launches: places among the values, and what makes the kernel's value of each, its address or
        the number itself."""
        numbers = [i for i, x in enumerate(self.plan.operands) if x is not None and not x.memory]
        pairs = enumerate(self.strides)
        return tuple((i, _number if pair is None else address) for i, pair in pairs if pair is not None or i in numbers)

    def places(self, described: int | None = None) -> Iterator[int]:
        """The numbers of these among the values of the kernel's argument, where an array has its strides behind it, unless it
        has a descriptor."""
        at, known = 0, [place for place, _ in self.reading]
        for place, pair in enumerate(self.strides):
            if place in known:
                yield at
            at += 1 if pair is None or place == described else 3

    def check_overlap(self, values: tuple[Any, ...], out: tuple[int, int], at_out: int) -> None:
        """Refuse an output that overlaps what is read, unless each element is read for itself; `out` is the output's byte
        range relative to its address. Raises LaunchError (kernels-out-overlaps)."""
        low, high = at_out + out[0], at_out + out[1]
        for read in self.reads:
            at = address(values[read.place])
            if low < at + read.high and at + read.low < high and not (read.same and at == at_out):
                raise fail(errors.OUT_OVERLAPS, name=read.name)

    def check_written(self, values: tuple[Any, ...], others: list[tuple[str, int, tuple[int, int]]]) -> None:
        """Refuse written arrays that overlap what is read, or one another; `others` are operands with address and byte range.
        Raises LaunchError (kernels-written-overlaps)."""
        seen = [(name, at + low, at + high) for name, at, (low, high) in others]
        for read in self.reads:
            at = address(values[read.place])
            seen.append((read.name, at + read.low, at + read.high))
        for name, low, high in seen[-len(self.plan.written) :]:
            for other, first, end in seen:
                if other != name and low < end and first < high:
                    raise fail(errors.WRITTEN_OVERLAPS, name=name, other=other)


NOTHING = Ending()
"""Sums are converted and stored."""


def ending_of(given: Given | None, left: Matrix, columns: int, dtype: str, out: Matrix | None) -> Ending:
    """The epilogue for an output of `columns` columns. Raises LaunchError: kernels-scale, kernels-extra, kernels-extra-dtype,
    kernels-extras, kernels-activation, kernels-epilogue, kernels-devices."""
    if given is None:
        return NOTHING
    quantised = dtype in FP8
    if given.out_scales is not None and (given.out_scale is not None or not quantised):
        raise fail(errors.OUT_SCALES, problem="there is an out_scale too" if quantised else f"out is {dtype}")
    rows, across = left.shape[0], columns * (2 if given.gated else 1)
    names = _names(given)
    operands: list[Extra | None] = []
    strides: list[tuple[int, int] | None] = []
    reads: list[Read] = []
    for place, (name, value) in enumerate(zip(names, given.values, strict=True)):
        wide = across if name in ("scale_b", "bias") else columns
        if name in given.written:
            pair = _check_written(name, value, (rows, -(-columns // GROUP)), left)
            strides.append(pair)
            reads.append(_read(place, name, value, None))
            continue
        if name.endswith(("scale", "scale_a", "scale_b")):
            extra, pair = _scale(name, value, {"scale_a": rows, "scale_b": wide}.get(name, 1), left)
        else:
            extra, pair = _extra(name, value, (rows, wide), columns, left)
        operands.append(extra)
        strides.append(pair)
        if pair is not None:
            reads.append(_read(place, name, value, out))
    scale_a, scale_b, out_scale, bias, residual, *extras = operands
    plan = Epilogue(
        scale_a, scale_b, bias, _activation(given, dtype), given.gated, residual, _function(given),
        tuple(extra for extra in extras if extra is not None), _form(given.extras), out_scale, tuple(given.written),
    )  # fmt: skip
    whole = plan.residual is not None and plan.residual.rows and plan.residual.columns
    return Ending(plan, tuple(strides), tuple(reads), matrix("residual", given.residual) if whole else None)


def scaled_by(ending: Ending, kind: str) -> Ending:
    """The epilogue with a scale of the whole product before it, of a kind as `scale_kind` tells it."""
    if not kind:
        return ending
    scale = _KINDS[kind]
    plan, strides = replace(ending.plan, scale_a=scale), ending.strides or 5 * (None,)
    return replace(ending, plan=plan, strides=((0, 0) if scale.memory else None, *strides[1:]))


def _names(given: Given) -> list[str]:
    extras: Any = given.extras
    if extras is not None and not isinstance(extras, (tuple, list, dict)):
        raise fail(errors.EXTRAS, problem=f"they are a {type(extras).__name__}")
    if extras is not None and given.epilogue is None:
        raise fail(errors.EXTRAS, problem="there is no epilogue that takes them")
    named = isinstance(extras, dict)
    keys = list(cast("dict[Any, Any]", extras)) if named else list(range(len(_items(extras))))
    wrong = [key for key in keys if named and not _is_name(key)]
    if wrong:
        raise fail(errors.EXTRAS, problem=f"{wrong[0]!r} is no name of an attribute for an extra")
    named = ("scale_a", "scale_b", "out_scale", "bias", "residual")
    return [*named, *(f"extras[{key!r}]" for key in keys), *given.written]


def _check_written(name: str, value: Any, shape: tuple[int, int], left: Matrix) -> tuple[int, int]:
    """The strides of an array that the epilogue writes. Raises LaunchError: kernels-written, kernels-devices."""
    found = matrix(name, value)
    if found.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name=name, other=found.place)
    (rows, columns), (down, right) = found.shape, found.strides
    apart = (rows == 1 or down) and (columns == 1 or right)
    if found.dtype != "float32" or found.shape != shape or not apart:
        got = f"a {found.dtype} array of shape {list(found.shape)} and strides {list(found.strides)}"
        raise fail(errors.WRITTEN, name=name, got=got, want=list(shape), group=GROUP)
    return found.strides


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and key.isidentifier() and not iskeyword(key) and not key.startswith("_")


def _form(extras: Any) -> Any:
    """The class of named extras; equal names give one class."""
    if isinstance(extras, dict):
        return _named(tuple(cast("dict[str, Any]", extras)))
    return cast("Any", type(extras)) if hasattr(extras, "_fields") else None


@lru_cache(maxsize=256)
def _named(names: tuple[str, ...]) -> Any:
    make: Any = namedtuple  # noqa: PYI024 its fields are the caller's
    return make("Extras", names)


def _scale(name: str, value: Any, extent: int, left: Matrix) -> tuple[Extra | None, tuple[int, int] | None]:
    what = "rows" if name == "scale_a" else "columns"
    kind = scale_kind(name, value, extent, what, left)
    if kind in ("", "number"):
        return (None if not kind else _KINDS[kind]), None
    found = _KINDS[kind]
    return (found if name == "scale_a" else found.transposed), (int(found.rows), int(found.rows))


def _extra(
    name: str, value: Any, shape: tuple[int, int], columns: int, left: Matrix
) -> tuple[Extra | None, tuple[int, int] | None]:
    """An operand that broadcasts over an array of a shape. Its halves, if it has two, have `columns` columns each."""
    if value is None and not name.startswith("extras"):
        return None, None
    found = array(value)
    if found is None:
        if as_number(value) is None:
            raise fail(errors.EXTRA, name=name, problem=f"is a {type(value).__name__}", want=list(shape))
        return Extra(), None
    measured = extents(value)
    assert measured is not None
    if found.device != left.device:
        raise fail(errors.DEVICES, first=left.place, name=name, other=place_of(found.device))
    if found.dtype in ("float64", "bool"):
        raise fail(errors.EXTRA_DTYPE, name=name, got=found.dtype)
    sizes, steps = ((1, 1, *part)[-2:] if len(part) <= 2 else part for part in measured)
    if len(sizes) != 2:
        problem = f"has {len(sizes)} dimensions"
        raise fail(errors.EXTRA, name=name, problem=problem, want=list(shape))
    for axis in (0, 1):
        if sizes[axis] not in (1, shape[axis]):
            problem = f"has shape {list(measured[0])}: {sizes[axis]} {('rows', 'columns')[axis]} of {shape[axis]}"
            raise fail(errors.EXTRA, name=name, problem=problem, want=list(shape))
        if not isinstance(steps[axis], int):
            raise fail(errors.EXTRA, name=name, problem="has strides of no whole elements", want=list(shape))
    # What has the output's shape may be the output itself, of which each element is read by one thread only, also in one row.
    whole = sizes == shape
    vary = [whole if sizes[axis] == 1 else steps[axis] != 0 for axis in (0, 1)]
    strides = int(steps[0]) * vary[0], int(steps[1]) * vary[1]
    contiguous = "columns" if strides[1] == 1 else "rows" if strides[0] == 1 else ""
    unit = 1
    if contiguous:
        along = columns if contiguous == "columns" else shape[0]
        across = strides[0] if contiguous == "columns" else strides[1]
        itemsize = ITEMSIZE[found.dtype]
        unit = max(gcd(found.pointer, across * itemsize, along * itemsize, GRANULE) // itemsize, 1)
    return Extra(True, vary[0], vary[1], contiguous, unit), strides


def _read(place: int, name: str, value: Any, out: Matrix | None) -> Read:
    found, measured = array(value), extents(value)
    assert found is not None and measured is not None
    sizes, steps = ((1, 1, *part)[-2:] for part in measured)
    lies = Matrix(found.dtype, cast("Any", sizes), cast("Any", steps), found.pointer, found.device)
    same = out is not None and (lies.dtype, lies.shape, lies.strides) == (out.dtype, out.shape, out.strides)
    return Read(place, name, *lies.span(), same)


def _activation(given: Given, dtype: str) -> Any:
    named = given.activation
    if named is None or isinstance(named, JITFunction):
        return cast("Any", named)
    if not isinstance(named, str) or named not in ACTIVATIONS:
        raise fail(errors.ACTIVATION, got=repr(named), known=", ".join(map(repr, ACTIVATIONS)))
    brief = BRIEF if ITEMSIZE[dtype] <= _BRIEF_BYTES else ACTIVATIONS
    return brief.get(named, ACTIVATIONS[named])


def _function(given: Given) -> Any:
    function = given.epilogue
    if function is None:
        return None
    if not isinstance(function, JITFunction):
        raise fail(errors.EPILOGUE, problem=f"it is {_told(function)}")
    called = cast("JITFunction[..., Any]", function)
    try:
        inspect.signature(called.fn).bind(None, None, None, None)
    except TypeError:
        found = ", ".join(inspect.signature(called.fn).parameters)
        raise fail(errors.EPILOGUE, problem=f"{called.__name__} has the parameters ({found})") from None
    return called


def _told(function: Any) -> str:
    plain = callable(function) and hasattr(function, "__name__")
    return f"{function.__name__}, a plain Python function" if plain else f"a {type(function).__name__}"


def halves_of(b: Any) -> tuple[Any, Any]:
    """The two operands b of a gated product. Raises LaunchError: kernels-gated, kernels-array."""
    if isinstance(b, (tuple, list)):
        pair = tuple(cast("list[Any]", b))
        if len(pair) != 2:
            raise fail(errors.GATED, got=f"{len(pair)} arrays")
        return pair[0], pair[1]
    shape = getattr(b, "shape", ())
    columns = shape[-1] if len(shape) > 1 else stack("b", b)[0].shape[1]
    if columns % 2:
        raise fail(errors.GATED, got=f"an array of {columns} columns")
    return b[..., : columns // 2], b[..., columns // 2 :]


def rules(config: MatmulConfig, ending: Ending) -> list[tuple[str, bool, str]]:
    """What an epilogue asks of a configuration, as (field, whether it holds, text of the rule)."""
    plan, found = ending.plan, list[tuple[str, bool, str]]()
    if plan.written:
        found.append(("swap", not config.swap, f"False for a {_MEASURED}"))
    if plan.gated and config.swap:
        found += _stacked(config)
    elif plan.gated:
        least = LEAST_GATED * config.cluster
        wide = config.block_n in WIDTHS and config.block_n >= least
        apart = " in a cluster" if config.cluster > 1 else ""
        rule = f"a power of two from {least} for a gated product{apart}, whose tiles have columns of both halves"
        found.append(("block_n", wide, rule))
        rule = "1 for a gated product on Blackwell"
        found.append(("cluster", config.cluster == 1 or not config.in_tensor_memory, rule))
        found.append(("shares", config.shares == 1, "1 for a gated product that is not swapped"))
    if plan.written:
        found.append(("shares", config.shares == 1, f"1 for a {_MEASURED}"))
    if plan.written:
        whole = config.block_n % ending.least_columns == 0 or config.splits > 1
        found.append(("block_n", whole, f"a multiple of {ending.least_columns} for a {_MEASURED}"))
    return found


def _stacked(config: MatmulConfig) -> list[tuple[str, bool, str]]:
    """What the transpose of a gated product asks of a configuration: each consumer has rows of both halves, as many of each."""
    what, least = "for the transpose of a gated product", 2 * WARPGROUP_ROWS * config.consumers
    rows = f"at least {least} {what}, of which each consumer has {WARPGROUP_ROWS} rows of both halves"
    return [
        ("variant", config.variant == "cooperative", f"cooperative {what}"),
        ("block_m", config.block_m >= least, rows),
        ("cluster", config.cluster == 1, f"1 {what}"),
        ("splits", config.splits == 1, f"1 {what}"),
    ]


def suits(config: MatmulConfig, ending: Ending) -> bool:
    """Whether a configuration takes an epilogue."""
    return all(good for _, good, _ in rules(config, ending))


def check_config(config: MatmulConfig, ending: Ending) -> None:
    """Raises LaunchError (kernels-config)."""
    for field, good, rule in rules(config, ending):
        if not good:
            value = getattr(config, field)
            raise fail(errors.CONFIG, field=field, value=value, rule=rule, variant=config.variant)
