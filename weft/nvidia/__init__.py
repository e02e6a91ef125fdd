"""Host-side objects for features of NVIDIA GPUs: one module per architecture."""
