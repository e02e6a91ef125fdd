"""The benchmark of Blackwell without a GPU: its tables on few kernels and small sizes, and its exit status."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from benchmarks import blackwell, blackwell_kernels, report, run, twin
from weft.runtime import driver, nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
SHARED = {"workbench", "matmul_parts", "llama_block"}
"""What other examples import, and what has no kernel of its own."""


def launches(name, *examples):
    return [(found, launch) for found, launch in blackwell_kernels.launches(*examples) if name in found]


def test_every_example_is_there():
    there = {*blackwell_kernels.FAMILIES, *blackwell_kernels.HOPPER, *SHARED}
    assert {path.stem for path in twin.EXAMPLES.glob("*.py")} == there


def test_a_copy():
    spilled, warnings, line = blackwell.code_of(launches("R=4", "copy_1d"), 1)
    assert (line.what, line.unit, line.verdict) == ("copy_1d, R=4", "ms", "pass")
    assert line.ours > 0 and 0 < line.facts["registers"] <= 64
    assert not any(line.facts[name] for name in ("spilled", "warnings", "tensor columns", *blackwell.INSTRUCTIONS))
    assert (spilled.ours, warnings.ours) == (0, 0) and spilled.verdict == warnings.verdict == "pass"


def test_a_product_in_tensor_memory():
    """Four products of a step, a load from tensor memory for each quarter of a tile; the buffers' commit and the tile's."""
    facts = blackwell.code_of(launches("fixed tiles, pairs, float16", "matmul_blackwell"), 1)[-1].facts
    assert facts["tensor columns"] == 512 and facts["spilled"] == facts["warnings"] == facts["STTM"] == 0
    assert (facts["MMA"], facts["LDTM"], facts["UTCBAR"]) == (4, 4, 2) and facts["UTMALDG"] >= 2


def test_scales_are_copied_to_tensor_memory():
    facts = blackwell.code_of(launches("mxfp4 by mxfp4, 128 columns, fixed tiles", "matmul_scaled")[:1], 1)[-1].facts
    assert facts["MMA"] and facts["UTCCP"]


def test_spills_and_warnings_are_failures(monkeypatch):
    compile_cuda = nvrtc.compile_cuda

    def worse(*args, **keywords):
        made = compile_cuda(*args, **keywords)
        return replace(made, n_spills=8, log=made.log + "\nptxas warning : (C7510) Potential Performance Loss")

    monkeypatch.setattr(nvrtc, "compile_cuda", worse)
    spilled, warnings, line = blackwell.code_of(launches("R=1", "copy_1d"), 1)
    assert (spilled.ours, warnings.ours) == (8, 1) and spilled.verdict == warnings.verdict == "FAIL"
    assert "C7510" in line.note


def test_a_refused_kernel_is_a_failure():
    matrices = [twin.load("workbench").Place(gpu=False).poisoned(512, 512, dtype="float16") for _ in range(3)]
    launch = partial(twin.load("matmul_warp_specialized").matmul_cooperative, *matrices)
    line = blackwell.code_of([("product of Hopper's", launch)], 1)[-1]
    assert line.ours is None and line.verdict == "FAIL" and "wgmma" in line.note


def test_another_gpu_at_hand_changes_nothing(monkeypatch):
    class Hopper:
        def get_current_target(self):
            return driver.Target("cuda", 90, 32)

    monkeypatch.setattr(driver, "active", Hopper())
    ((_, launch),) = launches("pipelined", "matmul_timeline")[:1]
    (kernel,) = blackwell_kernels.compiled(launch)
    assert kernel.request.target == "sm_100a" and "tcgen05" in kernel.asm["cuda"]
    assert isinstance(driver.active, Hopper)


def test_steps_and_bounds():
    variants = sum(map(len, blackwell.VARIANTS.values()))
    assert len(blackwell.steps(True)) == variants
    lines = blackwell.bounds(True)
    assert len(lines) == 2 * variants
    assert all(0 < line.ours <= 1 and re.fullmatch(r"\d+\.\d% [TSLH]", line.facts["K=512"]) for line in lines)


def test_the_simulator():
    lines = [blackwell.timed(*simulation) for simulation in blackwell.simulations(128)]
    assert all(line.ours and line.verdict == "pass" for line in lines), [line for line in lines if not line.ours]
    assert len({line.what for line in lines}) == len(lines) == 3 * 4 + 6 + 4


def test_a_wrong_product_is_no_figure():
    name, launch, check = next(blackwell.simulations(128))

    def wrong():
        compiled = launch()
        launch.args[2][3, 5] += 1
        return compiled

    with pytest.raises(AssertionError, match="1 elements"):
        blackwell.timed(name, wrong, check)


def test_a_missed_goal_is_the_exit_status(tmp_path, capsys, monkeypatch):
    line = report.Line("kernel", 700.0, "ms", {}, (report.Goal(600.0, ceiling=True),), facts={"registers": 40})
    monkeypatch.setitem(blackwell.PARTS, "code", ("Code", lambda quick: [line]))
    monkeypatch.setattr(blackwell, "FOOTERS", {"code": ["a remark"]})
    assert blackwell.main(["code", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "a remark" in printed.out and "a goal is missed" in printed.err
    text = (tmp_path / "blackwell-code.md").read_text(encoding="utf-8")
    assert "| what | weft | registers | unit |" in text and text.endswith("- a remark\n")
    saved = json.loads((tmp_path / "blackwell-code.json").read_text(encoding="utf-8"))
    assert saved["footer"] == ["a remark"] and saved["lines"][0]["facts"] == {"registers": 40}


def test_parts_by_name(tmp_path):
    assert blackwell.main(["steps", "bounds", "--quick", "--out", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.iterdir()} == {"blackwell-steps", "blackwell-bounds"}


def test_results_have_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert blackwell.main(["steps"]) == 0
    assert (tmp_path / "benchmarks" / "results" / "sm_100a" / "blackwell-steps.json").exists()
