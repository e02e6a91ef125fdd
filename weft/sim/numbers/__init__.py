"""Numerics that equal a GPU's bit for bit: arithmetic, rounding, tensor cores, inline PTX."""
