"""Symmetric tensors in kernels: a tensor of the same shape on every rank of a group, and signals between the ranks.

A kernel argument `weft.Symmetric(t)` is a `symmetric`. The addresses of all ranks are parameters of the kernel, so that
`x.peer(rank)` reads no memory: a rank known at compile time is one parameter, any other a choice between them. Signals are
ordinary atomics and polls of scope sys on the signal pads, whose layout is `weft.views.symmetric`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, cast, get_args

from weft.errors import distributed as errors
from weft.errors import fail
from weft.errors.language import POLL_ORDER
from weft.ir.types import DType, int32, int64
from weft.language import arith, logic
from weft.language.aggregate import aggregate
from weft.language.broadcast import common_form, fit
from weft.language.context import by_threads, current
from weft.language.debug import device_assert
from weft.language.marks import builtin, constexpr
from weft.language.places import loaded, one_register
from weft.language.promote import convert, place
from weft.language.runtime_value import describe, name_of
from weft.language.storages import GlobalStorage
from weft.language.tensor import apply, apply_many, tensor
from weft.ops import memory, nvshmem
from weft.views import LayoutTensor
from weft.views.symmetric import FLAGS, SymmetricKey

TIMEOUT_NS = 10_000_000_000
"""How long `wait_signal` waits by default, in nanoseconds."""


@aggregate
class symmetric:
    """A symmetric tensor in a kernel: the argument `weft.Symmetric(t)`.

    `rank` is this program's rank (an int32 scalar), `world_size` the number of ranks (known at compile time). `local` is this
    rank's own memory, `peer(rank)` that of any rank: a pointer, or a view where the argument is one of a view. A TMA source on
    a peer is a descriptor of that pointer (`tma.make_tensor_descriptor(x.peer(rank), ...)`). Accesses to a peer's memory are
    ordered by signals only (`gl.signal`, `gl.wait_signal`).
    """

    rank: tensor
    pointer: tensor
    pointers: tuple[tensor, ...]
    pads: tuple[tensor, ...]
    pad: tensor
    address: Any
    numbers: tuple[tensor, ...]
    places: tuple[tensor, ...]
    pes: tuple[tensor, ...]
    key: constexpr
    name: constexpr

    @property
    def world_size(self) -> int:
        """The number of ranks of the group; a compile-time constant."""
        return self._key.world_size

    @property
    def local(self) -> Any:
        """This rank's memory."""
        return self._on(self.pointer, f"{self.name}.local")

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.pointer.dtype.element_ty

    @property
    def multicast(self) -> tensor:
        """The address at which stores and reductions (PTX `multimem`) reach this tensor on all ranks: for
        `gl.multimem_ld_reduce`, `gl.multimem_st` and `gl.multimem_red`. Any other access there is undefined.

        Raises CompilationError (ranks-no-multicast) where the group has none."""
        if self.address is None:
            raise fail(errors.NO_MULTICAST, name=self.name)
        return cast("tensor", self.address)

    def peer(self, rank: Any) -> Any:
        """The tensor on a rank, which may be this one: a pointer, or a view. `rank`: an integer, or an integer scalar, which
        may differ between threads.

        Raises CompilationError: ranks-no-rank for a constant that is no rank of the group, ranks-rank-type, ranks-not-reached
        for memory of NVSHMEM which pointers do not reach. A run-time number that is none is reported by the simulator, and in
        debug builds."""
        current("peer")
        if not self._key.reached:
            raise fail(errors.NOT_REACHED, name=self.name)
        return self._on(_of_rank(f"{self.name}.peer", self.pointers, rank), f"{self.name}.peer")

    @property
    def _key(self) -> SymmetricKey:
        return cast("SymmetricKey", self.key)

    def _on(self, pointer: tensor, name: str) -> Any:
        if self._key.view is None:
            return pointer
        return LayoutTensor.from_argument(GlobalStorage(pointer), cast("Any", self._key.view), self.numbers, name)


