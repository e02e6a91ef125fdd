"""Random changes of a function's syntax tree, as authors make them by mistake.

Each change is a function of the random numbers and the tree, which it alters in place; False says that it found nothing to
change. Nothing here knows of compilation.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from random import Random
from typing import Any

from tests.stress.constructs import STATEMENTS

_NUMBERS: tuple[Any, ...] = (
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    100,
    1.5,
    -0.0,
    1e30,
    2**31,
    2**40,
    2**70,
    None,
    "text",
    True,
    (),
    (1, 2),
)
_DTYPES = ("int1", "int8", "int32", "int64", "uint8", "uint32", "float16", "bfloat16", "float32", "float64", "float8e5")
_WRAPS = (
    "abs({e})", "({e},)", "[{e}]", "{e}[0]", "{e}[:, None]", "{e}.T", "-{e}", "not {e}", "{e} ** 2", "str({e})", "{e} + 1.5",
    "{e} // 2", "{e} / 2", "{e} == {e}", "{e} if {e} else 0", "float({e})", "int({e})", "sum({e})", "gl.sum({e}, 0)",
    "gl.exp({e})", "{e}.to(gl.int8)", "f'{{{e}}}'", "{e}()", "lambda: {e}", "*{e}", "{e}.x", "gl.where({e}, {e}, {e})",
)  # fmt: skip
_AROUND = (
    "if {name}:\n    {body}", "if {name} > 0:\n    {body}\nelse:\n    pass", "for _k in range(2):\n    {body}",
    "for _k in gl.static_range(2):\n    {body}", "while False:\n    {body}", "if True:\n    {body}", "if False:\n    {body}",
    "for _k in range({name}):\n    {body}", "if gl.program_id(0) == 0:\n    {body}", "if gl.thread_idx.x < 3:\n    {body}",
    "with {name}:\n    {body}", "try:\n    {body}\nfinally:\n    pass", "for _k in {name}:\n    {body}",
)  # fmt: skip

Change = Callable[[Random, ast.FunctionDef], bool]


def mutate(random: Random, function: ast.FunctionDef) -> ast.FunctionDef:
    """A copy of the function with one to three changes."""
    made = copy.deepcopy(function)
    wanted = random.choice((1, 1, 1, 2, 3))
    for _ in range(20):
        wanted -= random.choice(CHANGES)(random, made)
        if wanted <= 0:
            break
    return ast.fix_missing_locations(made)


def _suites(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    found = [getattr(node, name, None) for node in ast.walk(function) for name in ("body", "orelse", "finalbody")]
    return [suite for suite in found if isinstance(suite, list) and suite]


def _names(function: ast.FunctionDef) -> list[str]:
    return sorted(
        {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | {a.arg for a in function.args.args}
    )


def _pick(random: Random, function: ast.FunctionDef, *kinds: type[ast.AST]) -> Any:
    found = [node for statement in function.body for node in ast.walk(statement) if isinstance(node, kinds)]
    return random.choice(found) if found else None


def _expressions(function: ast.FunctionDef) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
    """Every expression that is read, with its parent, the parent's field, and its place in a list."""
    found: list[tuple[ast.AST, str, int | None, ast.expr]] = []
    for statement in function.body:
        for parent in ast.walk(statement):
            for field, value in ast.iter_fields(parent):
                each = value if isinstance(value, list) else [value]
                for i, child in enumerate(each):
                    stored = isinstance(getattr(child, "ctx", None), (ast.Store, ast.Del))
                    if isinstance(child, ast.expr) and not stored and not isinstance(parent, ast.JoinedStr):
                        found.append((parent, field, i if isinstance(value, list) else None, child))
    return found


def _put(place: tuple[ast.AST, str, int | None, ast.expr], made: ast.expr) -> None:
    parent, field, i, _ = place
    if i is None:
        setattr(parent, field, made)
    else:
        getattr(parent, field)[i] = made


def delete(random: Random, function: ast.FunctionDef) -> bool:
    suite = random.choice(_suites(function))
    del suite[random.randrange(len(suite))]
    if not suite:
        suite.append(ast.Pass())
    return True


def duplicate(random: Random, function: ast.FunctionDef) -> bool:
    suite = random.choice(_suites(function))
    i = random.randrange(len(suite))
    suite.insert(random.randrange(len(suite) + 1), copy.deepcopy(suite[i]))
    return True


def swap(random: Random, function: ast.FunctionDef) -> bool:
    suite = random.choice(_suites(function))
    if len(suite) < 2:
        return False
    i = random.randrange(len(suite) - 1)
    suite[i], suite[i + 1] = suite[i + 1], suite[i]
    return True


