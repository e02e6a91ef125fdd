"""`python -m weft explain script.py`: what weft generated for each line of a script's kernels.

For every kernel that the script compiles, by line: barriers and fences, inserted by weft or written by the author (and whether
those are needed); layout conversions and their cost; the width of accesses to global memory and of cp.async copies, and what
limits it; bank conflicts of shared loads and stores. Then the shared memory and tensor memory that it takes, and the time spent
in weft and in NVRTC. For kernels of single threads: the width of each line's memory accesses, and whether thread-local arrays
stay in registers. Kernels with the same report are shown once. Launches on host arrays run in the simulator as usual.
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
