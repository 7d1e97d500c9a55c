"""Writes the reference pages: docs/reference-cli.md from the program's help, docs/reference-python.md from the
docstrings of the library, docs/reference-options.md from the declared options of an agent.

It also writes docs/llms.txt and skills/plait/SKILL.md (`agent_skill.py`), the tables of docs/providers.md from what the
library knows of hosts and models, those of docs/python.md and docs/limits.md from the options, and the columns of
docs/journal.md from the schema.

`make docs` runs it; a test compares.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

from agent_skill import llms_page, skill_page
from cli_reference import cli_page

import plait as library
from plait.config import ServeTable
from plait.journal import codec
from plait.journal.records import Record
from plait.journal.sqlite import schema
from plait.models.base import Model
from plait.models.families import FAMILIES, Family, media_of
from plait.models.presets import HOSTS, LOCAL_TEMPERATURE, Host
from plait.models.prices import bundled_rate
from plait.models.wires.anthropic_messages import MAX_STOP
from plait.runtime.agents.agent_fields import OPTIONS, AgentFields
from plait.runtime.agents.options import Option, list_fields, without_option
from plait.runtime.conversations.sessions import History
from plait.runtime.limits import Limits
from plait.runtime.spend_limits import SpendLimit

PYTHON_HEAD = """\
# The names of the library

`docs/generate_reference.py` makes this page from the docstrings: `make docs`. [python.md](python.md) explains the
most important ones with examples. `name: str=None` takes a text or `None`. `name=3` takes a value of the type of
its default. Methods have the names of their arguments here; one with `=` can be left out.
"""
OPTIONS_HEAD = """\
# The options of an agent

`docs/generate_reference.py` makes this page from the declarations of the options: `make docs`.

The journal stores the values with each run, except NOT_STORED. `plait resume`, `plait fork` and
`Agent.from_journal` use the stored value unless another one is given. `agent.resume` and `agent.fork` in Python use the
agent's own value.

