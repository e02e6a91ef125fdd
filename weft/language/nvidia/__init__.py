"""What NVIDIA's GPUs have beside threads and memory, by architecture: `ampere`, `hopper` and `blackwell`.

Each module holds what kernels for its architecture may use. The same function under several of them is one function: what
decides is the target that a kernel is compiled for.
"""

from weft.language.nvidia import ampere, blackwell, hopper

__all__ = ["ampere", "blackwell", "hopper"]
