"""Additional functions of the language, by module."""

from weft.language.extra import libdevice

__all__ = ["libdevice"]
