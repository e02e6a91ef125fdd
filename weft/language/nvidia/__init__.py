"""Architecture-specific functions of NVIDIA GPUs: `ampere`, `hopper` and `blackwell`.

Each module has the functions available on its architecture. A function that several modules export is the same object; the
target of the compilation decides whether it is supported.
"""

from weft.language.nvidia import ampere, blackwell, hopper

__all__ = ["ampere", "blackwell", "hopper"]
