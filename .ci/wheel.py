"""What a user of the wheel meets: an empty environment, a folder outside of the checkout, the README's code, the command line.

Builds the wheel, installs it alone into a new environment in a temporary folder, and runs everything there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import numpy as np
import weft
from weft import language as gl

@weft.jit
def double(src, dst, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([2], [32], [4], [0]))
    gl.store(dst + at, 2 * gl.load(src + at, mask=at < n), mask=at < n)

x = np.arange(1000, dtype=np.float32)
y = np.full_like(x, np.nan)
double[4](x, y, 1000, 256)
np.testing.assert_array_equal(y, 2 * x)
"""
RACE = SCRIPT.replace("dst + at,", "dst + at // 2,").replace("np.testing.assert_array_equal(y, 2 * x)", "")


def python_blocks(page: Path) -> str:
    """The Python of a page, in order, as one program."""
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def main() -> None:
    """Build, install, run."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)

        def run(*command: str | Path, status: int = 0) -> str:
            ran = subprocess.run(list(map(str, command)), cwd=home, capture_output=True, text=True, check=False)
            if ran.returncode != status:
                sys.exit(f"{' '.join(map(str, command))} gave {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
            return ran.stdout

        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", home / "dist", ROOT)
        (wheel,) = (home / "dist").glob("weft-*.whl")
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", wheel)
        where = run(python, "-c", "import weft; print(weft.__file__)")
        if not Path(where.strip()).is_relative_to(home):
            sys.exit(f"weft came from {where}")

        (home / "readme.py").write_text(python_blocks(ROOT / "README.md"), encoding="utf-8")
        (home / "user.py").write_text(SCRIPT, encoding="utf-8")
        (home / "race.py").write_text(RACE, encoding="utf-8")
        run(python, "readme.py")
        shown = run(python, "-m", "weft", "show", "BlockedLayout([1],[32],[4],[0])", "128")
        explained = run(home / "env" / "bin" / "weft", "explain", "user.py")
        checked = run(python, "-m", "weft", "check", "user.py")
        raced = run(python, "-m", "weft", "check", "race.py", status=1)
        for text, word in ((shown, "T127:0"), (explained, "double"), (checked, "no hazards"), (raced, "race.py:")):
            if word not in text:
                sys.exit(f"{word!r} is not in\n{text}")
    print(f"{wheel.name}: the README, show, explain and check work outside the checkout")


if __name__ == "__main__":
    main()
