"""What tells two versions of weft apart."""

from __future__ import annotations

import os
import zipfile
from types import SimpleNamespace

from weft.runtime import toolchain


def package(folder, text):
    root = folder / "weft"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text(text)
    os.utime(root / "__init__.py", (1000, 1000))
    return root


def test_files_of_equal_size_and_date_differ(tmp_path):
    one, other = package(tmp_path / "a", "N = 1"), package(tmp_path / "b", "N = 2")
    assert toolchain.identity(one) != toolchain.identity(other)
    before = toolchain.identity(one)
    assert toolchain.identity(one) == before
    (one / "__init__.py").write_text("N = 3")
    os.utime(one / "__init__.py", (1000, 1000))
    assert toolchain.identity(one) != before


def test_a_wheel_is_its_record(tmp_path):
    root = package(tmp_path, "N = 1")
    info = tmp_path / "weft-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("other/__init__.py,sha256=abc,5\n")
    assert toolchain.identity(root).startswith("tree"), "a record of something else"
    (info / "RECORD").write_text("weft/__init__.py,sha256=abc,5\n")
    before = toolchain.identity(root)
    assert before.startswith("wheel")
    (info / "RECORD").write_text("weft/__init__.py,sha256=abd,5\n")
    assert toolchain.identity(root) != before


def test_an_archive_is_its_bytes(tmp_path):
    identities = []
    for number in (1, 2):
        archive = tmp_path / "weft.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(zipfile.ZipInfo("weft/__init__.py"), f"N = {number}")
        identities.append(toolchain.identity(archive / "weft", SimpleNamespace(archive=str(archive))))
    assert identities[0] != identities[1]
    assert all(each.startswith("archive") for each in identities)
