"""Tracebacks of launches: the author's frames and the message, without weft's frames between them."""

from __future__ import annotations

from weft import settings
from weft.errors import LaunchError, WeftError


def short(error: WeftError) -> WeftError:
    """The error without the traceback collected so far, for raising again. The settings can keep it."""
    try:
        whole = settings.current().traceback
    except LaunchError:  # The settings themselves are invalid; that is the error being raised.
        whole = False
    if whole:
        return error
    error.__suppress_context__ = True
    return error.with_traceback(None)
