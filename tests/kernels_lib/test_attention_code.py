"""The machine code of attention: what the tensor cores overlap, and how many instructions a block of keys takes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.cuda.build import needs_nvrtc
from tests.examples.machine_code import written_in_flight
from weft.kernels import compile_attention
from weft.kernels.attend_plan import AttentionPlan
from weft.kernels.decode_plan import CachePlan, LatentPlan

pytestmark = needs_nvrtc
MATRIX = pytest.mark.matrix
SIZES = ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256))
MOST = {(64, 64): 440, (96, 96): 460, (128, 128): 482, (192, 128): 535, (256, 256): 460}
"""Instructions of a consumer for a block of 128 keys (64 at head size 256). The loop of `examples/attention.py` has 435 at head
size 64 and 479 at 128."""
MASKING = 150
"""Further instructions in the branch of blocks that need a mask: for each of 64 scores a comparison and a selection."""
LINE = re.compile(r"\s*[0-9a-f-]{2}:\S+\s+(?:@!?U?P\d+ +)?(.*?);")


def attended(size, v_size, causal, lse=True):
    q, v = np.zeros((1, 2, 512, size), np.float16), np.zeros((1, 2, 512, v_size), np.float16)
    return compile_attention(q, q, v, causal=causal, return_lse=lse)


def main_loops(sass):
    """The instructions of the loops with MMAs and exponentials, the shortest of those that overlap: waits spin behind the
    kernel's end, and jump back into a loop from there."""
    labels, code = {}, []
    for line in sass.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif found := LINE.match(line):
            code.append(found[1])
    spans = []
    for end, text in enumerate(code):
        jump = re.search(r"BRA .*`\((\.L_x_\d+)\)", text)
        if jump and labels[jump[1]] <= end:
            body = code[labels[jump[1]] : end + 1]
            if any("GMMA" in x for x in body) and any("MUFU.EX2" in x for x in body):
                spans.append((labels[jump[1]], end))
    kept: list[tuple[int, int]] = []
    for first, last in sorted(spans, key=lambda span: span[1] - span[0]):
        if all(last < start or end < first for start, end in kept):
            kept.append((first, last))
    return [code[first : last + 1] for first, last in sorted(kept)]


@pytest.mark.parametrize(
    ("sizes", "causal"),
    [
        pytest.param(x, causal, marks=() if (x, causal) == ((128, 128), True) else MATRIX)
        for x in SIZES
        for causal in (False, True)
    ],
    ids=str,
)
def test_machine_code(sizes, causal):
    compiled = attended(*sizes, causal)
    made = compiled.front.machine_code
    assert (made.n_spills, made.stack) == (0, 0)
    assert re.findall(r"C75\d\d", made.log) == []
    sass = compiled.asm["sass"]
    assert written_in_flight(sass) == []
    loops = main_loops(sass)
    assert len(loops) == (3 if (sizes, causal) == ((64, 64), False) else 2)
    keys = 64 if sizes == (256, 256) else 128
    for loop in loops:
        text = " ".join(loop)
        # A consumer's 64 rows of scores, and the factors of two rows a thread.
        assert text.count("MUFU.EX2") == keys // 2 + 2
        # The scores' MMA, then that of the weights before; a wait that leaves one of them in flight, then one for both.
        assert re.findall(r"DEPBAR\.LE gsb0, 0x\d", text) == ["DEPBAR.LE gsb0, 0x1", "DEPBAR.LE gsb0, 0x0"]
        between = text[text.index("gsb0, 0x1") : text.index("gsb0, 0x0")]
        assert between.count("FMNMX") >= keys // 2, "row maxima are computed while the second MMA runs"
        assert between.count("MUFU.EX2") <= 12
        assert len(loop) <= MOST[sizes] + causal * MASKING
        assert text.count("ISETP") >= 64 * causal * keys // 128


@pytest.mark.parametrize("plan", [AttentionPlan, CachePlan, LatentPlan])
def test_every_rule_of_a_plan_has_one_owner(plan):
    """Only what is abstract is defined again, and all of it."""
    assert not plan.__abstractmethods__
    owners: dict[str, type] = {}
    for cls in reversed(plan.__mro__[:-2]):
        for name, rule in vars(cls).items():
            if name.startswith("__") or not (isinstance(rule, property) or callable(rule)):
                continue
            assert name not in owners, f"{name} of {cls.__name__} is also one of {owners[name].__name__}"
            if not getattr(rule, "__isabstractmethod__", False):
                owners[name] = cls
    assert "shared_bytes" in owners
