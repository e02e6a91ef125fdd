"""SASS listings with the scheduling control of each instruction.

NVIDIA's tools print instructions and their encoding. The control bits in the encoding (bits 105 to 125 of 128, since Volta)
hold stall count, yield hint and scoreboard barriers. They are printed before each instruction as

    wait mask : read barrier : write barrier : yield : stall cycles

with `-` for none. Bit positions: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking"
(arXiv 1804.06826), section 2.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from weft.errors import fail
from weft.errors.launch import DISASSEMBLER_FAILED, NO_DISASSEMBLER

# The analysis of branch stacks, which no GPU of weft's has, prints nothing and takes a quarter of the time.
_ARGUMENTS = {
    "nvdisasm": ("--print-code", "--print-instruction-encoding", "--no-dataflow"), "cuobjdump": ("--dump-sass",),
}  # fmt: skip
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?P<text>.*?;)\s*/\* (?P<low>0x[0-9a-f]{16}) \*/")
_ENCODING = re.compile(r"^\s*/\* (0x[0-9a-f]{16}) \*/")
_LABEL = re.compile(r"^(\.L\w+:)")
_FUNCTION = re.compile(r"^(?:\s*Function : (\S+)|\.text\.(\S+):)")
_PLACE = re.compile(r'^\s*//## File "(.*)", line (\d+)\s*$')
_NAMED = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)\s*([^;]*);")
_NONE = 7


@dataclass(frozen=True, slots=True)
class Control:
    """Scheduling control of one instruction: barriers to wait for (a mask of six), barriers it sets, yield hint, stall
    cycles."""

    wait: int
    read_barrier: int | None
    write_barrier: int | None
    yields: bool
    stall: int

    def __str__(self) -> str:
        wait = f"{self.wait:02d}" if self.wait else "--"
        read, write = ("-" if number is None else str(number) for number in (self.read_barrier, self.write_barrier))
        return f"{wait}:{read}:{write}:{'Y' if self.yields else '-'}:{self.stall:x}"


def control(encoding: int) -> Control:
    """The scheduling control of a 128-bit instruction.

    >>> str(control(0x001fc800078e38ff_0000000607077211))
    '01:-:-:Y:4'
    """
    bits = encoding >> 105
    write, read = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        wait=bits >> 11 & 0x3F,
        read_barrier=None if read == _NONE else read,
        write_barrier=None if write == _NONE else write,
        # The yield hint is inverted: a set bit means that the scheduler should stay with this warp.
        yields=not bits >> 4 & 1,
        stall=bits & 0xF,
    )


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin: one instruction per line, preceded by its scheduling control, with labels and function names.

    Raises DeviceError (device-no-disassembler, device-disassembler-failed).
    """
    return "\n".join(annotate(_listing(cubin, tuple(_ARGUMENTS)))) + "\n"


def _listing(cubin: bytes, tools: tuple[str, ...], *more: str) -> str:
    """The output of the first of these tools that there is."""
    tool, path = _tool(tools)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [path, *_ARGUMENTS[tool], *more, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise fail(DISASSEMBLER_FAILED, tool=tool, reason=(done.stderr or done.stdout).strip())
    return done.stdout


def instructions(cubin: bytes) -> list[tuple[str, str, tuple[str, int] | None]]:
    """The instructions of a cubin in order: name, operands, and the line of the source (`#line`) that each comes from.

    Only nvdisasm prints lines. Raises DeviceError (device-no-disassembler, device-disassembler-failed).
    """
    found: list[tuple[str, str, tuple[str, int] | None]] = []
    line: tuple[str, int] | None = None
    for text in _listing(cubin, ("nvdisasm",), "--print-line-info-inline").splitlines():
        if match := _PLACE.match(text):
            # Of an inlined function the last comment names the line of the call.
            line = (match[1], int(match[2]))
        elif match := _NAMED.match(text):
            found.append((match[1], match[2], line))
    return found


def annotate(listing: str) -> Iterator[str]:
    """Instructions, labels and function names of a tool's listing, with the control decoded from the encodings."""
    lines = iter(listing.splitlines())
    for line in lines:
        if match := _INSTRUCTION.match(line):
            high = _ENCODING.match(next(lines, ""))
            if high is not None:
                yield f"{control(int(high[1], 16) << 64 | int(match['low'], 16))}  {_tidy(match['text'])}"
        elif match := _LABEL.match(line):
            yield match[1]
        elif match := _FUNCTION.match(line):
            yield f"{match[1] or match[2]}:"


def _tidy(text: str) -> str:
    return re.sub(r"\s*;$", ";", text)


@cache
def _tool(tools: tuple[str, ...]) -> tuple[str, str]:
    for tool in tools:
        for directory in _directories():
            if found := shutil.which(tool, path=directory):
                return tool, found
    raise fail(NO_DISASSEMBLER)


def _directories() -> Iterator[str | None]:
    """Folders to search for the tools: pip packages, PATH (None), the toolkit, the copies in Triton's package."""
    for folder in _package_folders("nvidia"):
        yield from map(str, sorted(folder.glob("*/bin"), reverse=True))
    yield None
    yield "/usr/local/cuda/bin"
    for folder in _package_folders("triton"):
        yield str(folder / "backends" / "nvidia" / "bin")


def _package_folders(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(path) for path in (spec.submodule_search_locations or ())] if spec is not None else []
