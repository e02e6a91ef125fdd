"""Passes: functions from IR to new IR, one a file. `pipeline.py` is the only place that states their order."""
