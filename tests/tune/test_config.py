"""Configs and spaces: what may vary."""

from __future__ import annotations

import pytest

from weft import Config
from weft.errors import LaunchError, UserError
from weft.layout import BlockedLayout
from weft.tune import Space
from weft.tune.config import expand


def test_a_config_gives_arguments_and_options_that_are_set():
    config = Config({"BLOCK": 64, "num_ctas": 2}, num_warps=8)
    assert config.arguments == {"BLOCK": 64, "num_warps": 8, "num_ctas": 2}
    assert (config.kwargs, config.num_warps, config.num_ctas, config.maxnreg) == ({"BLOCK": 64}, 8, 2, None)


def test_configs_are_equal_by_value_and_type():
    assert Config({"BLOCK": 1}) == Config({"BLOCK": 1})
    assert len({Config({"BLOCK": 1}), Config({"BLOCK": True}), Config({"BLOCK": 1.0}), Config({"BLOCK": 1})}) == 3
    assert Config({"A": 1, "B": 2}, num_warps=4) == Config({"B": 2, "A": 1, "num_warps": 4})
    assert Config(pre_hook=print) != Config()
    assert Config() != "defaults"


def test_configs_print():
    config = Config({"BLOCK": 64, "layout": BlockedLayout([1], [32], [4], [0])}, num_warps=8)
    assert str(config).startswith("BLOCK=64, layout=BlockedLayout(")
    assert str(config).endswith(", num_warps=8")
    assert repr(Config({"BLOCK": 64}, maxnreg=128)) == "Config({'BLOCK': 64}, maxnreg=128)"
    assert str(Config()) == "defaults"


def test_the_text_of_a_function_has_no_address():
    assert str(Config({"activation": test_configs_print})).endswith("test_configs_print")
    assert "0x" not in str(Config({"activation": test_configs_print}))


@pytest.mark.parametrize("options", [{"num_warps": 3}, {"num_ctas": 32}, {"maxnreg": 8}, {"num_warps": "4"}])
def test_options_are_checked_at_once(options):
    with pytest.raises(LaunchError) as caught:
        Config(options)
    assert caught.value.code == "launch-option-value"


def test_values_must_be_hashable():
    with pytest.raises(LaunchError) as caught:
        Config({"BLOCK": {}})
    assert caught.value.code == "launch-constexpr-kind"


def test_a_space_is_a_product_less_what_the_constraint_refuses():
    space = Space(
        {"M": [64, 128], "N": range(1, 3), "num_warps": (4, 8), "K": 32},
        where=lambda num_warps, M: M == 128 or num_warps == 4,
    )
    found = list(space)
    assert len(found) == 6
    assert found[0] == Config({"M": 64, "N": 1, "K": 32}, num_warps=4)
    assert all(config.kwargs["M"] == 128 for config in found if config.num_warps == 8)
    assert list(Space({"M": [1, 2]}, where=lambda **values: values["M"] > 1)) == [Config({"M": 2})]


def test_configs_come_in_any_mixture_and_once():
    found = expand("f", [Config({"B": 1}), {"B": [1, 2]}, Space({"B": [2, 3]})])
    assert found == (Config({"B": 1}), Config({"B": 2}), Config({"B": 3}))
    assert expand("f", {"B": [1]}) == expand("f", Space({"B": 1})) == (Config({"B": 1}),)


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ([], "the list has no entries"),
        ({"B": [1], "C": []}, "C has no values"),
        (Space({"B": [1]}, where=lambda B: B > 1), "refuses every combination"),
        ([Space({"B": []})], "B has no values"),
    ],
)
def test_an_empty_space(configs, reason):
    with pytest.raises(UserError, match=reason) as caught:
        expand("f", configs)
    assert caught.value.code == "tune-empty-space"


def test_what_is_no_config():
    with pytest.raises(UserError, match="contain 64") as caught:
        expand("f", [64])
    assert caught.value.code == "tune-configs-kind"


def test_a_constraint_on_what_the_space_does_not_have():
    with pytest.raises(UserError, match="takes BLOK, but the space has values for BLOCK") as caught:
        list(Space({"BLOCK": [1]}, where=lambda BLOK: True))
    assert caught.value.code == "tune-constraint"
