"""The hook `hosts`: allows addresses on some hosts only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from plait.core import JSON, Call
from plait.core.errors import ConfigError
from plait.runtime.context import Context
from plait.runtime.hooks import Hook, Refuse

_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[?[0-9a-f:.]+\]?")
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?[/\\]{2}[^\s\"'<>`]+", re.IGNORECASE)
_LOOSE = re.compile(r"\b(?:(?:https?|ftp):(?![/\\]{2})|(?=www\.))([^\s\"'<>`]+)", re.IGNORECASE)
"""An address without `//` that a library may still open, such as `http:example.com`."""
_MAIL = re.compile(r"[\w.+-]@((?:[\w-]+\.)+[\w-]+)")


class AllowHosts(Hook):
    """Refuses a tool call whose input has an address on a host that is not named.

    `hosts` are names such as `api.example.com`, or `*.example.com` for all names below one. An address is a URL, text
    with `//` or `www.`, or a mail address, anywhere in the input. A bare name such as `example.com/page` is none, so
    use this hook with tools that need a URL. The hook does not see where a server redirects: use a tool that follows
    redirects only on these hosts, such as `fetch:example.com`. Raises `ConfigError` for a text that is no host.
    """

    def __init__(self, *hosts: str) -> None:
        for host in hosts:
            if not _HOST.fullmatch(host.lower()):
                raise ConfigError(f"{host!r} is not a host.", hint="Write example.com or *.example.com.")
        if not hosts:
            raise ConfigError("AllowHosts needs at least one host.", hint="Write hosts:example.com.")
        self._hosts = tuple(host.lower() for host in hosts)

    @property
    def name(self) -> str:
        return f"hosts:{','.join(self._hosts)}"

    def before_tool(self, context: Context[Any], call: Call) -> Refuse | None:
        for text in _texts_in(call.input):
            for address in _addresses_in(text):
                host = _host_of(address)
                if not any(fnmatchcase(host, allowed) for allowed in self._hosts):
                    return Refuse(f"The host {host or address!r} is not allowed. Allowed: {', '.join(self._hosts)}.")
        return None


def _addresses_in(text: str) -> Iterator[str]:
    """Yield the addresses in a text, each with `//` before its host."""
    yield from _ADDRESS.findall(text)
    yield from (f"//{host}" for host in _LOOSE.findall(text))
    yield from (f"//{host}" for host in _MAIL.findall(text))


def _texts_in(value: JSON) -> Iterator[str]:
    """Yield each text in a JSON value, names of properties included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *_texts_in(each))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_in(each)


def _host_of(address: str) -> str:
    """Return the host of an address as a browser or a library might read it; "" if they may disagree."""
    if "\\" in address:
        return ""
    try:
        return (urlsplit(address).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""
