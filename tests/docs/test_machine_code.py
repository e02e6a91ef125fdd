"""The kernels of the page about Blackwell, which run in the simulator there, are kernels that NVRTC compiles for it."""

from __future__ import annotations

import re
import runpy

from tests.cuda.build import needs_nvrtc
from tests.docs.test_snippets import PROGRAMS
from weft import compiler

USED = {
    "multiply": {"UTCHMMA", "UTCBAR", "LDTM", "UTMALDG"},
    "either": {"UTCHMMA", "UTCBAR", "LDTM", "UTMALDG"},
    "warp_specialized": {"UTCHMMA", "UTCBAR", "LDTM", "UTMALDG"},
    "squares": {"UGETNEXTWORKID"},
    "scaled_product": {"UTCCP", "UTCBAR", "LDTM", "UTMALDG"},
    "pick": {"UTMALDG"},
    "squared": {"UTCHMMA", "UTCBAR", "LDTM", "UTMALDG"},
}
"""What each kernel that the page runs is known by."""


@needs_nvrtc
def test_kernels_of_the_page_are_compiled(tmp_path, monkeypatch, capsys):
    made, simulate = [], compiler.simulate

    def kept(compiled, grid, arguments):
        made.append(compiled)
        return simulate(compiled, grid, arguments)

    monkeypatch.setattr(compiler, "simulate", kept)
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "blackwell.py"
    program.write_text("\n\n".join(PROGRAMS["docs/tutorial/13-blackwell.md"]), encoding="utf-8")
    runpy.run_path(str(program))
    capsys.readouterr()
    texts = [(compiled.name, compiled.asm["sass"]) for compiled in made if 'target = "sm_100a"' in compiled.asm["ir"]]
    assert {name for name, _ in texts} == set(USED)
    for name, text in texts:
        instructions = set(re.findall(r"\b[A-Z][A-Z0-9]+\b", text))
        assert instructions >= USED[name], name
        assert not instructions & {"LDL", "STL"}, f"{name} keeps registers in memory"
    products = {word for _, text in texts for word in re.findall(r"\bUTC[A-Z]MMA\b|\.2CTA\b|\.GATHER4\b", text)}
    assert products == {"UTCHMMA", "UTCQMMA", "UTCOMMA", ".2CTA", ".GATHER4"}
