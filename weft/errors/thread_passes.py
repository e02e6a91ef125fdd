"""Mistakes of threads that compute by themselves, as the passes over tile IR find them."""

from __future__ import annotations

from weft.errors.base import CompilationError, row

BLOCK = row(
    "thread-block-warps",
    CompilationError,
    "{what} needs {needs}, but the block has {threads} threads, {block}",
    "launch with a multiple that fits, for example block={instead}",
)
MISALIGNED = row(
    "thread-misaligned",
    CompilationError,
    "{count} elements of {dtype} are accessed at a time, {width} bytes, so their address has to be a multiple of {width}; what "
    "is added to the argument {name} is one, but its own address is not known to be one of more than {known}",
    "pass {name} at an address that is a multiple of 16 bytes, as a fresh array's is, and let weft see that (no "
    "do_not_specialize); or vectorize by fewer elements, at most {fits} where nothing more is known",
)
LOCAL_CHOSEN = row(
    "thread-local-chosen",
    CompilationError,
    "which of several arrays of a thread's own {name} is, is decided at run time here, but such arrays have no addresses",
    "choose the element instead: read both arrays, or keep them as two parts of one array and choose the index",
)
