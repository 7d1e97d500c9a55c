"""One agent inside another application: `Agent.to_asgi`.

The application that mounts it says who the user is, or the tokens in the environment do. Without both, only this
machine is served. The runs go on and stop with the process: a mounted application gets no lifespan.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from msgspec import structs
from starlette.types import Receive, Scope, Send

from plait.agent import Agent
from plait.config import load
from plait.core.errors import ConfigError
from plait.proxies import is_this_machine
from plait.server.agents import serve_agent
from plait.server.app import build_app
from plait.server.auth import APPROVE, USE, AccessTokens, Caller, find_fault_of_name, load_tokens
from plait.server.errors import RequestRejected, json_response
from plait.server.runs import RunManager

FindUser: TypeAlias = Callable[[MutableMapping[str, Any]], str | Awaitable[str | None] | None]
"""Returns the name of a request's user from its ASGI scope; None for nobody."""
USER = "plait.user"
"""The name in a scope under which the guard finds what `FindUser` returned."""


class MountedAgent:
    """An ASGI application of one agent. See `Agent.to_asgi`."""

    def __init__(
        self, agent: Agent[Any, Any], user: FindUser | None, roles: Mapping[str, Sequence[str]] | None, thoughts: bool
    ) -> None:
        self._find_user, table = user, load().serve
        given = {name: list(has) for name, has in (table.roles if roles is None else roles).items()}
        if user is not None:
            given.setdefault("*", [USE, APPROVE])
        table = structs.replace(table, roles=given)
        served = serve_agent(agent.name or "plait", agent, table, thoughts=thoughts)
        tokens = load_tokens() if user is None else AccessTokens()
        self._manager = RunManager([served], table, tokens)
        self._app = build_app(self._manager, self._identify if user is not None else None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._manager.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
        host, is_http = (scope.get("client") or ("",))[0], scope["type"] == "http"
        if is_http and self._find_user is None and not self._manager.needs_token and not is_this_machine(host):
            text = "Without a token and without users, only this machine is served."
            hint = "Give to_asgi(user=...), or set PLAIT_SERVE_TOKEN."
            refused = RequestRejected(403, text, hint=hint, kind="permission_error", code="forbidden")
            await json_response(refused.body(), 403)(scope, receive, send)
            return
        if is_http and self._find_user is not None:
            found = self._find_user(scope)  # its errors are the application's
            scope = {**scope, USER: await found if inspect.isawaitable(found) else found}
        await self._app(scope, receive, send)

    def _identify(self, scope: Scope) -> Caller:
        """Return the user that the application knows for a request."""
        name = scope[USER]
        if name is None:
            text, kind = "The application knows no user for this request.", "authentication_error"
            raise RequestRejected(401, text, hint="Log in there.", kind=kind, code="no_user", metric="token")
        if not isinstance(name, str) or (wrong := find_fault_of_name(name)):
            why = f"a name that {wrong}" if isinstance(name, str) else f"{type(name).__name__}, no text"
            raise ConfigError(f"to_asgi(user=...) returned {why}.", hint="Return the user's name, or None for nobody.")
        return Caller.of_user(name, self._manager.table.roles)
