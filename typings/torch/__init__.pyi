# pyright: reportIncompleteStub=false
# PyTorch is an optional package, and where it is absent its types are: whatever it has may be anything.
from typing import Any, TypeAlias

from torch import nn as nn

Tensor: TypeAlias = Any
dtype: TypeAlias = Any
device: TypeAlias = Any

def __getattr__(name: str) -> Any: ...
