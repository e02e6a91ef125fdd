"""Texts that change whenever something a kernel depends on changes.

`fingerprint` is for values a kernel reads: constants, dtypes, layouts, helpers, classes. `toolchain` is for weft itself and
NVRTC, `key0` for a whole request. Equal fingerprints mean equal behaviour across processes; the converse need not hold.

A `@jit` helper is its own source only: what *it* reads is recorded as reads of its own. A plain Python function, which
compilation may call, is followed through the globals it names, since nobody records what it reads.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import inspect
import os
import secrets
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from weft.errors import fail
from weft.errors.launch import UNFINGERPRINTABLE
from weft.errors.text import lines_of
from weft.runtime import nvrtc
from weft.runtime.compiled import CompileRequest
from weft.runtime.specialise import Constexpr, View

_ATOMS = (bool, int, str, bytes, type(None), type(Ellipsis))
_DTYPE_TYPES = ("torch.dtype", "numpy.dtype")
_IGNORED_CLASS_ENTRIES = frozenset(
    (
        "__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__",
        "__dataclass_fields__", "__dataclass_params__", "__abstractmethods__", "_abc_impl",
    )
)  # fmt: skip
"""What Python keeps in a class beside the author's text; of a dataclass, its generated methods say the same."""
_PROCESS = secrets.token_hex(8)
"""Stands for what cannot be told apart across processes, so that it never matches in another one."""

_source_digests: WeakKeyDictionary[CodeType, tuple[list[str], str]] = WeakKeyDictionary()
"""The lines of the file beside the digest, since equal code can come of another text: annotations are not in it."""


Known = dict[int, tuple[object, str]]
"""Fingerprints that one look at a kernel's surroundings has found, each beside its value, by the value's identity."""


def digest(*texts: str) -> str:
    """A hexadecimal SHA-256 of texts, unambiguous in where one ends and the next begins."""
    state = hashlib.sha256()
    for text in texts:
        data = text.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()


def fingerprint(value: object, known: Known | None = None) -> str:
    """The fingerprint of a value that a kernel reads; taken from `known` where it is there, and else entered.

    Raises CompilationError (cache-unknown-object) for an object of which nothing is known, such as an open file.
    """
    if known is not None and id(value) in known:
        return known[id(value)][1]
    text = _fingerprint(value, frozenset())
    if text is None:
        kind = type(value)
        raise fail(UNFINGERPRINTABLE, value=f"{value!r}, a {kind.__module__}.{kind.__qualname__}")
    if known is not None:
        # The value stays alive as long as its identity stands for it.
        known[id(value)] = value, text
    return text


def function_of(value: object) -> FunctionType | None:
    """The Python function behind a function or a `@jit` object, else None."""
    inner = getattr(value, "fn", value)
    return inner if isinstance(inner, FunctionType) else None


def source_digest(function: FunctionType) -> str:
    """The digest of a function's text, place and defaults; of its byte code where there is no text (REPL, exec).

    The place counts because compiled kernels carry line numbers for profilers and reports.
    """
    code = function.__code__
    lines = lines_of(function)
    known = _source_digests.get(code)
    if known is None or known[0] is not lines:
        _source_digests[code] = known = lines, _code_digest(function, lines)
    defaults = (function.__defaults__, function.__kwdefaults__)
    return digest(known[1], _or_opaque(defaults, frozenset()))


def text_of(function: FunctionType, lines: list[str]) -> list[str]:
    """The lines of a function in those of its file; its byte code where there is no text (REPL, exec)."""
    code = function.__code__
    first = code.co_firstlineno - 1
    if first >= len(lines):
        return _code_texts(code)
    end, margin = _last_line(code), _indentation(lines[first])
    if not end:
        return inspect.getblock(lines[first:])
    # Python's own search reads the function word by word, which takes ten times as long. Nothing in a function is indented less
    # than its first line but strings and brackets, and the place where its code ends is behind those.
    while end < len(lines) and (not lines[end].strip() or _indentation(lines[end]) > margin):
        end += 1
    return lines[first:end]


