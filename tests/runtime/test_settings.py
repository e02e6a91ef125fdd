"""Every environment variable, read once."""

from __future__ import annotations

import os
from dataclasses import fields
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


@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_an_empty_variable_is_unset(text):
    """A shell makes `WEFT_CACHE_DIR=$UNSET` empty, and an empty path would be the current directory."""
    variables = [field.metadata["variable"] for field in fields(settings.Settings)]
    assert settings.read(dict.fromkeys([*variables, "XDG_CACHE_HOME"], text)) == settings.read({})


def test_the_folder_stays_when_a_program_changes_its_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings.read({"WEFT_CACHE_DIR": "mine"}).cache_dir == tmp_path / "mine"


def test_where_caches_are(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert settings.read({}).cache_dir == Path("/somewhere/.cache/weft")
    assert settings.read({"XDG_CACHE_HOME": "/caches"}).cache_dir == Path("/caches/weft")
    assert settings.read({"XDG_CACHE_HOME": "caches"}).cache_dir == Path("/somewhere/.cache/weft"), "as XDG asks"
    assert settings.read({"WEFT_CACHE_DIR": "~/here"}).cache_dir == Path("/somewhere/here")


def test_a_user_without_a_home_has_a_cache(monkeypatch):
    def no_home(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(Path, "expanduser", no_home)
    assert settings.read({}).cache_dir.name == f"weft-{os.getuid()}"
    with pytest.raises(LaunchError, match="WEFT_CACHE_DIR='~/here' is not the path of a folder"):
        settings.read({"WEFT_CACHE_DIR": "~/here"})


@pytest.mark.parametrize(("text", "size"), [("17", 17), ("2k", 2048), ("1GiB", 1 << 30), ("5 MB", 5 << 20)])
def test_sizes(text, size):
    assert settings.read({"WEFT_CACHE_SIZE": text}).cache_size == size


@pytest.mark.parametrize(
    ("variable", "text"),
    [("WEFT_TARGET", "hopper"), ("WEFT_DEBUG", "maybe"), ("WEFT_CACHE_SIZE", "much"), ("WEFT_CACHE_SIZE", "9" * 5000)],
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
