"""Loopback endpoints that behave as hosted providers document: they answer from `loop_scripts`, and refuse the rest.

A request names its script in the header `X-Script` ("react/act"), and the turn follows from the request alone. So an
endpoint keeps no conversation, and any number of processes may ask it. `refused` are the messages of all refusals.
`answers` has what is answered to a request by its number, before anything else: (status, body). `changed` counts the
thinking blocks whose conversation has changed.

Each rule names its source: the provider's documentation, or reports of its exact words, as of November 2026.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from loop_scripts import SCRIPTS, Turn
from models_server import Asked, event
from plait.models.chat import ChatModel
from plait.models.wires.turns import GO_ON
from wire_servers import ResponsesEndpoint, events_of, find_responses_turn
from wire_writers import Json, claude_body, claude_stream, gemini_body, gemini_stream

BINDING_BETA = "thinking-binding-controls-2026-08-01"


def with_script(model: ChatModel, loop: str, phase: str) -> ChatModel:
    """The model, with the header that names its script."""
    return structs.replace(model, headers={**model.headers, "X-Script": f"{loop}/{phase}"})


class Refusal(Exception):
    """A request that the provider refuses, with the body of its error."""

    def __init__(self, message: str, status: int = 400, body: Json | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.status = status
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}
        self.body = body or {"error": error}


class ProfileServer:
    """A handler for `models_server.Server`. A subclass has the rules of one `wire` and writes its replies."""

    wire = "chat"

    def __init__(self, model: str, **rules: Any) -> None:
        self.model = model
        self.rules = rules
        self.refused: list[str] = []
        self.answers: dict[int, tuple[int, Json]] = {}
        self.requests = self.changed = 0

    async def __call__(self, asked: Asked) -> None:
        self.requests += 1
        if self.requests in self.answers:
            await asked.answer(*self.answers[self.requests])
            return
        try:
            self.check(asked)
        except Refusal as why:
            self.refused.append(str(why))
            await asked.answer(why.status, why.body)
            return
        loop, _, phase = asked.headers["X-Script"].partition("/")
        number = self.find_turn(asked.body) - _is_continued(asked)
        script = SCRIPTS[loop][phase]
        turn = script[min(number, len(script) - 1)]
        if turn[0][0] == "final_answer" and b'"final_answer"' not in asked.raw:
            turn = json.dumps(turn[0][1])  # structured output
        await self.reply(asked, turn, number)

    def check(self, asked: Asked) -> None:
        """Raise `Refusal` for what the provider refuses."""
        raise NotImplementedError

    def find_turn(self, body: Json) -> int:
        """The number of the turn that a request asks for, from 0."""
        return sum(each["role"] == "assistant" for each in body["messages"])

    async def reply(self, asked: Asked, turn: Turn, number: int) -> None:
        """Answer with a turn."""
        raise NotImplementedError

    def ids(self, turn: Turn, number: int) -> list[str]:
        """The ids of a turn's calls. They are the same in each turn, as some providers have them."""
        return [f"call_{at}" for at in range(len(turn))]


def check_strict_schemas(tools: list[Json], form: Json, all_strict: bool = False) -> None:
    """OpenAI, "Structured outputs" and "Function calling": closed objects whose properties are all required.

    `form` has the schema of the reply. `all_strict`: also schemas that do not say `strict` have to be in the subset.
    """
    for each in (*tools, form):
        if not each or not (each.get("strict") or all_strict):
            continue
        schema = each.get("parameters") or each.get("schema")
        for node in _objects(schema):
            if node.get("additionalProperties") is not False:
                said = "'additionalProperties' is required to be supplied and to be false."
            elif set(node.get("required", ())) != set(node.get("properties", ())):
                said = "'required' is required to be supplied and to be an array including every key in properties."
            else:
                continue
            kind = "response_format" if each is form else "function"
            where = kind if each is form else "tools[0].function.parameters"
            raise Refusal(f"Invalid schema for {kind} '{each['name']}': In context=(), {said}", param=where)


def _objects(node: Any) -> list[Json]:
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    own = [node] if isinstance(node, dict) and node.get("type") == "object" else []
    return own + [found for each in inner for found in _objects(each)]


