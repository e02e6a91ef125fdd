"""The block of a Llama in `examples/`: its training by weft's operators follows PyTorch's."""

from __future__ import annotations

import pytest

from benchmarks import twin


def test_losses_follow_pytorch(torch, capsys):
    found = twin.load("llama_block").main(["--sim", "--steps", "2"])
    assert "every result checked" in capsys.readouterr().out
    assert found["weft"] == pytest.approx(found["PyTorch"], rel=0.02)


@pytest.mark.gpu
def test_losses_follow_pytorch_on_the_gpu(torch):
    found = twin.load("llama_block").main(["--steps", "5"])
    assert found["weft"] == pytest.approx(found["PyTorch"], rel=0.02) and found["weft"][-1] < found["weft"][0]
