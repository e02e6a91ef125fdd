"""The text of a Python function as a part of cache keys: its lines, its location and its byte code."""

from __future__ import annotations

import hashlib
import weakref
from operator import itemgetter
from types import CodeType, FunctionType
from typing import cast

from weft.errors.location import lines_of
from weft.runtime import origin

_digests: dict[int, tuple[weakref.ref[CodeType], list[str], str]] = {}
"""By the identity of the code, with the lines of its file: equal code objects may differ in their texts, as in annotations."""
_LINE = itemgetter(2)
_ATOMS = frozenset((int, bool, float, str, bytes, type(None)))
"""Types of most constants; the `repr` of each tells the type too."""


def digest(*texts: str) -> str:
    """A hexadecimal SHA-256 of texts, preceded by their lengths so that their boundaries count."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]
    return hashlib.sha256(b"".join((repr([*map(len, data)]).encode(), *data))).hexdigest()


def function_of(value: object) -> FunctionType | None:
    """The Python function behind a function or a `@jit` object, else None. Runs none of the author's Python."""
    kind = type(value)
    if kind is FunctionType:
        inner = vars(value).get("__weft_jit__", value)
    elif origin.of_class(kind) is origin.OURS:
        inner = getattr(value, "fn", None)
    else:
        return None
    return inner if isinstance(inner, FunctionType) else None


def source_text(function: FunctionType) -> str:
    """The digest of a function's location, text and byte code.

    The text covers annotations; the byte code distinguishes functions on one line and is all there is without a text (REPL,
    exec). The location is included because compiled kernels carry line numbers for profilers and reports.
    """
    code = function.__code__
    lines, key = lines_of(function), id(code)
    known = _digests.get(key)
    if known is None or known[1] is not lines:
        place = f"{code.co_filename}:{code.co_firstlineno}:{function.__qualname__}"
        made = digest(place, *text_of(function, lines), *_code_texts(code))
        _digests[key] = known = weakref.ref(code, lambda _: _digests.pop(key, None)), lines, made
    return known[2]


def text_of(function: FunctionType, lines: list[str]) -> list[str]:
    """The function's lines among those of its file; its byte code when there is no text (REPL, exec)."""
    code = function.__code__
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return _code_texts(code)
    # `inspect.getblock` tokenises the function, which takes ten times as long. Only continued strings and brackets may be
    # indented less than a function's first line; if they cut the lines short here, the byte code still covers their contents.
    end, margin = _last_line(code), _indentation(lines[first])
    while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) > margin):
        end += 1
    return lines[first:end]


def _last_line(code: CodeType) -> int:
    """The last line with an instruction, counted from 1."""
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    # An instruction without a line has None.
    return max(code.co_firstlineno, *filter(None, map(_LINE, code.co_lines())), *inner)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _code_texts(code: CodeType) -> list[str]:
    """Byte code, names and constants, including those of nested functions; without addresses."""
    texts = [code.co_code.hex(), repr((code.co_names, code.co_varnames, code.co_freevars))]
    if _ATOMS.issuperset(map(type, code.co_consts)):
        return [*texts, repr(code.co_consts)]
    for constant in code.co_consts:
        # `repr` of a code object contains an address, and that of a set depends on string hashes, which vary by process.
        texts += _code_texts(constant) if isinstance(constant, CodeType) else [_constant(constant)]
    return texts


def _constant(constant: object) -> str:
    """A constant's text, with the items of a set sorted, so that it is the same in every process."""
    if isinstance(constant, (tuple, frozenset)):
        items = map(_constant, cast("tuple[object, ...]", constant))
        shown = sorted(items) if isinstance(constant, frozenset) else list(items)
        return f"{type(cast('object', constant)).__name__}{shown}"
    return f"{type(constant).__name__}:{constant!r}"
