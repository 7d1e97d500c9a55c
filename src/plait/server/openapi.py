"""The OpenAPI document of the server, made from its routes.

A module of routes declares each one as an `ApiRoute`. The docstring of the endpoint describes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from plait import __version__
from plait.server.auth import ANY
from plait.server.errors import json_response, missing_role
from plait.server.guard import FULL, OPEN, USERS, find_needs

Body: TypeAlias = type[msgspec.Struct] | dict[str, Any] | None
"""The struct of a JSON body, or its JSON Schema; None: the route takes none."""


def describe_body(required: str, optional: str) -> dict[str, Any]:
    """Return the JSON Schema of a body with these fields, such as "model:string input:string,array"."""
    types = dict(each.split(":") for each in f"{required} {optional}".split())
    names = [each.partition(":")[0] for each in required.split()]
    fields = {name: {"type": kinds.split(",")} for name, kinds in types.items()}
    return {"type": "object", "required": names, "properties": fields}


ERROR = describe_body("error:object", "")
ERROR["properties"]["error"] |= describe_body("message:string type:string param:string,null code:string,null", "")


class RoleRoute(Route):
    """A route that checks the caller's role: one of `auth.ROLES`, or `auth.ANY` for users with any role. A route
    without a role is not for users. Open paths need no caller (`guard.NEEDS`)."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, role: str = "", **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self.role = role

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if find_needs(self.path) != OPEN and not scope["state"]["caller"].may(self.role):
            raise missing_role(self.role)
        await super().handle(scope, receive, send)


class ApiRoute(RoleRoute):
    """A route of the document. `body` describes its JSON body; `query` are the names of its query parameters."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, body: Body = None, query: Sequence[str] = (), **more: Any
    ) -> None:
        super().__init__(path, endpoint, **more)
        self.body, self.query = body, query


async def answer_document(request: Request) -> Response:
    """Return this document."""
    described = [each for each in request.app.routes if isinstance(each, ApiRoute)]
    kinds = [each.body for each in described if isinstance(each.body, type)]
    bodies, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, bodies, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in described:
        asked = [(name, "path") for name in route.param_convertors] + [(name, "query") for name in route.query]
        parameters = [
            {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
            for name, where in asked
        ]
        operation: dict[str, Any] = {
            "summary": (inspect.getdoc(route.endpoint) or "").partition("\n\n")[0].replace("\n", " "),
            "responses": {"2XX": {"description": "The answer."}, "default": {"$ref": "#/components/responses/Error"}},
            **({"parameters": parameters} if parameters else {}),
        }
        if (needs := find_needs(route.path)) == OPEN:
            operation["security"] = []
        else:
            users = {"": "", ANY: ", or a user"}.get(route.role, f", or a user with the role '{route.role}'")
            operation["description"] = f"Needs a {'full token' if needs in (FULL, USERS) else 'token'}{users}."
        if route.body is not None:
            schema = schemas[route.body] if isinstance(route.body, type) else route.body
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path_format, {})[method.lower()] = operation
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Plait", "version": __version__, "description": "Agents as models, and their runs."},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": components,
            "responses": {"Error": {"description": "An error.", "content": {"application/json": {"schema": ERROR}}}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
    return json_response(document)
