"""The layer below the compiler: NVRTC, the driver, the disk cache, arguments and launches. Importing it loads none of them."""

from weft.runtime import driver, errors
from weft.runtime.specialise import MockTensor

__all__ = ["MockTensor", "driver", "errors"]
