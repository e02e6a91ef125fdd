"""A machine with one fake GPU, and one with none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime import fake_driver
from tests.runtime.fake_driver import FakeCompiler, FakeCuda


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    return fake_driver.install_compiler(monkeypatch)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    yield fake_driver.install_driver(monkeypatch)
    fake_driver.forget_devices()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fake_driver.install_no_driver(monkeypatch)
    yield
    fake_driver.forget_devices()
