"""The command line: `weft` and `python -m weft`. Each subcommand is one function and one entry of `COMMANDS`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import UserError
from weft.layout.parse import parse_layout, parse_shape
from weft.layout.show.svg import format_svg
from weft.layout.show.text import Piece, draw, hardware_fragments, tensor_fragments


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its name, its line of help, a function that declares its arguments, and one that runs it and returns the
    exit status."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (`sys.argv` by default). Returns the exit status: 0, or 1 when the command reports an error."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(given)
    # Recorded here because `argparse` removes `--` from the remainder in some Python versions and keeps it in others.
    arguments.escaped = "--" in given
    try:
        return arguments.run(arguments)
    except UserError as error:
        print(f"weft {arguments.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"weft {arguments.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="weft", description="GPU kernels in Python with explicit layouts.")
    parser.add_argument("--version", action="version", version=f"weft {sys.modules['weft'].__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.arguments(subparser)
        subparser.set_defaults(run=command.run, parser=subparser)
    return parser


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layout", help="a layout as Python spells it: 'BlockedLayout([2,4],[16,2],[2,2],[1,0])'")
    parser.add_argument("shape", nargs="+", help="the tile's shape: 32x8, or 32 8")
    parser.add_argument("--hardware", action="store_true", help="one line per thread instead of the tile")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the tile to an SVG file instead")
    parser.add_argument("--no-color", action="store_true", help="plain text")


def _show(arguments: argparse.Namespace) -> int:
    layout, shape = parse_layout(arguments.layout), parse_shape("x".join(arguments.shape))
    if arguments.svg is not None:
        arguments.svg.write_text(format_svg(layout, shape), encoding="utf-8")
        return 0
    picture = draw(layout, shape)
    fragments = hardware_fragments(picture) if arguments.hardware else tensor_fragments(picture)
    _print_colored(fragments, no_color=arguments.no_color)
    return 0


def _print_colored(fragments: Iterable[Piece], no_color: bool) -> None:
    """Print fragments, each with the background colour of its thread; without colours when the output is not a terminal."""
    from rich.console import Console
    from rich.text import Text

    text = Text()
    for part, place in fragments:
        text.append(part, f"#000000 on {place.color}" if place else None)
    Console(no_color=no_color or None, highlight=False).print(text, soft_wrap=True)


def _script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=Path, help="a Python file that launches kernels")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script finds in sys.argv")
    parser.add_argument("--no-color", action="store_true", help="plain text")


def _script_options(arguments: argparse.Namespace) -> list[str]:
    """The script's own arguments: everything after its path. One that weft has an option for must come after `--`."""
    given: list[str] = arguments.arguments
    if arguments.escaped:
        return given[1:] if given[:1] == ["--"] else given
    own = {f"--{name.replace('_', '-')}" for name in vars(arguments) if name in _WEFT_OPTIONS}
    for text in given:
        if text.partition("=")[0] in own:
            arguments.parser.error(
                f"{text} stands behind {arguments.script}, where options are the script's: write it before {arguments.script}, "
                f"or, if it is the script's, -- before it"
            )
    return given


_WEFT_OPTIONS = ("no_color", "registers", "runs", "uninitialized")
"""Options that weft's script-running commands take themselves."""


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    _script_arguments(parser)
    parser.add_argument(
        "--registers", action="store_true", help="make machine code too, and say how many registers it takes"
    )


def _explain(arguments: argparse.Namespace) -> int:
    # Only the commands that compile load the compiler.
    from weft import explain

    explanation = explain.explain_script(arguments.script, _script_options(arguments), compiled=arguments.registers)
    explain.show(explanation, _console(arguments))
    return 1 if explanation.stopped else 0


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    _script_arguments(parser)
    parser.add_argument(
        "--runs",
        metavar="N",
        type=_count,
        default=3,
        help="how often each launch runs: in order, in reverse, then at random (3)",
    )
    parser.add_argument(
        "--uninitialized",
        choices=("error", "poison", "ignore"),
        help="what a read of shared memory is that was never written (error)",
    )


def _check(arguments: argparse.Namespace) -> int:
    from weft import check

    found = check.check_script(
        arguments.script, _script_options(arguments), runs=arguments.runs, uninitialized=arguments.uninitialized
    )
    check.show(found, _console(arguments))
    return 0 if found.clean else 1


def _tune_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, description in TUNE_ACTIONS.items():
        action = actions.add_parser(name, help=description, description=description)
        if name in ("export", "import"):
            action.add_argument("file", type=Path, help="a JSON file")
        if name != "import":
            action.add_argument("--kernel", metavar="NAME", help="only those of kernels, or functions, of this name")
        action.add_argument("--no-color", action="store_true", help="plain text")
    description = (
        "Measure configurations of weft.kernels.matmul on the GPU for the shapes of a file, and store the fastest."
    )
    product = actions.add_parser("matmul", help=description, description=description)
    product.add_argument(
        "--shapes",
        type=Path,
        required=True,
        metavar="FILE",
        help="a table with columns m,n,k,dtype, or JSON lines (.jsonl)",
    )
    product.add_argument(
        "--candidates", type=_count, default=16, metavar="N", help="configurations for each shape (default: 16)"
    )
    product.add_argument("--no-color", action="store_true", help="plain text")


def _tune(arguments: argparse.Namespace) -> int:
    if arguments.action == "matmul":
        from weft.kernels import tuning

        return tuning.run(arguments.shapes, arguments.candidates, _console(arguments))
    from weft.tune import command

    return command.run(arguments, _console(arguments))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _console(arguments: argparse.Namespace) -> Any:
    from rich.console import Console

    return Console(no_color=arguments.no_color or None, highlight=False, soft_wrap=True)


TUNE_ACTIONS = {
    "list": "Show the stored choices.",
    "export": "Write the stored choices to a file.",
    "import": "Take over the choices of a file that was exported.",
    "clear": "Forget the stored choices.",
}
COMMANDS: tuple[Command, ...] = (
    Command("show", "Draw a layout: which thread and register holds each element of a tile.", _show_arguments, _show),
    Command("explain", "Say what became of each line of a script's kernels.", _explain_arguments, _explain),
    Command("check", "Run a script's kernels in the simulator and report every hazard.", _check_arguments, _check),
    Command("tune", "Show, carry to other machines or forget what autotuning chose.", _tune_arguments, _tune),
)
