"""The errors of providers, each in its own words: which typed error they are, and what the message must hold.

Sources, read in November 2026: "Error codes" of OpenAI, Anthropic ("HTTP errors"), Gemini ("Troubleshooting guide"),
DeepSeek, Groq ("API error codes and responses"), Moonshot ("Error reference"), Z.ai ("API code"), OpenRouter ("Errors
and debugging") and Together; reports in the public issue trackers of Mistral, xAI, Ollama, vLLM and llama.cpp; the
recorded exchanges with OpenAI, Groq and OpenRouter.
"""

# ruff: noqa: E501 (a body that is folded is harder to compare)

from __future__ import annotations

import json
from typing import Any

from conftest import DATA, data_file, for_each
from plait.core import Think, ToolSpec, user
from plait.core.errors import (
    AuthenticationError,
    BadRequest,
    BadResponse,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    RateLimited,
    ServerFailed,
    Unsupported,
)
from plait.models.base import Abilities
from plait.models.resolve import resolve
from plait.models.wires.refusals import failure
from recorded_wires import body_of

THINK = Think(
    "act",
    (user("q"),),
    stop=("Observation:",),
    schema={"type": "object", "properties": {"a": {"type": "string"}}},
    tools=(ToolSpec("t", "d"),),
    max_tokens=50,
    temperature=0.2,
)
MODELS = {
    "openai": "openai:gpt-4.1",
    "responses": "openai:gpt-5",
    "anthropic": "anthropic:claude-sonnet-4-5",
    "gemini": "gemini:gemini-3-pro",
    **{
        name: f"{name}:m"
        for name in ("deepseek", "mistral", "groq", "xai", "moonshot", "zai", "openrouter", "together")
    },
    **{name: f"{name}:m" for name in ("ollama", "vllm", "llamacpp")},
}


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


def anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google(code: int, status: str, message: str, *details: Any) -> list[Any]:
    return [{"error": {"code": code, "message": message, "status": status, "details": list(details)}}]


KEY_HINT, CREDIT_HINT, LENGTH_HINT = "Check the key in", "Top it up", "longer context"
NAME_HINT, LATER_HINT, SLOW_HINT = "Check the name", "Try again later", "fallback model"
FILTER_HINT, ACCESS_HINT, WIRE_HINT = "other words", "permissions", "--wire"

