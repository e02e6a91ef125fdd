"""mbarriers: initialization, arrivals and waits. A barrier is represented by its shared memory address."""

from __future__ import annotations

from weft.cuda.emitter import Emitter, Repeated, elects, emits
from weft.cuda.rules.program import program_index
from weft.cuda.rules.thread import element_address
from weft.cuda.text.polls import PATIENCE
from weft.cuda.text.prelude import Piece
from weft.cuda.text.refs import Inline
from weft.cuda.text.spelling import string
from weft.ir.core import Op, Value, walk
from weft.ops import mbarrier

_PIECES = {
    "mbar_init": Piece(
        "DEV void mbar_init(u32 bar, u32 count) {\n"
        '  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory"); }'
    ),
    # An initialization is a generic-proxy write. This fence publishes it to the async proxy and to the cluster (PTX ISA,
    # fence.mbarrier_init).
    "fence_mbar_init": Piece(
        'DEV void fence_mbar_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }'
    ),
    "mbar_invalidate": Piece(
        "DEV void mbar_invalidate(u32 bar) {\n"
        '  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(bar) : "memory"); }'
    ),
    # The bytes are added before the arrival (PTX ISA, mbarrier.arrive), so the phase cannot complete between the two.
    "mbar_expect": Piece(
        "DEV void mbar_expect(u32 bar, u32 bytes) {\n"
        '  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory"); }'
    ),
    "mbar_arrive": Piece(
        "DEV void mbar_arrive(u32 bar, u32 count) {\n"
        '  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(count) : "memory"); }'
    ),
    "mbar_arrive_each": Piece(
        "// mbarrier.arrive with a count requires sm_90\n"
        "DEV void mbar_arrive_each(u32 bar, u32 count) {\n"
        "  for (u32 i = 0; i < count; ++i) {\n"
        '    u64 state; asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(bar) : "memory"); } }'
    ),
    # try_wait suspends the thread for a system-dependent time before it returns false (PTX ISA, mbarrier.try_wait), so this
    # loop does not compete for issue slots. The labels are in braces, which makes them local to each copy of the statement.
    "mbar_wait": Piece(
        "DEV void mbar_wait(u32 bar, u32 parity) {\n"
        '  asm volatile("{\\n.reg .pred p;\\nWAIT:\\n"\n'
        '               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n@p bra DONE;\\nbra WAIT;\\nDONE:\\n}"\n'
        '               :: "r"(bar), "r"(parity) : "memory"); }'
    ),
    "mbar_try_wait": Piece(
        "DEV bool mbar_try_wait(u32 bar, u32 parity) {\n"
        '  u32 done; asm volatile("{\\n.reg .pred p;\\n"\n'
        '    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}"\n'
        '    : "=r"(done) : "r"(bar), "r"(parity) : "memory"); return done != 0; }'
    ),
    # Before sm_90 there is only test_wait, which returns at once; `mbar_poll` sleeps between polls to leave issue slots to
    # other warps.
    "mbar_test_wait": Piece(
        "DEV bool mbar_test_wait(u32 bar, u32 parity) {\n"
        '  u32 done; asm volatile("{\\n.reg .pred p;\\n"\n'
        '    "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}"\n'
        '    : "=r"(done) : "r"(bar), "r"(parity) : "memory"); return done != 0; }'
    ),
    "mbar_arrive_own": Piece(
        "DEV i64 mbar_arrive_own(u32 bar) {\n"
        '  i64 state; asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(bar) : "memory");\n'
        "  return state; }"
    ),
    "mbar_expect_own": Piece(
        "DEV i64 mbar_expect_own(u32 bar, u32 bytes) {\n"
        '  i64 state; asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"\n'
        '    : "=l"(state) : "r"(bar), "r"(bytes) : "memory"); return state; }'
    ),
    "mbar_test_state": Piece(
        "DEV bool mbar_test_state(u32 bar, i64 state) {\n"
        '  u32 done; asm volatile("{\\n.reg .pred p;\\n"\n'
        '    "mbarrier.test_wait.shared.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}"\n'
        '    : "=r"(done) : "r"(bar), "l"(state) : "memory"); return done != 0; }'
    ),
    "mbar_poll": Piece(
        'DEV void mbar_poll(u32 bar, u32 parity) {\n  while (!mbar_test_wait(bar, parity)) asm volatile("nanosleep.u32 20;"); }'
    ),
}
_WATCHED = (
    "// a wait with a time-out, on barrier `number` of its array\n"
    "DEV void mbar_wait_watched(u32 bar, u32 parity, const char* text, u32 number) {{\n"
    "  for (u64 start = nanoseconds(); !{test}(bar, parity);)\n"
    "    if (nanoseconds() - start > {patience}ull) {{\n"
    "      if ((threadIdx.x & 31u) == 0)\n"
    "        printf(text, number, parity, {program}, blockIdx.y, blockIdx.z, threadIdx.x >> 5);\n"
    '      asm volatile("trap;"); }} }}'
)