def symmetric_argument(key: SymmetricKey, name: str, values: Sequence[tensor]) -> symmetric:
    """The value of a symmetric argument, from its parameters: the own address, and those that the key names."""
    pointer, rank, *rest = values
    left, ranks = iter(rest), key.world_size
    peers, pads = tuple(islice(left, ranks * key.reached)), tuple(islice(left, ranks))
    pad, address = next(left), next(left) if key.multicast else None
    places, pes = (tuple(islice(left, ranks * key.nvshmem)) for _ in range(2))
    return symmetric(
        rank, pointer, peers, pads, pad, address, tuple(left), places, pes, constexpr(key), constexpr(name)
    )  # fmt: skip


@builtin
def signal(x: symmetric, rank: Any, flag: Any = 0) -> None:
    """Signal a rank of the group of the symmetric tensor `x`: all earlier accesses of this program, to any memory, happen
    before what follows the rank's `gl.wait_signal` for this signal (a release of scope sys).

    Signals are counted: each `gl.wait_signal(x, sender, flag)` of the receiver takes one signal of that sender on that flag. A
    rank may signal again before the last signal was taken. `rank` and `flag` are integers, integer scalars or tiles of int32,
    which are broadcast together: `gl.signal(x, gl.arange(0, x.world_size, layout), flag)` signals every rank, this one too. The
    flags of a group, 0 to 4095, belong to all its tensors and kernels; a kernel that ends with as many waits as signals on
    each flag leaves them ready for the next launch, also of a replayed graph. Different programs use different flags, often
    `gl.program_id(0)`. TMA stores to a peer are complete behind `tma.store_wait(0)`, and what threads wrote and TMA reads on
    the peer needs `fence_async_global` besides. In a kernel that is launched with `block=`, each thread that executes it
    signals for itself.

    A tensor in memory of NVSHMEM signals by NVSHMEM (`nvshmem_fence`, then an atomic addition): behind all earlier `gl.put` of
    the program to that rank, too, but not behind those to other ranks, for which `gl.quiet` has to wait first.

    PTX ISA, "red" with `.release.sys`. Raises CompilationError: ranks-symmetric-needed, ranks-no-rank, ranks-rank-type,
    ranks-flag.
    """
    _check("signal", x)
    where = _index("signal", x, flag, x.rank)
    address = arith.add(_of_rank("gl.signal", x.pads, rank), where)
    if not cast("SymmetricKey", x.key).nvshmem:
        _send(address, "release", "sys")
        return
    pe = _of_rank("gl.signal", x.pes, rank)
    form = common_form("signal", (address, pe))
    if form is None and by_threads():
        each = (one_register(address), one_register(place(1, int32, form)), one_register(pe), None)
        apply_many(nvshmem.signal_regs, each)
        return
    apply_many(nvshmem.signal, (fit(address, form), place(1, int32, form), fit(pe, form)))


