"""The programs of documentation pages, so that what is measured is what a page shows."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def program(page: str) -> dict[str, Any]:
    """The names that the snippets of a page define, when they have run on the host; what they print is dropped."""
    text = "\n\n".join(SNIPPET.findall((DOCS / page).read_text(encoding="utf-8")))
    # A kernel is read from its file, which has to outlast the launches.
    file = Path(tempfile.mkdtemp()) / f"{Path(page).stem}.py"
    file.write_text(text, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(file))
