"""The configuration in `plait.toml`: endpoints, prices, electricity, defaults of `plait run`, agents of `plait serve`.

Options override environment variables, which override the files, which override built-in defaults. Plait reads the
user's own file, and over it a named file or `plait.toml` in the working folder. A Python program reads the folder's
file only after `use_config`. `trust.py` limits what it may do. A file never holds secrets: an endpoint names the
environment variable of its key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Struct, defstruct

from plait.core.errors import ConfigError
from plait.core.text import cut_text, suggest
from plait.models.config import ModelConfig
from plait.runtime.agents.options import Option, list_fields
from plait.runtime.spend_limits import SpendLimit, read_spend_limits
from plait.trust import agent_options, is_trusted, own_file, risks
from plait.user_files import read_file

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a table",
}
TABLES = {
    *("run", "serve", "agents", "endpoints", "prices", "params", "electricity", "local", "telemetry", "timeout"),
    *("journal", "settings", "abilities", "rate_limits", "spend"),
}


@cache
def agent_types() -> tuple[type[Struct], type[Struct]]:
    """Return the types of the tables `[run]`, with the keys that the options of an agent declare, and `[agents.NAME]`.
    `agent` names one in Python, `module:agent`, which the other keys change. An agent of `plait serve` also has a
    `description`, which is shown to clients; with `thoughts` they also receive its thoughts and actions."""
    keys = [(key, each.file_type | None, None) for key, each in agent_options().items()]
    run = defstruct("RunTable", keys, frozen=True, forbid_unknown_fields=True)
    more = [("agent", str | None, None), ("description", str, ""), ("thoughts", bool, False)]
    return run, defstruct("AgentTable", more, bases=(run,), frozen=True, forbid_unknown_fields=True)


class ServeTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[serve]`: where `plait serve` listens, and its limits."""

    host: Annotated[str, Option("The address to listen on.", "--host ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Option("The port; 0: a free one.", "--port N", most=65535)] = 8765
    concurrent: Annotated[int, Option("Maximum runs at once.", above=0)] = 16
    queued: Annotated[int, Option("Maximum requests that wait; further ones get 429 with `Retry-After`.")] = 64
    seconds: Annotated[float, Option("Maximum seconds of a run.", above=0)] = 600.0
    grace: Annotated[float, Option("Seconds that runs get to end when the server stops.")] = 10.0
    body_mb: Annotated[float, Option("Maximum size of a request's body in MB.", above=0)] = 4.0
    body_seconds: Annotated[float, Option("Seconds in which a body must arrive.", above=0)] = 20.0
    connections: Annotated[int, Option("Maximum open connections.", above=0)] = 512
    hosts: Annotated[list[str], Option("Other host names of a server without a token, or behind a proxy.")] = []
    user_header: Annotated[str, Option("The header in which `proxies` send a user's name; empty: none.")] = ""
    proxies: Annotated[list[str], Option("Addresses and networks of the reverse proxies that may name users.")] = []
    roles: Annotated[dict[str, list[str]], Option("Roles by user; `*` has those of all others (`use`).")] = {}
    queue: Annotated[
        str, Option("The queue in which `POST /v1/runs` puts runs for `plait worker`; empty: the server performs them.")
    ] = ""
    datasets: Annotated[str, Option("The folder of data sets, from the folder of plait.toml.")] = "datasets"


class TelemetryTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[telemetry]`: whether runs are traced, and whether traces contain texts such as questions."""

    on: bool = False
    content: bool = False


class JournalTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[journal]`: which runs `plait runs prune` deletes, and what redacts texts before they are stored.

    `older_than` is an age such as "30d"; `keep` is how many of the newest runs stay. `redact` is `module:name`. Only
    the user's own file may set it, because it runs code.
    """

    older_than: str | None = None
    keep: int | None = None
    redact: str | None = None


class Config(Struct, frozen=True):
    """The whole configuration. `path` is the file it was read from, or None."""

    run: Mapping[str, Any]
    """The table `[run]`: defaults of the options of an agent, as far as they are set."""
    models: ModelConfig
    path: Path | None = None
    serve: ServeTable = ServeTable()
    agents: dict[str, Mapping[str, Any]] = {}
    """The tables `[agents.NAME]`; settings that a table leaves out come from `[run]`."""
    telemetry: TelemetryTable = TelemetryTable()
    own: dict[str, tuple[str, ...]] = {}
    """The settings in each agent's own table. The others come from `[run]`."""
    journal: JournalTable = JournalTable()
    spend: tuple[SpendLimit, ...] = ()
    """The tables `[[spend]]`: limits for every agent."""
    raw: Mapping[str, Any] = {}
    """The settings as written in the files."""

    def place(self, agent: str, key: str = "") -> str:
        """Return where the file sets this key of an agent, for an error message."""
        first = key.partition(".")[0]
        if key and first not in self.own.get(agent, ()):
            is_shared = first in self.run
            return f"{self.path}, table [run]: {key}, for agents.{agent}" if is_shared else self.place(agent)
        return f"{self.path}, table [agents.{agent}]{f': {key}' if key else ''}"


_DEFAULTS = Config({}, ModelConfig())
_FOLDER = Path("plait.toml")
_named: Path | None = None
_reads_folder = False


def use_config(file: str | Path) -> None:
    """Use this configuration file from now on in this process. For Python programs. Raises `ConfigError`."""
    global _named
    load(Path(file))
    _named = Path(file).absolute()


def read_folder() -> None:
    """Read `plait.toml` of the working folder from now on in this process. For the command line."""
    global _reads_folder
    _reads_folder = True


def is_chosen() -> bool:
    """Return whether the user chose the files that are read: nobody may have chosen those of a folder."""
    return not _reads_folder or _named is not None or bool(os.environ.get("PLAIT_CONFIG"))


def load(path: Path | None = None) -> Config:
    """Return the configuration: the user's own file, and over it one other file.

    The other file is `path`, else `PLAIT_CONFIG`, else the file given to `use_config`, else `plait.toml` in the working
    folder (after `read_folder`). Raises `ConfigError` if a named file does not exist, if a file is invalid, or if a
    folder's file needs trust and is not trusted.
    """
    variable = os.environ.get("PLAIT_CONFIG")
    named = path or (Path(variable) if variable else _named)
    place = named or (_FOLDER if _reads_folder else None)
    own = own_file()
    own_content = (own, _content(own)) if isfile(own) else None
    found = _read(*own_content) if own_content is not None else _DEFAULTS
    if place is None or (not isfile(place) and named is None):
        return found
    if not isfile(place):
        raise ConfigError(f"There is no configuration file {place}.", hint="Check --config or PLAIT_CONFIG.")
    content = _content(place)
    near = _read(place, content, own_content)
    if near.journal.redact != found.journal.redact:
        hint = f"Only your own configuration may set it: {own}."
        raise ConfigError(f"{place}, table [journal]: redact runs code for every text of yours.", hint=hint)
    is_named = named is not None or is_trusted(place, content)
    if not is_named and (reasons := list(risks(_parsed(place, content), found.raw, place.absolute().parent))):
        hint = "Read it. To trust it as it is now, run: plait trust. To use another file, give --config FILE."
        raise ConfigError(f"The file {place.absolute()} is not trusted. It would {'; '.join(reasons)}.", hint=hint)
    return near


def use_own_redaction() -> None:
    """Install the redaction function of the user's own configuration, unless one is installed. Raises `ConfigError`."""
    from importlib import import_module

    from plait.journal import redaction

    own = own_file()
    if redaction.is_set() or not isfile(own) or not (word := _read(own, _content(own)).journal.redact):
        return
    module, _, name = word.partition(":")
    try:
        redaction.redact_with(getattr(import_module(module), name))
    except (ImportError, AttributeError, ValueError) as why:
        raise ConfigError(
            f"{own}, table [journal]: redact is {word!r}, which cannot be loaded: {why}.",
            hint="Give module:name of a function that takes a text and returns one.",
        ) from why


def _content(place: Path) -> bytes:
    try:
        return read_file(place)
    except OSError as why:
        raise ConfigError(f"{place} cannot be read: {why.strerror}.") from why


def _parsed(place: Path, content: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise ConfigError(f"{place} can't be read: {why}.", hint="It must be a TOML file.") from why


@lru_cache(maxsize=16)  # each agent reads the configuration when it is made
def _read(place: Path, content: bytes, below: tuple[Path, bytes] | None = None) -> Config:
    """Parse a file into a configuration. `below` is the file that it overrides, and its content."""
    over = _read(*below).raw if below is not None else None
    data = _parsed(place, content)
    if over:
        _read(place, content)  # report errors in this file before the two are merged
        data = _joined(over, data)
    raw = dict(data)
    for table in data:
        if table not in TABLES:
            hint = f"Known are: {', '.join(sorted(TABLES))}."
            raise ConfigError(f"{place} has a table [{table}], which is not known.", hint=hint)
    run = data.pop("run", {})
    _table(run, agent_types()[0], "run", place, agent_options())
    serve = _table(
        data.pop("serve", {}), ServeTable, "serve", place, {each.name: each for each in list_fields(ServeTable)}
    )
    tables = data.pop("agents", {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise ConfigError(f"{place}: an agent is a table [agents.NAME].")
    agents: dict[str, Mapping[str, Any]] = {}
    for name, table in tables.items():
        _table(table, agent_types()[1], f"agents.{name}", place, agent_options())
        if "journal" in table:
            raise ConfigError(f"{place}, table [agents.{name}]: all agents share the server's journal.")
        is_same_loop = table.get("loop", run.get("loop")) == run.get("loop")
        # What a table leaves out comes from [run]. Options of a loop are not for another one.
        agents[name] = {**{key: value for key, value in run.items() if key != "set" or is_same_loop}, **table}
    telemetry = _table(data.pop("telemetry", {}), TelemetryTable, "telemetry", place)
    journal = _table(data.pop("journal", {}), JournalTable, "journal", place)
    own = {name: tuple(table) for name, table in tables.items()}
    try:
        spend = read_spend_limits(data.pop("spend", ()))
    except ConfigError as why:
        raise ConfigError(f"{place}, table [[spend]]: {why.message}", hint=why.hint) from None
    models = ModelConfig.from_mapping(data, place.name)
    return Config(run, models, place, serve, agents, telemetry, own, journal, spend, raw)


def _joined(own: Mapping[str, Any], near: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of two files; `near` wins. Tables merge by key, named endpoints and agents are replaced
    whole. The limits of both hold."""
    tables = {
        name: {**own[name], **near[name]}
        for name in near
        if isinstance(near[name], dict) and isinstance(own.get(name), dict)
    }
    limits = [*own.get("spend", ()), *near.get("spend", ())]
    return {**own, **near, **tables, **({"spend": limits} if limits else {})}


T = TypeVar("T", bound=Struct)


def _table(table: Any, kind: type[T], name: str, place: Path, options: Mapping[str, Option] = {}) -> T:
    known = kind.__struct_fields__
    for key in table if isinstance(table, dict) else ():
        if key not in known:
            hint = suggest(key, known, f"It may have: {', '.join(known)}.")
            raise ConfigError(f"{place}, table [{name}]: there is no setting '{key}'.", hint=hint)
    try:
        found = msgspec.convert(table, kind)
    except msgspec.ValidationError as why:
        raise ConfigError(f"{place}, table [{name}]: {_in_words(str(why), table)}.") from why
    for key, each in options.items():
        if key in table and each.number and (wanted := each.find_fault(table[key])):
            hint = f"Give {wanted.partition(',')[0]}."
            raise ConfigError(f"{place}, table [{name}]: {key} is {table[key]}.", hint=hint)
    return found


def _in_words(said: str, table: Any) -> str:
    """Explain an error that `msgspec` found in a table: which setting, its value, and the expected value."""
    found = re.fullmatch(r"Expected `([^`]+)`, got `[^`]+`(?: - at `\$\.(\w+)(\S*)`)?", said)
    if found is None:
        return said.replace("`$.", "`").rstrip(".")
    kinds, key, below = found.groups()
    wanted = " or ".join(WORDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")
    if not key:
        return f"it is no table, but {_shown(table)}"
    if not below:
        return f"{key} is {_shown(table[key])}, and must be {wanted}"
    within = table[key].items() if isinstance(table[key], dict) else enumerate(table[key])
    wrong = (f"{key}.{name} is {_shown(one)}" for name, one in within if type(one).__name__ not in kinds.split(" | "))
    return f"{next(wrong, f'a part of {key} is')}, and must be {wanted}"


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return cut_text(text, 60)
