"""Writes docs/reference-cli.md from the program's help, for `generate_reference.py`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial

import click

from plait.cli import classics, compare, options
from plait.cli.commands import COMMANDS, plait

HEAD = """\
# The command line

Made from the program's own help by `docs/generate_reference.py`; change the help, then run `make docs`. Each command
has `-h` (`--help`), which prints all its options, and examples. Here, options that several commands share are listed
once, in the first sections.
"""
WIDTH = 100


def sections(command: click.Command, ctx: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command below this one, itself first, with its context."""
    yield command, ctx
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
    """The page of the command line: the options that several commands share, then every command."""
    parts = [HEAD]
    for title, group in [*list(SHARED.items())[1:], (OF_CLASSICS, SHARED[OF_CLASSICS])]:
        ctx = context(group, "plait")
        short, notes = without_shared(group, ctx, here=title)
        parts.append(section(title, options_text(short, ctx), notes))
        if title == FOR_ALL:
            parts.append(f"\nAll commands have these options, except {', '.join(without_journal())}.\n")
    for command, ctx in sections(plait, context(plait, "plait")):
        short, notes = without_shared(command, ctx)
        pieces = [each for each in click.Command.collect_usage_pieces(command, ctx) if each != "[OPTIONS]"]
        epilog = re.sub(r"^ *Examples:\n.*?(\n\n|$)", "", text_of(command.format_epilog, ctx), flags=re.S)
        texts = [text_of(command.format_help_text, ctx), options_text(short, ctx), epilog]
        parts.append(section(f"`{' '.join([ctx.command_path, *pieces])}`", "\n\n".join(filter(None, texts)), notes))
    return "".join(parts)


def section(title: str, text: str, notes: list[str]) -> str:
    """A section with a help text, and the paragraph that names the shared options of its command."""
    also = f"\nAlso: {'; '.join(notes)}.\n" if notes else ""
    return f"\n## {title}\n\n```text\n{text}\n```\n{also}"


def options_text(command: click.Command, ctx: click.Context) -> str:
    """The options of a command, without the commands of a group."""
    text = text_of(partial(click.Command.format_options, command), ctx)
    return textwrap.dedent(text.removeprefix("Options:\n"))


def text_of(write: Callable[[click.Context, click.HelpFormatter], None], ctx: click.Context) -> str:
    """A part of the help of a command."""
    formatter = ctx.make_formatter()
    write(ctx, formatter)
    return textwrap.dedent(formatter.getvalue().strip("\n"))


def options_of(*decorators: Callable[[Callable[[], None]], Callable[[], None]]) -> click.Command:
    """A command that has only these options."""
    return click.command(add_help_option=False)(options.combine(*decorators)(lambda: None))


OF_AGENT = "Options of an agent"
OF_CLASSICS = "Options of the classic experiments"
FOR_ALL = "Journal and configuration"
"""The section that says itself which commands have its options."""
SHARED = {
    OF_CLASSICS: options_of(classics._several, classics._shared),
    OF_AGENT: options_of(options.named_agent, options.agent()),
    "Filters of recorded runs": options_of(options.filters),
    "Annotations of a run": options_of(options.about_run),
    "Output of a run": options_of(options.save_files, options.as_object, options.quiet),
    "Tables of a comparison": options_of(compare.table_output),
    "Jobs and budget": options_of(options.jobs, options.budget),
    FOR_ALL: options_of(options.journal),
}
"""The groups of options that several commands share, by the title of their section."""


def without_shared(command: click.Command, ctx: click.Context, here: str = "") -> tuple[click.Command, list[str]]:
    """The command without the options that another section than `here` has in the same words, and the links to these.

    A group counts if the command has more than half of it, or three options, in the same words apart from a default
    and from whether they can be repeated; of the options of an agent, one is enough.
    """
    left, notes = list(command.params), []
    for title, group in SHARED.items():
        if title == here or (title == OF_CLASSICS and not is_classic(ctx)):
            continue
        listed = {record(each, ctx): each.opts[0] for each in group.params}
        bare = {without_default(each) for each in listed}
        same = [each for each in left if without_default(record(each, ctx)) in bare]
        is_most = 2 * len(same) > len(listed)
        if not is_most and len(same) < (1 if title == OF_AGENT else 3):
            continue
        left = [each for each in left if each not in same]
        if title == FOR_ALL:
            continue
        note = f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
        changed = [each for each in same if record(each, ctx) not in listed]
        many = [f"`{each.opts[0]}`" for each in changed if REPEATED.search(record(each, ctx)[1])]
        if len(changed) > len(many):
            note += ", without their defaults"
        has = {word for each in command.params for word in each.opts}
        if lacks := [word for word in listed.values() if word not in has]:
            words = lacks if is_most else [each.opts[0] for each in same]
            note += f", {'but not' if is_most else 'only'} {', '.join(f'`{word}`' for word in words)}"
        notes.append(note + f", and {', '.join(many)} can be repeated" * bool(many))
    short = copy(command)
    short.params, short.add_help_option = left, False
    return short, notes


def without_journal() -> Iterator[str]:
    """The commands without the options of the journal; a group in place of all its commands."""
    for name in COMMANDS:
        command = plait.get_command(context(plait, "plait"), name)
        assert command is not None
        leaves = [
            (ctx.command_path, "--journal" in {word for each in leaf.params for word in each.opts})
            for leaf, ctx in sections(command, context(command, name, context(plait, "plait")))
            if not isinstance(leaf, click.Group) or leaf.invoke_without_command
        ]
        missing = [path for path, has in leaves if not has]
        yield from (f"`{path}`" for path in ([f"plait {name}"] if len(missing) == len(leaves) else missing))


def is_classic(ctx: click.Context) -> bool:
    """Whether this is a command of `plait classics`."""
    return ctx.parent is not None and ctx.parent.command is classics.classics


def record(option: click.Parameter, ctx: click.Context) -> tuple[str, str]:
    """The words of an option, and its help."""
    return option.get_help_record(ctx) or ("", "")


def without_default(words: tuple[str, str]) -> tuple[str, str]:
    """The same without a default value, and without the sentence that it can be repeated."""
    return words[0], re.sub(r" \(default [^()]*\)\.?$", "", REPEATED.sub("", words[1])).rstrip(".")


REPEATED = re.compile(r" (Several are compared|Can be repeated)\.$")
"""What the help of an option says at its end if it can be repeated."""
