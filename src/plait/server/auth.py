"""Access tokens, the callers that they identify, browser logins, and the label that names the owner of a run.

Tokens stay in memory. The journal names an owner by a value that a slow function derives from the token, so a reader of
the journal cannot try many tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plait.core.errors import ConfigError

FULL, CLIENT = "PLAIT_SERVE_TOKEN", "PLAIT_SERVE_CLIENT_TOKENS"
"""The variables that hold the tokens, separated by commas."""
SHORTEST = 16
"""Characters of a token. A shorter one can be guessed."""
LOGGED_IN = 12 * 3600
"""Seconds that a browser stays logged in."""


VIEW, USE, APPROVE, CHANGE = ROLES = ("view", "use", "approve", "change")
"""What a user of the pages may do: see all runs, not only those of the user's own; talk to agents; answer approvals;
fork, rate and cancel runs, and change data sets."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `owner` names its token or its user in the journal, "" for none.

    `full`: may see and do all. `name` is the name of a user of the pages with these `roles`. A caller that has neither
    is a client: an application with a token for the endpoints.
    """

    owner: str = ""
    full: bool = True
    name: str = ""
    roles: frozenset[str] = frozenset()

    @property
    def is_client(self) -> bool:
        return not self.full and not self.name

    @property
    def sees_all(self) -> bool:
        """Return whether the caller sees the runs of others."""
        return self.full or VIEW in self.roles

    def may(self, role: str) -> bool:
        """Return whether the caller has a role. A client may do everything with its own runs."""
        return self.full or self.is_client or role in self.roles

    def session(self, name: str) -> str:
        """Return the session's name in the journal. Each client token has its own names."""
        return name if self.full else f"@{self.owner}/{name}"

    def user(self, name: str) -> str:
        """Return the user's name in the journal. Each client token has its own users, so that no client can pass a run
        off as one of another client's users."""
        return self.session(name) if name else ""

    def name_session(self, session: str) -> str:
        """Return the name by which the caller knows a session of the journal."""
        return session if self.full else session.removeprefix(f"@{self.owner}/")


ANYONE = Caller()
"""The caller of a server without tokens. Only this machine can reach it."""


@dataclass(frozen=True)
class BrowserLogin:
    """The cookie that a browser gets for a token and sends with each request.

    Browsers send `cookie` to every port of the host, so another server on this machine may see it. The page keeps
    `page` for its own port. Neither is enough without the other.
    """

    cookie: str
    page: str


@dataclass(frozen=True)
class _KnownToken:
    token: str
    signer: bytes
    caller: Caller

    def sign(self, text: str) -> str:
        return hmac.digest(self.signer, text.encode("utf-8", "surrogateescape"), "sha256").hex()


class AccessTokens:
    """The tokens of a server. Without tokens, everybody who can reach the server may do everything."""

    def __init__(self, full: Sequence[str] = (), clients: Sequence[str] = ()) -> None:
        self._known = list[_KnownToken]()
        for token in dict.fromkeys((*full, *clients)):
            owner = hashlib.scrypt(token.encode(), salt=b"plait: who began a run", n=2**13, r=8, p=1, dklen=8).hex()
            signer = hmac.digest(token.encode(), b"plait: a browser that logged in", "sha256")
            self._known.append(_KnownToken(token, signer, Caller(owner, token in full)))

    @property
    def needs_token(self) -> bool:
        return bool(self._known)

    @property
    def has_full(self) -> bool:
        """Return whether a token opens the viewer."""
        return any(known.caller.full for known in self._known)

    def find_caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None for an unknown one. Takes the same time for any wrong token."""
        # All tokens are compared by their hashes, so the time shows neither a length nor the first letters.
        found = [known.caller for known in self._known if _is_same(known.token, token)]
        return found[0] if found else None

    def find_login(self, cookie: str, page: str | None, now: float | None = None) -> Caller | None:
        """Return the logged-in caller; None without a login or after it expired. If `page` is None, only the cookie is
        checked. That is enough for pages without data."""
        signed, _, signature = cookie.rpartition(".")
        expires = signed.partition(".")[0]
        now = time.time() if now is None else now
        if not (expires.isascii() and expires.isdigit() and len(expires) < 20 and int(expires) >= now):
            return None
        found = [known for known in self._known if _is_same(known.sign(f"cookie {signed}"), signature)]
        if not found or (page is not None and not _is_same(found[0].sign(f"page {signed}"), page)):
            return None
        return found[0].caller

    def login(self, token: str, now: float | None = None) -> BrowserLogin | None:
        """Log in a browser with a full token; None for any other token."""
        caller = self.find_caller(token)
        if caller is None or not caller.full:
            return None
        known = next(known for known in self._known if known.caller == caller)
        signed = f"{int(time.time() if now is None else now) + LOGGED_IN}.{secrets.token_hex(8)}"
        return BrowserLogin(f"{signed}.{known.sign(f'cookie {signed}')}", known.sign(f"page {signed}"))


def cookie_name(host: str) -> str:
    """Return the cookie's name for a Host header. Each port has its own, so one browser can use two servers."""
    port = host.rpartition(":")[2]
    return f"plait_window_{port}" if port.isascii() and port.isdigit() else "plait_window"


def load_tokens(environ: Mapping[str, str] | None = None) -> AccessTokens:
    """Read the tokens from the environment. Raises `ConfigError` for a token that can be guessed."""
    env = os.environ if environ is None else environ
    full, clients = (_split_tokens(name, env.get(name, "")) for name in (FULL, CLIENT))
    if set(full) & set(clients):
        raise ConfigError(
            f"{FULL} and {CLIENT} contain the same token: a client that has it could see and do everything.",
            hint="Give clients a token of their own.",
        )
    return AccessTokens(full, clients)


def _split_tokens(name: str, value: str) -> list[str]:
    tokens = [each.strip() for each in value.split(",") if each.strip()]
    for token in tokens:
        if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"A token in {name} can't be used: it needs {SHORTEST} or more printable ASCII characters, no spaces.",
                hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))".',
            )
    return tokens


def _is_same(one: str, other: str) -> bool:
    digests = [hashlib.sha256(each.encode("utf-8", "surrogateescape")).digest() for each in (one, other)]
    return hmac.compare_digest(*digests)
