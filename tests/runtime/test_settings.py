"""Every environment variable, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft import settings
from weft.errors import LaunchError
from weft.runtime import driver


def test_defaults():
    read = settings.read({})
    assert (read.target, read.cache, read.debug) == ("sm_90a", True, False)
    assert read.cache_dir.name == "weft"


def test_every_variable():
    read = settings.read(
        {
            "WEFT_TARGET": "cuda:100",
            "WEFT_CACHE": "0",
            "WEFT_CACHE_DIR": "/tmp/here",
            "WEFT_CACHE_SIZE": "3 MiB",
            "WEFT_DEBUG": "on",
        }
    )
    assert read == settings.Settings("cuda:100", False, Path("/tmp/here"), 3 << 20, True)


@pytest.mark.parametrize(("text", "size"), [("17", 17), ("2k", 2048), ("1GiB", 1 << 30), ("5 MB", 5 << 20)])
def test_sizes(text, size):
    assert settings.read({"WEFT_CACHE_SIZE": text}).cache_size == size


@pytest.mark.parametrize(
    ("variable", "text"), [("WEFT_TARGET", "hopper"), ("WEFT_DEBUG", "maybe"), ("WEFT_CACHE_SIZE", "much")]
)
def test_what_cannot_be_read(variable, text):
    with pytest.raises(LaunchError, match=variable) as caught:
        settings.read({variable: text})
    assert caught.value.code == "setting-value"


def test_using_swaps_and_restores():
    before = settings.current()
    with settings.using(target="sm_80"):
        assert settings.current().target == "sm_80"
    assert settings.current() is before


@pytest.mark.parametrize(("target", "arch"), [("sm_100a", 100), ("cuda:80", 80), ("90", 90)])
def test_the_simulated_target_follows(no_gpu, target, arch):
    with settings.using(target=target):
        assert driver.active.get_current_target() == driver.Target("cuda", arch, 32)
