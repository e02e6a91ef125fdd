"""Passes: functions from IR to new IR, one per file. Only `pipeline.py` states their order."""
