"""The command line: `weft` and `python -m weft`. Each subcommand is one function and one entry of `COMMANDS`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UserError
from weft.layout.parse import parse_layout, parse_shape
from weft.layout.show import Fragment, draw, hardware_fragments, tensor_fragments
from weft.layout.svg import format_svg


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its name, one line of help, how it declares its arguments and what it does with them."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (`sys.argv` by default); returns the exit status: 0, or 1 after a user error."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except UserError as error:
        print(f"weft {arguments.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"weft {arguments.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="GPU kernels in Python with explicit layouts.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", help="a layout as Python spells it: 'BlockedLayout([2,4],[16,2],[2,2],[1,0])'")
    parser.add_argument("shape", help="the tile's shape: 32x8")
    parser.add_argument("--hardware", action="store_true", help="one line per thread instead of the tile")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the tile to an SVG file instead")
    parser.add_argument("--no-color", action="store_true", help="plain text")


def _show(arguments: argparse.Namespace) -> None:
    layout, shape = parse_layout(arguments.layout), parse_shape(arguments.shape)
    if arguments.svg is not None:
        arguments.svg.write_text(format_svg(layout, shape), encoding="utf-8")
        return
    picture = draw(layout, shape)
    fragments = hardware_fragments(picture) if arguments.hardware else tensor_fragments(picture)
    _print_colored(fragments, no_color=arguments.no_color)


def _print_colored(fragments: Iterable[Fragment], no_color: bool) -> None:
    """Print fragments, each on the colour of its place; colours are left out where the output is no terminal."""
    from rich.console import Console
    from rich.text import Text

    text = Text()
    for part, place in fragments:
        text.append(part, f"#000000 on {place.color}" if place else None)
    Console(no_color=no_color or None, highlight=False).print(text, soft_wrap=True)


COMMANDS: tuple[Command, ...] = (
    Command("show", "Draw a layout: which thread and register holds each element of a tile.", _show_arguments, _show),
)
