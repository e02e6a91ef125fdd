"""Where kernel code is being built: the stack of contexts that the functions of `weft.language` write into.

The reader of kernels enters a context, the public functions ask for the current one. Outside of every context a function
of the language was called on the host, which is the author's mistake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from weft.errors import Loc, fail
from weft.errors.language import HOST_CALL
from weft.ir.build import Builder

Inline = Callable[[Any, list[Any], dict[str, Any]], Any]


class TargetLike(Protocol):
    """What the language asks of a target (`weft.targets.Target` is one)."""

    @property
    def name(self) -> str:
        """What the CUDA tools call it."""
        ...

    @property
    def warp_size(self) -> int:
        """Threads of a warp."""
        ...

    @property
    def has_cp_async(self) -> bool:
        """Threads copy from global to shared memory asynchronously."""
        ...

    @property
    def has_mbarrier(self) -> bool:
        """Barriers in shared memory that count arrivals."""
        ...

    @property
    def has_mbarrier_tx(self) -> bool:
        """Those barriers count bytes too."""
        ...

    @property
    def has_tma(self) -> bool:
        """An engine copies blocks of tensors."""
        ...

    @property
    def has_cluster(self) -> bool:
        """Blocks run together in clusters."""
        ...

    @property
    def has_mma(self) -> bool:
        """Warps multiply matrices in registers."""
        ...

    @property
    def has_mma_fp8(self) -> bool:
        """Of fp8 too."""
        ...

    @property
    def has_wgmma(self) -> bool:
        """Warpgroups multiply matrices in shared memory."""
        ...

    @property
    def has_tcgen05(self) -> bool:
        """Multiprocessors have tensor memory, and single threads start products into it."""
        ...

    @property
    def has_tma_gather(self) -> bool:
        """The engine that copies blocks copies single rows too."""
        ...

    @property
    def has_tma_fp4(self) -> bool:
        """The engine spreads packed fp4 over twice the memory."""
        ...

    @property
    def has_cluster_launch_control(self) -> bool:
        """Programs take over those that have not been launched."""
        ...


@dataclass(slots=True)
class Context:
    """One kernel under construction.

    `builder` takes the operations. `num_warps` and `num_ctas` are those of the region being built. `inline(function,
    args, kwargs)` inlines a `@jit` function and returns its value; the reader supplies it. `allocations` counts those of
    memory, to tell them apart. `partition` names the function whose partition is being built, under warp specialisation.
    `block` is the shape of a block of threads that the kernel is launched with, where it is launched with one. `two_ctas` is
    whether the kernel's products on tensor memory are each those of two blocks, None before it is known.
    """

    builder: Builder
    num_warps: int
    target: TargetLike
    inline: Inline
    num_ctas: int = 1
    partition: str = ""
    allocations: int = 0
    block: tuple[int, int, int] | None = None
    two_ctas: bool | None = None

    @property
    def loc(self) -> Loc | None:
        """The Python line being built."""
        return self.builder.loc


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[Context] = []


_STACK = _Stack()


def active() -> bool:
    """True while a kernel is being built on this thread."""
    return bool(_STACK.contexts)


def current(name: str = "a function of weft.language") -> Context:
    """The innermost context. Raises CompilationError (language-host-call), with `name` as what was called, on the host."""
    if not _STACK.contexts:
        raise fail(HOST_CALL, name=name)
    return _STACK.contexts[-1]


def by_threads() -> bool:
    """True where each thread does for itself what is done at a scalar address: in a kernel that is launched with `block=`."""
    return active() and current().block is not None


@contextmanager
def enter(context: Context) -> Iterator[Context]:
    """Build into `context` on this thread until the block ends."""
    _STACK.contexts.append(context)
    try:
        yield context
    finally:
        _STACK.contexts.pop()
