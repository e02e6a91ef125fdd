"""Fingerprints: strings that change whenever a value that a kernel depends on changes.

`fingerprint` is for values that a kernel reads: constants, dtypes, layouts, helpers, classes, enumerations, objects with
fields. `key0` is for a whole request. Equal fingerprints mean equal behaviour across processes; the converse need not hold. A
value whose use runs the author's Python (a property, `__eq__`, a metaclass), or whose type another library implements in C, has
no fingerprint. A compilation that reads one is *open*: its entry in the cache is found by its IR instead (see `weft.compiler`).

A walk visits each object once and writes a back reference, by the order of first visits, when it meets the object again. It
takes linear time and ends on cycles. The text of a cycle depends on where the walk starts. That is harmless: a fingerprint is
only compared with that of the same read, whose walk starts at the same object.

No function body is followed: the reads of a `@jit` helper are recorded separately, and other functions are not called during
compilation by a value that has a fingerprint. Classes and functions of installed packages are identified by name and file.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from enum import EnumMeta
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    SimpleNamespace,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, cast, get_args, get_origin

from weft.runtime import hooks, origin
from weft.runtime.compiled import CompileRequest
from weft.runtime.function_text import digest, function_of, source_text
from weft.runtime.specialise import Constexpr, Pointer, Scalar, Tuple, View
from weft.runtime.toolchain import toolchain

_REPRESENTED = frozenset(
    (bool, int, str, bytes, complex, range, slice, type(None), type(Ellipsis), type(NotImplemented))
)
"""Types whose `repr` determines the value."""
_DTYPE_TYPES = ("torch.dtype", "numpy.dtype")
_BASES = (int, float, str, bytes, tuple, list, dict, set, frozenset)
"""Builtin types that an author's class may extend; their part of the object's state is included in the walk."""
_KEPT_BY_PYTHON = frozenset(
    ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__",
     "__dataclass_fields__", "__dataclass_params__", "__abstractmethods__", "_abc_impl", "__annotations__")
)  # fmt: skip
"""Entries of a class that Python adds to the author's text. Those of a dataclass are redundant with its generated methods."""

_NAME = re.compile(r"[^\W\d]\w*")
_NAMES_ONLY = re.compile(r"[\w.|, \[\]]*")
"""Annotations whose names are found without compiling them: names, attributes, unions and arguments."""

Known = dict[int, tuple[object, "str | None"]]
"""Fingerprints already computed during one look-up, by the value's identity, each with its value."""


def fingerprint(value: object, known: Known | None = None) -> str | None:
    """The fingerprint of a value that a kernel reads, or None. `known` caches results."""
    if known is not None and id(value) in known:
        return known[id(value)][1]
    text = _of_ours(value)
    if text is None:
        walk = _Walk()
        try:
            walk.visit(value)
            text = ",".join(walk.out)
        except (_Unknown, RecursionError):
            text = None
    if text is not None and len(text) > _LONGEST:
        text = digest(text)
    if known is not None:
        # Keeping the value alive keeps its id from being reused.
        known[id(value)] = value, text
    return text


def inert(value: object, called: frozenset[int] = frozenset()) -> str | None:
    """The fingerprint of a value, or None if it contains a plain function of the author (outside of a class) not in
    `called`."""
    walk = _Walk()
    try:
        walk.visit(value)
    except (_Unknown, RecursionError):
        return None
    return fingerprint(value) if walk.functions <= called else None


_LONGEST = 200


def _of_ours(value: object) -> str | None:
    """What a walk says of a plain function or a class of ours, which most reads of a kernel are; None for any other."""
    if type(value) is FunctionType:
        return _named(value) if is_ours(value) else None
    return f"class:{_name(value)}" if type(value) is type and origin.of_class(value) is origin.OURS else None


def is_ours(function: FunctionType) -> bool:
    """True for a function of ours that is neither a kernel nor the wrapper of another function."""
    space = vars(function)
    return "__weft_jit__" not in space and "__wrapped__" not in space and origin.of_function(function) is origin.OURS


def _named(function: FunctionType) -> str:
    return f"function:{function.__module__}.{function.__qualname__}"


class _Unknown(Exception):
    """The value has no fingerprint: its state is not visible, or using it runs the author's Python."""


