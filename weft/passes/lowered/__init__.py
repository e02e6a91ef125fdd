"""Passes on lowered IR."""
