"""Passes over tile IR."""
