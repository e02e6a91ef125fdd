"""The table of PTX instructions that the simulator models, and the message text for those that it does not."""

from __future__ import annotations

from functools import cache

from weft.sim.numbers import ptx_convert, ptx_floats, ptx_integers
from weft.sim.numbers.ptx_forms import Form, Key, key_of


@cache
def instructions() -> dict[Key, Form]:
    """All modelled forms, by name, modifiers and types."""
    tables = (ptx_integers.table(), ptx_floats.table(), ptx_convert.table())
    return {key_of(form.text): form for table in tables for form in table}


@cache
def _of_name(name: str) -> tuple[Key, ...]:
    return tuple(key for key in instructions() if key[0] == name)


def lacking(opcode: str) -> str:
    """Message text for the unsupported part of an opcode: the name, a modifier, a type, or their combination."""
    name, modifiers, types = key_of(opcode)
    known = _of_name(name)
    if not known:
        return f"the instruction {name}"
    for modifier in sorted(modifiers):
        if all(modifier not in key[1] for key in known):
            return f"the modifier .{modifier} of {name}"
    fitting = [key for key in known if key[2] == types]
    if not fitting:
        return f"{name} of {' and '.join(f'.{type}' for type in types) or 'no type'}"
    return f"{opcode} (of these types it models {', '.join(instructions()[key].text for key in fitting[:4])})"
