"""The text of a Python function as a part of keys: its lines, its place and its byte code."""

from __future__ import annotations

import hashlib
from types import CodeType, FunctionType
from typing import cast
from weakref import WeakKeyDictionary

from weft.errors.text import lines_of
from weft.runtime import origin

_digests: WeakKeyDictionary[CodeType, tuple[list[str], str]] = WeakKeyDictionary()
"""The lines of the file beside the digest, since equal code can come of another text: annotations are not in it."""


def digest(*texts: str) -> str:
    """A hexadecimal SHA-256 of texts, unambiguous in where one ends and the next begins."""
    state = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def function_of(value: object) -> FunctionType | None:
    """The Python function behind a function or a `@jit` object, else None. Runs no Python of the author's."""
    if isinstance(value, FunctionType):
        inner = vars(value).get("__weft_jit__", value)
    elif origin.of_class(type(value)) is origin.OURS:
        inner = getattr(value, "fn", None)
    else:
        return None
    return inner if isinstance(inner, FunctionType) else None


def source_text(function: FunctionType) -> str:
    """The digest of a function's place, text and byte code. The text is in it for annotations, the byte code tells functions
    of one line apart, and stands alone where there is no text (REPL, exec).

    The place counts because compiled kernels carry line numbers for profilers and reports.
    """
    code = function.__code__
    lines = lines_of(function)
    known = _digests.get(code)
    if known is None or known[0] is not lines:
        place = f"{code.co_filename}:{code.co_firstlineno}:{function.__qualname__}"
        _digests[code] = known = lines, digest(place, *text_of(function, lines), *_code_texts(code))
    return known[1]


def text_of(function: FunctionType, lines: list[str]) -> list[str]:
    """The lines of a function in those of its file; its byte code where there is no text (REPL, exec)."""
    code = function.__code__
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return _code_texts(code)
    # Python's own search reads the function word by word, which takes ten times as long. Nothing in a function is indented less
    # than its first line but strings and brackets. Where those end the function, what they say is in the byte code.
    end, margin = _last_line(code), _indentation(lines[first])
    while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) > margin):
        end += 1
    return lines[first:end]


def _last_line(code: CodeType) -> int:
    """The last line in which an instruction begins, counted from 1."""
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([code.co_firstlineno, *(line for _, _, line in code.co_lines() if line is not None), *inner])


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _code_texts(code: CodeType) -> list[str]:
    """Byte code, names and constants, nested functions included; free of addresses."""
    texts = [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames), repr(code.co_freevars)]
    for constant in code.co_consts:
        # Not `repr` where it can be helped: the order of a set is another in each process.
        texts += _code_texts(constant) if isinstance(constant, CodeType) else [_constant(constant)]
    return texts


def _constant(constant: object) -> str:
    """A constant's text, in which the items of a set stand in an order that is the same in each process."""
    if isinstance(constant, (tuple, frozenset)):
        items = map(_constant, cast("tuple[object, ...]", constant))
        shown = sorted(items) if isinstance(constant, frozenset) else list(items)
        return f"{type(cast('object', constant)).__name__}{shown}"
    return f"{type(constant).__name__}:{constant!r}"
