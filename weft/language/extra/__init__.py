"""Functions beyond the language proper, in modules of their own."""

from weft.language.extra import libdevice

__all__ = ["libdevice"]
