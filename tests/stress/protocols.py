"""Random kernels whose programs communicate through global memory, by known protocols or with one known fault in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Verdict = Literal["correct", "racy", "deadlock"]

ORDERS_OF_STORES = ("relaxed store", "relaxed load", "volatile load", "cta store", "cta load")
"""Faults of a flag that leave its value right and the data behind it unordered."""
BARRIERS = ("no barrier before", "no barrier behind")
"""Faults of kernels of threads: the thread that speaks for the block does not wait for the others, or they not for it."""


@dataclass
class Case:
    """A kernel over `data`, `flags`, `counts` and `out`, how it is launched, and what is known of it.

    `wanted`: what it leaves in `out`, of a correct one."""

    kind: str
    text: str
    programs: int
    block: int | None
    sizes: dict[str, int]
    verdict: Verdict
    wanted: np.ndarray


@dataclass
class Writer:
    """Writes one kernel: of tiles, in which weft places barriers, or of threads, of which the first speaks for the block."""

    pick: random.Random
    threads: bool
    fault: str
    programs: int
    size: int
    lines: list[str] = field(default_factory=list[str])

    def add(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * (indent + 1) + line for line in lines]

    def alone(self, indent: int, *lines: str) -> None:
        """What happens once for the program, after what its threads did before and before what they do next."""
        if not self.threads:
            self.add(indent, *lines)
            return
        if self.fault != "no barrier before":
            self.add(indent, "gl.barrier()")
        self.add(indent, "if gl.thread_idx.x == 0:")
        self.add(indent + 1, *lines)
        if self.fault != "no barrier behind":
            self.add(indent, "gl.barrier()")

    def raised(self, flag: str, value: str | int) -> str:
        """A flag gets a value, and publishes what came before."""
        order = "relaxed" if self.fault == "relaxed store" else "release"
        scope = ', scope="cta"' if self.fault == "cta store" else self.pick.choice(["", "", ', scope="sys"'])
        if self.pick.random() < 0.5:
            return f'gl.store({flag}, {value}, sem="{order}"{scope})'
        if order == "release":
            order = self.pick.choice(["release", "acq_rel"])
        return f'gl.atomic_xchg({flag}, {value}, sem="{order}"{scope})'

    def waited(self, flag: str, going_on: str) -> list[str]:
        """A loop while a condition on the flag's value, `{}`, holds."""
        if self.fault == "volatile load":
            return [f"while {going_on.format(f'gl.load({flag}, volatile=True)')}:", "    pass"]
        order = "relaxed" if self.fault == "relaxed load" else "acquire"
        scope = ', scope="cta"' if self.fault == "cta load" else self.pick.choice(["", "", ', scope="sys"'])
        ways = [f'gl.load({flag}, sem="{order}"{scope})', f'gl.atomic_add({flag}, 0, sem="{order}"{scope})',
                f'gl.atomic_cas({flag}, -5, -5, sem="{order}"{scope})']  # fmt: skip
        way = self.pick.randrange(5)
        if way < 3:
            return [f"while {going_on.format(ways[way])}:", "    pass"]
        if way == 3:
            return [f"seen = {ways[0]}", f"while {going_on.format('seen')}:", f"    seen = {ways[0]}"]
        poll = f'gl.load({flag}, sem="relaxed")'
        return [f"while {going_on.format(poll)}:", "    pass", ways[0]]

    def counted(self, count: str) -> str:
        """One is added to a count, which publishes what came before and receives what others have published there."""
        order = "relaxed" if self.fault == "relaxed count" else self.pick.choice(["acq_rel", "acq_rel", ""])
        scope = ', scope="cta"' if self.fault == "cta count" else ""
        return f"gl.atomic_add({count}, 1{f', sem={order!r}' if order else ''}{scope})"

    def told(self, indent: int, name: str, value: str) -> None:
        """All threads get the value that one has read."""
        if not self.threads:
            self.add(indent, f"{name} = {value}")
            return
        self.alone(indent, f"said[0] = {value}")
        self.add(indent, f"{name} = said[0]")

    def text(self) -> str:
        """The kernel."""
        head = [
            "@weft.jit",
            "def program(data, flags, counts, out):",
            "    me, n = gl.program_id(0), gl.num_programs(0)",
        ]
        if self.threads:
            one = "gl.int32, gl.Layout.row_major(1), address_space=gl.AddressSpace.SHARED"
            head += ["    at = gl.thread_idx.x", f"    said = gl.LayoutTensor.stack_allocation({one})"]
        else:
            head += [f"    at = gl.arange(0, {self.size}, gl.BlockedLayout([1], [32], [4], [0]))"]
        return "\n".join([*head, *self.lines]) + "\n"

    @property
    def turned(self) -> str:
        """The place of an element that another thread wrote."""
        return f"(at + {self.pick.randrange(1, self.size)}) % {self.size}"


