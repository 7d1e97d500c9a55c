"""The services that toolkits ask: their settings, one request, and errors that say what to do.

A setting is an argument of the toolkit, else an environment variable, read when a tool is called. A key goes out in
the request and nowhere else: whatever a service says is cleaned of it before anyone sees it, the record included.
No request is made twice and a service's redirects are not followed, so that a key goes to nobody else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from plait.core.errors import ToolError
from plait.core.secrets import Scrubber
from plait.toolkits import http
from plait.toolkits.http import SECONDS

MAX_ANSWER = 8 << 20
"""A service's answer may have 8 MiB."""

Said = str | None
"""A setting given in Python; None: from the environment, or the default."""


@dataclass(frozen=True)
class Answer:
    """What a service answered: `who` it is, the status, the headers and the body, cleaned of the key."""

    who: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises `ToolError` when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            start = " ".join(self.text[:80].split())
            hint = "Is its address right?"
            raise ToolError(f"{self.who} answered with something else than JSON: {start!r}.", hint=hint) from error

    def object(self) -> dict[str, Any]:
        """The body as a JSON object."""
        read = self.json()
        if not isinstance(read, dict):
            raise ToolError(f"{self.who} answered with something else than an object.", hint="Is its address right?")
        return read


@dataclass(frozen=True)
class Service:
    """A service: its name for messages, and where its address and its key are set.

    `base` is the default address, "" where there is none; `base_url` and `key` are the settings given in Python.
    `key_hint` says where a key comes from.
    """

    name: str
    base_env: str
    base: str = ""
    key_env: str = ""
    key_hint: str = ""
    base_url: Said = field(default=None, repr=False)
    given_key: Said = field(default=None, repr=False)
    seconds: float = SECONDS

    def address(self) -> str:
        """The base address. Raises `ToolError` when there is none, or it is no address."""
        said = self.base_url or os.environ.get(self.base_env, "").strip() or self.base
        if not said:
            raise ToolError(
                f"{self.name} is not set up: {self.base_env} is not set.",
                hint=f"Set {self.base_env} in the environment of this program{self._where}.",
            )
        parts = urlsplit(said)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ToolError(
                f"{self.name}: the address in {self.base_env} is none.", hint="It looks like https://host/path."
            )
        return said.rstrip("/")

    def key(self, needed: bool = True) -> str:
        """The key, "" where there is none and none is needed. Raises `ToolError` when a needed one is missing."""
        said = (self.given_key or os.environ.get(self.key_env, "") if self.key_env else "").strip()
        if needed and not said:
            raise ToolError(
                f"{self.name} needs a key, and {self.key_env} is not set.",
                hint=f"Set {self.key_env} in the environment of this program{self._where}.",
            )
        return said

    @property
    def _where(self) -> str:
        return f": {self.key_hint}" if self.key_hint else ""

    async def ask(
        self,
        path: str = "",
        *,
        method: str = "GET",
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        json: Any = None,
        address: str | None = None,
        refusals: bool = False,
        secrets: tuple[str, ...] = (),
    ) -> Answer:
        """One request and its answer. Raises `ToolError`: not reached, refused (unless `refusals`), too long an answer.

        `address` stands in for the base address and path; `secrets` are cleaned from what comes, beside the key.
        """
        import aiohttp

        url = address if address is not None else self.address() + path
        clean = Scrubber((*secrets, self.key(needed=False)))
        named = {key: str(value) for key, value in (params or {}).items() if value is not None}
        try:
            async with http.opened(self.seconds) as session:
                made = session.request(
                    method,
                    url,
                    params=named,
                    headers=headers,
                    data=data,
                    json=json,
                    proxy=http.proxy(url),
                    allow_redirects=False,
                )
                async with made as response:
                    body = await http.read(response, MAX_ANSWER, self.name)
                    answer = Answer(self.name, response.status, dict(response.headers), clean(body))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # "from None": these errors hold the request, and so the key.
            raise ToolError(clean.text(self._unreached(error)), hint=self._reach_hint()) from None
        if not refusals or answer.status == 429 or answer.status >= 500:
            self.check(answer)
        return answer

    def check(self, answer: Answer, said: str = "") -> None:
        """Raises `ToolError` for a status that is no success; `said` is what the service says of it."""
        status = answer.status
        if 200 <= status < 300:
            return
        said = said or message(answer)
        because = f": {said}" if said else ""
        if status == 429:
            raise http.limited(self.name, answer.headers.get("Retry-After", ""), because)
        if 300 <= status < 400:
            raise ToolError(f"{self.name} has moved ({status}).", hint=f"Set {self.base_env} to its new address.")
        if status in (401, 403):
            keyed = f"Check {self.key_env}." if self.key_env else f"Check {self.base_env}."
            raise ToolError(f"{self.name} refuses access ({status}){because}.", hint=keyed)
        if status >= 500:
            raise ToolError(f"{self.name} has failed ({status}){because}.", hint="Try again later.")
        raise ToolError(f"{self.name} refuses the request ({status}){because}.")

    def _reach_hint(self) -> str:
        return f"Is the network there? The address is set by {self.base_env}."

    def _unreached(self, error: Exception) -> str:
        return f"{self.name} can't be reached: {http.trouble(error, self.seconds)}."


def message(answer: Answer) -> str:
    """What a service says in the body of a refusal, in a line of at most 200 characters."""
    try:
        read = json.loads(answer.body)
    except (ValueError, RecursionError):
        read = None
    found: Any = read
    for name in ("error", "message", "reason", "msg", "error_message", "detail", "info"):
        while isinstance(found, dict) and isinstance(found.get(name), (str, dict)):
            found = found[name]
    if not isinstance(found, str):
        plain = answer.headers.get("Content-Type", "").startswith("text/plain")
        found = answer.text if plain else ""
    return " ".join(found.split())[:200].rstrip(".")
