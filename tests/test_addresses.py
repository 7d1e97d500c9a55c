"""Claims about web addresses: the host that a hook sees is the host that a tool asks, or the address is refused."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from aiohttp import web
from yarl import URL

import plait
from conftest import for_each
from plait.addresses import read_address, read_host
from plait.core import Call
from plait.core.errors import ConfigError, ToolError
from plait.toolkits import download, fetch
from plait.toolkits.download import download_page
from toolkits_server import call, site

GOOD, BAD = "good.example", "evil.example"
HOOK = plait.hooks.AllowHosts(GOOD, "*.good.example")

AGREED = [
    f"http://{GOOD}",
    f"https://{GOOD}/",
    "HTTPS://Good.Example/A?b=c#d",
    f"http://{GOOD}:8080/x",
    f"http://{GOOD}./x",
    f"http://a.{GOOD}/it's?x={{y}}&z=\u00fc",
    f"http://{GOOD}?q=@{BAD}",
    f"http://{GOOD}#@{BAD}",
    f"http://{GOOD}/@{BAD}",
    f"http://{GOOD}/%40{BAD}",
    "http://\uff47ood.example/",  # a wide letter: all programs read the plain one
    "http://good\u3002example/",
]
"""Allowed, and asked."""

DISPUTED = [
    *(f"http://{GOOD}{between}{BAD}/" for between in ("@", ":@", ":80@", "\\@", "/@\\", "%40", "%2f@", "#@ ", "?\\")),
    *(f"http://{GOOD}{sign}@{BAD}/" for sign in "\"'` <>{}|^\t\n\r\x00\x0b\x1f\x7f\u00a0\u2028\u3000;,&=+$!*()~"),
    *(f"http://{GOOD}{sign}.{BAD}/" for sign in ("\t", "\n", "\r", " ", "%2e", "\\")),
    *(f"http://{GOOD}{sign}.{BAD}/" for sign in ("\u200b@", "\u00ad@", "\uff0f", "\uff20", "\u2100")),
    *(f"http://{BAD}{end}{GOOD}/" for end in ("\t.", "\\", "\\.", "%00.", "%23@", "\x00@", "/\\@")),
    *(f"http://{BAD}{end}{GOOD}/" for end in ("\uff03@", "\u2048@")),
    f"http:{BAD}/", f"http:/{BAD}/", f"http:///{BAD}/", f"http:////{BAD}/", f"http:\\\\{BAD}/", f"http:\\/{BAD}/",
    f"http:/\t/{BAD}/", f"ht\ttp://{BAD}/", f" http://{BAD}/", f"\x01http://{BAD}/", f"//{BAD}/", f"\\\\{BAD}/x",
    f"http://{GOOD}:80{BAD}/", f"http://{GOOD}:{BAD}/", f"http://{GOOD}:+80@{BAD}/", f"http://user:pass@{BAD}:80#@{GOOD}/",
    f"http://[::1].{GOOD}@{BAD}/", f"http://[{GOOD}]@{BAD}/", f"http://[::ffff:1.2.3.4]/{GOOD}",
    f"http://{BAD}?{GOOD}", f"http://{BAD}#{GOOD}",
    "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.0.0.01/", "http://0x7f.1/",
    "http://1.2.3/", "http://1.2.3.4.5/", "http://\u0661.2.3.4/", "http://stra\u00dfe.good.example@x/", "http://[fe80::1%25eth0]/",
]  # fmt: skip
"""Refused, or read as a host that is not allowed."""


def passes(text: Any) -> bool:
    return HOOK.before_tool(None, Call("visit", {"address": text})) is None  # type: ignore[arg-type]


def readings(address: str) -> set[str]:
    """The hosts that several programs read in an address."""
    found: set[str | None] = set()
    for read in (
        lambda: urlsplit(address).hostname,
        lambda: urlsplit(address.strip()).hostname,
        lambda: URL(address).raw_host,
        lambda: URL(address.strip()).raw_host,
        lambda: urlsplit(requests.Request("GET", address).prepare().url or "").hostname,
        lambda: urlsplit(re.sub(r"[\t\r\n]", "", address).replace("\\", "/")).hostname,  # a browser
    ):
        try:
            found.add(read())
        except Exception:  # a program that refuses it asks nobody
            continue
    return {each.rstrip(".") for each in found if each}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that requests look up."""
    names: list[str] = []

    def look_up(host: str, port: int, family: int) -> list[Any]:
        names.append(host)
        raise OSError("nothing is asked here")

    monkeypatch.setattr(download, "look_up", look_up)
    return names


async def test_what_the_hook_sees_is_what_is_asked_or_it_is_refused(asked: list[str]) -> None:
    assert len(AGREED) + len(DISPUTED) > 90
    for address in (*AGREED, *DISPUTED):
        asked.clear()
        with pytest.raises(ToolError) as why:
            await download_page(address, 100)
        assert passes(address) or address in DISPUTED, address
        assert asked or address in DISPUTED, (address, str(why.value))
        if passes(address):
            others = {each for each in readings(address) if each.isascii()}
            assert all(each == GOOD or each.endswith(f".{GOOD}") for each in others), (address, others)
            assert all(each.rstrip(".") in (GOOD, f"a.{GOOD}") for each in asked), (address, asked)
        else:
            assert not asked or asked[0] == BAD, (address, asked)


async def test_a_redirect_is_read_by_the_same_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {}
    async with site(answers) as there:
        for number, address in enumerate(DISPUTED):
            if any(ord(sign) < 32 or ord(sign) > 126 for sign in address):
                continue  # it is no header
            answers[f"/{number}"] = web.Response(status=302, headers={"Location": address})
            before = len(there.seen)
            with pytest.raises(ToolError):
                await call(fetch("127.0.0.1", private=True), "fetch", url=f"{there.address}/{number}")
            assert len(there.seen) <= before + 2, address  # at most once more, on the allowed host


@for_each(
    "text",
    [
        f"https://{GOOD}/a is the page, see //{GOOD}",
        f"see https://{GOOD}, https://{GOOD}: or (https://{GOOD})!",
        f'{{"url": "https://{GOOD}"}} <a href="http://{GOOD}">x</a>',
        f"https://{GOOD}\n",
        "// a comment; C:/Users/x, http is a protocol",
        ["no address", {"name": f"http://{GOOD}/"}],
    ],
)
def test_texts_with_addresses_on_allowed_hosts_pass(text: Any) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        f"see http://{GOOD}@{BAD}",
        f"http://{GOOD} @{BAD}/",
        {f"http://{BAD}": 1},
        [[f"x http://{BAD}"]],
        r"{\"u\": \"http:\/\/" + BAD + '"}',
    ],
)
def test_texts_with_other_addresses_are_refused(text: Any) -> None:
    assert not passes(text)


def test_hosts_are_read_as_addresses_are() -> None:
    assert read_host("B\u00dcCHER.de") == read_address("http://b\u00fccher.de/x").raw_host == "xn--bcher-kva.de"
    assert plait.hooks.AllowHosts("[::1]").before_tool(None, Call("x", "http://[::1]/")) is None  # type: ignore[arg-type]
    for name in ("", "a b", "a/b", "a:80", "u@a", "127.1", "stra\u00dfe.de", "*.", "a..b"):
        with pytest.raises(ConfigError, match="host"):
            plait.hooks.AllowHosts(name)
        with pytest.raises(ConfigError, match="host"):
            fetch(name)
