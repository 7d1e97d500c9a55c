"""Reads web addresses: one parser for the hooks that look at an address and for the tools that ask it."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarl import URL

_ADDRESS = re.compile(
    r"https?://(\[[0-9a-f:.]+\]|[^\s/?#@:%\[\]\\]+)(?::[1-9][0-9]{0,4})?(?:[/?#][^\s\x00-\x1f\x7f-\x9f\\\"<>`]*)?", re.I
)
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")
LONGEST = 4000


def read_address(address: str) -> URL:
    """Return an http(s) address, whose `raw_host` is the host that a request asks.

    Raises `ValueError`, which says why, if programs may disagree on the host: for a user name, blanks, control
    characters, quotes, backslashes, percent signs, a number that is not an IP address in its usual form, or a name that
    the two standards of international names write differently.
    """
    from yarl import URL

    form = _ADDRESS.fullmatch(address)
    if form is None or len(address) > LONGEST:
        if "@" in re.split("[/?#]", address.partition("://")[2])[0]:
            raise ValueError("a user name in it is not allowed")
        raise ValueError("it needs http:// or https://, a plain host, and neither blanks nor quotes")
    url = URL(address)
    name = url.raw_host or ""
    if form[1].startswith("["):
        return url
    if not _NAME.fullmatch(name) or name.encode() != form[1].encode("idna").lower():
        raise ValueError(f"the name {form[1][:80]} can be read in more than one way")
    if _NUMBER.fullmatch(name):
        try:
            IPv4Address(name.rstrip("."))
        except ValueError:
            raise ValueError(f"the number {name[:80]} is not on the open network in this form") from None
    return url


def read_host(name: str) -> str:
    """Return the host of a name or IP address, in the form of requests. Raises `ValueError` as `read_address` does."""
    if not re.fullmatch(r"\[.*\]|[^/?#:]*", name, re.S):
        raise ValueError("it has more than a name")
    return (read_address(f"http://{name}/").raw_host or "").rstrip(".")
