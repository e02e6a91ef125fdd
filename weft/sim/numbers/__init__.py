"""Numbers as a GPU computes them, bit for bit: arithmetic, rounding, tensor cores, inline PTX."""
