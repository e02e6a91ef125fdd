"""Shared memory: layouts of tiles in it, and plans to load and store them."""