@builtin
def wait_signal(x: symmetric, rank: Any, flag: Any = 0, timeout_ns: int = TIMEOUT_NS, *, count: int = 1) -> None:
    """Wait for a signal of a rank of the group of the symmetric tensor `x`, and take it: what the rank did before it happens
    before everything that follows (an acquire of scope sys).

    `rank` and `flag` as in `gl.signal`; with tiles, every element is one wait. One thread polls for each element, and the
    program waits for all of them. Each wait takes one signal, or `count` of them (a constant), when several programs of the
    sender have a part in what it waits for; so several programs wait on flags of their own. After
    `timeout_ns` nanoseconds (a constant; 10 s by default), in every build, the GPU stops the kernel and prints the line, the
    rank, the program, the rank it waited for and the flag (a kernel with `warpgroup_mma`, which ptxas would serialise with any
    print in it, does so in debug builds only). The simulator reports a wait that cannot end as a deadlock.

    A program that waits keeps its place on the GPU: a launch of more programs than fit at once is refused (launch-programs-
    wait). PTX ISA, "Release and Acquire Patterns". Raises CompilationError: ranks-symmetric-needed, ranks-no-rank,
    ranks-rank-type, ranks-flag, ranks-timeout, ranks-count.
    """
    _check("wait_signal", x)
    _check_timeout("wait_signal", timeout_ns)
    if isinstance(count, bool) or not isinstance(cast("object", count), int) or count < 1:
        raise fail(errors.COUNT, got=describe(count) if isinstance(count, tensor) else repr(count))
    source = _rank("gl.wait_signal", rank, x.world_size)
    where = _index("wait_signal", x, flag, source)
    taken = _send(arith.add(arith.add(x.pad, FLAGS * x.world_size), where), "relaxed", "gpu", count)
    wanted = convert(arith.add(taken, count), int32)
    address = arith.add(x.pad, where)
    form = common_form("wait_signal", (address, wanted))
    details = (x.rank, place(source, int32, form), place(flag, int32, form))
    attrs = {"order": "acquire", "scope": "sys", "at_least": True, "patience": timeout_ns, "signal": True}
    if form is None and by_threads():
        each = (one_register(address), one_register(wanted), None, None, *map(one_register, details))
        apply(memory.poll_regs, *each, **attrs)
    else:
        placed = (fit(address, form), fit(wanted, form), None, *(fit(value, form) for value in details))
        apply(memory.poll, *placed, **attrs)
    if cast("SymmetricKey", x.key).nvshmem:
        apply_many(nvshmem.acquire, ())


@builtin
def put(x: symmetric, rank: Any, source: tensor, count: Any, at: Any = 0) -> None:
    """Start a copy of `count` elements from `source` to the symmetric tensor `x` on a rank, from its element `at` on, by
    NVSHMEM: also where no pointer reaches that rank's memory.

    `x` is memory of NVSHMEM (PyTorch's, after `set_backend("NVSHMEM")`). `source` is a pointer to elements of its type in
    symmetric memory of this rank, as in `y.local + offset`; source and target are consecutive elements, whatever a view of `x`
    may be. `rank`, `count` and `at` are integers or integer scalars. All threads of the program take part; what they have
    stored before is copied.

    The copy is non-blocking. The program may neither overwrite the source nor rely on the target before `gl.quiet(x)`. The rank
    may read the target after `gl.wait_signal` for a `gl.signal(x, rank)` that follows the put; nothing else orders the two, a
    later put to the same elements neither. For TMA both ends are accesses of threads: a source that TMA has written needs
    `tma.store_wait(0)` before, a target that TMA reads `fence_async_global` behind the wait. A put to memory that this GPU
    reaches is a copy by all threads; any other is one request to the network (`nvshmem_putmem_nbi`).

    NVSHMEM Library Documentation, "Remote Memory Access" and "Memory Ordering". Raises CompilationError:
    ranks-symmetric-needed, ranks-nvshmem-needed, ranks-no-rank, ranks-rank-type, ranks-put-source, ranks-put-number,
    ranks-put-block.
    """
    _check_nvshmem("put", x)
    if not isinstance(cast("object", source), tensor) or not source.is_scalar or source.element != x.pointer.element:
        raise fail(errors.PUT_SOURCE, dtype=x.dtype.name, got=name_of(source))
    if isinstance(rank, tensor) and not rank.is_scalar:
        raise fail(errors.RANK_TYPE, what="gl.put", got=name_of(rank))
    target = arith.add(_of_rank("gl.put", x.places, rank), _number("at", at))
    pe = _of_rank("gl.put", x.pes, rank)
    apply_many(nvshmem.put, (target, source, _number("count", count), pe))


