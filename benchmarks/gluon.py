"""Gluon under the names that examples import as `weft`, so that only their import lines differ."""

from __future__ import annotations

from typing import TypeVar, get_type_hints

from triton import cdiv, next_power_of_2, runtime
from triton.experimental.gluon import constexpr_function, jit
from triton.language import core
from triton.runtime.jit import JITCallable

C = TypeVar("C", bound=type)


def aggregate(cls: C) -> C:
    """Triton's `aggregate`, which needs the classes of fields; a module with deferred annotations has only their names."""
    cls.__annotations__ = get_type_hints(cls)
    # Newer releases export it under this name.
    make = core.aggregate if hasattr(core, "aggregate") else core._aggregate  # noqa: SLF001 its only name before that
    made = make(cls)
    # Releases that hash classes which kernels name take only compiled functions for part of them, not `__init__`.
    made.hash_attrs = [member for member in getattr(made, "hash_attrs", ()) if isinstance(member, JITCallable)]
    return made


__all__ = ["aggregate", "cdiv", "constexpr_function", "jit", "next_power_of_2", "runtime"]