class _Walk:
    """One walk over a value: `out` collects the text, `met` maps the identity of each visited object to its number."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.met: dict[int, int] = {}
        self.alive: list[object] = []
        self.functions: set[int] = set()
        self.classes = 0
        self.annotations: dict[tuple[str, str], str] = {}

    def visit(self, value: object) -> None:
        """Append the text of a value."""
        kind: type[Any] = type(value)
        if kind in _REPRESENTED:
            self.out.append(f"{kind.__name__}:{value!r}")
        elif kind is float:
            self.out.append(f"float:{cast('float', value).hex()}")
        elif id(value) in self.met:
            self.out.append(f"#{self.met[id(value)]}")
        else:
            self.met[id(value)] = len(self.met)
            self.alive.append(value)
            self._object(value, kind)

    def _object(self, value: Any, kind: type) -> None:
        if kind is FunctionType:
            self._function(value, kind)
        elif kind in (tuple, list):
            self._items(kind.__name__, value)
        elif kind is dict or kind is MappingProxyType:
            self._items(kind.__name__, (part for pair in list(value.items()) for part in pair))
        elif kind in (set, frozenset):
            self._items(kind.__name__, sorted(value, key=_rank))
        elif issubclass(kind, ModuleType):
            # Attributes read from a module are recorded as separate reads, but only if the module itself is the value read.
            if len(self.met) > 1:
                raise _Unknown
            self.out.append(f"module:{value.__name__}")
        elif issubclass(kind, type):
            self._class(value)
        elif kind is BuiltinFunctionType:
            self._builtin(value)
        else:
            self._else(value, origin.class_of(value))

    def _else(self, value: Any, kind: type[Any]) -> None:
        if not self._function(value, kind) and not self._described(value, kind):
            self._instance(value, kind)

    def _items(self, name: str, items: Iterable[object]) -> None:
        self.out.append(f"{name}(")
        for item in items:
            self.visit(item)
        self.out.append(")")

    def _builtin(self, value: Any) -> None:
        owner = value.__self__
        self.out.append(f"builtin:{value.__module__}.{value.__qualname__}")
        if owner is not None and not isinstance(owner, ModuleType):
            self.visit(owner)

    def _function(self, value: Any, kind: type) -> bool:
        """Append a function, a `@jit` object or a static or class method; False for anything else."""
        if kind in (staticmethod, classmethod):
            self.out.append(kind.__name__)
            self.visit(value.__func__)
            return True
        function = function_of(value)
        if function is None:
            return False
        whose = origin.of_function(function)
        while whose is origin.OURS and isinstance(inner := vars(function).get("__wrapped__"), FunctionType):
            function, whose = inner, origin.of_function(inner)
        if whose is origin.OURS:
            self.out.append(_named(function))
            return True
        if function is value and not self.classes:
            self.functions.add(id(value))
        # An object that a decorator of ours returns for a function is told by its class, a wrapper by its marks.
        space = vars(value if kind is FunctionType else function)
        marks = sorted([name for name in space if name.startswith("__weft_")]) if space else ""
        self.out.append(f"function:{'' if kind is FunctionType else _name(kind)}{marks}:{source_text(function)}")
        if function.__defaults__ or function.__kwdefaults__:
            self._items("defaults", (function.__defaults__, function.__kwdefaults__))
        return True

    def _described(self, value: Any, kind: type) -> bool:
        """Append a wrapped constant, a dtype, an annotation or a value of weft's classes; False for anything else."""
        if any(f"{base.__module__}.{base.__name__}" in _DTYPE_TYPES for base in kind.__mro__):
            self.out.append(f"dtype:{value}")
        elif kind in (GenericAlias, UnionType) or (kind.__module__ == "typing" and get_origin(value) is not None):
            self.out.append(f"generic:{get_origin(value)!r}")
            self.visit(get_args(value))
        elif origin.of_class(kind) is not origin.OURS:
            return False
        elif kind.__name__ == "constexpr":
            self.visit(value.value)
        elif dataclasses.is_dataclass(value):
            fields = [(entry.name, getattr(value, entry.name)) for entry in dataclasses.fields(value) if entry.compare]
            self._items(_name(kind), (part for pair in fields for part in pair))
        elif kind.__module__.partition(".")[0] == "weft" and kind.__repr__ is not object.__repr__:
            self.out.append(f"{_name(kind)}:{value!r}")
        else:
            return False
        return True

    def _instance(self, value: Any, kind: type) -> None:
        """Append an object of an author's class: its class, the value of its builtin base, and its attributes."""
        if kind is not SimpleNamespace and (origin.of_class(kind) is origin.OURS or not _laid_out_by_python(kind)):
            raise _Unknown
        self.out.append("object")
        self.visit(kind)
        base = next((base for base in _BASES if issubclass(kind, base)), None)
        if base is not None:
            self.visit(_within(base, value))
        for name, part in state_of(value):
            self.out.append(name)
            self.visit(part)

    def _class(self, cls: type) -> None:
        """Append a class: by name if it is covered by the toolchain digest or a file's stamp, else with its whole body."""
        whose = origin.of_class(cls)
        self.out.append(f"class:{_name(cls)}")
        if whose is origin.INSTALLED:
            self.out.append(_file_of(cls))
        if whose is not origin.AUTHORS:
            return
        if hooks.found(cls):
            raise _Unknown
        self.classes += 1
        self._items("bases", (type(cls), *cls.__bases__))
        for name, part in sorted(vars(cls).items()):
            if name not in _KEPT_BY_PYTHON and type(part) not in (MemberDescriptorType, GetSetDescriptorType):
                self.out.append(name)
                self._entry(part)
        for name, kind in vars(cls).get("__weft_aggregate__", {}).items():
            self.out.append(f"{name}:{self._annotation(cls.__module__, kind)}")
        self.classes -= 1

    def _annotation(self, module: str, kind: Any) -> str:
        """The text of a field's annotation, with the kinds of the classes that it names in the class's module."""
        if not isinstance(kind, str):
            return _kind(kind)
        known = self.annotations.get((module, kind))
        if known is None:
            scope = getattr(sys.modules.get(module), "__dict__", {})
            named = [scope[name] for name in _names_in(kind) if name in scope and not isinstance(scope[name], str)]
            known = self.annotations[module, kind] = f"{kind} {[*map(_kind, named)]}"
        return known

    def _entry(self, part: Any) -> None:
        if isinstance(part, FunctionType) and origin.of_function(part) is not origin.AUTHORS:
            self.out.append(f"function:{part.__qualname__}")
            # The aggregate decorator wraps the author's functions; they are in the wrapper's closure.
            inner = [cell.cell_contents for cell in part.__closure__ or () if cell != CellType()]
            self._items("made of", (each for each in inner if function_of(each) is not None))
        elif type(part).__name__ == "_tuplegetter":
            self.out.append(repr(part.__reduce__()[1]))
        elif type(cast("object", part)) is property or type(cast("object", part)).__module__ in (
            "enum",
            "types",
            "_abc",
        ):
            self.out.append(type(cast("object", part)).__name__)
        else:
            self.visit(part)