CASES = [
    # provider, status, body, the error, what the message must hold
    ("openai", 400, error("Invalid 'messages[0].content': expected a string.", type="invalid_request_error", param="messages[0].content", code="invalid_type"), BadRequest, WIRE_HINT),
    ("openai", 400, error("This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.", param="messages", code="context_length_exceeded"), ContextOverflow, LENGTH_HINT),
    ("openai", 400, error("Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.", param="temperature", code="unsupported_value"), Unsupported, "temperature"),
    ("openai", 400, error("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter"), Unsupported, "max_tokens"),
    ("openai", 400, error("Invalid schema for response_format 'reply': In context=('properties', 'stop'), 'additionalProperties' is required.", param="response_format", code=None), BadRequest, "constrain=false"),
    ("openai", 400, error("Invalid schema for function 't': In context=('properties', 'temperature'), array schema missing items.", param="tools[0].function.parameters", code="invalid_function_parameters"), Unsupported, "strict"),
    ("openai", 400, error("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", code="invalid_prompt"), ContentFiltered, FILTER_HINT),
    ("openai", 401, error("Incorrect API key provided: sk-s***t.", type="invalid_request_error", code="invalid_api_key"), AuthenticationError, KEY_HINT),
    ("openai", 403, error("Country, region, or territory not supported", code="unsupported_country_region_territory"), AuthenticationError, ACCESS_HINT),
    ("openai", 404, error("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"), BadRequest, NAME_HINT),
    ("openai", 408, error("Request timed out."), ServerFailed, LATER_HINT),
    ("openai", 409, error("The request conflicts with another one."), ServerFailed, LATER_HINT),
    ("openai", 413, error("Request too large."), ContextOverflow, LENGTH_HINT),
    ("openai", 422, error("Unprocessable entity."), BadRequest, WIRE_HINT),
    ("openai", 429, error("Rate limit reached for gpt-4.1 on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.", type="tokens", code="rate_limit_exceeded"), RateLimited, SLOW_HINT),
    ("openai", 429, error("You exceeded your current quota, please check your plan and billing details.", type="insufficient_quota", code="insufficient_quota"), AuthenticationError, CREDIT_HINT),
    ("openai", 500, error("The server had an error while processing your request.", type="server_error"), ServerFailed, LATER_HINT),
    ("openai", 503, error("The engine is currently overloaded, please try again later."), ServerFailed, LATER_HINT),
    ("responses", 400, error("Your input exceeds the context window of this model.", param="input", code="context_length_exceeded"), ContextOverflow, LENGTH_HINT),
    ("responses", 400, error("Item 'rs_1' of type 'reasoning' was provided without its required following item.", param="input", code=None), BadRequest, WIRE_HINT),
    ("responses", 400, error("Unsupported parameter: 'temperature' is not supported with this model.", param="temperature", code=None), BadRequest, "temperature"),  # it was not sent
    ("responses", 400, error("Invalid schema for response_format 'reply'.", param="text.format.schema", code="invalid_json_schema"), BadRequest, "schema = false"),
    ("anthropic", 400, anthropic("invalid_request_error", "max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5"), BadRequest, WIRE_HINT),
    ("anthropic", 400, anthropic("invalid_request_error", "prompt is too long: 203456 tokens > 200000 maximum"), ContextOverflow, LENGTH_HINT),
    ("anthropic", 400, anthropic("invalid_request_error", "`temperature` may only be set to 1 when thinking is enabled."), Unsupported, "temperature"),
    ("anthropic", 400, anthropic("invalid_request_error", "tools.0.custom.input_schema.properties.stop_sequences: Input should be a valid dictionary"), BadRequest, WIRE_HINT),
    ("anthropic", 400, anthropic("invalid_request_error", "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."), BadRequest, WIRE_HINT),
    ("anthropic", 400, anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), AuthenticationError, CREDIT_HINT),
    ("anthropic", 400, anthropic("invalid_request_error", "Output blocked by content filtering policy"), ContentFiltered, FILTER_HINT),
    ("anthropic", 401, anthropic("authentication_error", "invalid x-api-key"), AuthenticationError, KEY_HINT),
    ("anthropic", 402, anthropic("billing_error", "There is a problem with your billing."), AuthenticationError, CREDIT_HINT),
    ("anthropic", 403, anthropic("permission_error", "Your API key does not have permission to use the specified resource."), AuthenticationError, ACCESS_HINT),
    ("anthropic", 404, anthropic("not_found_error", "model: claude-9"), BadRequest, NAME_HINT),
    ("anthropic", 413, anthropic("request_too_large", "Request exceeds the maximum size"), ContextOverflow, LENGTH_HINT),
    ("anthropic", 429, anthropic("rate_limit_error", "This request would exceed your organization's rate limit of 30,000 input tokens per minute."), RateLimited, SLOW_HINT),
    ("anthropic", 500, anthropic("api_error", "Internal server error"), ServerFailed, LATER_HINT),
    ("anthropic", 504, anthropic("timeout_error", "Request timed out."), ServerFailed, LATER_HINT),
    ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), ServerFailed, LATER_HINT),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", {"reason": "API_KEY_INVALID"}), AuthenticationError, KEY_HINT),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."), ContextOverflow, LENGTH_HINT),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "Invalid JSON payload received.", {"fieldViolations": [{"field": "generation_config.stop_sequences", "description": "Cannot find field."}]}), Unsupported, "stop"),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "Unable to submit request because the model does not support the stopSequences parameter. Remove it and try again."), Unsupported, "stop"),
    ("gemini", 400, google(400, "INVALID_ARGUMENT", "Function call is missing a thought_signature in functionCall parts."), BadRequest, WIRE_HINT),
    ("gemini", 400, google(400, "FAILED_PRECONDITION", "User location is not supported for the API use."), BadRequest, WIRE_HINT),
    ("gemini", 403, google(403, "PERMISSION_DENIED", "Your API key was reported as leaked."), AuthenticationError, ACCESS_HINT),
    ("gemini", 404, google(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta"), BadRequest, NAME_HINT),
    ("gemini", 429, google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", {"retryDelay": "37s"}), RateLimited, "asks to wait"),
    ("gemini", 500, google(500, "INTERNAL", "An internal error has occurred."), ServerFailed, LATER_HINT),
    ("gemini", 503, google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), ServerFailed, LATER_HINT),
    ("gemini", 504, google(504, "DEADLINE_EXCEEDED", "Deadline expired."), ServerFailed, LATER_HINT),
    ("deepseek", 400, error("The `reasoning_content` in the thinking mode must be passed back to the API.", type="invalid_request_error"), BadRequest, WIRE_HINT),
    ("deepseek", 400, error("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (139000 in the messages, 1000 in the completion)."), ContextOverflow, LENGTH_HINT),
    ("deepseek", 400, error("Content Exists Risk", type="invalid_request_error"), ContentFiltered, FILTER_HINT),
    ("deepseek", 401, error("Authentication Fails (no such user)", type="authentication_error"), AuthenticationError, KEY_HINT),
    ("deepseek", 402, error("Insufficient Balance", type="unknown_error", code="invalid_request_error"), AuthenticationError, CREDIT_HINT),
    ("deepseek", 422, error("Failed to deserialize the JSON body into the target type: temperature: invalid type"), Unsupported, "temperature"),
    ("deepseek", 429, error("Rate limit reached."), RateLimited, SLOW_HINT),
    ("deepseek", 503, error("Server overloaded."), ServerFailed, LATER_HINT),
    ("mistral", 400, {"object": "error", "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051"}, ContextOverflow, LENGTH_HINT),
    ("mistral", 400, {"object": "error", "message": "Invalid model: mistral-nano", "type": "invalid_model", "code": "1500"}, BadRequest, NAME_HINT),
    ("mistral", 401, {"message": "Unauthorized", "request_id": "x"}, AuthenticationError, KEY_HINT),
    ("mistral", 422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stop"], "msg": "Extra inputs are not permitted", "input": ["a temperature"]}]}, "type": "invalid_request_error"}, Unsupported, "stop"),
    ("mistral", 422, {"object": "Error", "detail": [{"type": "less_than_equal", "loc": ["body", "temperature"], "msg": "Input should be less than or equal to 1.5"}], "type": "invalid_request_error"}, Unsupported, "temperature"),
    ("mistral", 422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 0, "user", "stop"], "msg": "Extra inputs are not permitted"}]}}, BadRequest, "messages.0"),
    ("mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this model.", "type": "invalid_request_error", "code": "3505"}, RateLimited, SLOW_HINT),
    ("mistral", 500, {"object": "error", "message": "Service unavailable.", "type": "internal_server_error"}, ServerFailed, LATER_HINT),
    ("groq", 400, error("Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.", code="tool_use_failed", failed_generation="I would"), BadResponse, "could not read what the model wrote"),
    ("groq", 400, error("Failed to generate JSON. Please adjust your prompt.", code="json_validate_failed", failed_generation=""), BadResponse, "could not read"),
    ("groq", 400, error("Please reduce the length of the messages or completion.", param="messages", code="context_length_exceeded"), ContextOverflow, LENGTH_HINT),
    ("groq", 400, error("The model `llama2-70b` has been decommissioned and is no longer supported.", code="model_decommissioned"), BadRequest, NAME_HINT),
    ("groq", 400, error("'stop' : one of the following must be satisfied[('stop' : maximum number of items is 4)]"), Unsupported, "stop"),
    ("groq", 413, error("Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 8000", code="rate_limit_exceeded"), ContextOverflow, LENGTH_HINT),
    ("groq", 429, error("Rate limit reached for model `x` on requests per minute (RPM): Limit 30.", code="rate_limit_exceeded"), RateLimited, SLOW_HINT),
    ("groq", 498, error("Flex tier capacity exceeded.", code="capacity_exceeded"), ServerFailed, LATER_HINT),
    ("groq", 503, error("Service Unavailable"), ServerFailed, LATER_HINT),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "Argument not supported on this model: stop"}, Unsupported, "stop"),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "Model grok-4.3 does not support parameter temperature."}, Unsupported, "temperature"),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: na***ys. You can obtain an API key from https://console.x.ai."}, AuthenticationError, KEY_HINT),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 136973 tokens."}, ContextOverflow, LENGTH_HINT),
    ("xai", 403, {"code": "The caller does not have permission", "error": "Your newly created team doesn't have any credits or licenses yet."}, AuthenticationError, ACCESS_HINT),
    ("xai", 403, {"code": "The caller does not have permission", "error": "Your team x has either used all available credits or reached its monthly spending limit."}, AuthenticationError, CREDIT_HINT),
    ("xai", 404, {"code": "Some requested entity was not found", "error": "The model grok-9 does not exist or your team does not have access to it."}, BadRequest, NAME_HINT),
    ("xai", 429, {"code": "Some resource has been exhausted", "error": "Your team has used all available credits."}, AuthenticationError, CREDIT_HINT),
    ("moonshot", 400, error("invalid temperature: only 1 is allowed for this model", type="invalid_request_error"), Unsupported, "temperature"),
    ("moonshot", 400, error("The request was rejected because it was considered high risk", type="content_filter"), ContentFiltered, FILTER_HINT),
    ("moonshot", 400, error("Input token length too long", type="invalid_request_error"), ContextOverflow, LENGTH_HINT),
    ("moonshot", 400, error("Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)", type="invalid_request_error"), ContextOverflow, "269030 tokens, room for 262144"),
    ("moonshot", 401, error("Invalid Authentication", type="invalid_authentication_error"), AuthenticationError, KEY_HINT),
    ("moonshot", 429, error("The engine is currently overloaded, please try again later", type="engine_overloaded_error"), RateLimited, SLOW_HINT),
    ("moonshot", 429, error("Your account is suspended, please check your plan and billing details", type="exceeded_current_quota_error"), AuthenticationError, CREDIT_HINT),
    ("zai", 400, error("Prompt exceeds max length", code="1261"), ContextOverflow, LENGTH_HINT),
    ("zai", 400, error("System detected potentially unsafe or sensitive content in input or generation.", code="1301"), ContentFiltered, FILTER_HINT),
    ("zai", 429, error("Insufficient balance or no resource package. Please recharge.", code="1113"), AuthenticationError, CREDIT_HINT),
    ("zai", 429, error("High concurrency usage of this API.", code="1302"), RateLimited, SLOW_HINT),
    ("openrouter", 402, error("This request requires more credits.", code=402), AuthenticationError, CREDIT_HINT),
    ("openrouter", 402, error("In-flight budget reached.", code=402, metadata={"limit_source": "openrouter_in_flight_budget"}), RateLimited, SLOW_HINT),
    ("openrouter", 403, error("Your input was flagged", code=403, metadata={"reasons": ["violence"], "flagged_input": "x"}), ContentFiltered, FILTER_HINT),
    ("openrouter", 404, error("No endpoints found that support tool use.", code=404), Unsupported, "tools"),
    ("openrouter", 408, error("Your request timed out", code=408), ServerFailed, LATER_HINT),
    ("openrouter", 429, error("Provider returned error", code=429, metadata={"raw": "x is temporarily rate-limited upstream."}), RateLimited, "rate-limited upstream"),
    ("openrouter", 400, error("Provider returned error", code=400, metadata={"raw": '{"error":{"message":"Unsupported parameter: \'temperature\' is not supported"}}'}), Unsupported, "temperature"),
    ("openrouter", 502, error("Your chosen model is down", code=502), ServerFailed, LATER_HINT),
    ("together", 403, error("Input token count + `max_new_tokens` must be less than the context length of the model."), ContextOverflow, LENGTH_HINT),
    ("ollama", 400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, Unsupported, "tools"),
    ("ollama", 404, {"error": {"message": "model 'llama3' not found, try pulling it first", "type": "api_error"}}, BadRequest, NAME_HINT),
    ("ollama", 500, {"error": {"message": "llama runner process has terminated: exit status 2"}}, ServerFailed, LATER_HINT),
    ("vllm", 400, {"object": "error", "message": "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)", "type": "BadRequestError", "param": "temperature", "code": 400}, Unsupported, "temperature"),
    ("vllm", 400, error("Input length (11680) exceeds model's maximum context length (4096).", type="BadRequestError", param=None, code=400), ContextOverflow, "11680 tokens, room for 4096"),
    ("vllm", 400, error("max_tokens must be at least 1, got -7584. (parameter=max_tokens, value=-7584)", param="max_tokens", code=400), ContextOverflow, LENGTH_HINT),
    ("vllm", 400, {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "code": 400}, Unsupported, "tools"),
    ("vllm", 404, error("The model `m` does not exist.", code=404), BadRequest, NAME_HINT),
    ("llamacpp", 400, error("request (1407 tokens) exceeds the available context size (256 tokens), try increasing it", type="exceed_context_size_error", n_prompt_tokens=1407, n_ctx=256), ContextOverflow, LENGTH_HINT),
    ("llamacpp", 500, error("tools param requires --jinja flag", type="server_error", code=500), Unsupported, "tools"),
    ("llamacpp", 503, error("Loading model", type="unavailable_error", code=503), ServerFailed, LATER_HINT),
]  # fmt: skip


