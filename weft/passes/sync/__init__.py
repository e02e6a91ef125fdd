"""Passes that insert barriers and fences, and decide which threads arrive and issue copies."""
