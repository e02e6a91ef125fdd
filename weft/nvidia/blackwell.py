"""What hosts pass to kernels for Blackwell: the descriptors of Hopper. Block-scaled numbers are in `weft.nvidia.scaled`."""

from __future__ import annotations

from weft.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col

__all__ = ["TensorDescriptor", "TensorDescriptorIm2Col"]
