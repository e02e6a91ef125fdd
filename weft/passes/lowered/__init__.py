"""Passes over lowered IR."""
