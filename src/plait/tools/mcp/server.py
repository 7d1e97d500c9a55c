"""The description of an MCP server: its command or address, its options, and the word that the journal stores.

A word is `mcp:`, followed by one of these:

- a command, split as a shell does: `mcp:TOKEN=$TOKEN npx -y some-server`
- an address: `mcp:https://example.com/mcp`
- a JSON object with the parameters of `plait.mcp`: `mcp:{"url": "https://example.com/mcp", "only": ["search"]}`

`$NAME` in an address, and in a value of `env` or `headers`, is replaced by that environment variable on connecting.
The journal stores `$NAME`. It never stores a value of `env` or `headers` without a `$NAME`, which may be a secret.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from string import Template
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from plait.background import BackgroundLoop
from plait.core.errors import ConfigError
from plait.core.text import cut_text
from plait.pickles import require_variable

PREFIX = "mcp:"
START_SECONDS = 30.0
MCP_LOOP = BackgroundLoop("plait-mcp")
"""A connection belongs to the loop that opened it, but tools are called from any loop and thread."""
TOOL_LISTS = SimpleNamespace(changes=0)
"""How often the servers of this process have said that they have other tools now."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SERVER_WORDS = re.compile(r"\.(py|js|mjs|ts)$|@[\d.]+$|(^|[-_])(mcp|server)(?=[-_.]|$)")


