"""Host-side objects for Blackwell: the same descriptors as for Hopper. Block-scaled formats are in `weft.nvidia.scaled`."""

from __future__ import annotations

from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

__all__ = ["TensorDescriptor", "TensorDescriptorIm2Col"]
