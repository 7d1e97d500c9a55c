"""Writes docs/reference-cli.md from the program's own help. `make docs` runs it; a test compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from plait.cli.commands import COMMANDS, plait

HEAD = """\
# The command line

Made from the program's own help by `docs/generate_reference.py`; change the help, then run `make docs`.
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


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for words, text in sections(plait, context(plait, "plait")):
        parts.append(f"\n## `{words}`\n\n```text\n{text}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("reference-cli.md")
    place.write_text(page(), encoding="utf-8")