class McpServer(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where an MCP server is, and how Plait uses its tools.

    It is either a `command`, which runs in the folder `cwd`, or at a `url`. A value None in `env` or `headers` is one
    that the journal does not store. `only` has the server's own names of tools. `prefix` comes before their names.
    `timeout` limits a call and `start` limits connecting, in seconds. With `trust`, Plait believes the server that a
    tool changes nothing. `sampling`: it may ask the run's models. `resources`: the tools include one that reads its
    resources. `optional`: runs go on without it. `protocol`: "2025" for a server that asks only in that of 2025. Raises
    `ConfigError` for a contradiction.
    """

    command: tuple[str, ...] = ()
    cwd: str = ""
    url: str = ""
    env: dict[str, str | None] = {}
    headers: dict[str, str | None] = {}
    only: tuple[str, ...] | None = None
    prefix: str = ""
    timeout: float | None = None
    start: float = START_SECONDS
    trust: bool = False
    sampling: bool = False
    resources: bool = False
    optional: bool = False
    protocol: Literal["", "2025"] = ""

    def __post_init__(self) -> None:
        if not self.command and not self.url:
            raise ConfigError("The MCP server is missing.", hint="Write mcp:COMMAND ARGS or mcp:http://ADDRESS.")
        scheme = re.match(r"(\w[\w+.-]*)://", self.url or self.command[0])
        password = urlsplit(self.url).password
        wrong = hint = ""
        if scheme and scheme[1].lower() not in ("http", "https"):
            wrong, hint = f"would need {scheme[1]}, which Plait does not support.", "Write mcp:https://ADDRESS."
        elif self.command and (self.url or self.headers):
            wrong, hint = "is a command and takes no url or headers.", "Use env= instead."
        elif self.url and self.env:
            wrong, hint = "is an address and takes no env.", "Use headers= instead."
        elif self.url and not urlsplit(self.url).hostname:
            wrong, hint = "has no host.", "Write mcp:https://HOST/PATH."
        elif password and not _variables(password):
            wrong = "has a password in its address, which the journal would store."
            hint = "Write $NAME for it, and set that variable."
        elif not self.start > 0 or (self.timeout is not None and not self.timeout > 0):
            wrong, hint = f"has timeout={self.timeout} and start={self.start}.", "Give seconds above 0."
        if wrong:
            raise ConfigError(f"The MCP server {self.label} {wrong}", hint=hint)
        if self.command:
            structs.force_setattr(self, "cwd", os.path.abspath(self.cwd or "."))

    def __reduce__(self) -> tuple[Any, ...]:
        for name, value in (*self.env.items(), *self.headers.items()):
            if value and not _variables(value):
                require_variable(f"The MCP server {self.label} ({name})", value, "")
        return partial(McpServer, **structs.asdict(self)), ()

    def __deepcopy__(self, memo: object) -> McpServer:
        return self

    @property
    def label(self) -> str:
        """The server in errors: its command, or its address without parts that may be secret."""
        if self.url:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return cut_text(shlex.join(self.command), 100)

    @property
    def short_name(self) -> str:
        """One word from the address or command, which tells tools of the same name apart."""
        if self.url:
            name = (urlsplit(self.url).hostname or "").removeprefix("www.").removeprefix("mcp.").split(".")[0]
        else:
            words = [PurePath(word).name for word in self.command if not word.startswith("-")]
            scripts = [word for word in words[1:] if re.search(r"mcp|server|\.(py|js|mjs|ts)$", word)]
            name = _SERVER_WORDS.sub("", (scripts or words)[0])
        return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:24] or "mcp"

    @property
    def address(self) -> str:
        """The URL with the values of its variables."""
        return self._expand(self.url)

    def values_of(self, field: str) -> dict[str, str]:
        """Return `env` or `headers` with the values of their variables. Raises `ConfigError` if one is missing."""
        values: dict[str, str] = {}
        for name, value in getattr(self, field).items():
            if value is None:
                raise ConfigError(
                    f"The journal does not store the value of {name} for the MCP server {self.label}.",
                    hint=f"Start runs with '{name}': '$SOME_VARIABLE', or resume in Python with the agent that has it.",
                )
            values[name] = self._expand(value)
        return values

    def connection_key(self) -> tuple[Any, ...]:
        """Return what is equal for all descriptions that share a connection. Raises as `values_of`."""
        values = (frozenset(self.values_of(field).items()) for field in ("env", "headers"))
        return (self.command, self.cwd, self.address, self.sampling, self.protocol, *values)

    @property
    def word(self) -> str:
        """The word that the journal stores. It means the same server in any folder, and has no secret values."""
        redacted = {
            field: {
                name: value if value and _variables(value) else None for name, value in getattr(self, field).items()
            }
            for field in ("env", "headers")
        }
        stored = msgspec.to_builtins(structs.replace(self, **redacted))
        return PREFIX + (self.url if list(stored) == ["url"] else json.dumps(stored, ensure_ascii=False))

    def _expand(self, text: str) -> str:
        for name in _variables(text):
            if name not in os.environ:
                hint = f"export {name}=..."
                raise ConfigError(f"The MCP server {self.label} needs ${name}, which is not set.", hint=hint)
        return Template(text).safe_substitute(os.environ)


def parse_server(server: str | Sequence[str], **options: Any) -> McpServer:
    """Return the server for a command, as text or as a list of words, or for an address. Raises `ConfigError`."""
    if not isinstance(server, str):
        return McpServer(command=tuple(server), **options)
    text = server.strip()
    if re.match(r"https?://", text, re.IGNORECASE):
        return McpServer(url=text, **options)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"Plait cannot read the command {text!r}: {error}.", hint="Close the quotes.") from error
    env: dict[str, str | None] = {}
    while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
        env[assigned[1]] = assigned[2]
        words = words[1:]
    return McpServer(command=tuple(words), **{**options, "env": {**env, **options.get("env", {})}})


def parse_word(word: str) -> McpServer:
    """Return the server for a word that begins with `mcp:`. Raises `ConfigError`."""
    rest = word.removeprefix(PREFIX).strip()
    if not rest.startswith("{"):
        return parse_server(rest)
    try:
        fields = msgspec.json.decode(rest)
        if isinstance(fields, dict) and isinstance(fields.get("command"), str):
            fields["command"] = shlex.split(fields["command"])
        return msgspec.convert(fields, McpServer)
    except (msgspec.MsgspecError, ValueError) as error:
        hint = f"Possible keys: {', '.join(McpServer.__struct_fields__)}."
        raise ConfigError(f"Plait cannot read {word[:200]!r}: {error}.", hint=hint) from error


def _variables(text: str) -> list[str]:
    """Return the names of the variables in a text: `$NAME` or `${NAME}`. `$$` is a dollar."""
    return Template(text).get_identifiers()
