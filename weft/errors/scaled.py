"""Mistakes in arrays that are quantised with a scale for each run of elements."""

from __future__ import annotations

from weft.errors.base import LaunchError, row

FORMAT = row(
    "scaled-format",
    LaunchError,
    "there is no block-scaled format {format!r}",
    "use one of {known}",
)
RUNS = row(
    "scaled-runs",
    LaunchError,
    "{format} has a scale for each {run} elements of a row, but rows of an array of shape {shape} have {k}",
    "pad rows with zeros to a multiple of {run} elements",
)
SCALES = row(
    "scaled-scales",
    LaunchError,
    "scales are a matrix of bytes, rows by runs, and got {dtype} of shape {shape}",
    "give the .scales of weft.nvidia.scaled.quantise(x, format) of a matrix x",
)
