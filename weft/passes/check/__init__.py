"""Passes that reject invalid kernels and change nothing."""