def _is_continued(asked: Asked) -> bool:
    """Whether the last turn in a request is the beginning of the reply, which the endpoint or the model continues."""
    messages = asked.body.get("messages")
    return GO_ON.encode() in asked.raw or bool(messages and messages[-1]["role"] == "assistant")


class ResponsesServer(ProfileServer):
    """OpenAI's Responses, with `wire_servers.ResponsesEndpoint`. Rule: `chat` is what chat completions answer."""

    wire = "responses"

    def __init__(self, model: str, **rules: Any) -> None:
        super().__init__(model, **rules)
        self._endpoint = ResponsesEndpoint(name=model)

    def check(self, asked: Asked) -> None:
        if asked.path == "/v1/chat/completions":
            raise Refusal(*self.rules["chat"])
        if problem := self._endpoint.find_problem(asked.body):
            raise Refusal(**problem)
        check_strict_schemas(asked.body.get("tools") or [], (asked.body.get("text") or {}).get("format") or {})

    def find_turn(self, body: Json) -> int:
        return find_responses_turn(body["input"])

    async def reply(self, asked: Asked, turn: Turn, number: int) -> None:
        planned = turn if isinstance(turn, str) else tuple(f"{name} {json.dumps(given)}" for name, given in turn)
        response = self._endpoint.respond(asked.body, planned, number)
        if asked.body.get("stream"):
            await asked.stream(b"".join(map(event, events_of(response))))
        else:
            await asked.answer(200, response)


class ClaudeServer(ProfileServer):
    """Anthropic's Messages.

    Rules: `thinks` ("never", "fixed": with a budget, "always"), `samples` (takes a temperature), `prefills`, `binds`
    (thinking belongs to the conversation before it).
    """

    wire = "anthropic"

    def check(self, asked: Asked) -> None:
        body, rules = asked.body, self.rules
        thinking = body.get("thinking") or {}
        if "max_tokens" not in body:
            self._refuse("max_tokens: Field required")
        for field in ("temperature", "top_p", "top_k"):
            if field in body and not rules.get("samples"):  # "Migration guide", Opus 4.7. Words: ComfyUI #13923
                self._refuse(f"`{field}` is deprecated for this model.")
        refused = {"always": ("enabled", "disabled"), "never": ("enabled",)}.get(rules["thinks"], ())
        if thinking.get("type") in refused:  # "What's new in Claude Opus 5.5"
            self._refuse(f'"thinking.type.{thinking["type"]}" is not supported for this model.')
        if "temperature" in body and thinking:  # "Extended thinking"
            self._refuse("`temperature` may only be set to 1 when thinking is enabled.")
        if len(re.findall(r'"cache_control"', json.dumps(body))) > 4:  # "Prompt caching"
            self._refuse("A maximum of 4 blocks with cache_control may be provided.")
        binding = thinking.get("block_binding") or {}
        if binding and not (rules.get("binds") and asked.headers.get("anthropic-beta") == BINDING_BETA):
            self._refuse("thinking.block_binding: Extra inputs are not permitted")
        self._check_messages(body, thinking, binding)

    def _check_messages(self, body: Json, thinking: Json, binding: Json) -> None:
        messages = body["messages"]
        if messages[-1]["role"] == "assistant" and not self.rules.get("prefills"):  # Words: deepagents #1585
            self._refuse(
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
        called: list[str] = []
        for at, message in enumerate(messages):
            blocks, where = blocks_of(message), f"messages.{at}"
            if not blocks or any(each["type"] == "text" and not each["text"].strip() for each in blocks):
                self._refuse(f"{where}: text content blocks must contain non-whitespace text")
            results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
            if results != called:  # "Tool use", troubleshooting
                self._refuse(
                    f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {called}"
                )
            called = [each["id"] for each in blocks if each["type"] == "tool_use"]
            if called and not body.get("tools"):
                self._refuse("Requests which include `tool_use` or `tool_result` blocks must define tools.")
            self._check_thinking(body, at, thinking, binding)

    def _check_thinking(self, body: Json, at: int, thinking: Json, binding: Json) -> None:
        message, is_last = body["messages"][at], at == len(body["messages"]) - 2
        blocks = blocks_of(message)
        is_call = any(each["type"] == "tool_use" for each in blocks)
        if thinking.get("type") == "enabled" and is_last and is_call and blocks[0]["type"] != "thinking":
            # "Extended thinking with tool use". Words: mastra #7799
            self._refuse(
                f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
                "thinking block"
            )
        for place, block in enumerate(blocks):
            if block["type"] != "thinking":
                continue
            said = f"messages.{at}.content.{place}: Invalid `signature` in `thinking` block."
            if not block["signature"].startswith(f"{self.model}-"):
                self._refuse(said)
            if self.rules.get("binds") and block["signature"] != self._sign(body, at):  # "Preserved thinking"
                self.changed += 1
                if binding.get("prefix_mismatch_behavior") != "drop_block":
                    self._refuse(f"{said} The block is bound to a different conversation. Remove the block")

    def _refuse(self, message: str) -> None:
        error = {"type": "invalid_request_error", "message": message}
        raise Refusal(message, body={"type": "error", "error": error})

    def _sign(self, body: Json, at: int) -> str:
        """The signature of a thinking block in message `at`."""
        if not self.rules.get("binds"):
            return f"{self.model}-{at}"
        before = _plain([body.get("system"), body.get("tools"), body["messages"][:at]])
        return f"{self.model}-{hashlib.sha256(json.dumps(before).encode()).hexdigest()}"

    async def reply(self, asked: Asked, turn: Turn, number: int) -> None:
        kind = (asked.body.get("thinking") or {}).get("type")
        thinks = self.rules["thinks"] == "always" or kind in ("enabled", "adaptive")
        signature = self._sign(asked.body, len(asked.body["messages"])) if thinks else ""
        ids = [f"toolu_{number}_{at}" for at in range(len(turn))]
        body = claude_body(turn, ids, self.model, signature)
        if asked.body.get("stream"):
            await asked.stream(claude_stream(body))
        else:
            await asked.answer(200, body)


def blocks_of(message: Json) -> list[Json]:
    """The blocks of a message of Anthropic's, whose content may be one text."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _plain(value: Any) -> Any:
    """What the check of a thinking block's conversation compares: all but cache marks and thinking."""
    if isinstance(value, list):
        return [_plain(each) for each in value if not (isinstance(each, Mapping) and each.get("type") == "thinking")]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "cache_control"}
    return value


