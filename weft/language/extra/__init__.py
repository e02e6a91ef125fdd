"""Additional functions of the language, by module."""

from weft.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
