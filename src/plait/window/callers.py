"""Who asks: tokens, and what each may see.

A token is held in memory alone and never written. What stands on record of who began a run is a name derived from the
token by a slow function, so that whoever reads the journal can't try tokens out by the million.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plait.core.errors import UsageError

FULL, CLIENT = "PLAIT_SERVE_TOKEN", "PLAIT_SERVE_CLIENT_TOKENS"
"""The variables that hold the tokens, comma separated where there are several."""

SHORTEST = 16
"""Characters of a token: what is shorter can be guessed."""

COOKIE = "plait_window"


@dataclass(frozen=True)
class Caller:
    """Who asks. `owner` names the token on record, "" where the server has none; `full`: may see and do everything."""

    owner: str = ""
    full: bool = True

    def session(self, name: str) -> str:
        """The session's name on record: each client token has names of its own, so that none meets another's."""
        return name if self.full else f"@{self.owner}/{name}"

    def named(self, session: str) -> str:
        """The session's name as the caller knows it."""
        return session if self.full else session.removeprefix(f"@{self.owner}/")


ANYONE = Caller()
"""Whoever asks a server that has no token: this machine alone can."""


@dataclass(frozen=True)
class Key:
    """A token with what it opens. `cookie` is what a browser that logged in with it brings."""

    token: bytes
    cookie: bytes
    caller: Caller


class Door:
    """Tells callers by their tokens. Without any token it is open."""

    def __init__(self, full: Sequence[str] = (), clients: Sequence[str] = ()) -> None:
        self._keys = tuple(_key(token, full=token in full) for token in dict.fromkeys((*full, *clients)))

    @property
    def locked(self) -> bool:
        """There is a token, so one is asked for."""
        return bool(self._keys)

    @property
    def windowed(self) -> bool:
        """There is a token that opens everything."""
        return any(key.caller.full for key in self._keys)

    def by_token(self, token: str) -> Caller | None:
        """Whose token that is; None for nobody's. Takes the same time whatever is wrong with it."""
        return self._found(token.encode("utf-8", "surrogateescape"), "token")

    def by_cookie(self, cookie: str) -> Caller | None:
        """Who logged in with a token; None for nobody."""
        return self._found(cookie.encode("utf-8", "surrogateescape"), "cookie")

    def cookie_of(self, token: str) -> str | None:
        """What a browser is given for a token that may see the window; None for another."""
        wanted = token.encode("utf-8", "surrogateescape")
        found = None
        for key in self._keys:
            if hmac.compare_digest(_even(key.token), _even(wanted)) and key.caller.full:
                found = key.cookie.decode()
        return found

    def _found(self, given: bytes, what: str) -> Caller | None:
        # All keys are looked at, each by its hash: neither a token's length nor its first letters show in the time.
        found = None
        for key in self._keys:
            if hmac.compare_digest(_even(getattr(key, what)), _even(given)):
                found = key.caller
        return found


def door_from(environ: Mapping[str, str] | None = None) -> Door:
    """The door that the environment's tokens make. Raises `UsageError` for a token that can be guessed."""
    env = os.environ if environ is None else environ
    full, clients = (_tokens(name, env.get(name, "")) for name in (FULL, CLIENT))
    if set(full) & set(clients):
        raise UsageError(
            f"A token stands in {FULL} and in {CLIENT}: a client that has it could see and do everything.",
            hint="Give clients a token of their own.",
        )
    return Door(full, clients)


def _tokens(name: str, value: str) -> list[str]:
    tokens = [each.strip() for each in value.split(",") if each.strip()]
    for token in tokens:
        if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(
                f"A token in {name} can't be used: it needs {SHORTEST} or more printable ASCII characters, no spaces.",
                hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))".',
            )
    return tokens


def _key(token: str, *, full: bool) -> Key:
    name = hashlib.scrypt(token.encode(), salt=b"plait: who began a run", n=2**13, r=8, p=1, dklen=8).hex()
    cookie = hmac.digest(token.encode(), b"plait: a browser that logged in", "sha256").hex()
    return Key(token.encode(), cookie.encode(), Caller(name, full))


def _even(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