def _remote_piece(name: str, ptx: str) -> Piece:
    """`mbar_<name>_in`: an arrival on the barrier of another CTA."""
    return Piece(
        "// arrives on the barrier at the same address in another CTA\n"
        f"DEV void mbar_{name}_in(u32 bar, u32 block, u32 number) {{\n"
        '  asm volatile("{\\n.reg .b32 there;\\nmapa.shared::cluster.u32 there, %0, %1;\\n"\n'
        f'               "mbarrier.arrive{ptx}.shared::cluster.b64 _, [there], %2;\\n}}"\n'
        '               :: "r"(bar), "r"(block), "r"(number) : "memory"); }'
    )


def _publishes_global(e: Emitter) -> bool:
    """True if arrivals from other CTAs may publish writes of global memory, which requires a fence of gpu scope.

    Shared memory needs none: other CTAs write it by TMA only, after this CTA's accesses are complete."""
    effects = (effect for op in walk(e.func.body) for effect in op.effects)
    published = {"write": ("global", "io"), "sync": ("global",)}
    return any(x.proxy == "generic" and x.space in published.get(x.kind, ()) for x in effects)


def _call(e: Emitter, name: str, *arguments: str) -> str:
    """A call of a function of this family, as a statement."""
    return f"{_called(e, name, *arguments)};"


def _called(e: Emitter, name: str, *arguments: str) -> str:
    return f"{e.pieces.define(name, _PIECES[name])}({', '.join(arguments)})"


def _bar(e: Emitter, op: Op) -> str:
    bar = op.operands[0]
    assert bar is not None
    return e.at(bar)


def _once(text: str) -> Repeated:
    return 1, lambda index: text


