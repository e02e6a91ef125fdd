"""Which entry of the cache a request means, given what its kernel read from its surroundings last time.

Before a kernel's source is read nobody knows which globals, helpers and constants it depends on. So a manifest stands
between: under the key of all that is known beforehand (`fingerprint.key0`) it lists variants, each a list of reads with
their fingerprints. A variant counts only if every read, evaluated again, has the same fingerprint; an edited helper or
constant is therefore never served stale. The key of a variant's entry is computed from that first key and its reads, so a
manifest cannot lead to the entry of anything else.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from weft.errors import UserError
from weft.runtime import fingerprint as fp
from weft.runtime import kept
from weft.runtime.cache import Cache
from weft.runtime.compiled import Binary, CompileRequest
from weft.runtime.specialise import Constexpr

_VARIANTS = 8
"""Variants kept per manifest, newest first."""


@dataclass(frozen=True, slots=True)
class Read:
    """One thing a kernel read: `path` (a name, or names joined by dots) as seen from inside `owner`, a Python function."""

    owner: Any
    path: str
    fingerprint: str


def read(owner: FunctionType, path: str) -> Read:
    """Record a read, with the fingerprint of what is there now. Raises what `resolve` and `fingerprint` raise."""
    return Read(owner, path, fp.fingerprint(resolve(owner, path)))


def resolve(owner: FunctionType, path: str) -> object:
    """What `path` means inside `owner`: its closure, then its globals, then builtins; attributes after each dot.

    Raises LookupError or AttributeError when nothing is there.
    """
    name, *attributes = path.split(".")
    value = _lookup(owner, name)
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


@dataclass(frozen=True, slots=True)
class Found:
    """A compiled kernel, and what it read, as that is now."""

    binary: Binary
    reads: tuple[Read, ...]


def find(cache: Cache, request: CompileRequest) -> Found | None:
    """What fits a request and its kernel's surroundings as they are now, or None."""
    known: fp.Known = {}
    key0 = fp.key0(request, known)
    for variant in cache.get(key0, kept.variants) or ():
        reads = _evaluated(request, variant, known)
        if reads is not None:
            binary = cache.get(_key(key0, variant), kept.binary)
            return None if binary is None else Found(binary, reads)
    return None


def remember(cache: Cache, request: CompileRequest, reads: Sequence[Read], binary: Binary) -> bool:
    """Keep a compiled kernel for a request whose kernel read `reads`.

    Returns False, and keeps nothing, when a read belongs to a function that a later process could not find again.
    """
    encoded = _encode(request, reads)
    if encoded is None:
        return False
    key0 = fp.key0(request)
    cache.put(_key(key0, encoded), kept.of_binary(binary))
    others = [variant for variant in cache.get(key0, kept.variants) or () if variant != encoded]
    cache.put(key0, kept.of_variants([encoded, *others][:_VARIANTS]))
    return True


def _key(key0: str, encoded: Sequence[kept.EncodedRead]) -> str:
    """The key of the entry of a variant."""
    # Each read has three parts, none with a zero byte in it, so this text tells where they end.
    return fp.digest(key0, "\0".join([part for read in encoded for part in read]))


def _lookup(owner: FunctionType, name: str) -> object:
    if name in owner.__code__.co_freevars:
        cell = (owner.__closure__ or ())[owner.__code__.co_freevars.index(name)]
        return cell.cell_contents
    if name in owner.__globals__:
        return owner.__globals__[name]
    return vars(builtins)[name]


def _encode(request: CompileRequest, reads: Iterable[Read]) -> list[kept.EncodedRead] | None:
    """Reads as `[owner, path, fingerprint]`, the owner spelled as the way to it from the kernel; None if there is none."""
    ways = {function: way for way, function in _roots(request)}
    encoded: list[kept.EncodedRead] = []
    for entry in reads:
        if entry.owner not in ways:
            return None
        way = ways[entry.owner]
        encoded.append([way, entry.path, entry.fingerprint])
        for inner, function in _functions(f"{way}/{entry.path}", resolve(entry.owner, entry.path)):
            ways.setdefault(function, inner)
    return encoded


def _evaluated(
    request: CompileRequest, encoded: Iterable[kept.EncodedRead], known: fp.Known
) -> tuple[Read, ...] | None:
    """The reads again, or None when one of them no longer gives what it gave."""
    owners = dict(_roots(request))
    opened: set[int] = set()
    reads: list[Read] = []
    for way, path, expected in encoded:
        try:
            owner = owners[way]
            value = resolve(owner, path)
            found = fp.fingerprint(value, known)
        except (LookupError, AttributeError, ValueError, UserError):
            return None
        if found != expected:
            return None
        reads.append(Read(owner, path, found))
        # What was read before under another name gave its functions their ways then; `known` keeps it alive.
        if id(value) not in opened:
            opened.add(id(value))
            for inner, function in _functions(f"{way}/{path}", value):
                owners.setdefault(inner, function)
    return tuple(reads)


def _roots(request: CompileRequest) -> Iterator[tuple[str, FunctionType]]:
    """Functions known before any read: the kernel, and those among its compile-time arguments."""
    yield from _functions("", request.fn)
    for name, argument in request.arguments.items():
        if isinstance(argument, Constexpr):
            yield from _functions(f"={name}", argument.value)


def _functions(way: str, value: object) -> Iterator[tuple[str, FunctionType]]:
    """The functions in a value, each with the way to it: itself, items of a tuple, methods of a class and its bases."""
    function = fp.function_of(value)
    if function is not None:
        yield way, function
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(cast("tuple[object, ...]", value)):
            yield from _functions(f"{way}[{index}]", item)
    elif isinstance(value, type):
        methods = {name: method for base in reversed(value.__mro__) for name, method in vars(base).items()}
        for name, method in methods.items():
            yield from _functions(f"{way}.{name}", getattr(method, "__func__", method))
