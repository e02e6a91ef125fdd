"""Arrays as rows along their last axis: their checks, the width of accesses, and new arrays like them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from weft.errors import fail
from weft.errors import kernels as errors
from weft.kernels.machines import place_of
from weft.kernels.rows.calls import empty_like
from weft.kernels.rows.plan import ACCESS_BYTES, CLUSTERS, USUAL_PART, RowConfig, power_of_two, reached
from weft.runtime.arguments import array, extents
from weft.runtime.dtypes import ITEMSIZE, dtype_name

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32")
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
"""8-bit types of outputs, and their largest numbers."""
FULL = 4096
"""Columns of rows from which on twice as long tiles, half empty, cost more than accesses of one element."""
LEAST_ANYWHERE = 512
"""Columns of rows from which on it pays to access those that begin anywhere in vectors."""


@dataclass(frozen=True, slots=True)
class Lines:
    """An array of `rows` rows of `cols` contiguous elements, `pitch` elements apart; `shape` is that of the array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rows: int
    cols: int
    pitch: int
    pointer: int
    device: int

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return ITEMSIZE[self.dtype]

    @property
    def span(self) -> tuple[int, int]:
        """The bytes between the first element and the last."""
        count = (self.rows - 1) * self.pitch + self.cols if self.rows and self.cols else 0
        return self.pointer, self.pointer + count * self.itemsize

    @property
    def place(self) -> str:
        """The device, for messages."""
        return place_of(self.device)


def lines_of(op: str, name: str, value: Any, dtypes: tuple[str, ...] = FLOATS) -> Lines:
    """An array as rows. Raises LaunchError: kernels-rows-array, kernels-rows-dtype, kernels-rows-strides."""
    found, shape, strides = measured(op, name, value, dtypes, 1, "an array without a last axis")
    count, pitch = merged(op, name, found.dtype, shape, strides, 1)
    pitch = shape[-1] if count == 1 else pitch
    return Lines(name, found.dtype, shape, count, shape[-1], pitch, found.pointer, found.device)


def measured(
    op: str, name: str, value: Any, dtypes: tuple[str, ...], least: int, fewer: str
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """An array of at least `least` dimensions, its shape and its strides in elements; `fewer` describes one of fewer. Raises
    LaunchError: kernels-rows-array, kernels-rows-dtype."""
    found = array(value)
    sizes = None if found is None else extents(value)
    if found is None or sizes is None or len(sizes[0]) < least:
        raise fail(errors.ROWS_ARRAY, op=op, name=name, got=f"a {type(value).__name__}" if found is None else fewer)
    if found.dtype not in dtypes:
        raise fail(errors.ROWS_DTYPE, op=op, name=name, got=found.dtype, known=", ".join(dtypes))
    return found, *_whole(op, name, *sizes)


def merged(
    op: str, name: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], inner: int
) -> tuple[int, int]:
    """All axes but the last `inner` as one: its size and its stride, which means nothing at size 1. Raises LaunchError
    (kernels-rows-strides) if they are none, or if elements of the last axis do not follow one another."""
    count, step = 1, 0
    apart = strides[-1] == 1 or shape[-1] <= 1
    for size, stride in zip(reversed(shape[:-inner]), reversed(strides[:-inner]), strict=True):
        if size == 1:
            continue
        apart = apart and (count == 1 or stride == count * step)
        step = stride if count == 1 else step
        count *= size
    if not apart and 0 not in shape:
        nbytes = 2 * prod(shape) * ITEMSIZE[dtype]
        raise fail(errors.ROWS_STRIDES, op=op, name=name, shape=list(shape), strides=list(strides), nbytes=nbytes)
    return count, step


def same_rows(op: str, name: str, value: Any, x: Lines, dtypes: tuple[str, ...] = FLOATS) -> Lines:
    """An array of the shape and on the device of `x`. Raises LaunchError: as `lines_of`, kernels-rows-shape,
    kernels-rows-devices."""
    found = lines_of(op, name, value, dtypes)
    if found.shape != x.shape:
        raise fail(
            errors.ROWS_SHAPE, op=op, name=name, got=list(found.shape), want=list(x.shape), x=x.name, of=list(x.shape)
        )
    return _same_device(op, found, x)


def vector_of(op: str, name: str, value: Any, x: Lines, count: int, dtypes: tuple[str, ...] = FLOATS) -> Lines:
    """A contiguous array of `count` elements on the device of `x`, of any shape. Raises LaunchError: as `same_rows`."""
    found, shape, strides = measured(op, name, value, dtypes, 0, f"a {type(value).__name__}")
    if prod(shape) != count:
        raise fail(errors.ROWS_SHAPE, op=op, name=name, got=list(shape), want=[count], x=x.name, of=list(x.shape))
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step and count:
            nbytes = 2 * count * ITEMSIZE[found.dtype]
            raise fail(errors.ROWS_STRIDES, op=op, name=name, shape=list(shape), strides=list(strides), nbytes=nbytes)
        step *= size
    return _same_device(op, Lines(name, found.dtype, shape, 1, count, count, found.pointer, found.device), x)


