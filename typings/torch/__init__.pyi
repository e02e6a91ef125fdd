# PyTorch is an optional package, and where it is absent its types are: whatever it has may be anything.
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
dtype: TypeAlias = Any
device: TypeAlias = Any

def __getattr__(name: str) -> Any: ...
