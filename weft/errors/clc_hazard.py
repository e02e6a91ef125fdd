"""Mistakes with cluster launch control, found while a kernel ran in the simulator."""

from __future__ import annotations

from weft.errors.base import Hazard, row


class AnswerInFlight(Hazard):
    """Shared memory is read or written while the answer to a request for a program is on its way there."""


class LaunchControlMisuse(Hazard):
    """A request to take over another program that has no defined meaning, or whose answer is lost."""


CLC_IN_FLIGHT = row(
    "clc-in-flight",
    AnswerInFlight,
    "program {program}: {partition} {access} {name} while the answer that {other} asked for is on its way there",
    "call mbarrier.wait() with the mbarrier of the request, and the phase that the answer completes, before this line",
)
CLC_AFTER_NONE = row(
    "clc-after-none",
    LaunchControlMisuse,
    "program {program}: {partition} asks for a program after it has seen the answer that none was left, which is undefined",
    "ask no more once is_canceled() is false: end the loop there",
)
CLC_ALIGNMENT = row(
    "clc-alignment",
    LaunchControlMisuse,
    "program {program}: an answer goes to byte {byte} of {name}, but answers are 16 bytes at multiples of 16",
    "allocate one with gl.allocate_shared_memory(gl.int64, [2], layout), or several with a leading dimension",
)
CLC_LOST = row(
    "clc-lost",
    LaunchControlMisuse,
    "program {program} has taken over program {taken}, which will not be launched, but {end} nobody has read the answer",
    "wait for each request, and do the work of the program that clc.load_result(...) names",
)
