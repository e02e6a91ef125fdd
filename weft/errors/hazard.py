"""Mistakes that the simulator finds while a kernel runs: one exception class per rule, one row per way to break it.

A hazard is found from what the kernel did, not from what the schedule happened to corrupt. Elements that are masked off
never raise one.
"""

from __future__ import annotations

from weft.errors.base import Hazard, LaunchError, row


class OutOfBounds(Hazard):
    """An access outside the memory of its argument, or of a tile."""


class Misaligned(Hazard):
    """An access whose address is no multiple of its size."""


class UndefinedValue(Hazard):
    """An element that was never given a value reaches a place where its value counts."""


class DivisionByZero(Hazard):
    """An integer division or remainder by zero whose result is used."""


class BrokenPromise(Hazard):
    """A promise of the author (`assume`, `multiple_of`, `max_contiguous`, `max_constancy`, `uniform`) that does not hold."""


class WrappedOffset(Hazard):
    """A 32-bit expression that wrapped and then became an offset."""


class AssertionFailed(Hazard):
    """A `device_assert` that does not hold."""


class EndlessLoop(Hazard):
    """A loop whose step never reaches its end."""


class NotSimulated(Hazard):
    """Inline PTX that the simulator has no meaning for."""


class Deadlock(Hazard):
    """No program can go on. `related` holds each waiter's line, labelled with the program and what it waits for."""


OUT_OF_BOUNDS = row(
    "hazard-out-of-bounds",
    OutOfBounds,
    "program {program} {access} {name}[{index}], but {name} has elements {low} to {high}{share}",
    "mask the access so that indices stay {bound}, or pass a larger array",
)
NO_BUFFER = row(
    "hazard-no-buffer",
    OutOfBounds,
    "program {program} {access} address {address:#x}, which lies in no argument's memory",
    "start from a pointer argument and add offsets in elements",
)
GATHER_RANGE = row(
    "hazard-gather-range",
    OutOfBounds,
    "program {program} gathers index {index} along axis {axis} of length {length}, at {where}",
    "keep indices between 0 and {last}",
)
SCRATCH_RANGE = row(
    "hazard-scratch-range",
    OutOfBounds,
    "program {program} accesses element {index} of a scratch allocation of {count} elements",
    "report this as a defect of weft, with the kernel",
)
MISALIGNED = row(
    "hazard-misaligned",
    Misaligned,
    "program {program} {access} {bytes} bytes of {name} at byte {byte}, whose address lies {past} past a multiple of {bytes}",
    "pass an array whose start is aligned to {bytes} bytes, or access narrower elements",
)
READ_ONLY = row(
    "hazard-read-only",
    LaunchError,
    "program {program} writes {name}, but that array is read-only",
    "pass a writable copy of it",
)
UNDEFINED = row(
    "hazard-undefined",
    UndefinedValue,
    "program {program}: an undefined element reaches {sink}{where}; {cause}",
    "give the load `other=`, or mask this use with the same mask",
)
DIVISION = row(
    "hazard-division-by-zero",
    DivisionByZero,
    "program {program} divides by zero{where}",
    "keep the divisor away from zero, for example by `other=1` where the load is masked",
)
ASSUME = row(
    "hazard-assume",
    BrokenPromise,
    "program {program}: assume() promises a condition that does not hold",
    "remove the promise, or correct what it depends on",
)
HINT = row(
    "hazard-hint",
    BrokenPromise,
    "program {program}: {promise} {amount} along axis {axis} is promised, but the element at {where} is {value}",
    "promise only what holds for every program, or drop the hint",
)
NOT_UNIFORM = row(
    "hazard-not-uniform",
    BrokenPromise,
    "program {program}: {what} must be equal in all threads of the block, but thread {first} has {first_value} "
    "and thread {second} has {second_value}",
    "compute it from values that all threads share",
)
WRAPPED = row(
    "hazard-wrapped-offset",
    WrappedOffset,
    "program {program}: an offset used here wrapped around 32 bits{where}",
    "compute it in 64 bits: cast an operand with .to(gl.int64) before it is multiplied",
)
ASSERTION = row(
    "hazard-assertion",
    AssertionFailed,
    "program {program}: assertion failed{where}: {message}",
    "see the condition at this line",
)
LOOP_STEP = row(
    "hazard-loop-step",
    EndlessLoop,
    "program {program}: a loop from {lower} to {upper} has step {step}",
    "use a step that is not zero and leads towards the end",
)
INLINE_ASM = row(
    "hazard-inline-asm",
    NotSimulated,
    "the simulator has no meaning for {instruction!r} in inline PTX",
    "pass sim=, a function of NumPy arrays that computes the results, or use instructions of weft.sim.instructions",
)
DEADLOCK = row(
    "hazard-deadlock",
    Deadlock,
    "no program can go on: {waiting} wait for memory that nobody will write{pending}",
    "let the program that writes what the others wait for start first, and release what it takes",
)