[python.md](python.md#agent) has the fields of an agent, [limits.md](limits.md#limits) its limits.

## `plait.History`

"""
WORDS_HEAD = """
## On the command line and in plait.toml

The key is for the tables `[run]` and `[agents.NAME]` of `plait.toml` ([configuration.md](configuration.md)). *Sets*
names the field. VARIABLES.

*Untrusted file* says what a `plait.toml` in the working folder may do with the option if you do not trust the file:
*refused* (it may not set it), *same* (not to another value than your own file), *at most*
(up to the value in your own file), or *allowed*. Words for code, files and models that are not harmless are refused in
any case ([SECURITY.md](../SECURITY.md#keys-and-configuration)).

| command line | plait.toml | sets | untrusted file |
|---|---|---|---|
"""
FIELD_TABLES = {
    "Agent": "python.md#agent",
    "Limits": "limits.md#limits",
    "SpendLimit": "limits.md#spend-limits",
    "History": "reference-options.md#plaithistory",
    "ModelSettings": "models.md#settings",
    "Run": "python.md#run",
    "Tool": "tools.md#the-decorator",
}
"""The classes whose fields have a table on another page, and its place."""


def python_page() -> str:
    """The page of the public names: what each is called with, and the summary in its docstring."""
    parts = [PYTHON_HEAD]
    for name in sorted(library.__all__, key=str.lower):
        parts.append(f"\n## `plait.{name}`\n\n{describe(getattr(library, name), name)}")
    return "".join(parts)


def describe(value: object, name: str) -> str:
    """A public name in Markdown, with the public members of a class."""
    if not callable(value):
        kind = "module" if inspect.ismodule(value) else type(value).__name__
        return f"{summary(value) if kind == 'module' else f'A {kind}.'}\n"
    shown = "" if signature(value) == "()" or name in FIELD_TABLES else f"`{name}{signature(value)}`\n\n"
    text = f"{shown}{summary(value)}\n"
    if name in FIELD_TABLES:
        text = f"{text.rstrip()} [Its fields]({FIELD_TABLES[name]}).\n"
    if not isinstance(value, type):
        return text
    rows = []
    for key, member in sorted(members(value).items()):
        function = getattr(member, "__func__", member)
        shown = f"{key}{arguments(function)}" if inspect.isfunction(function) else key
        rows.append(f"- `{shown}`: {summary(member)}\n")
    return f"{text}\n{''.join(rows)}" if rows else text


def arguments(function: Callable[..., object]) -> str:
    """The names of the arguments, with `=` behind those that may be left out."""
    given = [each for each in inspect.signature(function).parameters.values() if each.name not in ("self", "cls")]
    marks: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    shown = [
        f"{marks.get(each.kind, '')}{each.name}{'' if each.default is inspect.Parameter.empty else '='}"
        for each in given
    ]
    return f"({', '.join(shown)})"


def members(kind: type) -> dict[str, object]:
    """The public methods and properties of a class of Plait with a docstring, those of its bases included.

    A model's methods by which a run asks it are left out.
    """
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("plait"):
            found |= {key: value for key, value in vars(base).items() if is_documented(key, value)}
    if hasattr(kind, "encode"):
        found = {key: value for key, value in found.items() if not hasattr(Model, key)}
    return found


def is_documented(key: str, value: object) -> bool:
    """A method or property with a docstring, not a field."""
    function = getattr(value, "__func__", value)
    is_member = isinstance(function, FunctionType | property | cached_property)
    return not key.startswith("_") and is_member and bool(summary(value))


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
    parameters = [shorten(each) for each in found.parameters.values() if each.name != "self" and each.name[0] != "_"]
    returns = found.return_annotation
    if returns in (inspect.Signature.empty, None, "None"):
        returns = inspect.Signature.empty
    shown = found.replace(
        parameters=parameters, return_annotation=Text(returns) if isinstance(returns, str) else returns
    )
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", str(shown)).replace(" | UnsetType = UNSET", " = UNSET")
    text = re.sub(r"Annotated\[(\w+), Meta\([^()]*\)\]", r"\1", text)
    text = re.sub(r"Optional\[(\w+)\] = None|Union\[([^:]+), UnsetType\] = UNSET", unwrap, text)
    return text.replace(" | None = None", " = None").replace(" | ", "|").replace(" = ", "=")


def unwrap(found: re.Match[str]) -> str:
    """The type of an argument that is usually not given."""
    return f"{found[1]} = None" if found[1] else f"{found[2]} = UNSET"


def shorten(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter, with `...` for a default that has no readable form."""
    if isinstance(parameter.annotation, str):
        parameter = parameter.replace(annotation=Text(parameter.annotation))
    elif hasattr(parameter.annotation, "__metadata__"):
        parameter = parameter.replace(annotation=parameter.annotation.__origin__)
    if inspect.formatannotation(parameter.annotation) in (name := type(parameter.default).__name__, f"'{name}'"):
        parameter = parameter.replace(annotation=inspect.Parameter.empty)
    default = "" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
    if re.search(r" at 0x|factory|^<class", default) or len(default) > 40:
        parameter = parameter.replace(default=Text("..."))
    return parameter


def summary(value: object) -> str:
    """The first sentence of its docstring, and the others that end on the docstring's first line."""
    text = inspect.getdoc(value) or ""
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z`])", " ".join(text.partition("\n\n")[0].split()))
    found, *others = sentences
    for each in others:
        if len(found) + len(each) < len(text.partition("\n")[0]):
            found = f"{found} {each}"
    return found


def escape(text: str) -> str:
    """Text fit for a cell of a table."""
    return text.replace("|", "\\|")


def options_page() -> str:
    """The page of an agent's options: those of the history, and the words of all."""
    fields = [each for kind in (AgentFields, Limits, History) for each in list_fields(kind)]
    not_stored = ", ".join(f"`{each.name}`" for each in fields if not each.stored)
    parts = [OPTIONS_HEAD.replace("NOT_STORED", not_stored), fields_table(History), "\n"]
    rows = []
    for each in OPTIONS:
        field = f"`{each.within}.{each.name}`" if each.within else f"`{each.name}`"
        if each.flag or each.file_key:
            shown, key = (f"`{word}`" if word else "" for word in (each.flag, each.file_key))
            rows.append(f"| {escape(shown)} | {key} | {field} | {each.trust} |\n")
    variables = ", ".join(f"`{each.variable}` sets `{each.flag.split()[0]}`" for each in OPTIONS if each.variable)
    return "".join([*parts, WORDS_HEAD.replace("VARIABLES", f"In the environment, {variables}"), *rows])


def values_of(each: Option) -> str:
    """The values that an option takes, in a cell."""
    if each.choices:
        return ", ".join(f"`{word}`" for word in each.choices)
    annotation = inspect.get_annotations(each.owner)[each.name]
    return f"`{escape(without_option(annotation))}`"


def default_of(each: Option) -> str:
    """The default of an option, in a cell."""
    value = each.default
    shown = value.__name__ if isinstance(value, type) else f'"{value}"' if isinstance(value, str) else repr(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(value, "g")
    return "none" if value is None else f"`{shown}`"


def meaning(each: Option) -> str:
    """The meaning of an option, with its page, in a cell."""
    page = each.page or f"{each.name}.md"
    is_there = (Path(__file__).parent / page.partition("#")[0]).exists()
    return escape(each.help) + (f" ([{page.partition('#')[0]}]({page}))" if is_there else "")


def fields_table(kind: type) -> str:
    """The fields of a class that declares options."""
    rows = [(f"`{each.name}`", values_of(each), default_of(each), meaning(each)) for each in list_fields(kind)]
    return table(("field", "value", "default", "meaning"), *rows)


def limits_table() -> str:
    """The limits of a run, with their options of the command line."""
    rows = []
    for each in list_fields(Limits):
        shown = f"`{each.flag}`" if each.flag else ""
        rows.append((shown, f"`{each.name}`", meaning(each), default_of(each)))
    return table(("command line", "Python (`plait.Limits`)", "meaning", "default"), *rows)


def serve_table() -> str:
    """The settings of the table [serve]."""
    rows = [(f"`{each.name}`", meaning(each), default_of(each)) for each in list_fields(ServeTable)]
    return table(("setting", "meaning", "default"), *rows)


def with_tables(page: str, tables: dict[str, str]) -> str:
    """A page whose text is written by hand, with its tables made."""
    text = (Path(__file__).parent / page).read_text(encoding="utf-8")
    for name, rows in tables.items():
        before, mark, after = text.partition(f"<!-- table: {name} -->\n")
        text = f"{before}{mark}{rows}\n{after[after.index('<!-- end -->') :]}"
    return text


def providers_page() -> str:
    """The page of providers."""
    made = {"access": access_table(), "requests": requests_table(), "families": families_table()}
    return with_tables("providers.md", made)


def table(*rows: tuple[str, ...]) -> str:
    """Rows in Markdown; the first one is the head."""
    head, *rest = ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def access_table() -> str:
    """Where each host is, and what holds its key."""
    head = ("provider", "such as", "address", "key, from the environment", "source")
    return table(head, *map(access_cells, HOSTS.values()))


def access_cells(host: Host) -> tuple[str, ...]:
    """The cells of a host: its name, address and key."""
    keys = " or ".join(f"`{key}`" for key in host.keys) + (" (not needed)" if host.local else "")
    return f"`{host.name}`", f"`{host.name}:{host.example}`", f"`{host.base_url}`", keys, source_cell(host)


def requests_table() -> str:
    """What requests to the hosts hold, a row for each feature: its values, and the hosts that have them."""
    found = {name: request_cells(host) for name, host in HOSTS.items()}
    rows = []
    for feature in found["openai"]:
        groups: dict[str, list[str]] = {}
        for name, cells in found.items():
            groups.setdefault(cells[feature], []).append(f"`{name}`")
        *few, (usual, _) = sorted(groups.items(), key=lambda group: len(group[1]))
        words = [f"{value}: {', '.join(names)}" for value, names in few]
        rows.append((feature, "; ".join([*words, f"{usual}: {'the others' if few else 'all'}"])))
    return table(("request", "value: providers"), *rows)


def request_cells(host: Host) -> dict[str, str]:
    """What requests to a host hold for a model of no family, by feature."""
    can, dialect = host.abilities, host.dialect
    effort, thinking = THINKING.get(host.name) or THINKING[host.wire]
    most = MAX_STOP if host.wire == "anthropic" else dialect.max_stop
    grammars = {"response_format": "`response_format`", "structured_outputs": "`structured_outputs`"}
    prefills = {"prefix": '`"prefix": true`', "fields": "`continue_final_message`"}
    price = bundled_rate(host.name, host.example, url=host.base_url).is_known
    return {
        "wire": f"`{host.wire}`",
        "tools": yes(can.tools),
        "streams": yes(can.stream),
        "stop strings": f"up to {most}" if can.stop else "no",
        "temperature": f"{LOCAL_TEMPERATURE:g}" if host.local else "if set",
        "schema": yes(can.schema),
        "grammar": grammars.get(dialect.grammar, "`grammar`") if can.grammar else "no",
        "prefill": prefills.get(dialect.prefill, "last message") if can.prefill else "no",
        "raw prompt": yes(can.completion),
        "cache marks": yes(host.wire == "anthropic"),
        "`effort` is sent as": f"`{effort}`",
        "`thinking_tokens` is sent as": f"`{thinking}`" if thinking else "no",
        "price": "electricity" if host.local else yes(price),
    }


THINKING = {
    "chat": ("reasoning_effort", ""),
    "openrouter": ("reasoning.effort", "reasoning.max_tokens"),
    "anthropic": ("output_config.effort", "thinking.budget_tokens"),
    "gemini": ("generationConfig.thinkingConfig.thinkingLevel", "generationConfig.thinkingConfig.thinkingBudget"),
}
"""The fields of the settings `effort` and `thinking_tokens`, by wire or host."""


def families_table() -> str:
    """What each family of models accepts."""
    return table(
        ("family", "such as", "left out", "thinking is set with", "sees", "source"), *map(family_cells, FAMILIES)
    )


def family_cells(family: Family) -> tuple[str, ...]:
    """The cells of a family."""
    settings = [f"`effort`: {'/'.join(family.efforts)}"] if family.efforts else []
    settings += ["`thinking_tokens`"] if family.has_budget else []
    return (
        family.name,
        f"`{family.host}:{family.example}`",
        ", ".join([*(f"`{each}`" for each in family.lacks), *(f"`{each}` (own host)" for each in family.host_lacks)])
        or "nothing",
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


def journal_tables() -> str:
    """The tables, columns and kinds of work of the journal's file."""
    parts = []
    for each in schema.TABLES:
        columns = [(f"`{column.name}`", column.meaning) for column in each.columns]
        parts.append(f"### `{each.name}`\n\n{each.meaning}\n\n{table(('column', 'meaning'), *columns)}\n")
    kinds = ", ".join(sorted(f"`{each.__name__}`" for each in get_args(Record)))
    works = [(f"`{work}`", *map(type_cell, types)) for work, types in codec.WORKS.items()]
    parts.append(f"### Records\n\nThe records are {kinds}.\n{WORKS_HEAD}")
    parts.append(f"{table(('work', 'asked', 'made', 'result'), *works)}\n")
    return "\n".join(parts)


WORKS_HEAD = """\
Each record has the `key` of its entry, such as `3.1` for the second call of the loop's effect 3, and the `step` of the
loop. An intent and a result also have a `work`, which tells the types of their values. Other work has plain JSON.
"""


def type_cell(kind: Any) -> str:
    """The type of a recorded value."""
    return "JSON" if kind is Any else f"`{kind.__name__}`" if isinstance(kind, type) else "`str` or null"


PAGES = {
    "reference-cli.md": cli_page,
    "reference-python.md": python_page,
    "reference-options.md": options_page,
    "providers.md": providers_page,
    "python.md": lambda: with_tables("python.md", {"agent": fields_table(AgentFields)}),
    "serve.md": lambda: with_tables("serve.md", {"serve": serve_table()}),
    "journal.md": lambda: with_tables("journal.md", {"schema": journal_tables()}),
    "limits.md": lambda: with_tables("limits.md", {"limits": limits_table(), "spend": fields_table(SpendLimit)}),
    "llms.txt": llms_page,
    "SKILL.md": skill_page,
}
ELSEWHERE = {"SKILL.md": Path(__file__).parents[1] / "skills" / "plait"}
"""The folders of pages that are not in docs."""

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for page_name, make in PAGES.items():
        place = folder or ELSEWHERE.get(page_name, Path(__file__).parent)
        place.mkdir(parents=True, exist_ok=True)
        (place / page_name).write_text(make(), encoding="utf-8")