@builtin
def quiet(x: symmetric) -> None:
    """Wait until all earlier `gl.put` of this program are complete: their sources may be overwritten, and their targets are
    written. `x` is a tensor of the group, in memory of NVSHMEM.

    A kernel that ends without it leaves its puts to be completed later: the next launch may not overwrite their sources.
    NVSHMEM Library Documentation, "Memory Ordering" (`nvshmem_quiet`). Raises CompilationError: ranks-symmetric-needed,
    ranks-nvshmem-needed, ranks-put-block.
    """
    _check_nvshmem("quiet", x)
    apply_many(nvshmem.quiet, ())


def _check_nvshmem(what: str, x: object) -> None:
    """Raises ranks-symmetric-needed, ranks-nvshmem-needed, ranks-put-block."""
    _check(what, x)
    assert isinstance(x, symmetric)
    if not cast("SymmetricKey", x.key).nvshmem:
        raise fail(errors.NVSHMEM_NEEDED, what=what, name=x.name)
    ctas = current(what).num_ctas
    if by_threads() or ctas > 1:
        raise fail(errors.PUT_BLOCK, what=what, got="block=" if by_threads() else f"num_ctas={ctas}")


def _number(what: str, value: Any) -> tensor:
    """A number of elements, as an int64 scalar. Raises ranks-put-number."""
    if isinstance(value, tensor):
        if not value.is_scalar or not isinstance(value.element, DType) or not value.element.is_int():
            raise fail(errors.PUT_NUMBER, what=what, got=name_of(value))
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise fail(errors.PUT_NUMBER, what=what, got=describe(value))
    return place(value, int64, None)


@builtin
def wait_value(
    x: symmetric, index: Any, value: Any = 1, timeout_ns: int = TIMEOUT_NS, *, at_least: bool = False,
    sem: str | None = None,
) -> None:  # fmt: skip
    """Wait until a word of this rank's memory of the symmetric tensor `x`, of int32 or int64, is `value`, or with `at_least`
    that or a later count.

    A stream sets such words (`weft.distributed.write_value`, on any rank) or a kernel (`gl.atomic_store` with scope sys). What
    came before the write happens before everything that follows the wait: an acquire of scope sys, unless `sem` is "relaxed".
    `index` and `value` are integers, integer scalars or tiles, which are broadcast together; one thread polls for each element,
    one element after another. Unlike a signal, a word is not counted, and any number of programs may wait for it. Who waits for
    the same value again sets the word back before, and tells the writer so. What a copy engine wrote and TMA reads needs no
    proxy fence; what threads of another rank wrote does (`fence_async_global`).

    After `timeout_ns` nanoseconds (a constant; 10 s by default) the GPU stops the kernel, as `gl.wait_signal` does. PTX ISA,
    "Release and Acquire Patterns"; CUDA driver API, "cuStreamWriteValue32". Raises CompilationError: ranks-symmetric-needed,
    ranks-word-type, ranks-word-number, ranks-timeout, language-poll-order.
    """
    _check("wait_value", x)
    _check_timeout("wait_value", timeout_ns)
    if x.dtype not in (int32, int64):
        raise fail(errors.WORD_TYPE, got=x.dtype.name)
    if (sem or "acquire") not in get_args(memory.PollOrder):
        raise fail(POLL_ORDER, got=repr(sem), known=" or ".join(map(repr, get_args(memory.PollOrder))))
    for name, given in (("index", index), ("value", value)):
        if isinstance(given, bool) or not (
            isinstance(given, int) or (isinstance(given, tensor) and _is_integer(given))
        ):
            raise fail(errors.WORD_NUMBER, name=name, got=name_of(given))
    address = arith.add(x.pointer, index)
    form = common_form("wait_value", (address, value))
    told = place(convert(index, int32) if isinstance(index, tensor) else index, int32, form)
    wanted = place(convert(value, x.dtype) if isinstance(value, tensor) else value, x.dtype, form)
    attrs = {"order": sem or "acquire", "scope": "sys", "at_least": at_least, "patience": timeout_ns}
    if form is None and by_threads():
        each = (one_register(address), one_register(wanted), None, None, *map(one_register, (x.rank, told, told)))
        apply(memory.poll_regs, *each, **attrs)
        return
    details = (fit(value, form) for value in (x.rank, told, told))
    apply(memory.poll, fit(address, form), fit(wanted, form), None, *details, **attrs)