def state_of(value: object) -> list[tuple[str, Any]]:
    """The attributes of an object, from its dictionary and its slots."""
    found: list[tuple[str, Any]] = sorted((space_of(value) or {}).items())
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if type(member) is MemberDescriptorType and origin.of_class(cls) is not origin.OURS:
                try:
                    found.append((name, member.__get__(value, cls)))
                except AttributeError:
                    continue
    return found


def space_of(value: object) -> dict[str, Any] | None:
    """The attribute dictionary of an object, or None. Runs none of the author's Python."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _laid_out_by_python(kind: type) -> bool:
    """True when all of an object's state is visible from Python: its C layout is that of `object` or one of `_BASES`."""
    return all(base is object or base in _BASES or _has_no_c_part(base) for base in kind.__mro__)


def _has_no_c_part(cls: type) -> bool:
    """True for what a `class` statement makes.

    C types can be heap types too (`functools.partial`; `io.TextIOWrapper` from Python 3.12 on), but their bodies hold C
    descriptors besides those that Python adds for slots, `__dict__` and `__weakref__`.
    """
    is_heap_type = bool(cls.__flags__ & (1 << 9))
    return is_heap_type and not any(_is_of_c(cls, name, entry) for name, entry in vars(cls).items())


def _is_of_c(cls: type, name: str, entry: object) -> bool:
    if isinstance(entry, BuiltinFunctionType):
        return name == "__new__" and entry.__self__ is cls
    if isinstance(entry, GetSetDescriptorType):
        return entry.__objclass__ is cls and name not in ("__dict__", "__weakref__")
    return isinstance(entry, (MethodDescriptorType, WrapperDescriptorType)) and entry.__objclass__ is cls


def _within(base: type, value: Any) -> Any:
    """The value of an object's builtin `base`, without calling methods that its class overrides."""
    if base is dict:
        return dict(cast("Any", dict.items(value)))
    if base in (tuple, list, set, frozenset):
        return cast("Any", base)(cast("Any", base).__iter__(value))
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return {int: int.__int__, float: float.__float__, str: str.__str__}[base](value)


