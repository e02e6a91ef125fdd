"""Kernels under test that are made as text."""

# ruff: noqa: S102 (programs under test are text)

from __future__ import annotations

import itertools
import linecache
from typing import Any

import weft
from weft import language as gl
from weft.kernel import JITFunction

NUMBER = itertools.count()


def kernel_of(text: str, **space: Any) -> JITFunction:
    """The kernel of the last function that a text defines; earlier ones are its helpers."""
    path = f"<program {next(NUMBER)}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names: dict[str, Any] = {"gl": gl, "weft": weft, **space}
    exec(compile(text, path, "exec"), names)
    return [value for value in names.values() if isinstance(value, JITFunction)][-1]
