"""Who sends a request: access tokens, browser logins, users and their roles, and the label with the owner of a run.

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
from typing import Any

from plait.core.errors import ConfigError
from plait.journal.served_runs import RunLabel

FULL, CLIENT, USER = "PLAIT_SERVE_TOKEN", "PLAIT_SERVE_CLIENT_TOKENS", "PLAIT_SERVE_USER_TOKENS"
"""The variables that hold the tokens, separated by commas. A user's token follows the name: alice=TOKEN."""
SHORTEST = 16
"""Characters of a token. A shorter one can be guessed."""
LOGGED_IN = 12 * 3600
"""Seconds that a browser stays logged in."""
VIEW, USE, APPROVE, CHANGE = ROLES = ("view", "use", "approve", "change")
"""What a user may do: see all runs, not only the user's own; talk to agents; answer approvals; fork, rate, resume,
cancel and delete all runs that the user sees, and change data sets."""
ANY = "any"
"""What a route needs that is for users with any role, such as one that shows a user's own runs."""
LONGEST_NAME = 200
"""Characters of a user's name."""


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `owner` names its token or its user in the journal, "" for none.

    `full`: may see and do all. `name` is the name of a user with these `roles`. A caller that has neither is a client:
    an application with a token for the endpoints.
    """

    owner: str = ""
    full: bool = True
    name: str = ""
    roles: frozenset[str] = frozenset()

    @classmethod
    def of_user(cls, name: str, roles: Mapping[str, Sequence[str]]) -> Caller:
        """Return the user of that name. `roles` are those of `[serve.roles]`; "*" has those of all others."""
        # No owner that is derived from a token begins like this one, and a hash has no ':' and a fixed length.
        owner = f"u-{hashlib.sha256(f'plait: a user {name}'.encode()).hexdigest()[:24]}"
        return cls(owner, False, name, frozenset(roles.get(name, roles.get("*", (USE,)))))

    @property
    def is_client(self) -> bool:
        return not self.full and not self.name

    @property
    def sees_all(self) -> bool:
        """Return whether the caller sees the runs of others."""
        return self.full or VIEW in self.roles

    @property
    def label(self) -> str:
        """Return how the labels of all runs begin that the caller sees in lists, "" for all runs (`RunQuery.label`)."""
        return "" if self.sees_all else str(RunLabel(self.owner, "")).removesuffix(":")

    def may(self, role: str) -> bool:
        """Return whether the caller has a role. A client may do everything with its own runs."""
        return self.full or self.is_client or role in self.roles or (role == ANY and bool(self.roles))

    def session(self, name: str) -> str:
        """Return the session's name in the journal. Each user and each client token has its own names."""
        own = f"@{self.owner}/"
        return name if self.full or name.startswith(own) else f"{own}{name}"

    def user(self, name: str) -> str:
        """Return the user's name in the journal. A user has one name. Each client token has its own users, so that no
        client can pass a run off as one of another client's users."""
        return self.name or (self.session(name) if name else "")

    def name_session(self, session: str) -> str:
        """Return the name by which the caller knows a session of the journal."""
        return session if self.full else session.removeprefix(f"@{self.owner}/")

    def in_journal(self, filters: dict[str, Any]) -> dict[str, Any]:
        """Return filters of runs with the names of the journal. Who sees all runs gives these names."""
        if not self.sees_all and filters.get("session"):
            filters = {**filters, "session": self.session(filters["session"])}
        if self.is_client and filters.get("user"):
            filters = {**filters, "user": self.user(filters["user"])}
        return filters


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
    caller: Caller

    def sign(self, text: str) -> str:
        signer = hmac.digest(self.token.encode(), b"plait: a browser that logged in", "sha256")
        return hmac.digest(signer, text.encode("utf-8", "surrogateescape"), "sha256").hex()