def insert(random: Random, function: ast.FunctionDef) -> bool:
    text = random.choice(STATEMENTS[:-1]).format(name=random.choice(_names(function)))
    suite = random.choice(_suites(function))
    try:
        made = ast.parse(f"def f():\n    while 1:\n        {text.replace(chr(10), chr(10) + ' ' * 8)}").body[0]
    except SyntaxError:
        return False
    at = random.randrange(len(suite) + 1)
    suite[at:at] = made.body[0].body  # type: ignore[attr-defined]
    return True


def wrap(random: Random, function: ast.FunctionDef) -> bool:
    suite = random.choice(_suites(function))
    i = random.randrange(len(suite))
    text = random.choice(_AROUND).format(name=random.choice(_names(function)), body="_BODY_")
    (made,) = ast.parse(text).body
    made.body[0] = suite[i]  # type: ignore[attr-defined]
    suite[i] = made
    return True


def rename(random: Random, function: ast.FunctionDef) -> bool:
    node = _pick(random, function, ast.Name)
    if node is None:
        return False
    node.id = random.choice([*_names(function), "undefined", node.id + "s", "None_", "gl"])
    return True


def change_constant(random: Random, function: ast.FunctionDef) -> bool:
    node = _pick(random, function, ast.Constant)
    if node is None or isinstance(node.value, str):
        return False
    value = random.choice(_NUMBERS)
    if isinstance(node.value, (int, float)) and random.random() < 0.4:
        value = node.value * 2 + random.choice((-1, 0, 1))
    node.value = value
    return True


def change_operator(random: Random, function: ast.FunctionDef) -> bool:
    node = _pick(random, function, ast.BinOp, ast.AugAssign, ast.Compare, ast.BoolOp, ast.UnaryOp)
    if node is None:
        return False
    binary = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr,
              ast.BitXor, ast.LShift, ast.RShift)  # fmt: skip
    compare = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn)
    if isinstance(node, ast.Compare):
        node.ops[random.randrange(len(node.ops))] = random.choice(compare)()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp):
        node.op = random.choice((ast.Not, ast.USub, ast.UAdd, ast.Invert))()
    else:
        node.op = random.choice(binary)()
    return True


def change_arguments(random: Random, function: ast.FunctionDef) -> bool:
    node = _pick(random, function, ast.Call)
    if node is None:
        return False
    choice = random.randrange(6)
    if choice == 0 and node.args:
        del node.args[random.randrange(len(node.args))]
    elif choice == 1 and node.keywords:
        del node.keywords[random.randrange(len(node.keywords))]
    elif choice == 2 and len(node.args) > 1:
        random.shuffle(node.args)
    elif choice == 3 and node.args:
        node.args.append(copy.deepcopy(random.choice(node.args)))
    elif choice == 4 and node.keywords:
        random.choice(node.keywords).arg = random.choice(
            ("mask", "axis", "layout", "other", "dtype", "unknown", "shape")
        )
    elif choice == 5:
        node.keywords.append(
            ast.keyword(random.choice(("mask", "axis", "layout", "x", "other")), ast.Constant(random.choice(_NUMBERS)))
        )
    else:
        return False
    return True


def change_attribute(random: Random, function: ast.FunctionDef) -> bool:
    """Another function of the language, another element type, or another name."""
    node = _pick(random, function, ast.Attribute)
    if node is None:
        return False
    if node.attr in _DTYPES:
        node.attr = random.choice(_DTYPES)
        return True
    from weft import language

    others = language.__all__ if isinstance(node.value, ast.Name) and node.value.id == "gl" else dir(language.tensor)
    known = [other for other in others if not other.startswith("_")]
    node.attr = random.choice([*known, "shape", "dtype", "foo", "index", "load", "store", "slice", "wait"])
    return True


def change_expression(random: Random, function: ast.FunctionDef) -> bool:
    """An expression in place of another one."""
    found = _expressions(function)
    if not found:
        return False
    _put(random.choice(found), copy.deepcopy(random.choice(found)[3]))
    return True


def wrap_expression(random: Random, function: ast.FunctionDef) -> bool:
    found = _expressions(function)
    if not found:
        return False
    place = random.choice(found)
    try:
        text = random.choice(_WRAPS).format(e=f"({ast.unparse(place[3])})")
        made = ast.parse(f"f({text})").body[0].value.args[0]  # type: ignore[attr-defined]
    except (SyntaxError, IndexError):
        return False
    _put(place, made)
    return True


CHANGES: tuple[Change, ...] = (
    delete, duplicate, swap, insert, insert, wrap, rename, rename, change_constant, change_constant, change_operator,
    change_arguments, change_arguments, change_attribute, change_expression, wrap_expression, wrap_expression,
)  # fmt: skip
