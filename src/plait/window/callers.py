"""Who asks: tokens, and what each may see.

A token is held in memory alone and never written. What stands on record of who began a run is a name derived from the
token by a slow function, so that whoever reads the journal can't try tokens out by the million.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plait.core.errors import UsageError

FULL, CLIENT = "PLAIT_SERVE_TOKEN", "PLAIT_SERVE_CLIENT_TOKENS"
"""The variables that hold the tokens, comma separated where there are several."""

SHORTEST = 16
"""Characters of a token: what is shorter can be guessed."""

LOGGED_IN = 12 * 3600
"""Seconds that a browser stays logged in."""
FAILURES, PERIOD = 5, 60.0
"""So many wrong tokens in so many seconds; after that `/login` refuses all for a while."""


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
    """A token with what it opens. `signer` signs what a browser that logged in with it brings."""

    token: bytes
    signer: bytes
    caller: Caller

    def signed(self, what: str) -> str:
        """The signature of a text."""
        return hmac.digest(self.signer, what.encode("utf-8", "surrogateescape"), "sha256").hex()


@dataclass(frozen=True)
class Login:
    """What a browser gets for a token. It brings both parts with each request.

    Browsers send `cookie` to every port of the host, so another server of this machine may see it. `page` is kept by
    the page for its own port alone. Without the other, neither opens anything.
    """

    cookie: str
    page: str


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
        key = self._key_of(token)
        return key.caller if key is not None else None

    def by_login(self, cookie: str, page: str | None, now: float | None = None) -> Caller | None:
        """Who logged in with a token; None for nobody, and when the login has expired. `page` None: it is not asked
        for, which is enough for pages without data."""
        said, _, signature = cookie.rpartition(".")
        expires = said.partition(".")[0]
        now = time.time() if now is None else now
        if not (expires.isascii() and expires.isdigit() and len(expires) < 20 and int(expires) >= now):
            return None
        found = None
        for key in self._keys:
            same = _same(key.signed(f"cookie {said}"), signature)
            if same and (page is None or _same(key.signed(f"page {said}"), page)):
                found = key.caller
        return found

    def login(self, token: str, now: float | None = None) -> Login | None:
        """What a browser is given for a token that may see the window; None for another."""
        key = self._key_of(token)
        if key is None or not key.caller.full:
            return None
        said = f"{int(time.time() if now is None else now) + LOGGED_IN}.{secrets.token_hex(8)}"
        return Login(f"{said}.{key.signed(f'cookie {said}')}", key.signed(f"page {said}"))

    def _key_of(self, token: str) -> Key | None:
        # All keys are looked at, each by its hash: neither a token's length nor its first letters show in the time.
        wanted = token.encode("utf-8", "surrogateescape")
        found = None
        for key in self._keys:
            if hmac.compare_digest(_even(key.token), _even(wanted)):
                found = key
        return found


class LoginLimit:
    """Slows down whoever tries tokens at `/login`."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES)

    def wait(self, now: float) -> float:
        """Seconds until a token may be tried again; 0 when it may be now."""
        full = len(self._failures) == FAILURES
        return max(0.0, self._failures[0] + PERIOD - now) if full else 0.0

    def failed(self, now: float) -> None:
        """A wrong token was tried."""
        self._failures.append(now)


def cookie_name(host: str) -> str:
    """The cookie's name for a Host header: each port has its own, so that two servers of a machine can be used."""
    port = host.rpartition(":")[2]
    return f"plait_window_{port}" if port.isascii() and port.isdigit() else "plait_window"


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
    signer = hmac.digest(token.encode(), b"plait: a browser that logged in", "sha256")
    return Key(token.encode(), signer, Caller(name, full))


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(_even(one.encode()), _even(other.encode("utf-8", "surrogateescape")))


def _even(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
