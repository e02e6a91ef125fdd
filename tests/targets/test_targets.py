from __future__ import annotations

import dataclasses

import pytest

from weft import targets
from weft.errors import LaunchError
from weft.targets import SM80, SM90, SM100


@pytest.mark.parametrize("spelling", ["sm_90a", "sm_90", "cuda:90", "90", 90, SM90])
def test_every_spelling_finds_the_same_constant(spelling):
    assert targets.get(spelling) is SM90


@pytest.mark.parametrize("target", targets.TARGETS.values(), ids=str)
def test_name_and_number_find_each_target(target):
    assert targets.get(target.name) is target
    assert targets.get(target.arch) is target
    assert targets.get(f"{target.backend}:{target.arch}") is target


@pytest.mark.parametrize("spelling", ["sm_89", "hopper", "hip:90", 9, "", "sm_90ab"])
def test_unknown_target_names_the_known_ones(spelling):
    with pytest.raises(LaunchError) as caught:
        targets.get(spelling)
    assert caught.value.code == "target-unknown"
    assert repr(spelling) in caught.value.message
    assert "sm_80, sm_90a, sm_100a" in caught.value.message


def test_documented_shared_memory():
    assert (SM80.shared_bytes, SM90.shared_bytes, SM100.shared_bytes) == (166912, 232448, 232448)
    for target in targets.TARGETS.values():
        assert target.shared_bytes + target.reserved_shared_bytes == target.shared_bytes_per_sm


def test_architecture_specific_instructions_do_not_carry_over():
    assert (SM90.has_wgmma, SM90.has_tcgen05) == (True, False)
    assert (SM100.has_wgmma, SM100.has_tcgen05) == (False, True)
    assert not any((SM80.has_tma, SM80.has_cluster, SM80.has_wgmma, SM80.has_tcgen05))


def test_capabilities_other_than_wgmma_only_grow():
    capabilities = [f.name for f in dataclasses.fields(SM80) if f.name.startswith("has_") and f.name != "has_wgmma"]
    assert len(capabilities) > 20
    for older, newer in ((SM80, SM90), (SM90, SM100)):
        assert [c for c in capabilities if getattr(older, c) and not getattr(newer, c)] == []


def test_only_blackwell_reads_32_bytes_at_once():
    assert [t.has_256_bit_access for t in (SM80, SM90, SM100)] == [False, False, True]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (128, 32, 0, 16),  # 64 warps
        (32, 16, 0, 32),  # the block limit
        (128, 255, 0, 2),  # 8,192 registers a warp: eight warps
        (128, 168, 0, 3),  # the classic three warpgroups of 168 registers
        (1024, 64, 0, 1),  # the register file, exactly
        (1024, 65, 0, 0),  # and one register more than fits
        (128, 32, 100 * 1024, 2),  # 2 x 101 KiB of 228
        (128, 32, 227 * 1024, 1),
        (128, 32, 227 * 1024 + 1, 0),
        (1025, 32, 0, 0),
        (128, 256, 0, 0),
    ],
)
def test_resident_blocks(threads, registers, shared, blocks):
    assert SM90.resident_blocks(threads, registers, shared) == blocks


def test_a_target_is_a_value():
    assert hash(SM90) == hash(dataclasses.replace(SM90))
    assert str(SM90) == "sm_90a"
    with pytest.raises(dataclasses.FrozenInstanceError):
        SM90.arch = 80