class AccessTokens:
    """The tokens of a server: full ones, those of clients, and (name, token) of users. A user's caller has no roles:
    they are looked up for each request."""

    def __init__(
        self, full: Sequence[str] = (), clients: Sequence[str] = (), users: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._known = list[_KnownToken]()
        for token in dict.fromkeys((*full, *clients)):
            owner = hashlib.scrypt(token.encode(), salt=b"plait: who began a run", n=2**13, r=8, p=1, dklen=8).hex()
            self._known.append(_KnownToken(token, Caller(owner, token in full)))
        self._known += [_KnownToken(token, Caller.of_user(name, {"*": ()})) for name, token in users]

    @property
    def are_set(self) -> bool:
        return bool(self._known)

    @property
    def open_pages(self) -> bool:
        """Return whether one of them opens the pages."""
        return any(not known.caller.is_client for known in self._known)

    def find_caller(self, token: str) -> Caller | None:
        """Return the caller of a token; None for an unknown one. Takes the same time for any wrong token."""
        known = self._find(token)
        return known.caller if known is not None else None

    def _find(self, token: str) -> _KnownToken | None:
        # All tokens are compared by their hashes, so the time shows neither a length nor the first letters.
        found = [known for known in self._known if _is_same(known.token, token)]
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
        """Log in a browser with the token of a user or a full one; None for any other token."""
        known = self._find(token)
        if known is None or known.caller.is_client:
            return None
        signed = f"{int(time.time() if now is None else now) + LOGGED_IN}.{secrets.token_hex(8)}"
        return BrowserLogin(f"{signed}.{known.sign(f'cookie {signed}')}", known.sign(f"page {signed}"))


def cookie_name(host: str) -> str:
    """Return the cookie's name for a Host header. Each port has its own, so one browser can use two servers."""
    port = host.rpartition(":")[2]
    return f"plait_window_{port}" if port.isascii() and port.isdigit() else "plait_window"


def load_tokens(environ: Mapping[str, str] | None = None) -> AccessTokens:
    """Read the tokens from the environment. Raises `ConfigError` for a token that can be guessed, or that has two
    meanings."""
    env = os.environ if environ is None else environ
    found: dict[str, tuple[str, str]] = {}
    for variable in (FULL, CLIENT, USER):
        for each in filter(None, map(str.strip, env.get(variable, "").split(","))):
            name, _, token = map(str.strip, each.partition("=")) if variable == USER else ("", "", each)
            wrong = find_fault_of_name(name) if token else "has no token, or a token no name"
            if variable == USER and wrong:  # no error shows a name: a token may be in its place
                raise ConfigError(f"{USER} can't be used: a name {wrong}.", hint="Write alice=TOKEN,bob=TOKEN.")
            if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
                text = f"A token in {variable} can't be used: it needs {SHORTEST} or more printable ASCII characters"
                hint = 'Make one: python -c "import secrets; print(secrets.token_urlsafe(32))".'
                raise ConfigError(f"{text}, no spaces.", hint=hint)
            if (other := found.setdefault(token, (variable, name))) != (variable, name):
                where = f"Two names in {USER}" if other[0] == variable else f"{other[0]} and {variable}"
                raise ConfigError(f"{where} contain the same token.", hint="Give each a token of its own.")
    full, clients = ([token for token, (its, _) in found.items() if its == wanted] for wanted in (FULL, CLIENT))
    return AccessTokens(full, clients, [(name, token) for token, (its, name) in found.items() if its == USER])


def find_fault_of_name(name: str) -> str:
    """Return why a text cannot be a user's name, "" if it can. Names are compared exactly, letter by letter."""
    if not name.strip() or name != name.strip():
        return "is empty, or begins or ends with a space"
    if len(name) > LONGEST_NAME:
        return f"has more than {LONGEST_NAME} characters"
    if not name.isprintable():
        return "has control characters, or characters that are not shown"
    # Proxies join repeated headers by commas. A client's users begin with @ in the journal.
    return "is not allowed: no commas, no * and no @ at its beginning" if "," in name or name[0] in "*@" else ""


def _is_same(one: str, other: str) -> bool:
    digests = [hashlib.sha256(each.encode("utf-8", "surrogateescape")).digest() for each in (one, other)]
    return hmac.compare_digest(*digests)