def read_error(provider: str, status: int, body: Any, **options: Any) -> ModelError:
    model = resolve(MODELS[provider], env={f"{MODELS[provider].partition(':')[0].upper()}_API_KEY": "sk-secret-0123"})
    asked = model.encode(THINK)
    headers = {"Retry-After": "7"} if status in (429, 402, 503, 529) and provider != "gemini" else {}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure(status, raw, model.target, asked=asked.body, path=asked.path, headers=headers)  # type: ignore[attr-defined]


@for_each(("provider", "status", "body", "kind", "held"), CASES)
def test_each_error_of_a_provider_is_the_typed_error_with_a_hint(
    provider: str, status: int, body: Any, kind: type[ModelError], held: str
) -> None:
    found = read_error(provider, status, body)
    assert type(found) is kind, found
    assert held in str(found)
    assert found.retry == issubclass(kind, RateLimited | ServerFailed | BadResponse)
    if isinstance(found, RateLimited):
        assert found.after == (37 if provider == "gemini" else 7)
    if isinstance(found, Unsupported):
        Abilities().without(found.ability)  # a known one
        assert found.ability == held and found.said


def test_the_recorded_errors_are_read_as_what_they_are() -> None:
    data_file("wires")
    wanted = {
        "groq/tool_use_failed_error": BadResponse,  # only without its call, see test_wire_chat.py
        "openai-chat/openai_o1_mini_system_role-developer": BadRequest,
        "openai-responses/openai_responses_model_http_error": Unsupported,
        "openai-responses/openai_responses_thinking_with_modified_history": BadRequest,
        "openrouter/openrouter_errors_raised": RateLimited,
    }
    found = {}
    for file in sorted((DATA / "wires").glob("*/*.json")):
        for exchange in json.loads(file.read_text()):
            if exchange["status"] != 200:
                provider = {"openai-chat": "openai", "openai-responses": "openai"}.get(
                    file.parent.name, file.parent.name
                )
                made = read_error(provider, exchange["status"], body_of(exchange))
                found[f"{file.parent.name}/{file.stem}"] = type(made)
    assert found == wanted
