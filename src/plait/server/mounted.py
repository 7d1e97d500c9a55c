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


class MountedAgent:
    """An ASGI application of one agent. See `Agent.to_asgi`."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        user: FindUser | None,
        roles: Mapping[str, Sequence[str]] | None,
        *,
        thoughts: bool,
    ) -> None:
        self._find_user = user
        given = {"*": (USE, APPROVE), **(roles or {})}
        table = structs.replace(load().serve, roles={name: list(has) for name, has in given.items()})
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
        host = (scope.get("client") or ("",))[0]
        if self._find_user is None and not self._manager.needs_token and not is_this_machine(host):
            text = "Without a token and without users, only this machine is served."
            hint = "Give to_asgi(user=...), or set PLAIT_SERVE_TOKEN."
            refused = RequestRejected(403, text, hint=hint, kind="permission_error", code="forbidden")
            await json_response(refused.body(), 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _identify(self, scope: Scope) -> Caller:
        """Return the user that the application knows for a request."""
        assert self._find_user is not None
        found = self._find_user(scope)
        name = await found if inspect.isawaitable(found) else found
        if name is None:
            text, kind = "The application knows no user for this request.", "authentication_error"
            raise RequestRejected(401, text, hint="Log in there.", kind=kind, code="no_user", metric="token")
        if not isinstance(name, str) or (wrong := find_fault_of_name(name)):
            why = f"a name that {wrong}" if isinstance(name, str) else f"{type(name).__name__}, no text"
            raise ConfigError(f"to_asgi(user=...) returned {why}.", hint="Return the user's name, or None for nobody.")
        return Caller.of_user(name, self._manager.table.roles)
