"""Writes docs/reference-cli.md from the program's help and docs/reference-python.md from the docstrings of the library.

It also writes the tables of docs/providers.md from what the library knows of hosts and models.

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
from plait.models.families import FAMILIES, Family, media_of
from plait.models.presets import HOSTS, LOCAL_TEMPERATURE, Host
from plait.models.prices import bundled_rate
from plait.models.wires.anthropic_messages import MAX_STOP

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


def providers_page() -> str:
    """The page of providers: its text is written by hand, its tables are made."""
    text = (Path(__file__).parent / "providers.md").read_text(encoding="utf-8")
    for name, rows in {"access": access_table(), "requests": requests_table(), "families": families_table()}.items():
        before, mark, after = text.partition(f"<!-- table: {name} -->\n")
        text = f"{before}{mark}{rows}\n{after[after.index('<!-- end -->') :]}"
    return text


def table(*rows: tuple[str, ...]) -> str:
    """Rows in Markdown; the first one is the head."""
    head, *rest = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def access_table() -> str:
    """Where each host is, and what holds its key."""
    head = ("provider", "such as", "address", "key, from the environment", "another address")
    return table(head, *[(*access_cells(host), f"`{host.base_env}`") for host in HOSTS.values()])


def access_cells(host: Host) -> tuple[str, ...]:
    """The cells of a host up to its key."""
    keys = " or ".join(f"`{key}`" for key in host.keys) + (" (not needed)" if host.local else "")
    return f"`{host.name}`", f"`{host.name}:{host.example}`", f"`{host.base_url}`", keys


def requests_table() -> str:
    """What requests to each host hold."""
    head = (
        *("provider", "wire", "tools", "streams", "stop strings", "temperature", "schema", "grammar", "prefill"),
        *("raw prompt", "cache marks", "`effort` is sent as", "`thinking_tokens` is sent as", "price", "source"),
    )
    return table(head, *map(request_cells, HOSTS.values()))


def request_cells(host: Host) -> tuple[str, ...]:
    """The cells of a host, for a model of no family."""
    can, dialect = host.abilities, host.dialect
    most = MAX_STOP if host.wire == "anthropic" else dialect.max_stop
    effort, thinking = THINKING.get(host.name) or THINKING[host.wire]
    grammars = {"response_format": "`response_format`", "structured_outputs": "`structured_outputs`"}
    prefills = {"prefix": '`"prefix": true`', "fields": "`continue_final_message`"}
    price = bundled_rate(host.name, host.example, url=host.base_url).is_known
    return (
        f"`{host.name}`",
        f"`{host.wire}`",
        yes(can.tools),
        yes(can.stream),
        f"up to {most}" if can.stop else "no",
        f"{LOCAL_TEMPERATURE:g}" if host.local else "if set",
        yes(can.schema),
        grammars.get(dialect.grammar, "`grammar`") if can.grammar else "no",
        prefills.get(dialect.prefill, "last message") if can.prefill else "no",
        yes(can.completion),
        yes(host.wire == "anthropic"),
        f"`{effort}`",
        f"`{thinking}`" if thinking else "no",
        "electricity" if host.local else yes(price),
        source_cell(host),
    )


THINKING = {
    "chat": ("reasoning_effort", ""),
    "openrouter": ("reasoning.effort", "reasoning.max_tokens"),
    "anthropic": ("output_config.effort", "thinking.budget_tokens"),
    "gemini": ("generationConfig.thinkingConfig.thinkingLevel", "generationConfig.thinkingConfig.thinkingBudget"),
}
"""The fields of the settings `effort` and `thinking_tokens`, by wire or host."""


def families_table() -> str:
    """What each family of models accepts."""
    head = (
        *("family", "such as", "wire", "left out at every host", "left out at its own host"),
        *("thinking is set with", "sees", "source"),
    )
    return table(head, *map(family_cells, FAMILIES))


def family_cells(family: Family) -> tuple[str, ...]:
    """The cells of a family."""
    settings = [f"`effort`: {', '.join(family.efforts)}"] if family.efforts else []
    settings += ["`thinking_tokens`"] if family.has_budget else []
    return (
        family.name,
        f"`{family.host}:{family.example}`",
        f"`{family.wire or HOSTS[family.host].wire}`",
        ", ".join(f"`{ability}`" for ability in family.lacks) or "nothing",
        ", ".join(f"`{ability}`" for ability in family.host_lacks) or "nothing",
        "; ".join(settings) or "-",
        sees_cell(family),
        source_cell(family),
    )


def sees_cell(family: Family) -> str:
    """The kinds of files that the models of a family accept."""
    accepted = media_of(family.host, family.example)
    return ", ".join(word for word, ability in (("images", "images"), ("PDF", "files")) if accepted[ability]) or "text"


def source_cell(row: Host | Family) -> str:
    """The page that a row was compared with, and when."""
    return f"[{row.date}]({row.source})"


def yes(value: bool) -> str:
    """A cell."""
    return "yes" if value else "no"


PAGES = {"reference-cli.md": cli_page, "reference-python.md": python_page, "providers.md": providers_page}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for page_name, make in PAGES.items():
        (folder / page_name).write_text(make(), encoding="utf-8")
