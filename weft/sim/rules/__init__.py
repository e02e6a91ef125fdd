"""Execution rules: one file for each family of operations in `weft/ops`, and helpers that several families share."""