class GeminiServer(ProfileServer):
    """Gemini's `generateContent`. Source: ai.google.dev, "Thought signatures" and "Function calling"."""

    wire = "gemini"

    placeholders = ("Y29udGV4dF9lbmdpbmVlcmluZ19pc190aGVfd2F5X3RvX2dv", "skip_thought_signature_validator")

    def check(self, asked: Asked) -> None:
        contents, config = asked.body["contents"], asked.body.get("generationConfig", {})
        if len(config.get("stopSequences", ())) > 5:
            self._refuse("stopSequences: at most 5 stop sequences are allowed.")
        if contents[-1]["role"] != "user":
            self._refuse("Please ensure that single turn requests end with a user role or the role field is empty.")
        asks = [at for at, each in enumerate(contents) if each["role"] == "user" and "text" in each["parts"][0]]
        for at, content in enumerate(contents):
            calls = [part for part in content["parts"] if "functionCall" in part]
            if not calls:
                continue
            if contents[at - 1]["role"] != "user":
                self._refuse("Please ensure that function call turn comes immediately after a user turn.")
            answers = [part for part in contents[at + 1]["parts"] if "functionResponse" in part]
            if len(answers) != len(calls) or len(contents[at + 1]["parts"]) != len(answers):
                self._refuse(
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
            signature = calls[0].get("thoughtSignature", "")
            if at > asks[-1] and not signature:  # only the current turn is checked. Words: continue #8785
                name = calls[0]["functionCall"]["name"]
                self._refuse(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    f"work correctly. Additional data, function call `default_api:{name}` , position {at}."
                )
            if signature and signature not in self.placeholders and not signature.startswith(f"{self.model}-"):
                self._refuse("Thought signature is not valid.")

    def _refuse(self, message: str) -> None:
        raise Refusal(message, body={"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})

    def find_turn(self, body: Json) -> int:
        return sum(each["role"] == "model" for each in body["contents"])

    async def reply(self, asked: Asked, turn: Turn, number: int) -> None:
        body = gemini_body(turn, self.ids(turn, number), f"{self.model}-{number}")
        if "streamGenerateContent" in asked.path:
            await asked.stream(gemini_stream(body))
        else:
            await asked.answer(200, body)
