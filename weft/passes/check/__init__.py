"""Passes that refuse kernels, and change nothing."""
