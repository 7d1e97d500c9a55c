"""The OpenAPI document has every route of the server and no other, and is valid."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest

import plait
from lazily import Lazy, skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from starlette.routing import Route  # noqa: E402

from plait.server.app import build_app  # noqa: E402
from window_server import FULL, ONE, Here, serving  # noqa: E402

jsonschema = Lazy("jsonschema")
PAGES = {"/", "/chat", "/page/{name}", "/login", "/logout", "/comparison", "/mcp"}
"""Routes that are no part of the API."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    journal = tmp_path_factory.mktemp("openapi") / "runs.db"
    agent = plait.Agent("react", model=plait.Scripted(["Final Answer: 5"]), journal=journal)
    with serving(agent, tokens=(FULL,), clients=(ONE,)) as server:
        yield server


@pytest.fixture
def document(here: Here) -> dict[str, Any]:
    status, _, found = here.ask("GET", "/openapi.json", token=ONE)
    assert status == 200
    return dict(found)


def test_the_document_has_the_routes_of_the_server_and_no_other(here: Here, document: dict[str, Any]) -> None:
    routes = [each for each in build_app(here.manager).routes if isinstance(each, Route) and each.path not in PAGES]
    served = {(each.path, method.lower()) for each in routes for method in each.methods or () if method != "HEAD"}
    described = {(path, method) for path, found in document["paths"].items() for method in found}
    assert described == served and {"/v1/responses/{id}", "/openapi.json", "/health"} <= document["paths"].keys()
    for path, method in described:
        operation = document["paths"][path][method]
        assert operation["summary"].endswith("."), path
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert (operation.get("security") == []) == path.startswith("/health")
        assert ("full token" in operation.get("description", "")) == path.startswith(("/api/", "/metrics"))
        status, _, _ = here.ask(method.upper(), re.sub(r"{\w+}", "x", path))
        assert status == (200 if path.startswith("/health") else 401), path


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    bodies = [
        found[method]["requestBody"]
        for found in document["paths"].values()
        for method in found
        if "requestBody" in found[method]
    ]
    assert len(bodies) >= 4
    for body in bodies:
        schema = {**body["content"]["application/json"]["schema"], "components": document["components"]}
        jsonschema.Draft202012Validator.check_schema(schema)
        names = schema.get("properties") or jsonschema.Draft202012Validator(schema)
        assert names
    chat = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat["required"] == ["model", "messages"]
    if importlib.util.find_spec("openapi_spec_validator") is None:
        pytest.skip("NOT CHECKED: openapi-spec-validator is not installed")
    from openapi_spec_validator import validate

    validate(document)


def test_the_document_needs_a_token(here: Here) -> None:
    assert here.ask("GET", "/openapi.json")[0] == 401
    assert here.ask("GET", "/openapi.json", token=FULL)[0] == 200
