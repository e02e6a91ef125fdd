"""The table of paths in the reference is the one that the package goes by; --update-golden rewrites it."""

from __future__ import annotations

import re
from pathlib import Path

from weft.kernels.operands import PATHS, Rule

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kernels.md"
TABLE = re.compile(
    r"(<!-- The table is read from the package: `make golden` writes it\. -->\n\n)(.*?)(\n\n)", re.DOTALL
)
TYPES = {8: "fp8, int8, uint8", 16: "float16, bfloat16", 32: "float32"}


def row(rule: Rule) -> str:
    types = ", ".join(TYPES[bits] for bits in rule.bits) if len(rule.bits) < len(TYPES) else "all"
    along = {"k": "K", "rows": "M of a, N of b", "any": "any, or none"}[rule.contiguous]
    multiples = f"{rule.granule} bytes" if rule.granule > 1 else "nothing"
    return f"| {types} | {along} | {multiples} | {rule.path} | {rule.how} |"


def test_the_table_of_paths(request):
    head = ["| types | contiguous along | multiples of | path | how |", "|---|---|---|---|---|"]
    expected = "\n".join([*head, *map(row, PATHS)])
    text = PAGE.read_text(encoding="utf-8")
    found = TABLE.search(text)
    assert found, "kernels.md says where its table stands"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(TABLE.sub(lambda match: match[1] + expected + match[3], text), encoding="utf-8")
        return
    assert found[2] == expected, "docs/reference/kernels.md is out of date; `make golden` writes it"
