"""Several GPUs: symmetric tensors as kernel arguments, and the simulation of all ranks of a group.

    def on(rank):
        x = weft.distributed.empty(1024, np.float32)
        x[:] = rank
        kernel[1](weft.Symmetric(x))

    weft.distributed.simulate(on, ranks=4)

On GPUs, symmetric memory is PyTorch's (`torch.distributed._symmetric_memory`). This package contains no kernels; those are in
`weft.kernels.distributed`.
"""

from weft.distributed.current import barrier, empty
from weft.distributed.one_gpu import on_one_gpu
from weft.distributed.simulated import simulate
from weft.distributed.symmetric import Symmetric, copy, write_value

__all__ = ["Symmetric", "barrier", "copy", "empty", "on_one_gpu", "simulate", "write_value"]