def _rank(item: Any) -> str:
    """A sort key for the items of a set that is the same in every process (string hashes are not)."""
    kind = origin.class_of(item)
    if kind in _REPRESENTED:
        return f"{kind.__name__}:{item!r}"
    if kind is float:
        return f"float:{item.hex()}"
    if kind is tuple:
        return f"({','.join(map(_rank, item))})"
    if kind is frozenset:
        return f"{{{','.join(sorted(map(_rank, item)))}}}"
    if isinstance(kind, EnumMeta):
        return f"{_name(kind)}.{item._name_}"
    if isinstance(item, (type, FunctionType)):
        return f"{item.__module__}.{item.__qualname__}"
    text = fingerprint(item)
    if text is None:
        raise _Unknown
    return text


def _kind(annotation: Any) -> str:
    """The text of an annotation that is an object."""
    if not isinstance(annotation, type):
        return repr(annotation)
    return f"{_name(annotation)} {hasattr(annotation, '__weft_aggregate__')}"


def _names_in(annotation: str) -> Sequence[str]:
    """The names that an annotation's text reads, and perhaps more; none of a text that is no expression."""
    if _NAMES_ONLY.fullmatch(annotation):
        return _NAME.findall(annotation)
    try:
        return compile(annotation, "<annotation>", "eval").co_names
    except SyntaxError:
        return ()


def source_digest(function: FunctionType) -> str | None:
    """The digest of a function's text, location and defaults; None when a default has no fingerprint."""
    defaults = fingerprint((function.__defaults__, function.__kwdefaults__))
    return None if defaults is None else digest(source_text(function), defaults)


def key0(request: CompileRequest, known: Known | None = None) -> str | None:
    """The digest of what is known of a request before its source is read: source text, types, options, target, toolchain.

    None when an argument or a default has no fingerprint. Values that the kernel reads from outside are not included; see
    `weft.runtime.manifest`.
    """
    function = function_of(request.fn)
    assert function is not None
    texts = [source_digest(function), *(_argument(argument, known) for argument in request.arguments.values())]
    if None in texts:
        return None
    texts.append(request.fn.symbol(request.arguments))
    return digest(*request.arguments, *map(str, texts), repr(request.options), request.target, toolchain())


def common(request: CompileRequest, constexprs: Collection[str]) -> str:
    """What a kernel has in common on all ranks that launch it together: a line each for its text, options and target, and for
    the constant or type of each parameter.

    What single numbers and addresses are specialised on may differ, as a rank's number of tokens does; a constant of a
    parameter that is none of `constexprs` is such a number. So may values that the kernel reads from outside, as a rank."""
    function = function_of(request.fn)
    assert function is not None
    parts = {
        "its text": digest(source_text(function))[:16],
        "its options": repr(request.options),
        "the target": request.target,
    }
    for name, argument in request.arguments.items():
        parts[name] = _shown(argument) if name in constexprs else _form(argument)
    return "\n".join(f"{name}: {text}" for name, text in parts.items())


def _shown(argument: object) -> str:
    """The text of a constant that people compare: its value if that is short, and else a digest."""
    value = argument.value if isinstance(argument, Constexpr) else None
    shown = repr(value) if type(value) in _REPRESENTED else str(_argument(argument, None))
    return shown if len(shown) <= _LONGEST and "\n" not in shown else digest(shown)[:16]


def _form(argument: object) -> str:
    """The text of a run-time argument's type, without what it is specialised on."""
    if isinstance(argument, Scalar) or (isinstance(argument, Constexpr) and isinstance(argument.value, (int, float))):
        return "a number"
    if isinstance(argument, Pointer):
        return f"a pointer to {argument.dtype}"
    if isinstance(argument, Tuple):
        return f"{argument.form!r} of {list(map(_form, argument.items))}"
    if isinstance(argument, View):
        return f"a view of {argument.dtype}, {fingerprint(argument.key)}, {argument.names!r}"
    return str(_argument(argument, None))


def _argument(argument: object, known: Known | None) -> str | None:
    if isinstance(argument, Constexpr):
        text = fingerprint(argument.value, known)
        return None if text is None else f"constexpr {text}"
    if isinstance(argument, Tuple):
        texts = [fingerprint(argument.form, known), *(_argument(item, known) for item in argument.items)]
        return None if None in texts else f"tuple {texts!r}"
    if isinstance(argument, View):
        text = fingerprint(argument.key)
        return None if text is None else f"view {argument.pointer!r} {text} {argument.numbers!r} {argument.names!r}"
    return repr(argument)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _file_of(cls: type) -> str:
    """Size, modification time and inode of the file that defines an installed package's class."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    try:
        status = Path(cast("str", file)).stat()
    except (OSError, TypeError):
        raise _Unknown from None
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
