"""The parser of IR text (`weft.ir.text` describes the syntax). It knows defined operations only: `import weft.ops` first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeVar

from weft.ir.core import ABOUT_VALUES, Func, FuncAttrs, Op, OpDef, ParamFacts, Region, Value
from weft.ir.define import OPS
from weft.ir.text import TextError
from weft.ir.types import (
    BY_CODE,
    DescriptorType,
    DType,
    Element,
    LocalType,
    Pointer,
    RegsType,
    ScalarType,
    SharedArrayType,
    SharedType,
    TensorType,
    Type,
    tile_type,
)
from weft.layout import DistributedLayout, SharedLayout
from weft.layout.parse import parse_layout
from weft.layout.tensor_cores.shared_operands import Operand
from weft.layout.tensor_memory.layouts import TensorLayout

T = TypeVar("T", FuncAttrs, ParamFacts)


def parse_func(text: str) -> Func:
    """The function in the text, without locations. Raises TextError, or LayoutError for invalid layouts."""
    return _Parser(text).func()


@lru_cache(maxsize=1 << 12)
def parse_type(text: str) -> Type:
    """A type from its text: `f32`, `ptr<f32>`, `tile<16x32xf16, BlockedLayout(...)>`, `regs<4xi32>` and so on."""
    head, _, rest = text.partition("<")
    inside = rest.removesuffix(">").strip()
    if head == "regs":
        (count,), element = _dims(inside)
        return RegsType(element, count)
    if head == "shared" and "," not in inside:
        (count,), element = _dims(inside)
        return SharedArrayType(_number(element, text), count)
    if head == "local":
        (count,), element = _dims(inside)
        return LocalType(_number(element, text), count)
    if head == "tile":
        dims, _, layout = inside.partition(", ")
        shape, element = _dims(dims)
        return tile_type(element, shape, _distributed(layout))
    if head == "desc":
        dims, _, others = inside.partition(", ")
        layout, _, mode = others.rpartition("), ")
        shape, element = _dims(dims)
        return DescriptorType(
            _number(element, text), shape, _shared(f"{layout})" if layout else others), _mode(mode, layout)
        )
    if head == "shared":
        dims, _, others = inside.partition(", ")
        layout, _, alloc = others.rpartition(", [")
        shape, element = _dims(dims)
        alloc_shape = tuple(map(int, alloc.rstrip("]").split(", ")))
        return SharedType(_number(element, text), shape, _shared(layout), alloc_shape)
    if head == "tmem":
        dims, _, others = inside.partition(", ")
        layout, _, alloc = others.rpartition(", [")
        shape, element = _dims(dims)
        alloc_shape = tuple(map(int, alloc.rstrip("]").split(", ")))
        return TensorType(_number(element, text), shape, _tensor(layout), alloc_shape)
    return ScalarType(_element(text))


def _shared(text: str) -> SharedLayout:
    layout = parse_layout(text)
    if not isinstance(layout, SharedLayout):
        raise TextError(f"{text} is no layout of shared memory")
    return layout


def _tensor(text: str) -> TensorLayout:
    layout = parse_layout(text)
    if not isinstance(layout, TensorLayout):
        raise TextError(f"{text} is no layout of tensor memory")
    return layout


def _mode(text: str, layout: str) -> Literal["tiled", "im2col"]:
    return "im2col" if layout and text == "im2col" else "tiled"


def _distributed(text: str) -> DistributedLayout:
    layout = parse_layout(text)
    if not isinstance(layout, DistributedLayout):
        raise TextError(f"{text} is no layout of a tile")
    return layout


def _dims(text: str) -> tuple[tuple[int, ...], Element]:
    """Shape and element of `16x32xf32`."""
    found = re.match(r"(?:\d+x)*", text)
    assert found is not None
    return tuple(map(int, found[0].split("x")[:-1])), _element(text[found.end() :])


def _element(text: str) -> Element:
    pointer = re.fullmatch(r"ptr<(\w+)(?:, (global|shared))?>", text)
    code = pointer[1] if pointer else text
    if code not in BY_CODE:
        raise TextError(f"there is no type {text}")
    if pointer is None:
        return BY_CODE[code]
    return Pointer(BY_CODE[code], "shared" if pointer[2] == "shared" else "global")


def _number(element: Element, text: str) -> DType:
    if isinstance(element, Pointer):
        raise TextError(f"memory holds no pointers: {text}")
    return element


_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_TOKEN = re.compile(
    r"""(?P<value>%[\w.]+) | (?P<string>"(?:[^"\\]|\\.)*") | (?P<number>-?(?:\d[\d.]*(?:e[+-]?\d+)?|inf)(?![\w]))
    | (?P<word>@?[A-Za-z_][\w.]*) | (?P<mark>[{}()\[\]<>,:=])""",
    re.VERBOSE,
)
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "nan": float("nan"), "inf": float("inf")}


class _Parser:
    """A recursive-descent parser. `kind` and `token` are the next token, from `start` to `end`.

    `first`: it is the first token of its line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[str, Value] = {}
        self.kind, self.token, self.start, self.end, self.first = "", "", 0, 0, True
        self._advance()

    def func(self) -> Func:
        self._expect("func")
        name = self._take("word").removeprefix("@")
        self._expect("(")
        args, facts = self._params()
        attrs = self._made(FuncAttrs)
        body = self._block(args)
        about = self._about() if self._accept("{") else {}
        if self.kind != "end":
            self._fail("nothing more")
        return Func(name, body, replace(attrs, params=facts, **about))

    def _made(self, kind: type[T]) -> T:
        """Attributes of a function or of a parameter, which has no others than its class."""
        line, attrs = self._line(self.start), self._dict()
        try:
            return kind(**attrs)
        except TypeError as error:
            raise TextError(f"{error}, in line {line}") from None

    def _about(self) -> dict[str, dict[Value, Any]]:
        """The attributes after the body, which map values to entries."""
        found: dict[str, dict[Value, Any]] = {}
        while not self._accept("}"):
            if self.token not in ABOUT_VALUES:
                self._fail(" or ".join(ABOUT_VALUES))
            name = self._take("word")
            self._expect("=")
            self._expect("{")
            found[name] = self._entries()
            self._accept(",")
        return found

    def _entries(self) -> dict[Value, Any]:
        found: dict[Value, Any] = {}
        while not self._accept("}"):
            value = self._use()
            self._expect("=")
            found[value] = self._attribute()
            self._accept(",")
        return found

    def _params(self) -> tuple[tuple[Value, ...], tuple[ParamFacts, ...]]:
        args: list[Value] = []
        facts: list[ParamFacts] = []
        while not self._accept(")"):
            args.append(self._arg())
            facts.append(self._made(ParamFacts) if self.token == "{" else ParamFacts())
            self._accept(",")
        return tuple(args), tuple(facts)

    def _arg(self) -> Value:
        name = self._take("value")
        self._expect(":")
        return self._define(name, self._type())

    def _block(self, args: tuple[Value, ...]) -> Region:
        self._expect("{")
        ops: list[Op] = []
        while not self._accept("}"):
            ops.append(self._op())
        return Region(args, tuple(ops))

    def _op(self) -> Op:
        names: list[str] = []
        while self.kind == "value":
            names.append(self._take("value"))
            self._accept(",")
        if names:
            self._expect("=")
        kind = self._kind()
        operands = self._operands()
        attrs = {**kind.defaults, **(self._dict() if self.token == "{" else {})}
        regions = [self._region(name) for name in kind.regions]
        while kind.variadic_region is not None and self.token == kind.variadic_region:
            regions.append(self._region(kind.variadic_region))
        types = [self._result_type(i) for i in range(len(names))]
        if "type" in kind.attributes:
            attrs["type"] = types[0]
        results = tuple(self._define(name, type) for name, type in zip(names, types, strict=True))
        return Op(kind, operands, attrs, results, tuple(regions))

    def _kind(self) -> OpDef:
        if self.token not in OPS:
            self._fail("an operation")
        return OPS[self._take("word")]

    def _operands(self) -> tuple[Value | None, ...]:
        operands: list[Value | None] = []
        if self.first:
            # The operation has no operands; the token belongs to the next operation's results.
            return ()
        while self.kind == "value" or self.token == "_":
            operands.append(None if self._accept("_") else self._use())
            if not self._accept(","):
                break
        return tuple(operands)

    def _use(self) -> Value:
        if self.token not in self.values:
            self._fail("a value that is defined above")
        return self.values[self._take("value")]

    def _region(self, name: str) -> Region:
        self._expect(name)
        return self._block(self._params()[0] if self._accept("(") else ())

    def _result_type(self, index: int) -> Type:
        self._expect("," if index else ":")
        return self._type()

    def _define(self, name: str, type: Type) -> Value:
        if name in self.values:
            raise TextError(f"{name} is defined twice")
        self.values[name] = value = Value(type, "" if name[1:].isdigit() else name[1:])
        return value

    # Types and attributes

    def _type(self) -> Type:
        return parse_type(self._with_brackets("<>"))

    def _dict(self) -> dict[str, Any]:
        self._expect("{")
        found: dict[str, Any] = {}
        while not self._accept("}"):
            name = self._take("word")
            self._expect("=")
            found[name] = self._attribute()
            self._accept(",")
        return found

    def _attribute(self) -> Any:
        if self.kind == "string":
            return json.loads(self._take("string"))
        if self.kind == "number":
            number = self._take("number")
            return int(number) if number.lstrip("-").isdigit() else float(number)
        if self.token == "{":
            return self._dict()
        if self._accept("["):
            return self._tuple()
        if self._accept("<"):
            self._expect("function")
            self._expect(">")
            return None
        if self.token in _WORDS:
            return _WORDS[self._take("word")]
        if self._accept("Operand"):
            return self._operand()
        if self.text.startswith("(", self.end):
            return parse_layout(self._with_brackets("()"))
        return _element(self._with_brackets("<>"))

    def _operand(self) -> Operand:
        self._expect("(")
        return Operand(*self._tuple(")"))

    def _tuple(self, end: str = "]") -> tuple[Any, ...]:
        found: list[Any] = []
        while not self._accept(end):
            found.append(self._attribute())
            self._accept(",")
        return tuple(found)

    def _with_brackets(self, brackets: str) -> str:
        """The text of a word and the brackets directly after it."""
        start, end, depth = self.start, self.end, 0
        if self.kind != "word":
            self._fail("a type or a layout")
        if self.text.startswith(brackets[0], end):
            for found in re.compile(f"[{re.escape(brackets)}]").finditer(self.text, end):
                depth += 1 if found[0] == brackets[0] else -1
                end = found.end()
                if not depth:
                    break
        self.end = end
        self._advance()
        return self.text[start:end]

    # Tokens

    def _advance(self) -> None:
        space = _SPACE.match(self.text, self.end)
        self.first = space is not None and "\n" in space[0]
        self.start = space.end() if space else self.end
        if self.start == len(self.text):
            self.kind, self.token, self.end = "end", "the end of the text", self.start
            return
        found = _TOKEN.match(self.text, self.start)
        if found is None:
            self.token = self.text[self.start]
            self._fail("IR")
        self.kind, self.token, self.end = found.lastgroup or "", found[0], found.end()

    def _take(self, kind: str) -> str:
        if self.kind != kind:
            self._fail(f"a {kind}")
        token = self.token
        self._advance()
        return token

    def _accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self._advance()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            self._fail(repr(token))

    def _fail(self, wanted: str) -> NoReturn:
        raise TextError(f"{wanted} is expected, not {self.token!r}, in line {self._line(self.start)}")

    def _line(self, place: int) -> str:
        line = self.text.count("\n", 0, place) + 1
        return f"{line}: {self.text.split(chr(10))[line - 1]}"
