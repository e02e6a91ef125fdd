"""Printing, assertions and breakpoints."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from weft.errors import Loc, hazard
from weft.ir.core import Op, Value
from weft.ir.types import DType, Element, Pointer, TileType
from weft.ops import debug
from weft.sim.machine.data import Array, Data, where_marked
from weft.sim.machine.tasks import Task
from weft.sim.memory.view_values import values_of
from weft.sim.rule import rule


@rule(debug.print_)
def _print(task: Task, op: Op, *values: Data) -> None:
    """One line per element: `pid (0, 0, 0) idx (3) prefix: value`; no `idx` for a scalar. Replicated elements appear once.

    In a kernel launched by threads, each thread prints its scalars: `pid (0, 0, 0) thread (3, 0, 0) prefix: value`."""
    scalars = not op.attrs["coordinates"] and all(_is_scalar(task, np.shape(value.array)) for value in values)
    if scalars and task.names.launched_by_threads:
        _print_by_threads(task, op, values)
        return
    prefix, count = op.attrs["prefix"], len(values) - op.attrs["coordinates"]
    if not values:
        if task.acts(op):
            task.machine.print(f"{_place(task.pid, ())} {prefix}")
        return
    tiles = (value for value in op.uses if isinstance(value.type, TileType))
    mine = task.own(op, next(tiles, op.operands[0]), None)
    arrays = np.broadcast_arrays(*[data.array for data in values], *([] if mine is None else [mine]))
    active = np.ones(arrays[0].shape, bool) if mine is None else arrays[-1]
    kinds = [value.type.element for value in op.uses]
    printed: set[tuple[int, ...]] = set()
    for at in zip(*np.nonzero(np.atleast_1d(active)), strict=True) if active.ndim else [()]:
        index = tuple(int(array[at]) for array in arrays[count : len(values)]) or _tile_index(task, active.shape, at)
        if (op.attrs["coordinates"] and index in printed) or not np.all(active[at]):
            continue
        printed.add(index)
        shown = ", ".join(_shown(values[i], arrays[i][at], kinds[i], at, op.attrs["hex"]) for i in range(count))
        task.machine.print(f"{_place(task.pid, index)} {prefix}: {shown}")


def _is_scalar(task: Task, shape: tuple[int, ...]) -> bool:
    return not shape or (shape == (task.threads, 1) and task.names.of_threads(shape, task.threads))


def _print_by_threads(task: Task, op: Op, values: Sequence[Data]) -> None:
    kinds = [value.type.element for value in op.uses]
    threads = range(task.threads) if task.active is None else np.flatnonzero(task.active).tolist()
    for number in threads:
        places: list[tuple[int, ...]] = [(number, 0) if np.ndim(data.array) else () for data in values]
        shown = ", ".join(
            _shown(data, data.array[at], kind, at, op.attrs["hex"])
            for data, at, kind in zip(values, places, kinds, strict=True)
        )
        line = f"{_place(task.pid, ())} {task.names.thread(number)} {op.attrs['prefix']}"
        task.machine.print(f"{line}: {shown}" if values else line)


def _tile_index(task: Task, shape: tuple[int, ...], at: tuple[Any, ...]) -> tuple[int, ...]:
    return () if task.names.of_threads(shape, task.threads) else tuple(int(i) for i in at)


def _place(pid: tuple[int, int, int], index: tuple[int, ...]) -> str:
    place = f"pid ({', '.join(map(str, pid))})"
    return f"{place} idx ({', '.join(map(str, index))})" if index else place


def _shown(data: Data, value: Any, element: Element, at: tuple[Any, ...], digits: bool) -> str:
    """The format of C's printf: %d, %f, or hexadecimal digits of the full width."""
    if data.undefined is not None and np.broadcast_to(data.undefined.mask, np.shape(data.array))[at]:
        return "undefined"
    if not isinstance(element, DType):
        return f"{int(value):#x}"
    if element.is_floating():
        return f"{float(value):f}"
    return f"0x{int(value) & (1 << element.bits) - 1:0{max(element.bits // 4, 1)}x}" if digits else f"{int(value)}"


@rule(debug.assert_)
def _assert(task: Task, op: Op, condition: Data, mask: Data | None) -> None:
    own = None if mask is None else mask.array
    task.demand(op, mask, "a mask")
    task.demand(op, condition, "an assertion", own)
    where = task.held(op.operands[0], own)
    broken = np.asarray(~condition.array if where is None else ~condition.array & where)
    if np.any(broken):
        place = f" at {task.where(broken.shape, int(np.argmax(broken)))}" if broken.ndim else ""
        instead = _WIDER if op.attrs["always"] else "see the condition at this line"
        raise task.fail(hazard.ASSERTION, op, where=place, message=op.attrs["message"], instead=instead)


_WIDER = "compute it in a wider type, such as int64; where it is meant to wrap, launch without sanitize_overflow"
"""The fix of a check that is made for `sanitize_overflow`, in all builds."""


@rule(debug.breakpoint_)
def _breakpoint(task: Task, op: Op, *values: Data) -> None:
    """Call the debugger in a frame at the author's line that has the named values as locals."""
    if task.active is not None and not np.any(task.active):
        return
    names: tuple[str, ...] = op.attrs["names"]
    seen = {name: _visible(data) for name, data in zip(names, values, strict=False)}
    first = len(names)
    for name, axes in zip(op.attrs["views"], op.attrs["axes"], strict=True):
        # An offset, two numbers for each mode, and a limit for each axis.
        end = first + 2 + sum(2 * modes + 1 for modes, *_ in axes)
        memory, *numbers = values[first:end]
        seen[name] = values_of(task, memory, _element(op.operands[first]), numbers, axes)
        first = end
    stop_at(op.loc, {"pid": task.pid, **_nested(seen)})


def _element(memory: Value | None) -> DType:
    """The type of the elements of a memory."""
    assert memory is not None
    element = memory.type.element
    return element.element_ty if isinstance(element, Pointer) else element


def _visible(data: Data) -> Array:
    """The array, or a masked array that hides undefined elements."""
    bad = where_marked(data.undefined, np.shape(data.array))
    return data.array if bad is None else np.ma.masked_array(data.array, mask=bad)


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`mma.acc` as attribute `acc` of `mma`."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        head, *path = name.split(".")
        if not path:
            out[head] = value
            continue
        owner = out.setdefault(head, SimpleNamespace())
        for part in path[:-1]:
            if not hasattr(owner, part):
                setattr(owner, part, SimpleNamespace())
            owner = getattr(owner, part)
        setattr(owner, path[-1], value)
    return out


def stop_at(loc: Loc | None, values: dict[str, Any]) -> None:
    """Enter `sys.breakpointhook` as if `breakpoint()` were called at this line of the author's file."""
    file, line, name = ("<kernel>", 1, "kernel") if loc is None else (loc.file, loc.line, loc.function or "kernel")
    code = compile("\n" * (line - 1) + "breakpoint()", file, "exec").replace(co_name=name)
    FunctionType(code, {"__builtins__": builtins, **values})()