def output(
    op: str, name: str, value: Any, like: Any, x: Lines, dtype: str, sources: tuple[Lines | None, ...]
) -> tuple[Any, Lines]:
    """`value` as an output of the shape of `x`, or a new array; it may be one of its sources, but not overlap it otherwise.

    Raises LaunchError: as `same_rows`, kernels-out-overlaps, kernels-out-needed."""
    if value is None:
        value = empty_like(like, x.shape, dtype)
    found = same_rows(op, name, value, x, (dtype,))
    if abs(found.pitch) < found.cols and found.rows > 1:
        raise fail(errors.OUT_REPEATS, shape=list(found.shape), strides=[found.pitch, 1])
    for source in sources:
        if source is not None:
            check_apart(found, source)
    return value, found


def check_apart(found: Lines, source: Lines) -> None:
    """An output may be a source, but not overlap it otherwise. Raises LaunchError (kernels-out-overlaps)."""
    (low, high), (first, end) = found.span, source.span
    same = (low, found.pitch, found.itemsize) == (first, source.pitch, source.itemsize)
    if low < end and first < high and not same and not _side_by_side(found, source):
        raise fail(errors.OUT_OVERLAPS, name=source.name)


def _side_by_side(one: Lines, other: Lines) -> bool:
    """Whether rows that are as far apart lie between one another, as the halves of a matrix do."""
    step, size = one.pitch * one.itemsize, other.pitch * other.itemsize
    after = (other.pointer - one.pointer) % max(step, 1)
    return step == size and after >= one.cols * one.itemsize and after + other.cols * other.itemsize <= step


def width_of(cols: int, first: Lines, *others: Lines | None) -> int:
    """Elements of an access: 16 bytes of the first array, or fewer where an array's rows are not aligned for them."""
    vec = max(ACCESS_BYTES // first.itemsize, 1)
    while cols % vec:
        vec //= 2
    for each in (first, *others):
        if each is None:
            continue
        # A pitch of rows that are none but one is never used.
        at = each.pointer | (each.pitch * each.itemsize if each.rows > 1 else 0)
        while vec > 1 and at % min(vec * each.itemsize, ACCESS_BYTES):
            vec //= 2
    return vec


def access_of(config: Any, first: Lines, *others: Lines | None, part: int | None = USUAL_PART) -> tuple[int, int]:
    """Elements of an access, and for rows that begin anywhere the alignment of where accesses begin, in elements: 0 if rows
    begin at such an address, if they are short, if they lie differently in these arrays, or if with what is before them they
    were too long for the blocks of a configuration (None: for any), of `part` columns at most (None: rows are not held)."""
    vec, most = width_of(first.cols, first, *others), max(ACCESS_BYTES // first.itemsize, 1)
    lines = [each for each in (first, *others) if each is not None]
    at = {each.pointer // each.itemsize % most for each in lines}
    step = {each.pitch % most for each in lines if each.rows > 1}
    whole = all(each.pointer % each.itemsize == 0 for each in lines)
    cols = reached(first.cols, most)
    held = part is None or cols <= part * (config.num_ctas if config else CLUSTERS[-1])
    if part is not None and first.cols > FULL and power_of_two(cols) > power_of_two(first.cols):
        held = False
    if vec == most or first.cols < LEAST_ANYWHERE or not held or len(at) > 1 or len(step) > 1 or not whole:
        return vec, 0
    return most, most


def pitches(*lines: Lines | None) -> tuple[int, ...]:
    """Pitches as arguments of a kernel; 0 for none, and for a single row, whose pitch is never used."""
    return tuple(0 if each is None or each.rows <= 1 else each.pitch for each in lines)


def dtype_of(op: str, value: Any, default: str, known: tuple[str, ...]) -> str:
    """The canonical name of an output's type. Raises LaunchError (kernels-rows-dtype)."""
    name = default if value is None else dtype_name(value)
    if name not in known:
        raise fail(errors.ROWS_DTYPE, op=op, name="out", got=name, known=", ".join(known))
    return name


def check_columns(op: str, x: Lines, config: RowConfig, part: int = USUAL_PART) -> None:
    """Raises LaunchError (kernels-rows-columns) for rows that the blocks of a configuration do not hold."""
    if x.cols > config.num_ctas * part:
        raise fail(errors.ROWS_COLUMNS, op=op, cols=x.cols, blocks=config.num_ctas, most=CLUSTERS[-1] * part)


def parameter(op: str, name: str, value: Any, rule: str) -> Exception:
    """The error for a parameter that breaks its rule (kernels-rows-parameter)."""
    return fail(errors.ROWS_PARAMETER, op=op, name=name, got=repr(value), rule=rule)


def _whole(op: str, name: str, shape: Any, strides: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides in elements. Raises LaunchError (kernels-rows-array) for strides of no whole elements."""
    if not all(isinstance(stride, int) for stride in strides):
        got = f"an array of shape {list(shape)} whose strides {list(strides)} are no whole elements"
        raise fail(errors.ROWS_ARRAY, op=op, name=name, got=got)
    return tuple(map(int, shape)), tuple(map(int, strides))


def _same_device(op: str, found: Lines, x: Lines) -> Lines:
    if found.device != x.device:
        raise fail(errors.ROWS_DEVICES, op=op, name=found.name, other=found.place, x=x.name, first=x.place)
    return found
