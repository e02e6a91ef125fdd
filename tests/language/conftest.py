"""A kernel under construction for every test of the language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.language.support import Kernel, building


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with building() as made:
        yield made