def _is_integer(value: tensor) -> bool:
    return isinstance(value.element, DType) and value.element.is_int()


def _check_timeout(what: str, timeout_ns: Any) -> None:
    """Raises ranks-timeout."""
    if isinstance(timeout_ns, bool) or not isinstance(timeout_ns, int) or not 0 < timeout_ns < 1 << 63:
        got = describe(timeout_ns) if isinstance(timeout_ns, tensor) else repr(timeout_ns)
        raise fail(errors.TIMEOUT, what=what, got=got)


def _send(address: tensor, order: str, scope: str, count: int = 1) -> tensor:
    """Count more at each address; returns the counts before."""
    attrs = {"kind": "add", "order": order, "scope": scope}
    form = common_form("signal", (address,))
    one = place(count, int32, form)
    if form is None and by_threads():
        return loaded(apply(memory.atomic_regs, one_register(address), one_register(one), None, **attrs))
    return apply(memory.atomic, address, one, None, **attrs)


def _check(what: str, x: object) -> None:
    if not isinstance(x, symmetric):
        raise fail(errors.SYMMETRIC_NEEDED, what=what, got=name_of(x))


def _index(what: str, x: symmetric, flag: Any, source: Any) -> Any:
    """The word of a flag and the rank that signals it. Raises ranks-flag."""
    if isinstance(flag, tensor):
        if not (isinstance(flag.element, DType) and flag.element.is_int()):
            raise fail(errors.FLAG, what=what, got=name_of(flag), flags=FLAGS, last=FLAGS - 1)
        inside = logic.logical_and(logic.compare("ge", flag, 0), logic.compare("lt", flag, FLAGS))
        device_assert(inside, f"gl.{what}: there are flags 0 to {FLAGS - 1}")
    elif isinstance(flag, bool) or not isinstance(flag, int) or not 0 <= flag < FLAGS:
        raise fail(errors.FLAG, what=what, got=describe(flag), flags=FLAGS, last=FLAGS - 1)
    first = arith.mul(flag, x.world_size) if isinstance(flag, tensor) else flag * x.world_size
    return arith.add(first, source) if isinstance(first, tensor) or isinstance(source, tensor) else first + source


def _rank(what: str, rank: Any, ranks: int) -> Any:
    """A rank of the group: an int, or an int32 scalar or tile. Raises ranks-no-rank, ranks-rank-type."""
    if isinstance(rank, tensor) and isinstance(rank.element, DType) and rank.element.is_int():
        inside = logic.logical_and(logic.compare("ge", rank, 0), logic.compare("lt", rank, ranks))
        device_assert(inside, f"{what}: the group has ranks 0 to {ranks - 1}")
        return convert(rank, int32)
    if isinstance(rank, (tensor, bool)) or not isinstance(rank, int):
        raise fail(errors.RANK_TYPE, what=what, got=name_of(rank))
    if not 0 <= rank < ranks:
        raise fail(errors.NO_RANK, what=what, rank=rank, ranks=ranks, last=ranks - 1)
    return rank


def _of_rank(what: str, pointers: tuple[tensor, ...], rank: Any) -> tensor:
    """The pointer of a rank: one of the parameters, or a choice between them."""
    number = _rank(what, rank, len(pointers))
    if isinstance(number, int):
        return pointers[number]
    # Of the shape of the numbers, also in a group of one rank.
    chosen = fit(pointers[0], common_form(what, [number, pointers[0]]))
    for other, pointer in enumerate(pointers[1:], 1):
        chosen = logic.where(logic.compare("eq", number, other), pointer, chosen)
    return chosen
