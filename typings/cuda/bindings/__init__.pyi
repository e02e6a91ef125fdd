"""A compiled package without stubs: everything in it is Any."""

from typing import Any

def __getattr__(name: str) -> Any: ...
