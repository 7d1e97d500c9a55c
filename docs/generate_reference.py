"""Writes docs/reference-cli.md from the program's help and docs/reference-python.md from the docstrings of the library.

`make docs` runs it; a test compares.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType

import click

import plait as library
from plait.cli.commands import COMMANDS, plait

HEAD = """\
# The command line

Made from the program's own help by `docs/generate_reference.py`; change the help, then run `make docs`.
"""
PYTHON_HEAD = """\
# The names of the library

`docs/generate_reference.py` makes this page from the docstrings: `make docs`. [python.md](python.md) explains the
most important ones with examples.
"""
WIDTH = 100


def sections(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Every command below this one, itself first: its words and its help."""
    yield ctx.command_path, command.get_help(ctx)
    if isinstance(command, click.Group):
        for name in COMMANDS if command is plait else command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from sections(below, context(below, name, ctx))


def context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """A context whose help does not depend on the terminal."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


def cli_page() -> str:
    """The page of the command line."""
    parts = [HEAD]
    for words, text in sections(plait, context(plait, "plait")):
        parts.append(f"\n## `{words}`\n\n```text\n{text}\n```\n")
    return "".join(parts)


def python_page() -> str:
    """The page of the public names: what each is called with, and the first line of its docstring."""
    parts = [PYTHON_HEAD]
    for name in sorted(library.__all__, key=str.lower):
        parts.append(f"\n## `plait.{name}`\n\n{describe(getattr(library, name), name)}")
    return "".join(parts)


def describe(value: object, name: str) -> str:
    """A public name in Markdown, with the public members of a class."""
    if not callable(value):
        kind = "module" if inspect.ismodule(value) else type(value).__name__
        return f"{first_line(value) if kind == 'module' else f'A {kind}.'}\n"
    text = f"```text\n{name}{signature(value)}\n```\n\n{first_line(value)}\n"
    if not isinstance(value, type):
        return text
    rows = []
    for key, member in sorted(members(value).items()):
        function = getattr(member, "__func__", member)
        shown = f"{key}{signature(function)}" if inspect.isfunction(function) else key
        rows.append(f"| `{escape(shown)}` | {escape(first_line(member))} |")
    return f"{text}\n| member | |\n|---|---|\n" + "\n".join(rows) + "\n" if rows else text


def members(kind: type) -> dict[str, object]:
    """The public methods and properties of a class of Plait, those of its bases included."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("plait"):
            found |= {key: value for key, value in vars(base).items() if is_documented(key, value)}
    return found


def is_documented(key: str, value: object) -> bool:
    """A method or property, not a field."""
    function = getattr(value, "__func__", value)
    return not key.startswith("_") and isinstance(function, FunctionType | property | cached_property)


class Text(str):
    """A text whose `repr` has no quotes."""

    def __repr__(self) -> str:
        return str(self)


def signature(value: Callable[..., object]) -> str:
    """What it is called with, without the package names of types."""
    try:
        found = inspect.signature(value)
    except ValueError:
        return "(...)"
    parameters = [shorten(each) for each in found.parameters.values() if each.name != "self"]
    returns = found.return_annotation
    if returns in (inspect.Signature.empty, None, "None"):
        returns = inspect.Signature.empty
    shown = found.replace(
        parameters=parameters, return_annotation=Text(returns) if isinstance(returns, str) else returns
    )
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(shown))


def shorten(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter, with `...` for a default that has no readable form."""
    if isinstance(parameter.annotation, str):
        parameter = parameter.replace(annotation=Text(parameter.annotation))
    if " at 0x" in repr(parameter.default) or "factory" in repr(parameter.default):
        parameter = parameter.replace(default=Text("..."))
    return parameter


def first_line(value: object) -> str:
    """The first sentence or line of its docstring."""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def escape(text: str) -> str:
    """Text fit for a cell of a table."""
    return text.replace("|", "\\|")


PAGES = {"reference-cli.md": cli_page, "reference-python.md": python_page}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for page_name, make in PAGES.items():
        (folder / page_name).write_text(make(), encoding="utf-8")
