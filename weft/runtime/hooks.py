"""Whether using a class, or an instance of it, may implicitly run Python that its author wrote.

Hooks are a metaclass, operators such as `__eq__`, `__getattr__`, properties and other descriptors. Methods that dataclasses
generate do not count, since they follow from the fields. Neither do methods that run only when a class is created, called or
shown.
"""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

from weft.runtime import origin

_PASSIVE = frozenset((
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__set_name__", "__repr__", "__del__",
    "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__",
    "__getnewargs_ex__", "__replace__", "__enter__", "__exit__", "__sizeof__", "__dir__", "__subclasshook__",
))  # fmt: skip
"""Special methods that reading a kernel does not run implicitly; an instance is created only by an explicit call."""
_PASSIVE_DESCRIPTORS = (
    staticmethod, classmethod, MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType,
    BuiltinFunctionType,
)  # fmt: skip


def found(cls: type) -> bool:
    """True when the class, a base of it or its metaclass has a hook."""
    if any(True for _ in origin.foreign_bases(type(cls))):
        return True
    return any(runs(base, name, entry) for base in origin.foreign_bases(cls) for name, entry in vars(base).items())


def runs(cls: type, name: str, entry: Any) -> bool:
    """True when an entry of a class's body is a hook written by the author."""
    if isinstance(entry, FunctionType):
        is_special = name.startswith("__") and name.endswith("__") and name not in _PASSIVE
        return is_special and origin.of_function(entry) is not origin.OURS and not _generated(cls, entry)
    return binds(entry)


def binds(entry: Any) -> bool:
    """True when looking up an attribute that is this entry of a class runs the author's Python."""
    if isinstance(entry, (FunctionType, *_PASSIVE_DESCRIPTORS)) or not hasattr(origin.class_of(entry), "__get__"):
        return False
    parts = (getattr(entry, name, None) for name in ("fget", "func"))
    if any(isinstance(part, FunctionType) and not origin.ours(part) for part in parts):
        return True
    return not origin.ours(origin.class_of(entry))


def _generated(cls: type, function: FunctionType) -> bool:
    return function.__code__.co_filename == "<string>" and "__dataclass_fields__" in vars(cls)