def _last_line(code: CodeType) -> int:
    """The line in which the last instruction's text ends, counted from 1; 0 where Python does not tell."""
    if sys.version_info < (3, 11):
        return 0
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    inner = [_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([*ends, *inner], default=0)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def key0(request: CompileRequest, known: Known | None = None) -> str:
    """The digest of all that is known of a request before its source is read: source, types, options, target, tools.

    What the kernel reads from its surroundings is not in it; see `weft.runtime.manifest`.
    """
    function = function_of(request.fn)
    assert function is not None
    arguments = [f"{name}={_argument(argument, known)}" for name, argument in request.arguments.items()]
    return digest(source_digest(function), *arguments, repr(request.options), request.target, toolchain())


@cache
def toolchain() -> str:
    """Versions of everything that turns source into a cubin: Python's grammar, weft's own files, NVRTC."""
    root = Path(__file__).resolve().parent.parent
    files = sorted(path for path in root.rglob("*.py"))
    stamps = [f"{path.relative_to(root)}:{status.st_mtime_ns}:{status.st_size}" for path, status in _stats(files)]
    return digest(f"{sys.version_info[:2]}", nvrtc.version(), *stamps)


def _stats(files: list[Path]) -> list[tuple[Path, os.stat_result]]:
    return [(path, path.stat()) for path in files]


def _argument(argument: object, known: Known | None) -> str:
    if isinstance(argument, Constexpr):
        return f"constexpr {fingerprint(argument.value, known)}"
    if isinstance(argument, View):
        return f"view {argument.pointer!r} {fingerprint(argument.key)} {argument.numbers!r} {argument.names!r}"
    return repr(argument)


def _fingerprint(value: object, open_functions: frozenset[CodeType]) -> str | None:
    """The fingerprint, or None when nothing is known of the value. `open_functions` are those being followed."""
    if isinstance(value, _ATOMS) and not isinstance(value, enum.Enum):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, float):
        return f"float:{value.hex()}"
    if isinstance(value, enum.Enum):
        return f"enum:{_name(type(value))}.{value.name}"
    if isinstance(value, (tuple, list, frozenset, set)):
        return _collection(cast("tuple[object, ...]", value), open_functions)
    if isinstance(value, Mapping):
        return _mapping(cast("Mapping[object, object]", value), open_functions)
    if isinstance(value, ModuleType):
        return f"module:{value.__name__}"
    if isinstance(value, type):
        return _class(value, open_functions)
    if isinstance(value, BuiltinFunctionType):
        return f"builtin:{value.__module__}.{value.__qualname__}"
    return _function(value, open_functions) or _object(value, open_functions)


def _collection(items: tuple[object, ...], seen: frozenset[CodeType]) -> str | None:
    texts = [_fingerprint(item, seen) for item in items]
    if isinstance(items, (set, frozenset)):
        texts.sort(key=str)
    return None if None in texts else f"{type(items).__name__}({', '.join(map(str, texts))})"


def _mapping(items: Mapping[object, object], seen: frozenset[CodeType]) -> str | None:
    texts = [_fingerprint(pair, seen) for pair in items.items()]
    return None if None in texts else f"{type(items).__name__}({', '.join(map(str, texts))})"


def _class(cls: type, seen: frozenset[CodeType]) -> str:
    """A class by name where a version vouches for it, else with every method and constant of its body."""
    if _vouched(cls.__module__):
        return f"class:{_name(cls)}"
    parts = [
        f"{name}={_or_opaque(entry, seen)}"
        for name, entry in sorted(vars(cls).items())
        if name not in _IGNORED_CLASS_ENTRIES and not isinstance(entry, (MemberDescriptorType, GetSetDescriptorType))
    ]
    bases = [_class(base, seen) for base in cls.__bases__]
    return f"class:{_name(cls)}:{digest(*bases, *parts)}"