def _moved(writer: Writer, data: str, *speaks: Callable[[], None]) -> None:
    """Data and what speaks of it, or the other way round."""
    steps = [lambda: writer.add(1, data), *speaks]
    for step in reversed(steps) if writer.fault == "data behind" else steps:
        step()


def flag(w: Writer) -> tuple[Verdict, np.ndarray]:
    """One program writes, and raises a flag; the others wait for it and read."""
    pick, n, size = w.pick, w.programs, w.size
    speaker, at, value, factor = pick.randrange(n), pick.randrange(3), pick.randint(1, 9), pick.randint(2, 9)
    w.add(0, f"if me == {speaker}:")
    said = value + 1 if w.fault == "another value" else value
    _moved(w, f"gl.store(data + at, at * {factor})", lambda: w.alone(1, w.raised(f"flags + {at}", said)))
    w.add(0, "else:")
    elsewhere = at + (w.fault == "another flag")
    w.alone(1, *w.waited(f"flags + {elsewhere}", f"{{}} != {value}"))
    place = w.turned
    w.add(1, f"gl.store(out + me * {size} + at, gl.load(data + {place}))")
    want = np.zeros((n, size), np.int32)
    want[[me for me in range(n) if me != speaker]] = _read(place, size) * factor
    return ("deadlock" if w.fault.startswith("another") else "racy" if w.fault else "correct"), want.ravel()


def last(w: Writer) -> tuple[Verdict, np.ndarray]:
    """The last program to count itself reads what all have written."""
    n, size = w.programs, w.size
    store = f"gl.store(data + me * {size} + at, at + me)"
    if w.fault != "data behind":
        w.add(0, store)
    if w.fault == "result unused":
        w.alone(0, w.counted("counts"))
        w.add(0, f"if me == {w.pick.randrange(n)}:")
    else:
        w.told(0, "old", w.counted("counts"))
        if w.fault == "data behind":
            w.add(0, store)
        w.add(0, f"if old == n - {2 if w.fault == 'one too early' else 1}:")
    place = w.turned
    w.add(1, "total = at * 0", "for i in range(n):", f"    total += gl.load(data + i * {size} + {place})",
          "gl.store(out + at, total)")  # fmt: skip
    want = np.zeros((n, size), np.int32)
    want[0] = n * _read(place, size) + n * (n - 1) // 2
    return ("racy" if w.fault else "correct"), want.ravel()


def tickets(w: Writer) -> tuple[Verdict, np.ndarray]:
    """Each program draws a ticket and waits for its turn: whoever comes first is served first."""
    n, size = w.programs, w.size
    if w.fault == "result unused":
        w.alone(0, w.counted("counts"))
        w.add(0, "gl.store(out + at, at + me)")
        return "racy", np.zeros(n * size, np.int32)
    w.told(0, "mine", 'gl.atomic_add(counts, 1, sem="relaxed")')
    w.alone(0, *w.waited("flags", "{} != mine"))
    place = w.turned
    w.add(0, f"value = gl.load(data + {place})")
    w.add(0, "gl.barrier()", "gl.store(data + at, value + 1)")
    if w.fault == "never passed on":
        return "deadlock", np.zeros(n * size, np.int32)
    w.alone(0, w.raised("flags", "mine + 1"))
    w.add(0, f"gl.store(out + mine * {size} + at, value)")
    want = np.broadcast_to(np.arange(n, dtype=np.int32)[:, None], (n, size))
    return ("racy" if w.fault else "correct"), want.ravel()


def lock(w: Writer) -> tuple[Verdict, np.ndarray]:
    """A lock around one element that all programs add to."""
    n, size, pick = w.programs, w.size, w.pick
    order = "relaxed" if w.fault == "relaxed load" else pick.choice(["acquire", "acq_rel"])
    scope = ', scope="cta"' if w.fault == "cta load" else ""
    taken = f'gl.atomic_cas(flags, 0, 1, sem="{order}"{scope})'
    w.alone(0, *([taken] if w.fault == "nobody looks" else [f"while {taken} != 0:", "    pass"]))
    w.add(0, "value = gl.load(data + at)", "gl.store(data + at, value + 1)")
    if w.fault != "never given back":
        w.alone(0, w.raised("flags", 0))
    verdict: Verdict = "deadlock" if w.fault == "never given back" else "racy" if w.fault else "correct"
    return verdict, np.zeros(n * size, np.int32)


