"""An error names what was wrong: the proxy, the key, the field. Ids of calls fit the endpoint."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import plait
from conftest import for_each
from models_server import Asked, Server
from plait.core import Call, Message, Think, user
from plait.core.errors import BadRequest, ConfigError, ContextOverflow, ModelError, ToolError, Unreachable, Unsupported
from plait.models.base import Abilities
from plait.models.chat import ChatModel
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from plait.models.wires.refusals import Target, failure
from plait.proxies import find_proxy
from plait.search.endpoint import EndpointEmbedder, load_endpoint_embedder
from plait.toolkits.download import download_page

THINK = Think("act", (user("?"),))
PASSWORD = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("http", "https", "all", "no"):
        for each in (f"{name}_proxy", f"{name}_PROXY".upper()):
            monkeypatch.delenv(each, raising=False)
    find_proxy.cache_clear()
    yield
    find_proxy.cache_clear()


async def fail(endpoint: str) -> ModelError:
    """The error of a request to an endpoint, and of one for embeddings."""
    model = ChatModel(spec="t:m", name="m", endpoint=endpoint, abilities=Abilities(stream=False), base_env="M_BASE_URL")
    with pytest.raises(Unreachable) as caught:
        await model.send(model.encode(THINK), THINK)
    embedder = EndpointEmbedder("m", endpoint, tries=1)
    with pytest.raises(ModelError) as also:
        await embedder._ask(["x"])
    assert [("proxy" in str(each.value)) for each in (caught, also)] == [True, True]
    assert PASSWORD not in f"{caught.value} {also.value}"
    return caught.value


PROXIES = [  # the variable, its value ({}: a port that answers as the last column says), the endpoint, what is said
    ("ALL_PROXY", "socks5://u:hunter2-hunter2@127.0.0.1:{}", "https", r"proxy socks5://127.0.0.1:\d+ .*SOCKS5", None),
    ("all_proxy", "socks5h://127.0.0.1:9", "http", r"\(all_proxy\).*SOCKS5H", None),
    ("HTTPS_PROXY", "http://u:hunter2-hunter2@127.0.0.1:9", "https", "http://127.0.0.1:9 .*connection refused", None),
    ("https_proxy", "127.0.0.1:9", "https", "http://127.0.0.1:9 .*connection refused", None),
    ("HTTP_PROXY", "127.0.0.1:9", "http", "http://127.0.0.1:9 .*connection refused", None),
    ("HTTPS_PROXY", "http://proxy.invalid:3128", "https", "proxy.invalid:3128 .*name is not known", None),
    ("HTTPS_PROXY", "http://", "https", "has no host", None),
    ("HTTPS_PROXY", "http://u:hunter2-hunter2", "https", "of HTTPS_PROXY can't be reached: its address cannot", None),
    ("HTTP_PROXY", "ftp://127.0.0.1:9", "http", "FTP", None),
    ("HTTP_PROXY", "http://u:hunter2-hunter2@127.0.0.1:{}", "http", "answered 407 .*http://USER:PASSWORD@", 407),
    ("HTTPS_PROXY", "http://u:hunter2-hunter2@127.0.0.1:{}", "https", "answered 407 .*http://USER:PASSWORD@", 407),
    ("HTTPS_PROXY", "127.0.0.1:{}", "https", "answered 502", 502),
    ("HTTPS_PROXY", "127.0.0.1:{}", "https", "does not speak HTTP", 0),
]


@pytest.mark.parametrize(("variable", "value", "scheme", "said", "status"), PROXIES)
async def test_an_error_names_the_proxy_and_its_variable(
    variable: str, value: str, scheme: str, said: str, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(asked: Asked) -> None:
        if status:
            await asked.answer(status, b"<html><title>Squid</title></html>", "text/html")
        else:
            asked.writer.write(b"\x05\xff\r\n\r\n")
            asked.writer.close()

    async with Server(handler) as server:
        monkeypatch.setenv(variable, value.format(server.port))
        error = await fail(f"{scheme}://far.invalid/v1")
        assert re.search(said, str(error), re.S) and variable in str(error) and "M_BASE_URL" not in str(error)
        assert not error.sent and not (error.retry and status == 407)
        with pytest.raises(ToolError) as of_tool:
            await download_page(f"{scheme}://far.invalid/", 1000)
        if status is None:
            assert variable in str(of_tool.value) and PASSWORD not in str(of_tool.value)
    monkeypatch.setenv("NO_PROXY", "near.invalid, .other.invalid, port.invalid:81")
    for host, port in (("near.invalid", 443), ("a.other.invalid", 80), ("port.invalid", 81), ("127.0.0.1", 80)):
        assert find_proxy(scheme, host, port) is None
    assert find_proxy(scheme, "port.invalid", 82) is not None


@pytest.mark.parametrize(("status", "words"), [(502, "failed (502)"), (200, "sent something that is not a reply")])
async def test_an_answer_that_a_proxy_may_have_written_names_it(
    status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(status, b"<html><title>Squid: gateway error</title></html>", "text/html")

    async with Server(handler) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://u:{PASSWORD}@127.0.0.1:{server.port}")
        model = ChatModel(spec="t:m", name="m", endpoint="http://far.invalid/v1")
        with pytest.raises(ModelError) as caught:
            await model.send(model.encode(THINK), THINK)
        where = f"http://far.invalid/v1 (m) through the proxy http://127.0.0.1:{server.port} (HTTP_PROXY) {words}"
        assert str(caught.value).startswith(where) and PASSWORD not in str(caught.value)


KEY = "sk-0123456\n789abcdef"
BAD_KEYS = [
    (KEY, "a line end (character 11 of 20)"),
    ("sk-0123é456", "a sign beyond ASCII (character 8 of 11)"),
    ("\ufeffsk-01234567", "a sign beyond ASCII (character 1"),
    ("sk-0123\x00456", "a control character"),
]


@pytest.mark.parametrize(("key", "what"), BAD_KEYS)
def test_a_key_that_cannot_be_sent_is_named_by_its_variable(key: str, what: str) -> None:
    own = {"base_url": "http://h/v1", "key_env": "MY_KEY", "headers": {"X-Key": "$MY_OTHER"}}
    config = ModelConfig.from_mapping({"endpoints": {"own": own}})
    for named, make in {
        "OPENAI_API_KEY": lambda: resolve("openai:gpt-4.1-mini", env={"OPENAI_API_KEY": key}),
        "MISTRAL_API_KEY": lambda: load_endpoint_embedder("mistral:mistral-embed", {"MISTRAL_API_KEY": key}),
        "MY_KEY (endpoints.own.key_env)": lambda: resolve("own:m", config, env={"MY_KEY": key, "MY_OTHER": "x"}),
        "MY_OTHER (endpoints.own.headers)": lambda: resolve("own:m", config, env={"MY_KEY": "x", "MY_OTHER": key}),
        "The key for http://h/v1": lambda: EndpointEmbedder("m", "http://h/v1", key),
    }.items():
        with pytest.raises(ConfigError) as caught:
            make()
        assert str(caught.value).startswith(f"{named} holds {what}") and key[:7] not in str(caught.value)
    assert resolve("openai:gpt-4.1-mini", env={"OPENAI_API_KEY": key}, require_key=False)  # only described


async def test_a_header_with_a_line_end_is_no_fault_of_the_address() -> None:
    for options in ({"key": KEY, "key_env": "OPENAI_API_KEY"}, {"headers": {"X-Team": KEY}}):
        model = ChatModel(spec="t:m", name="m", endpoint="http://127.0.0.1:9/v1", **options)
        with pytest.raises(BadRequest, match=r"header '(Authorization|X-Team)'.* holds a line end") as caught:
            await model.send(model.encode(THINK), THINK)
        assert "OPENAI_API_KEY" in str(caught.value) or "key_env" not in options
        assert "789abcdef" not in str(caught.value)


# Fields


def openai(field: str, most: int, kind: str = "string") -> dict[str, Any]:
    said = (
        f"Invalid '{field}': {kind} too long. Expected a {kind} with maximum length {most}, but got one of {most + 9}."
    )
    return {"error": {"message": said, "param": field, "code": f"{kind}_above_max_length"}}


def anthropic(said: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": said}}


LENGTH = "Must start with a letter, with a maximum length of 64."
NAME = "tools[0].function_declarations[0].name"
IN_DETAILS = [{"fieldViolations": [{"field": NAME, "description": f"Invalid function name. {LENGTH}"}]}]
RAW = json.dumps(openai("metadata.a", 9))
MISTRAL = {"type": "string_too_long", "loc": ["body", "user"], "msg": "String should have at most 64 characters"}
LONG_FIELDS = [
    (openai("tools[0].function.description", 1024), "tools[0].function.description", 1024),
    (openai("tools[1].function.name", 64), "tools[1].function.name", 64),
    (openai("messages[2].tool_calls[0].id", 40), "messages[2].tool_calls[0].id", 40),
    (openai("input[3].call_id", 64), "input[3].call_id", 64),
    (openai("user", 64), "user", 64),
    (openai("metadata.context", 512), "metadata.context", 512),
    (openai("tools", 128, "array"), "tools", 128),
    ({"error": {"message": openai("user", 64)["error"]["message"]}}, "user", 64),
    ({"error": {"message": "Provider returned error", "metadata": {"raw": RAW}}}, "metadata.a", 9),
    (anthropic("tools.0.custom.name: String should have at most 128 characters"), "tools.0.custom.name", 128),
    (anthropic("messages.1.content.0.tool_use.id: String should have at most 64 characters"), "tool_use.id", 64),
    ({"error": {"code": 400, "message": f"* GenerateContentRequest.{NAME}: Invalid name. {LENGTH}"}}, NAME, 64),
    ({"error": {"code": 400, "message": "Request contains an invalid argument.", "details": IN_DETAILS}}, NAME, 64),
    ({"object": "error", "message": {"detail": [MISTRAL]}}, "body.user", 64),
    ({"error": {"message": "String too long: at most 64 characters.", "param": "user"}}, "user", 64),
]  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "f", "strict": True}}]
ASKED = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stop": ["a"], "tools": TOOLS})


def refused(body: dict[str, Any]) -> ModelError:
    return failure(400, json.dumps(body).encode(), Target("http://h/v1", "m"), asked=ASKED.encode())


@for_each(("body", "field", "most"), LONG_FIELDS)
def test_a_field_that_is_too_long_is_named_with_its_limit(body: dict[str, Any], field: str, most: int) -> None:
    error = refused(body)
    assert type(error) is BadRequest and not error.retry
    assert field in error.message and str(most) in error.message


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (openai("messages[1].content", 10485760), ContextOverflow),
        (openai("messages[1].content[0].text", 10485760), ContextOverflow),
        (openai("messages", 2048, "array"), ContextOverflow),
        (openai("input", 10485760), ContextOverflow),
        (openai("stop", 4, "array"), Unsupported),
        (anthropic("prompt is too long: 213462 tokens > 200000 maximum"), ContextOverflow),
        ({"error": {"message": "Input length 9000 exceeds maximum length 8192", "param": "input"}}, ContextOverflow),
        ({"error": {"message": "Invalid 'user': string too short. Expected a minimum length 1."}}, BadRequest),
        ({"error": {"message": "max_tokens is too large: this model supports at most 16384 tokens."}}, BadRequest),
    ],
)
def test_only_long_content_is_an_overflow(body: dict[str, Any], kind: type[ModelError]) -> None:
    assert type(refused(body)) is kind


async def test_a_run_asks_once_if_a_field_is_too_long(journal: object) -> None:
    async def handler(asked: Asked) -> None:
        await asked.answer(400, openai("tools[0].function.name", 64))

    async with Server(handler) as server:
        run = await plait.Agent("tool_calling", model=server.model(), tools=[len_of]).arun("?")
    assert len(server.asked) == 1 and "'tools[0].function.name': string too long" in str(run.reason)


def len_of(text: str) -> int:
    """Count the characters."""
    return len(text)


# Ids of calls


def ids_in(value: Any, names: tuple[str, ...] = ("id", "tool_call_id", "tool_use_id", "call_id")) -> list[str]:
    """The ids of calls and results in a body, in order."""
    if isinstance(value, list):
        return [id for each in value for id in ids_in(each)]
    if not isinstance(value, dict):
        return []
    own = [each for name, each in value.items() if name in names and isinstance(each, str)]
    return own + [id for each in value.values() for id in ids_in(each)]


IDS = ["call_1", "chatcmpl-tool-" + "0a1b2c3d" * 4, "chatcmpl-tool-" + "0a1b2c3d" * 3 + "0a1b2c3e", "x" * 40, "x" * 41,
       "x" * 64, "x" * 65, "functions.f:0", "functions.f.0", "functions f 0", "é", "\ud800", "a\nb"]  # fmt: skip
FORMS = {
    "openai:gpt-4.1-mini": r"[ -~]{1,40}",
    "openai:gpt-5.5-pro": r"[ -~]{1,64}",
    "mistral:mistral-medium-3-5": r"[a-zA-Z0-9]{9}",
    "anthropic:claude-haiku-4-5": r"[a-zA-Z0-9_-]{1,64}",
    "vllm:m": r"[ -~]+",
}


@pytest.mark.parametrize(("spec", "form"), FORMS.items())
def test_ids_of_calls_fit_and_stay_the_same_and_apart(spec: str, form: str) -> None:
    model = resolve(spec, env={"OPENAI_API_KEY": "k" * 9, "MISTRAL_API_KEY": "k" * 9, "ANTHROPIC_API_KEY": "k" * 9})
    fitted: dict[str, str] = {}
    for ids in (IDS, IDS[::-1], *([each] for each in IDS)):
        said = Message("assistant", "", tuple(Call("f", None, id) for id in ids))
        think = Think("act", (user("?"), said, *(Message("tool", "1", call_id=id) for id in ids)))
        found = ids_in(json.loads(model.encode(think).body))
        assert found[: len(ids)] == found[len(ids) :] and len(set(found)) == len(ids)
        for id, new in zip(ids, found, strict=False):
            assert re.fullmatch(form, new) and fitted.setdefault(id, new) == new
            assert new == id or not re.fullmatch(form, id)
    assert model.encode(think) == model.encode(think)
