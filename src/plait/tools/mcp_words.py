"""Which MCP server is meant: its command or address, as a word and in Python, without its secrets on the record.

A word is `mcp:` and then a command with its arguments, split as a shell does it (`mcp:KEY=$KEY npx -y some-server`), an
address (`mcp:https://example.com/mcp`), or a JSON object with the parameters of `plait.mcp`:
`mcp:{"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer $TOKEN"}, "only": ["search"]}`.

`$NAME` in a value of `env` or `headers`, or in an address, is filled from the environment when the server is begun. The
record has the name. A value that names none is left off the record: it may be a secret.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from plait.core.errors import UsageError

PREFIX = "mcp:"
START = 30.0
"""Seconds a server has to start and to say what tools it has."""

_NAMED = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a server is and how its tools are taken: what a word says.

    `command` with its arguments is run in the folder `cwd`; or it is at `url`. A value None in `env` or `headers`
    stands on the record for one that was left off it. `only` names tools as the server does; `prefix` comes before
    their names; `timeout` is the seconds of one call, None for the run's; `start` those to begin; without `trust` the
    server's word that a tool changes nothing is not taken.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: dict[str, str | None] = {}
    headers: dict[str, str | None] = {}
    cwd: str = ""
    only: tuple[str, ...] | None = None
    prefix: str = ""
    timeout: float | None = None
    start: float = START
    trust: bool = False

    @property
    def label(self) -> str:
        """The server in a few words, for errors: the address without what may be secret, or the command."""
        if self.url:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        said = shlex.join(self.command)
        return said if len(said) <= 100 else said[:97] + "..."

    @property
    def name(self) -> str:
        """One word for the server, to tell tools of one name apart: of its address or its command."""
        if self.url:
            found = (urlsplit(self.url).hostname or "").removeprefix("www.").removeprefix("mcp.").split(".")[0]
        else:
            words = [PurePath(word).name for word in self.command if not word.startswith("-")]
            scripts = [word for word in words[1:] if re.search(r"mcp|server|\.(py|js|mjs|ts)$", word)]
            found = (scripts or words)[0]
            found = re.sub(r"\.(py|js|mjs|ts)$|@[\d.]+$|(^|[-_])(mcp|server)(?=[-_.]|$)", "", found)
        return re.sub(r"\W+", "_", found, flags=re.ASCII).strip("_")[:24] or "mcp"

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same for all who may share one connection. Raises `UsageError` for a variable that is not set."""
        return (self.command, self.filled(self.url), self.cwd, *map(_sorted, (self.environment(), self.sent())))

    def environment(self) -> dict[str, str]:
        """What the server's process is given besides the usual."""
        return {name: self._value(name, value) for name, value in self.env.items()}

    def sent(self) -> dict[str, str]:
        """The headers of each request."""
        return {name: self._value(name, value) for name, value in self.headers.items()}

    def address(self) -> str:
        return self.filled(self.url)

    def filled(self, text: str) -> str:
        """The text with the environment's values for its `$NAME`s; `$$` is a dollar."""
        return "$".join(_NAMED.sub(self._found, part) for part in text.split("$$"))

    def _found(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise UsageError(f"The MCP server {self.label} needs ${name}, which is not set.", hint=f"export {name}=...")
        return os.environ[name]

    def _value(self, name: str, value: str | None) -> str:
        if value is None:
            raise UsageError(
                f"The value of {name} for the MCP server {self.label} is not on the record.",
                hint=f"Begin runs with '{name}': '$SOME_VARIABLE', or go on in Python with the agent that has it.",
            )
        return self.filled(value)

    @property
    def word(self) -> str:
        """The word that stands on the record: the same server from any folder, without values that may be secret."""
        kept = {
            **({"command": list(self.command), "cwd": self.cwd} if self.command else {"url": self.url}),
            **{
                field: {name: value if value and _NAMED.search(value) else None for name, value in found.items()}
                for field in ("env", "headers")
                if (found := getattr(self, field))
            },
        }
        usual = Place()
        for field in ("only", "prefix", "timeout", "start", "trust"):
            if (value := getattr(self, field)) != getattr(usual, field):
                kept[field] = value
        if list(kept) == ["url"]:
            return PREFIX + self.url
        return PREFIX + json.dumps(kept, ensure_ascii=False)


def place_of(
    server: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Place:
    """The place that a command (a text, split as a shell does it, or its words) or an address stands for.

    Raises `UsageError` for what can't be one.
    """
    if not isinstance(server, str):
        return _checked(Place(command=tuple(server), env=dict(env or {}), headers=dict(headers or {}), **options))
    text = server.strip()
    if re.match(r"https?://", text, re.IGNORECASE):
        return _checked(Place(url=text, env=dict(env or {}), headers=dict(headers or {}), **options))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r} can't be read as a command: {error}.", hint="Close the quotes.") from error
    set_: dict[str, str | None] = {}
    while words and (match := _ASSIGNED.fullmatch(words[0])):
        set_[match[1]] = match[2]
        words = words[1:]
    place = Place(command=tuple(words), env={**set_, **(env or {})}, headers=dict(headers or {}), **options)
    return _checked(place)


def read_word(word: str) -> Place:
    """The place that a word beginning with `mcp:` stands for. Raises `UsageError`."""
    rest = word.removeprefix(PREFIX).strip()
    if not rest.startswith("{"):
        return place_of(rest)
    try:
        data = msgspec.json.decode(rest)
        if isinstance(data, dict) and isinstance(data.get("command"), str):
            data["command"] = shlex.split(data["command"])
        return _checked(msgspec.convert(data, Place))
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(
            f"{word[:200]!r} can't be read: {error}.", hint=f"It may have: {', '.join(Place.__struct_fields__)}."
        ) from error


def _checked(place: Place) -> Place:
    if not place.command and not place.url:
        raise UsageError("No MCP server is named.", hint="Write mcp:COMMAND ARGS, or mcp:http://ADDRESS.")
    address = place.url or place.command[0]
    if (scheme := re.match(r"(\w[\w+.-]*)://", address)) and scheme[1].lower() not in ("http", "https"):
        raise UsageError(
            f"MCP servers are not asked by {scheme[1]}: {address!r}.",
            hint="Write mcp:http://ADDRESS or mcp:https://ADDRESS.",
        )
    if place.command and (place.url or place.headers):
        raise UsageError(
            f"The MCP server {place.label} is a command, which takes no headers.", hint="Give it env= instead."
        )
    if place.url and place.env:
        raise UsageError(f"The MCP server {place.label} is at an address: it takes no env.", hint="Give it headers=.")
    if place.url:
        parts = urlsplit(place.url)
        if not parts.hostname:
            raise UsageError(f"{place.url!r} has no host.", hint="Write mcp:https://HOST/PATH.")
        if parts.password and not _NAMED.search(parts.password):
            raise UsageError(
                f"The address of the MCP server {place.label} has a password in it, which would stand on the record.",
                hint="Write $NAME for it, and set that variable.",
            )
    for what, seconds in (("timeout", place.timeout), ("start", place.start)):
        if seconds is not None and not seconds > 0:
            raise UsageError(f"The MCP server {place.label} has {what}={seconds}.", hint="Give seconds above 0.")
    if place.command and (not place.cwd or not os.path.isabs(place.cwd)):
        return msgspec.structs.replace(place, cwd=os.path.abspath(place.cwd or "."))
    return place


def _sorted(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(values.items()))
