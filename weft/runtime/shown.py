"""What a traceback shows of a launch: the author's lines and the message, and nothing of the way between them through weft."""

from __future__ import annotations

from weft import settings
from weft.errors import LaunchError, WeftError


def short(error: WeftError) -> WeftError:
    """The error without the frames that it came through so far, unless the settings ask for them; to be raised again."""
    try:
        whole = settings.current().traceback
    except LaunchError:  # a setting that cannot be read, which then is the error
        whole = False
    if whole:
        return error
    error.__suppress_context__ = True
    return error.with_traceback(None)