@elects(mbarrier.init)
def _init(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    made = _once(_call(e, "mbar_init", _bar(e, op), str(op.attrs["count"])))
    # One fence after a series of initializations makes all of them visible to the async proxy and to other CTAs.
    fenced = last and e.target.has_mbarrier_tx
    return [made, _once(_call(e, "fence_mbar_init"))] if fenced else [made]


@elects(mbarrier.invalidate)
def _invalidate(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    return [_once(_call(e, "mbar_invalidate", _bar(e, op)))]


@elects(mbarrier.expect)
def _expect(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    number = op.attrs["bytes"]
    return _sent(e, op, number) if op.attrs["sent_to"] else [_once(_arrival(e, op, "mbar_expect", number))]


@elects(mbarrier.arrive)
def _arrive(e: Emitter, op: Op, last: bool) -> list[Repeated]:
    if op.attrs["everywhere"]:
        call, bar, count = _define_remote(e, op), _bar(e, op), op.attrs["count"]
        return [(e.func.attrs.num_ctas, lambda block: f"{call}({bar}, {block}, {count});")]
    if op.attrs["sent_to"]:
        return _sent(e, op, op.attrs["count"])
    name = "mbar_arrive" if e.target.has_mbarrier_tx else "mbar_arrive_each"
    return [_once(_arrival(e, op, name, op.attrs["count"]))]


def _sent(e: Emitter, op: Op, number: int) -> list[Repeated]:
    """Arrivals on the barriers of the CTAs whose rank differs from this one's in some bits, which are clear in this one's."""
    call, bar, bits = _define_remote(e, op), _bar(e, op), int(op.attrs["sent_to"])
    count = e.func.attrs.num_ctas
    if bits == count - 1:
        return [(count, lambda block: f"{call}({bar}, {block}, {number});")]
    rank = e.call("cluster_rank")
    return [_once(f"{call}({bar}, {rank} | {other}, {number});") for other in range(count) if not other & ~bits]


def _arrival(e: Emitter, op: Op, name: str, number: int) -> str:
    """An arrival on the CTA's own barrier, or on that of the first of the CTAs that share it."""
    blocks = op.attrs["shared_by"]
    if not blocks:
        return _call(e, name, _bar(e, op), str(number))
    return f"{_define_remote(e, op)}({_bar(e, op)}, {e.call('cluster_rank')} & {~blocks}, {number});"


def _define_remote(e: Emitter, op: Op) -> str:
    """The function that arrives on another CTA's barrier."""
    # The default is `.release` at scope `.cta` (PTX ISA, mbarrier.arrive), which does not reach the waiter in another CTA.
    scope = ".release.cluster" if _publishes_global(e) else ""
    name, ptx = ("expect", f".expect_tx{scope}") if op.kind is mbarrier.expect else ("arrive", scope)
    return e.pieces.define(f"mbar_{name}_in", _remote_piece(name, ptx))


@emits(mbarrier.wait)
def _wait(e: Emitter, op: Op) -> None:
    bar, phase, *_ = op.operands
    assert bar is not None and phase is not None
    on = e.operand(op, "pred")
    _wait_for(e, op, "" if on is None else f"if ({on}) ", bar, phase)
    if op.attrs["shared_by"] and _publishes_global(e):
        # The wait makes accesses of this CTA visible; the fence those of other CTAs before their arrivals.
        e.out.line(f"{e.call('fence_cluster')};")


def _wait_for(e: Emitter, op: Op, head: str, bar: Value, phase: Value) -> None:
    newer = e.target.has_mbarrier_tx
    test = "mbar_try_wait" if newer else "mbar_test_wait"
    if not e.func.attrs.debug:
        if not newer:
            e.pieces.define(test, _PIECES[test])
        e.out.line(f"{head}{_call(e, 'mbar_wait' if newer else 'mbar_poll', e.at(bar), e.at(phase))}")
        return
    e.pieces.use("nanoseconds")
    e.pieces.define(test, _PIECES[test])
    e.pieces.define(
        "mbar_wait_watched", Piece(_WATCHED.format(patience=PATIENCE, test=test, program=program_index(e, 0)))
    )
    name, number = _barrier_name(e, bar)
    e.out.line(f"{head}mbar_wait_watched({e.at(bar)}, {e.at(phase)}, {string(_report(op, name))}, {number});")


def _own(e: Emitter, op: Op) -> str:
    """The address of the mbarrier of each thread."""
    memory, index = op.operands[:2]
    assert memory is not None and index is not None
    return element_address(e, memory, index)


@emits(mbarrier.init_at)
def _init_at(e: Emitter, op: Op) -> None:
    e.out.line(_call(e, "mbar_init", _own(e, op), str(op.attrs["count"])))
    if e.target.has_mbarrier_tx:
        e.out.line(_call(e, "fence_mbar_init"))


@emits(mbarrier.invalidate_at)
def _invalidate_at(e: Emitter, op: Op) -> None:
    e.out.line(_call(e, "mbar_invalidate", _own(e, op)))


@emits(mbarrier.arrive_at)
def _arrive_at(e: Emitter, op: Op) -> None:
    number = int(op.attrs["bytes"])
    name, more = ("mbar_arrive_own", ()) if number < 0 else ("mbar_expect_own", (str(number),))
    e.call_for(op.result, _called(e, name, _own(e, op), *more))


@emits(mbarrier.arrive_in)
def _arrive_in(e: Emitter, op: Op) -> None:
    peer, number = op.operands[2], int(op.attrs["bytes"])
    assert peer is not None
    name, ptx = ("arrive", _CLUSTER) if number < 0 else ("expect", f".expect_tx{_CLUSTER}")
    call = e.pieces.define(f"mbar_{name}_peer_in", _remote_piece(f"{name}_peer", ptx))
    e.out.line(f"{call}({_own(e, op)}, {e.at(peer)}, {1 if number < 0 else number});")


_CLUSTER = ".release.cluster"
"""The default scope, `.cta`, does not reach threads of another block; so waits there acquire at `.cluster`, too."""


@emits(mbarrier.probe)
def _test_wait(e: Emitter, op: Op) -> None:
    phase = op.operands[2]
    assert phase is not None
    name = "mbar_test_wait" if op.attrs["parity"] else "mbar_test_state"
    piece = _PIECES[name]
    if mbarrier.arrive_in in e.func.body.kinds:
        text = piece.text.replace(f"{name}(", f"{name}_cluster(")
        name, piece = f"{name}_cluster", Piece(text.replace(".shared.b64", ".acquire.cluster.shared::cta.b64"))
    e.define(op.result, f"{e.pieces.define(name, piece)}({_own(e, op)}, {e.at(phase)})")


def _barrier_name(e: Emitter, bar: Value) -> tuple[str, str]:
    """The author's name of a barrier, or of its array, and the text of its index in the array."""
    room = e.allocation_of.get(bar, bar)
    if not room.name or not isinstance(e.refs[room], Inline):
        return bar.name or "a barrier", "0"
    return room.name, "0" if room is bar else f"({e.at(bar)} - {e.at(room)}) / 8"


def _report(op: Op, name: str) -> str:
    place = f"{op.loc}: " if op.loc else ""
    text = f"{place}mbarrier.wait has waited for {PATIENCE // 10**9} s on {name}".replace("%", "%%")
    return f"{text}[%u], the phase of parity %u is not complete [pid (%d, %d, %d), warp %d]\n"
