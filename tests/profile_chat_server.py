"""A loopback endpoint of chat completions with the rules of hosted providers (see `profile_servers`)."""

from __future__ import annotations

import json
import re

from loop_scripts import Turn
from models_server import Asked
from profile_servers import ProfileServer, Refusal, check_strict_schemas
from wire_writers import Json, chat_body, chat_stream


class ChatServer(ProfileServer):
    """Chat completions. Rules: `reasoning` (the field of the thoughts), `refused_fields`, `known_fields`,
    `nine` (Mistral's ids and order), `needs` (texts that may not stand for reasoning), `strict` (every schema has to be
    in the strict subset), `failed_call`."""

    def check(self, asked: Asked) -> None:
        body, rules = asked.body, self.rules
        if asked.path != "/v1/chat/completions":
            raise Refusal(f"Invalid URL (POST {asked.path})", 404)
        for field in rules.get("refused_fields", ()):
            if field in body:
                # docs.x.ai "Reasoning": presence_penalty, frequency_penalty and stop are errors. Words: litellm #16265.
                said = f"Model {self.model} does not support parameter {field}."
                raise Refusal(said, body={"code": "Client specified an invalid argument", "error": said})
        if unknown := set(body) - rules.get("known_fields", set(body)):
            # docs.mistral.ai API: additionalProperties false; answers 422 in FastAPI's form.
            where = ["body", min(unknown)]
            detail = {"type": "extra_forbidden", "loc": where, "msg": "Extra inputs are not permitted", "input": 1}
            raise Refusal(f"{min(unknown)}: Extra inputs are not permitted", 422, {"detail": [detail]})
        if "temperature" in rules and body.get("temperature", rules["temperature"]) != rules["temperature"]:
            # platform.kimi.ai "Kimi K2.6": the temperature is fixed. Words: VideoAdGuard #34.
            raise Refusal(f"invalid temperature: only {rules['temperature']} is allowed for this model")
        if rules.get("no_schema") and body.get("response_format", {}).get("type") == "json_schema":
            # api-docs.deepseek.com "JSON Output": only json_object.
            raise Refusal("This response_format type is unavailable now")
        _check_pairs(body["messages"])
        self._check_reasoning(body["messages"])
        if rules.get("nine"):
            _check_mistral(body["messages"])
        form = (body.get("response_format") or {}).get("json_schema") or {}
        check_strict_schemas([tool["function"] for tool in body.get("tools") or ()], form, bool(rules.get("strict")))

    def _check_reasoning(self, messages: list[Json]) -> None:
        refused = self.rules.get("needs", ())
        for at, each in enumerate(messages):
            if not refused or not each.get("tool_calls"):
                continue
            if each.get("reasoning_content") not in refused:
                continue
            if self.rules["reasoning_words"] == "kimi":  # platform.kimi.ai "Use Kimi K2 Thinking"; "" counts as missing
                said = (
                    f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {at}"
                )
            else:  # api-docs.deepseek.com "Thinking Mode"
                said = "The `reasoning_content` in the thinking mode must be passed back to the API."
            raise Refusal(said, code="invalid_request_error")

    async def reply(self, asked: Asked, turn: Turn, number: int) -> None:
        if number == self.rules.get("failed_call") and not isinstance(turn, str) and asked.body.get("tools"):
            # console.groq.com "Tool use": a call that does not fit. Form: the recording tool_use_failed_error.
            calls = [{"name": name, "arguments": given} for name, given in turn]
            error = {"code": "tool_use_failed", "failed_generation": json.dumps(calls), "type": "invalid_request_error"}
            await asked.answer(400, {"error": {**error, "message": "Tool call validation failed"}})
            return
        body = chat_body(turn, self.ids(turn, number), self.rules.get("reasoning", ""))
        if asked.body.get("stream"):
            options = asked.body.get("stream_options") or {}
            await asked.stream(chat_stream(body, bool(options.get("include_usage")) or bool(self.rules.get("nine"))))
        else:
            await asked.answer(200, body)

    def ids(self, turn: Turn, number: int) -> list[str]:
        return [f"aB3dE{number:02}{at:02}" if self.rules.get("nine") else f"call_{at}" for at in range(len(turn))]


def _check_pairs(messages: list[Json]) -> None:
    """OpenAI, "Function calling": each call is followed by its result."""
    for at, each in enumerate(messages):
        ids = [call["id"] for call in each.get("tool_calls") or ()]
        results = [later.get("tool_call_id") for later in messages[at + 1 : at + 1 + len(ids)]]
        if sorted(ids) != sorted(map(str, results)):
            raise Refusal(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {ids}",
                param=f"messages.[{at}].role",
            )


def _check_mistral(messages: list[Json]) -> None:
    """docs.mistral.ai "Function calling", and mistral-common's validator. Words: ironclaw #1241, datapizza-ai #98."""
    for before, each in zip([{"role": "system"}, *messages], messages, strict=False):
        ids = [call["id"] for call in each.get("tool_calls") or ()] + [each[k] for k in ("tool_call_id",) if k in each]
        for id in ids:
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", id):
                said = f"Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
                raise Refusal(said, body={"object": "error", "message": said, "type": "invalid_function_call"})
        if before["role"] == "tool" and each["role"] not in ("tool", "assistant"):
            said = f"Unexpected role '{each['role']}' after role 'tool'"
            raise Refusal(said, body={"object": "error", "message": said, "type": "invalid_request_message_order"})
        if each is messages[-1] and each["role"] == "assistant" and not each.get("prefix"):
            said = "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
            raise Refusal(said, body={"object": "error", "message": said, "type": "invalid_request_message_order"})
        if each["role"] == "assistant" and not each.get("content") and not ids:
            said = "Assistant message must have either content or tool_calls, but not none."
            raise Refusal(said, body={"object": "error", "message": said, "type": "invalid_request_assistant_message"})
