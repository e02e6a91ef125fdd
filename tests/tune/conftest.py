"""A store of its own for each test, and a machine with a fake GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.runtime import fake_driver
from tests.runtime.fake_driver import OK, Binary, CompiledKernel, CUresult, FakeCompiler, FakeCuda
from weft import settings
from weft.errors import LaunchError


@pytest.fixture(autouse=True)
def store(tmp_path) -> Iterator[None]:
    with settings.using(cache_dir=tmp_path / "cache", tune_progress=False):
        yield


@dataclass
class Machine(FakeCompiler):
    """A fake GPU and compiler, and a clock that reads a table: everything goes by a config's BLOCK.

    `times` gives milliseconds (by default BLOCK itself), `spills` spilled bytes, `broken` the configs that cannot be compiled.
    `measured` lists what was measured, in order; `threads` who compiled.
    """

    cuda: FakeCuda = field(default_factory=FakeCuda)
    times: dict[int, float] = field(default_factory=dict)
    spills: dict[int, int] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    measured: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    capturing: CUresult | int = 0
    synchronised: CUresult = OK

    def bench(self, run: Callable[[], Any], prepare: Callable[[], None]) -> float:
        prepare()
        block = run().request.arguments["BLOCK"].value
        self.measured.append(block)
        return self.times.get(block, float(block))

    def compile_kernel(self, request: Any) -> CompiledKernel:
        self.requests.append(request)
        block = request.arguments["BLOCK"].value

        def binary() -> Binary:
            self.threads.add(threading.current_thread().name)
            return Binary(b"code", 32, self.spills.get(block, 0), dynamic_shared=block)

        def text() -> str:
            if block in self.broken:
                raise LaunchError("test-broken", f"BLOCK={block} is broken")
            return "text"

        stages = {"ir": lambda: "func", "cuda": text}
        return CompiledKernel(
            request, name=request.fn.__name__, stages=stages, binary=lambda: (text(), binary())[1], reads=()
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(cuda=fake_driver.install_driver(monkeypatch))
    monkeypatch.setitem(fake_driver.sys.modules, "weft.compiler", made)
    monkeypatch.setattr(fake_driver.weft, "compiler", made, raising=False)
    cuda: Any = made.cuda
    cuda.cuStreamIsCapturing = lambda stream: (
        (made.capturing, None) if isinstance(made.capturing, CUresult) else (OK, made.capturing)
    )
    cuda.cuCtxSynchronize = lambda: (made.synchronised,)
    yield made
    fake_driver.forget_devices()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fake_driver.install_no_driver(monkeypatch)
    yield
    fake_driver.forget_devices()