def _function(value: object, seen: frozenset[CodeType]) -> str | None:
    """A function or a `@jit` object; None for anything else."""
    if isinstance(value, (staticmethod, classmethod)):
        return _function(cast("Any", value).__func__, seen)
    if isinstance(value, property):
        return f"property:{_or_opaque(value.fget, seen)}"
    if isinstance(value, MethodType) and isinstance(value.__self__, type):
        return f"method:{_class(value.__self__, seen)}.{_function(value.__func__, seen)}"
    function = function_of(value)
    if function is None:
        return None
    if _vouched(function.__module__):
        return f"function:{function.__module__}.{function.__qualname__}"
    if function is not value and not _runs_on_host(value):
        return f"jit:{source_digest(function)}"
    if function.__code__ in seen:
        return f"recursive:{function.__qualname__}"
    return f"function:{digest(source_digest(function), *_surroundings(function, seen | {function.__code__}))}"


def _runs_on_host(value: object) -> bool:
    """True for a `@constexpr_function`: it wraps a function that compilation calls, and is no kernel."""
    # Of the class: a kernel's own are found when they are first asked for.
    return not hasattr(type(value), "params")


def _surroundings(function: FunctionType, seen: frozenset[CodeType]) -> list[str]:
    """What a plain function can read: its closure, the globals it names, and attributes it names of modules."""
    captured = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    texts = [f"{name}={_or_opaque(_cell(cell), seen)}" for name, cell in captured]
    names = sorted(_names(function.__code__))
    for name in names:
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        texts.append(f"{name}={_or_opaque(value, seen)}")
        if isinstance(value, ModuleType) and not _vouched(value.__name__):
            texts += [f"{name}.{a}={_or_opaque(vars(value)[a], seen)}" for a in names if a in vars(value)]
    return texts


def _cell(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _object(value: object, seen: frozenset[CodeType]) -> str | None:
    """Wrapped constants, dtypes of other frameworks, frozen dataclasses, and weft's own values."""
    kind = type(value)
    if kind.__name__ == "constexpr" and hasattr(value, "value"):
        return _fingerprint(cast("Any", value).value, seen)
    if any(f"{base.__module__}.{base.__name__}" in _DTYPE_TYPES for base in kind.__mro__):
        return f"dtype:{value}"
    if get_origin(value) is not None:
        # Annotations such as Union[a, b], which a class of fields keeps.
        inner = _fingerprint(get_args(value), seen)
        return None if inner is None else f"generic:{get_origin(value)}{inner}"
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
        fields = [(entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value)]
        inner = _fingerprint(tuple(fields), seen)
        return None if inner is None else f"{_class(kind, seen)}{inner}"
    if kind.__module__.partition(".")[0] == "weft" and kind.__repr__ is not object.__repr__:
        return f"{_name(kind)}:{value!r}"
    return None


def _or_opaque(value: object, seen: frozenset[CodeType]) -> str:
    text = _fingerprint(value, seen)
    return f"opaque:{_PROCESS}:{id(value)}" if text is None else text


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


@cache
def _vouched(module: str | None) -> bool:
    """True when a version in `toolchain` stands for the module's text: weft itself and Python's own library."""
    # A function made by `exec` in a bare namespace belongs to no module.
    root = (module or "").partition(".")[0]
    return root == "weft" or (root in sys.stdlib_module_names and root != "__main__")


def _code_digest(function: FunctionType, lines: list[str]) -> str:
    code = function.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}:{function.__qualname__}"
    return digest(place, *text_of(function, lines))


def _code_texts(code: CodeType) -> list[str]:
    """Byte code, names and constants, nested functions included; free of addresses."""
    texts = [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
    for constant in code.co_consts:
        # Not `repr` where it can be helped: the order of a set is another in each process.
        texts += _code_texts(constant) if isinstance(constant, CodeType) else [_constant(constant)]
    return texts


def _constant(constant: object) -> str:
    return _fingerprint(constant, frozenset()) or repr(constant)
