"""The hook `hosts`: allows addresses on some hosts only."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from plait.addresses import read_address, read_host
from plait.core import Call
from plait.core.errors import ConfigError
from plait.core.messages import texts_in
from plait.core.text import clean
from plait.runtime.calls.context import Context
from plait.runtime.guard import Refuse
from plait.runtime.hooks import Hook

_WHOLE = re.compile(r"[\x00-\x20\s]*(?:https?|ftp|wss?):[/\\]*([^/?#]*)", re.IGNORECASE)
"""The host of an address that begins a text: a program may take the whole text for it, blanks and quotes included."""
_ADDRESS = re.compile(r"[/\\]{2}([^\s\"'<>`]+)")
_LOOSE = re.compile(r"\b(?:(?:https?|ftp):(?![/\\]{2})|(?=www\.))([^\s\"'<>`]+)", re.IGNORECASE)
"""An address without `//` that a library may still open, such as `http:example.com`."""
_MAIL = re.compile(r"(?<=[^\s(\[<,;:])@(\[[\w.:-]+|(?:[\w-]+\.)+[\w-]+)")
"""A mail address: nearly every character may stand before its @, and an IP address in brackets behind it."""
_USUAL_MAIL = re.compile(_MAIL.pattern.replace(r"[^\s(\[<,;:]", r"[\w.+-]"))
"""A mail address in a URL, where `?to=@name` is none."""
_SPACED = re.compile(r"\s*[^\s@]+\s*@\s*[^\s@]+\s*")
"""A text that is nothing but a mail address, perhaps with blanks around its @, which mail programs drop."""


class AllowHosts(Hook):
    """Refuses a tool call whose input has an address on a host that is not named.

    `hosts` are names such as `api.example.com`, or `*.example.com` for all names below one. An address is a URL, text
    with `//` or `www.`, or a mail address, anywhere in the input. A bare name such as `example.com/page` is none, so
    use this hook with tools that need a URL. The hook does not see where a server redirects: use a tool that follows
    redirects only on these hosts, such as `fetch:example.com`. An address is refused if programs may disagree on its
    host (see `plait.addresses`). Raises `ConfigError` for a text that is no host.
    """

    def __init__(self, *hosts: str) -> None:
        if not hosts:
            raise ConfigError("AllowHosts needs at least one host.", hint="Write hosts:example.com.")
        self._hosts = tuple(host.lower() for host in hosts)
        try:
            self._exact = {read_host(host) for host in hosts if not host.startswith("*.")}
            self._above = tuple(f".{read_host(host[2:])}" for host in hosts if host.startswith("*."))
        except ValueError as why:
            hint = "Write example.com or *.example.com."
            raise ConfigError(f"One of {', '.join(hosts)!r} is not a host: {why}.", hint=hint) from None

    @property
    def name(self) -> str:
        return f"hosts:{','.join(self._hosts)}"

    def before_tool(self, context: Context[Any], call: Call) -> Refuse | None:
        for text in texts_in(call.input, keys=True):
            for address in _addresses_in(text):
                try:
                    host = (read_address(address).raw_host or "").rstrip(".")
                except ValueError as why:
                    return Refuse(f"The address {address[:200]!r} is not clear: {why}.")
                if host not in self._exact and not host.endswith(self._above):
                    return Refuse(f"The host {host} is not allowed. Allowed: {', '.join(self._hosts)}.")
        return None


def _addresses_in(text: str) -> Iterator[str]:
    """Yield the addresses in a text, each as an http address."""
    if whole := _WHOLE.match(text):
        yield f"http://{whole[1].rstrip()}"
    for found in (*_ADDRESS.findall(text), *_LOOSE.findall(text)):
        yield f"http://{found.rstrip('.,:;!?)')}"
    # Programs read other forms of @ and of the dot as these, and ignore characters without a width.
    seen = unicodedata.normalize("NFKC", clean(text)).replace("\u3002", ".")
    seen = "".join(seen.split()) if _SPACED.fullmatch(seen) else seen
    for found in (*_MAIL.findall(_ADDRESS.sub(" ", seen)), *_USUAL_MAIL.findall(seen)):
        host = found.removeprefix("[")
        yield f"http://[{host.lower().removeprefix('ipv6:')}]" if ":" in host else f"http://{host}"
