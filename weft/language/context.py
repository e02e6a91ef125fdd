"""The stack of contexts: the functions of `weft.language` append operations to the kernel of the current context.

The front end enters a context; public functions read the current one. Without a context, a function of the language was called
on the host, which is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.errors import Loc, fail
from weft.errors.language import HOST_CALL
from weft.ir.build import Builder

Inline = Callable[[Any, list[Any], dict[str, Any]], Any]


class TargetLike(Protocol):
    """The properties of a target that the language reads (`weft.targets.Target` implements it)."""

    @property
    def name(self) -> str:
        """Its name in the CUDA tools, such as `sm_90a`."""
        ...

    @property
    def warp_size(self) -> int:
        """Threads of a warp."""
        ...

    @property
    def has_cp_async(self) -> bool:
        """`cp.async`: asynchronous copies from global to shared memory by threads."""
        ...

    @property
    def has_mbarrier(self) -> bool:
        """mbarriers, which count arrivals."""
        ...

    @property
    def has_mbarrier_tx(self) -> bool:
        """mbarriers that also count bytes (transaction counts)."""
        ...

    @property
    def has_tma(self) -> bool:
        """TMA."""
        ...

    @property
    def has_cluster(self) -> bool:
        """Thread block clusters."""
        ...

    @property
    def has_mma(self) -> bool:
        """`mma.sync`: warp-level MMAs with operands in registers."""
        ...

    @property
    def has_mma_fp8(self) -> bool:
        """`mma.sync` of fp8."""
        ...

    @property
    def has_wgmma(self) -> bool:
        """`wgmma`: warpgroup-level MMAs with operands in shared memory."""
        ...

    @property
    def has_tcgen05(self) -> bool:
        """`tcgen05`: tensor memory, and MMAs into it that one thread issues."""
        ...

    @property
    def has_tma_gather(self) -> bool:
        """TMA gather and scatter of rows."""
        ...

    @property
    def has_tma_fp4(self) -> bool:
        """TMA that expands packed fp4 in shared memory."""
        ...

    @property
    def has_cluster_launch_control(self) -> bool:
        """Cluster launch control: a running program claims one that has not been launched."""
        ...

    @property
    def has_multimem(self) -> bool:
        """Accesses by multicast addresses."""
        ...

    @property
    def has_programmatic_launch(self) -> bool:
        """Programmatic dependent launch: a kernel may begin before the one before it in the stream has ended."""
        ...


@dataclass(slots=True)
class Context:
    """One kernel under construction.

    `builder` appends operations. `num_warps` and `num_ctas` are those of the region under construction. `inline(function,
    args, kwargs)` inlines a `@jit` function and returns its value; the front end supplies it. `allocations` numbers memory
    allocations. `partition` names the function of the warp-specialized partition under construction. `block` is the launch
    shape of a block of threads, None for a kernel launched without `block=`. `two_ctas` tells whether the kernel's tensor
    memory MMAs are CTA pairs' (`cta_group::2`); it is None until the first one.
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
    advised: set[object] = field(default_factory=set[object])
    """What warnings have been given about, so that each is given once."""

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
    """The innermost context. Raises CompilationError (language-host-call) on the host, where `name` is the called function."""
    if not _STACK.contexts:
        raise fail(HOST_CALL, name=name)
    return _STACK.contexts[-1]


def by_threads() -> bool:
    """True in a kernel launched with `block=`, in which every thread performs its own access at a scalar address."""
    return active() and current().block is not None


@contextmanager
def enter(context: Context) -> Iterator[Context]:
    """Make `context` the current one on this thread until the `with` block ends."""
    _STACK.contexts.append(context)
    try:
        yield context
    finally:
        _STACK.contexts.pop()
