"""Files of matmul shapes for `weft tune matmul`: a table (CSV), or an object a line (JSON lines)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, cast

from weft.errors import LaunchError, fail
from weft.errors.tune import SHAPES_LINE
from weft.kernels.checks import PAIRS
from weft.kernels.config import MOST_NUMBER
from weft.runtime.dtypes import dtype_name

LAYOUTS = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True, slots=True)
class Shape:
    """A product a [m, k] @ b [k, n]: the operands' type `dtype`, the output's `out_dtype` (by default that of `matmul`), their
    `layout`, N (row-major) or T (column-major) for a and for b, and the elements from one row (or column) to the next,
    `lda` and `ldb` (0 for no padding)."""

    m: int
    n: int
    k: int
    dtype: str = "float16"
    out_dtype: str = ""
    layout: str = "NN"
    lda: int = 0
    ldb: int = 0

    def __str__(self) -> str:
        pitches = f" lda {self.lda}" * bool(self.lda) + f" ldb {self.ldb}" * bool(self.ldb)
        return f"{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}{pitches}"


_FIELDS = {field.name: field for field in fields(Shape)}
_NEEDED = [name for name, field in _FIELDS.items() if field.default is MISSING]


def read_shapes(path: Path) -> list[Shape]:
    """The shapes of a file: JSON lines if its name ends in .jsonl, else a table with commas whose first line names the columns.
    Empty lines are skipped.

    Raises TuningError (tune-shapes-line), which names the line; OSError when the file cannot be read."""
    text = path.read_text(encoding="utf-8")
    rows = _objects(path, text) if path.suffix == ".jsonl" else _table(path, text)
    found = [_shape(path, line, given) for line, given in rows]
    if not found:
        _wrong(path, max(1, len(text.splitlines())), "the file ends without a shape")
    return found


def _objects(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, written in enumerate(text.splitlines(), 1):
        if not written.strip():
            continue
        try:
            given: object = json.loads(written)
        except ValueError as error:
            _wrong(path, number, f"it is no JSON ({error})")
        if not isinstance(given, dict):
            _wrong(path, number, "it is no JSON object")
        yield number, cast("dict[str, Any]", given)


def _table(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = csv.reader(text.splitlines())
    names: list[str] = []
    for cells in lines:
        values = [cell.strip() for cell in cells]
        if not any(values):
            continue
        if not names:
            names = [value.lower() for value in values]
            _check_names(path, lines.line_num, names)
        elif len(values) != len(names):
            _wrong(path, lines.line_num, f"it has {len(values)} cells under {len(names)} columns")
        else:
            yield lines.line_num, {name: value for name, value in zip(names, values, strict=True) if value}


def _check_names(path: Path, line: int, names: list[str]) -> None:
    unknown = [name for name in names if name not in _FIELDS]
    missing = [name for name in _NEEDED if name not in names]
    if unknown or len({*names}) < len(names):
        what = repr(unknown[0]) if unknown else "a name twice"
        _wrong(path, line, f"it has {what} where names should be among {', '.join(_FIELDS)}")
    if missing:
        _wrong(path, line, f"it has no {missing[0]}")


def _shape(path: Path, line: int, given: Mapping[str, Any]) -> Shape:
    _check_names(path, line, list(given))
    values: dict[str, Any] = {}
    for name, value in given.items():
        whole = name in (*_NEEDED, "lda", "ldb")
        values[name] = _size(path, line, name, value) if whole else str(value)
    shape = Shape(**values)
    if (shape.dtype, shape.dtype) not in PAIRS:
        _wrong(path, line, f"its dtype is {shape.dtype!r}, not one of {', '.join(a for a, b in PAIRS if a == b)}")
    if shape.out_dtype and _name(shape.out_dtype) not in PAIRS[shape.dtype, shape.dtype]:
        allowed = ", ".join(PAIRS[shape.dtype, shape.dtype])
        _wrong(path, line, f"its out_dtype is {shape.out_dtype!r}, and that of {shape.dtype} is one of {allowed}")
    if shape.layout not in LAYOUTS:
        _wrong(path, line, f"its layout is {shape.layout!r}, not one of {', '.join(LAYOUTS)}")
    a_turned, b_turned = (letter == "T" for letter in shape.layout)
    for name, pitch, least in (
        ("lda", shape.lda, shape.m if a_turned else shape.k),
        ("ldb", shape.ldb, shape.k if b_turned else shape.n),
    ):
        if pitch and pitch < least:
            _wrong(path, line, f"its {name} is {pitch}, less than the {least} elements that it separates")
    return shape


def _size(path: Path, line: int, name: str, value: Any) -> int:
    least = 1 if name in _NEEDED else 0
    text = value if isinstance(value, str) else repr(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdecimal()) or not least <= int(text) <= MOST_NUMBER:
        _wrong(path, line, f"its {name} is {text!r}, not a whole number from {least} to {MOST_NUMBER}")
    return int(text)


def _name(dtype: str) -> str:
    try:
        return dtype_name(dtype)
    except LaunchError:
        return dtype


def _wrong(path: Path, line: int, reason: str) -> NoReturn:
    raise fail(SHAPES_LINE, path=path, line=line, reason=reason)
