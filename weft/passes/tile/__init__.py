"""Passes on tile IR."""
