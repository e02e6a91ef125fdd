"""Shared memory: where a tile lies in it, and how it is loaded and stored."""
