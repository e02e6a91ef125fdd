"""`python -m weft explain script.py`: a report of the generated code for each line of a script's kernels.

For every kernel that the script compiles, by line: barriers and fences, inserted by weft or written by the author (and whether
those are needed); layout conversions and their cost; the width of accesses to global memory and of cp.async copies, and what
limits it; bank conflicts of shared loads and stores. Then its shared memory and tensor memory, and the compile time in weft and
in NVRTC. For thread-level kernels: the width of each line's memory accesses, and whether thread-local arrays stay in registers.
Kernels with equal reports are shown once. Launches on host arrays run in the simulator as usual.
"""

from weft.explain.notes import Note
from weft.explain.report import Buffer, Columns, Explanation, KernelFacts, Times, explain_kernel, explain_script
from weft.explain.text import show

__all__ = [
    "Buffer",
    "Columns",
    "Explanation",
    "KernelFacts",
    "Note",
    "Times",
    "explain_kernel",
    "explain_script",
    "show",
]
