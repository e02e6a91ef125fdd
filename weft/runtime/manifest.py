"""Manifests: finding the cache entry of a request by the values that its kernel read when it was compiled.

Before a kernel's source is read, it is unknown which globals, helpers and constants it depends on. A manifest bridges this:
under the key of everything known beforehand (`fingerprint.key0`) it lists variants, each a list of reads with their
fingerprints. A variant matches if every read, evaluated again, has the same fingerprint, so an edited helper or constant never
yields stale code. The key of a variant's entry is computed from the first key and the reads, so a manifest cannot lead to
the entry of another kernel.

The reads of an *open* compilation do not cover everything that it depends on. Its manifest has no variants, and its entry is
found by its IR.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, cast

from weft.runtime import fingerprint as fp
from weft.runtime import kept, origin, paths
from weft.runtime.cache import Cache
from weft.runtime.compiled import Binary, CompileRequest
from weft.runtime.function_text import digest
from weft.runtime.paths import Path
from weft.runtime.specialise import constants

_VARIANTS = 8
"""Maximum variants of a manifest, newest first."""
_ABSENT = "absent"
"""The fingerprint of a name or attribute that does not exist."""
_START = re.compile(r"=?\w*")
"""What a way starts from: nothing for the kernel, "=" and the name of an argument, or the number of a read."""


class Read(NamedTuple):
    """One value that a kernel read: the `path` from `owner`, which is a Python function, a module or a class.

    The fingerprint is None when the value has none. `values` are those after each step of the path, where they are known.
    """

    owner: Any
    path: Path
    fingerprint: str | None
    values: Sequence[Any] = ()


def read(owner: Any, path: Path, called: frozenset[int] = frozenset()) -> Read:
    """Record a read with the fingerprint of its current value.

    A value that contains a plain function of the author has none, since the compilation may call the function. `called` lists
    (by identity) the functions whose reads are recorded.
    """
    try:
        return Read(owner, path, fp.inert(paths.resolve(owner, path), called))
    except _NOT_THERE:
        return Read(owner, path, _ABSENT)
    except paths.Opened:
        return Read(owner, path, None)


_NOT_THERE = (LookupError, AttributeError, TypeError)


class Found(NamedTuple):
    """A compiled kernel and its reads, evaluated again. Without a binary the compilation is open."""

    binary: Binary | None
    reads: tuple[Read, ...] = ()


def find(cache: Cache, request: CompileRequest) -> Found | None:
    """The cached kernel of a request whose reads still have the same values, or None."""
    known: fp.Known = {}
    key0 = fp.key0(request, known)
    variants = None if key0 is None else cache.get(key0, kept.variants)
    if key0 is None or variants is None:
        return None
    if not variants:
        return Found(None)
    for variant in variants:
        reads = _evaluated(request, variant, known)
        if reads is not None:
            binary = cache.get(_key(key0, variant), kept.binary)
            return None if binary is None else Found(binary, reads)
    return None


def remember(cache: Cache, request: CompileRequest, reads: Sequence[Read], binary: Binary, *, is_open: bool) -> bool:
    """Store a compiled kernel for a request whose kernel read `reads`.

    Returns False for an open compilation: it is marked `is_open`, or a read has no fingerprint, or a read belongs to a function
    that a later process could not find. The manifest then has no variants.
    """
    key0 = fp.key0(request)
    if key0 is None:
        return False
    encoded = None if is_open else _encode(request, reads)
    if encoded is None:
        cache.put(key0, kept.of_variants([]))
        return False
    cache.put(_key(key0, encoded), kept.of_binary(binary))
    others = [variant for variant in cache.get(key0, kept.variants) or () if variant != encoded]
    cache.put(key0, kept.of_variants([encoded, *others][:_VARIANTS]))
    return True


def _key(key0: str, encoded: Sequence[kept.EncodedRead]) -> str:
    """The key of the entry of a variant."""
    # Each read has three parts without zero bytes, so the joined text is unambiguous.
    return digest(key0, "\0".join([part for read in encoded for part in read]))


def _encode(request: CompileRequest, reads: Iterable[Read]) -> list[kept.EncodedRead] | None:
    """Reads as `[owner, path, fingerprint]`; None if an owner is found neither in the kernel nor in a value read before."""
    ways = {id(anchor): way for start, root in _roots(request) for way, anchor in _anchors(start, root, set())}
    encoded: list[kept.EncodedRead] = []
    for entry in reads:
        way = f"module {entry.owner.__name__}" if isinstance(entry.owner, ModuleType) else ways.get(id(entry.owner))
        if entry.fingerprint is None:
            return None
        if way is None:
            if isinstance(entry.owner, type):
                continue  # A class inside a value that was read is part of that value's fingerprint.
            return None
        encoded.append([way, json.dumps(entry.path), entry.fingerprint])
        if entry.fingerprint != _ABSENT:
            value = paths.resolve(entry.owner, entry.path)
            for inner, anchor in _anchors(str(len(encoded) - 1), value, set()):
                ways.setdefault(id(anchor), inner)
    return encoded


def _evaluated(
    request: CompileRequest, encoded: Sequence[kept.EncodedRead], known: fp.Known
) -> tuple[Read, ...] | None:
    """The reads, evaluated again; None when one of them has another fingerprint."""
    reads: list[Read] = []
    owners, paths_of = _Owners(request, reads), _paths(encoded)
    if paths_of is None:
        return None
    # Functions of one module read the same globals: `gl.zeros` is looked up once for all of them.
    seen: dict[tuple[int, str], tuple[str | None, Sequence[Any]]] = {}
    for way, steps, expected in encoded:
        owner, path = owners.find(way), paths_of[steps]
        if owner is None:
            return None
        scope = paths.scope(owner, path)
        found, values = (scope is not None and seen.get((scope, steps))) or _found(owner, path, known)
        if found != expected:
            return None
        if scope is not None:
            seen[scope, steps] = found, values
        reads.append(Read(owner, path, expected, values))
    return tuple(reads)


def _found(owner: Any, path: Path, known: fp.Known) -> tuple[str | None, Sequence[Any]]:
    """The fingerprint of the value at the end of a path, and the values on it."""
    try:
        values = paths.values(owner, path)
    except _NOT_THERE:
        return _ABSENT, ()
    except paths.Opened:
        return None, ()
    # Functions in the value need no check here: their reads are recorded, otherwise the variant would not exist.
    return fp.fingerprint(values[-1] if values else owner, known), values


def _paths(encoded: Sequence[kept.EncodedRead]) -> dict[str, Path] | None:
    """The path of each text of one; None where a text is none."""
    texts = dict.fromkeys([steps for _, steps, _ in encoded])
    try:
        found = json.loads(f"[{','.join(texts)}]")
        return {text: paths.path(each) for text, each in zip(texts, found, strict=True)}
    except (ValueError, TypeError):
        return None


class _Owners:
    """Finds the owner of a read by its way: `=Impl.load` is the method `load` of the argument `Impl`, `12.load` that of the
    value of read 12. The functions and classes in a value are enumerated only when a way leads into it, which few ways do."""

    def __init__(self, request: CompileRequest, reads: Sequence[Read]) -> None:
        """`reads` grows while owners are looked for."""
        self.by_way: dict[str, Any] = {}
        self.roots: dict[str, object] = dict(_roots(request))
        self.reads = reads
        self.opened: set[str] = set()

    def find(self, way: str) -> Any:
        """The owner, or None."""
        found = self.by_way.get(way)
        if found is None and way.startswith("module "):
            return sys.modules.get(way.removeprefix("module "))
        if found is None:
            match = _START.match(way)
            start = match[0] if match else ""
            if start not in self.opened:
                self.opened.add(start)
                for inner, anchor in _anchors(start, self._value(start), set()):
                    self.by_way.setdefault(inner, anchor)
                found = self.by_way.get(way)
        return found

    def _value(self, start: str) -> object:
        """The kernel, an argument, or the value of a read; None if there is none."""
        if not start.isdecimal():
            return self.roots.get(start)
        values = self.reads[int(start)].values if int(start) < len(self.reads) else ()
        return values[-1] if values else None


def _roots(request: CompileRequest) -> Iterator[tuple[str, Any]]:
    """What is known before any read, and the way to it: the kernel and its compile-time arguments."""
    yield "", request.fn
    for name, value in constants(request.arguments):
        yield f"={name}", value


def _anchors(way: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Functions and classes inside a value (itself, items, methods of a class and its bases), each with its access path."""
    function = fp.function_of(value)
    if function is not None:
        yield way, function
        inner = vars(function).get("__wrapped__")
        if isinstance(inner, FunctionType):
            yield f"{way}.__wrapped__", inner
        return
    if type(value) in _LEAVES or isinstance(value, (ModuleType, Enum)) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(cast("tuple[object, ...]", value)):
            yield from _anchors(f"{way}[{index}]", item, seen)
    elif isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            yield from _anchors(f"{way}[{key!r}]", item, seen)
    elif isinstance(value, type):
        if origin.of_class(value) is not origin.OURS:
            yield way, value
            for name, method in _methods(value):
                yield from _anchors(f"{way}.{name}", method, seen)
    elif origin.of_class(type(cast("object", value))) is not origin.OURS:
        yield from _anchors(f"{way}.__class__", type(cast("object", value)), seen)
        for name, part in fp.state_of(value):
            yield from _anchors(f"{way}.{name}", part, seen)


def _methods(value: type) -> Iterator[tuple[str, Any]]:
    """Functions of a class and of its bases, by the names that they have in the class."""
    members = {name: member for base in reversed(value.__mro__) for name, member in vars(base).items()}
    for name, member in members.items():
        inner: Any = getattr(member, "__func__", member) if type(member) in _WRAPPED else member
        if isinstance(inner, FunctionType) or fp.function_of(inner) is not None:
            yield name, inner


_WRAPPED = (staticmethod, classmethod)
_LEAVES = (int, str, float, bool, type(None))
