"""Running an author's script inside a tool of weft, as `python script.py` would."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path


def run_script(script: Path, arguments: Sequence[str] = ()) -> str:
    """Run a script to its end. Returns the text of the error that stopped it, empty when none did.

    The text begins with the innermost line of the script that was running. Raises OSError when the script cannot be read.
    """
    script.stat()
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return "" if end.code in (None, 0) else f"it ended with status {end.code}"
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in the script is news for the tool's report
        return _where(error, script) + "".join(traceback.format_exception_only(error)).strip()
    finally:
        sys.argv, sys.path[:] = argv, path
    return ""


def _where(error: Exception, script: Path) -> str:
    """The script's innermost line in the traceback, as `file:line: `; empty when the script is not in it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)]
    return f"{script}:{frames[-1].lineno}: " if frames else ""
