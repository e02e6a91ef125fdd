"""A process that compiles kernels of scripts, each in a fork of its own that has read nothing yet.

    python -m tests.edits.server

Each line of its input is JSON: a folder with `script.py`, the folder of the cache or null, and environment variables. Each line
of its output is what became of the kernel: a digest of its CUDA text as the cache gave it back, or the error.
In place of machine code, which would take NVRTC, the text itself is kept.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import weft
from weft import language as gl
from weft import settings
from weft.runtime import nvrtc


@weft.jit
def _nothing(out):
    gl.store(out, 1)


def main() -> None:
    """Serve until the input ends."""
    nvrtc.compile_cuda = _keep_text
    with settings.using(cache=False):
        _ = _nothing.warmup("*i32", target="sm_90a").binary  # loads what forks then find loaded
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, one(**json.loads(line)).encode())
            os._exit(0)
        os.close(writer)
        answer = b"".join(iter(lambda fd=reader: os.read(fd, 1 << 16), b""))
        os.close(reader)
        os.waitpid(child, 0)
        print(json.dumps(answer.decode()), flush=True)


def one(folder: str, cache: str | None, environ: dict[str, str]) -> str:
    """What the script's kernel is compiled to."""
    os.environ.update(environ)
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    try:
        with settings.using(cache=cache is not None, cache_dir=Path(cache or "/nowhere")):
            script = importlib.import_module("script")
            compiled = script.kernel.warmup("*i32", target="sm_90a")
            return hashlib.sha256(compiled.binary.cubin).hexdigest()
    except Exception:  # noqa: BLE001 - which is the answer
        return traceback.format_exc()


def _keep_text(source: str, **_: Any) -> nvrtc.CompiledCuda:
    return nvrtc.CompiledCuda(source.encode(), "", "", 0, 0, 0, 0)


if __name__ == "__main__":
    main()
