"""No alarm on a kernel that is right: under every schedule, in other orders of tasks and programs, in both stages."""

from __future__ import annotations

from itertools import product

import pytest

import weft
from benchmarks import twin
from tests.mutation.cases import CASES
from tests.mutation.harness import HARMLESS, recorded

WAYS = [*product(["late", "early", "random"], [0, 1, 2])]
PLAIN = [
    "copy_1d", "copy_2d", "copy_opposite", "row_sum", "softmax", "all_reduce", "matmul_scattered", "all_reduce_norm", "experts",
]  # fmt: skip
ASYNCHRONOUS = ["tma_copy", "add_async_copy", "add_tma", "add_warp_specialized"]
PRODUCTS = ["matmul_ladder", "matmul_warp_specialized", "matmul_schedules", "matmul_gelu", "matmul_int4", "attention"]
BLACKWELL = ["matmul_blackwell", "matmul_scaled", "tma_gather"]
THREADS = ["layout_tensor", "thread_matmul", "thread_stencil", "thread_transpose"]
PARTS = ["workbench", "matmul_parts", "matmul_timeline", "llama_block"]
"""What examples share, a picture of some, and a model by operators of PyTorch: these have no kernels of their own."""
EXAMPLES = [
    *(pytest.param(name, "late", 0, marks=pytest.mark.matrix) for name in (*PLAIN, *PRODUCTS, *BLACKWELL, *THREADS)),
    *product(ASYNCHRONOUS, ["early"], [0]),
    *product(ASYNCHRONOUS, ["random"], [2]),
]
"""What their tables are printed of, in their own tests, takes random turns by another seed."""


@pytest.mark.parametrize("stage", ["tile", "lowered"])
@pytest.mark.parametrize("name", CASES)
def test_kernels(name, stage):
    with recorded() as launches:
        CASES[name]()
    for launch in launches:
        func = getattr(launch.stages, stage)
        assert {way: launch.verdict(func, *way) for way in WAYS} == dict.fromkeys(WAYS, HARMLESS)


@pytest.mark.parametrize(("example", "schedule", "seed"), EXAMPLES)
def test_examples(example, schedule, seed, capsys):
    with weft.simulate(schedule=schedule, seed=seed):
        twin.load(example).main(["--sim"])
    assert "every result checked" in " ".join(capsys.readouterr().out.split())


def test_every_example_is_among_them():
    assert {path.stem for path in twin.EXAMPLES.glob("*.py")} == {
        *PLAIN, *ASYNCHRONOUS, *PRODUCTS, *BLACKWELL, *THREADS, *PARTS, "broken_pipeline",
    }  # fmt: skip
    assert "broken_pipeline" in CASES