def meeting(w: Writer) -> tuple[Verdict, np.ndarray]:
    """All programs meet, several times, and read what their neighbours wrote before."""
    n, size, pick = w.programs, w.size, w.pick
    rounds = pick.randint(2, 3) if w.fault == "one buffer" else pick.randint(1, 3)
    place, neighbour = w.turned, pick.randrange(1, n)
    w.add(0, f"for turn in range({rounds}):")
    row = "0" if w.fault == "one buffer" else f"turn * {n * size}"
    off = {"one too few": -1, "one too many": 1}.get(w.fault, 0)
    _moved(
        w,
        f"gl.store(data + {row} + me * {size} + at, at + me + turn)",
        lambda: w.alone(1, w.counted("counts"), *w.waited("counts", f"{{}} < n * (turn + 1) + {off}")),
    )
    there = f"(me + {neighbour}) % n"
    w.add(1, f"value = gl.load(data + {row} + {there} * {size} + {place})", f"gl.store(out + me * {size} + at, value)")
    want = _read(place, size) + (np.arange(n, dtype=np.int32)[:, None] + neighbour) % n + rounds - 1
    verdict: Verdict = "deadlock" if w.fault == "one too many" else "racy" if w.fault else "correct"
    return verdict, want.astype(np.int32).ravel()


def chain(w: Writer) -> tuple[Verdict, np.ndarray]:
    """Each program waits for the one before it, and adds to what that left."""
    n, size = w.programs, w.size
    place = w.turned
    first = "me >= 0" if w.fault == "a circle" else "me > 0"
    w.add(0, "value = at * 0", f"if {first}:")
    w.alone(1, *w.waited("flags + (me + n - 1) % n", "{} == 0"))
    w.add(1, f"value = gl.load(data + (me + n - 1) % n * {size} + {place})")
    w.add(0, "if me >= 0:")
    store = f"gl.store(data + me * {size} + at, value + me)"
    _moved(w, store, lambda: w.alone(1, w.raised("flags + me", 1)))
    w.add(0, f"gl.store(out + me * {size} + at, value)")
    want = np.array([me * (me - 1) // 2 for me in range(n)], np.int32)
    verdict: Verdict = "deadlock" if w.fault == "a circle" else "racy" if w.fault else "correct"
    return verdict, np.repeat(want, size)


def _read(place: str, size: int) -> np.ndarray:
    shift = int(place.removeprefix("(at + ").split(")")[0])
    return (np.arange(size, dtype=np.int32) + shift) % size


PROTOCOLS: dict[str, tuple[Callable[[Writer], tuple[Verdict, np.ndarray]], tuple[str, ...]]] = {
    "flag": (flag, (*ORDERS_OF_STORES, "data behind", "another value", "another flag")),
    "last": (last, ("relaxed count", "cta count", "data behind", "result unused", "one too early")),
    "tickets": (tickets, (*ORDERS_OF_STORES, "result unused", "never passed on")),
    "lock": (lock, ("relaxed store", "cta store", "relaxed load", "cta load", "nobody looks", "never given back")),
    "meeting": (meeting, ("relaxed count", "cta count", "relaxed load", "volatile load", "cta load", "data behind",
                          "one buffer", "one too few", "one too many")),
    "chain": (chain, (*ORDERS_OF_STORES, "data behind", "a circle")),
}  # fmt: skip


def random_case(seed: int) -> Case:
    """A protocol, half of the time as it should be and otherwise with one fault."""
    pick = random.Random(seed)
    name = pick.choice(list(PROTOCOLS))
    write, faults = PROTOCOLS[name]
    threads = pick.random() < 0.5
    fault = "" if pick.random() < 0.5 else pick.choice([*faults, *(BARRIERS if threads else ())])
    programs = pick.randint(2, 6)
    size = pick.choice([32, 64, 96] if threads else [32, 128, 256])
    writer = Writer(pick, threads, fault, programs, size)
    verdict, wanted = write(writer)
    sizes = {"data": 4 * programs * size, "flags": 8, "counts": 1, "out": programs * size}
    form = "threads" if threads else "tiles"
    kind = f"{name} of {form}, {fault or 'correct'}"
    return Case(kind, writer.text(), programs, size if threads else None, sizes, verdict, wanted)
