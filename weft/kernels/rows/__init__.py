"""The memory-bound kernels of a model, by rows: their checks, choices and launches (`weft.kernels.device.rows`)."""
