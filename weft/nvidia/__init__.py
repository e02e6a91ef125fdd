"""What a host makes for kernels that use features of NVIDIA's GPUs: one module per architecture."""
