"""Programmatic dependent launch: a kernel that starts while the launch before it is still running.

    kernel[grid](x, y, launch_pdl=True)

`launch_pdl=True` stands on the later of two launches of a stream, the dependent one. It may start once every block of the
launch before has called `gdc_launch_dependents` or has ended, rather than when that launch is complete. What it does until its
`gdc_wait` overlaps with the end of the launch before: it may set up barriers and load what no launch of the chain writes.

(PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization". Hopper and later.)
"""

from __future__ import annotations

from weft.language.marks import builtin
from weft.language.nvidia.checks import demand
from weft.language.tensor import apply_many
from weft.ops import sync


@builtin
def gdc_wait() -> None:
    """Wait until the launch before is complete, and all that it wrote is visible.

    It waits for the whole launch, not for its `gdc_launch_dependents`. Before it a kernel may neither read what earlier
    launches of the chain write, nor write what they access; the simulator reports both. Launched without `launch_pdl=True`
    the kernel starts when the launch before is complete, and `gdc_wait` returns at once. Raises async-target.
    """
    demand("gdc_wait", "programmatic dependent launch")
    apply_many(sync.gdc_wait, ())


@builtin
def gdc_launch_dependents() -> None:
    """Let the next launch start, if it has `launch_pdl=True`, as soon as all blocks have got here or have ended.

    It publishes nothing: the next launch sees what this one writes behind its own `gdc_wait`. Without a dependent launch it has
    no effect. A block that calls it early lets the next launch occupy multiprocessors that this one leaves free; blocks of this
    launch that have not started yet come first. Raises async-target.
    """
    demand("gdc_launch_dependents", "programmatic dependent launch")
    apply_many(sync.gdc_launch_dependents, ())


__all__ = ["gdc_launch_dependents", "gdc_wait"]
