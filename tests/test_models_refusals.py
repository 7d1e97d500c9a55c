"""What endpoints say when they refuse, word for word as users of the field reported it, and what it means."""

# ruff: noqa: E501 (a wording that is folded is harder to compare)

from __future__ import annotations

import json

import pytest

from conftest import for_each
from plait.core import Think, ToolSpec, assistant, user
from plait.core.errors import AuthenticationError, BadRequest, ContextOverflow, RateLimited, ServerFailed, Unsupported
from plait.models.base import Abilities
from plait.models.wires.chat_completions import encode
from plait.models.wires.refusals import Target, failure
from plait.models.wires.wire import WireOptions

PLACE = Target("http://h/v1", "m", "M_KEY", "M_BASE_URL", ("sk-secret",))
ABLE = Abilities(schema=True, grammar=True, prefill=True)
EVERYTHING = Think(
    "act",
    (user("q"),),
    stop=("x",),
    schema={"type": "object"},
    tools=(ToolSpec("t", "d"),),
    max_tokens=5,
    temperature=0.1,
)


def meant(status, error, think=EVERYTHING, abilities=ABLE, **options):
    body = error if isinstance(error, bytes) else json.dumps(error).encode()
    return failure(status, body, PLACE, asked=encode(think, WireOptions("m", abilities)).body, **options)


@for_each(
    "said, tokens, room",
    [
        ("This model's maximum context length is 4097 tokens. However, your messages resulted in 4619 tokens. Please reduce the length of the messages.", 4619, 4097),
        ("This model's maximum context length is 4097 tokens. However, you requested 4203 tokens (3703 in the messages, 500 in the completion). Please reduce the length of the messages or completion.", 3703, 4097),
        ("This model's maximum context length is 4097 tokens, however you requested 4322 tokens (4066 in your prompt; 256 for the completion).", 4066, 4097),
        ("'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 65536 tokens and your request has 57879 input tokens (8192 > 65536 - 57879).", 57879, 65536),
        ("You passed 4097 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens.", 4097, 4096),
        ("The decoder prompt (length 6000) is longer than the maximum model length of 4096.", 6000, 4096),
        ("request (1407 tokens) exceeds the available context size (256 tokens), try increasing it", 1407, 256),
        ("Requested tokens (2285) exceed context window of 2048", 2285, 2048),
        ("prompt is too long: 203456 tokens > 200000 maximum", 203456, 200000),
        ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length", 188240, 200000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1200000, 1048576),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537812, 131072),
        ("Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 65673, 32768),
        ("This endpoint's maximum context length is 128000 tokens. However, you requested about 200000 tokens (199000 of text input, 1000 in the output).", 199000, 128000),
        ("The prompt is too long: 139264, model maximum context length: 131071", 139264, 131071),
        ("Trying to keep the first 4096 tokens when context the overflows. However, the model is loaded with context length of only 2048 tokens", 0, 2048),
        ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 5000, 4096),
        ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 `max_new_tokens`", 5000, 4097),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0, 0),
        ("Please reduce the length of the messages or completion.", 0, 0),
        ("Invalid request: Your request exceeded model token limit: 131072", 0, 131072),
        ("prompt too long; exceeded max context length by 4 tokens", 0, 0),
    ],
)  # fmt: skip
def test_a_prompt_that_is_too_long_in_every_wording(said, tokens, room):
    error = meant(400, {"error": {"message": said, "type": "invalid_request_error"}})
    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.room) == (tokens, room)


def test_overflow_by_code_alone_and_with_its_numbers_as_fields():
    assert isinstance(meant(400, {"error": {"message": "no", "code": "context_length_exceeded"}}), ContextOverflow)
    fields = {"message": "no", "type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192}
    for status in (400, 500):
        error = meant(status, {"error": {"code": status, **fields}})
        assert (type(error), error.tokens, error.room) == (ContextOverflow, 14429, 8192)


def test_a_request_above_the_minutes_allowance_is_too_long_and_a_busy_minute_is_not():
    alone = "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 8000"
    error = meant(413, {"error": {"message": alone, "code": "rate_limit_exceeded"}})
    assert (type(error), error.tokens, error.room) == (ContextOverflow, 8000, 6000)
    busy = "Rate limit reached on tokens per minute (TPM): Limit 6000, Used 5900, Requested 800."
    assert isinstance(meant(429, {"error": {"message": busy}}), RateLimited)


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
        "Invalid value for 'content': expected a string, got null.",
        "invalid request",
    ],
)
def test_other_refusals_are_bad_requests(said):
    error = meant(400, {"error": {"message": said}})
    assert type(error) is BadRequest
    assert said in str(error)


@for_each(
    "status, error, ability",
    [
        (400, {"error": {"message": "Unsupported parameter: 'stop' is not supported with this model.", "param": "stop", "code": "unsupported_parameter"}}, "stop"),
        (400, {"error": {"message": "Unsupported value: 'temperature' does not support 0.1 with this model. Only the default (1) value is supported.", "param": "temperature", "code": "unsupported_value"}}, "temperature"),
        (400, {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "param": "max_tokens", "code": "unsupported_parameter"}}, "max_tokens"),
        (400, [{"error": {"code": 400, "message": "Unable to submit request because the model does not support the stopSequences parameter. Remove it and try again.", "status": "INVALID_ARGUMENT"}}], "stop"),
        (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}, "stream_usage"),
        (400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, "tools"),
        (400, {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "code": 400}, "tools"),
        (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}, "tools"),
        (404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}}, "tools"),
        (400, {"error": {"message": "Your organization must be verified to stream this model.", "param": "stream", "code": "unsupported_value"}}, "stream"),
    ],
)  # fmt: skip
def test_a_part_of_the_request_that_is_not_supported(status, error, ability):
    found = meant(status, error)
    assert isinstance(found, Unsupported)
    assert found.ability == ability
    Abilities().without(ability)


@pytest.mark.parametrize(
    "said",
    [
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        "Assistant response prefill is incompatible with enable_thinking.",
    ],
)
def test_a_prefill_that_is_refused(said):
    prefilled = Think("act", (user("q"),), prefill="Thought:")
    found = meant(400, {"error": {"message": said}}, prefilled)
    assert (type(found), found.ability) == (Unsupported, "prefill")
    # The same words about a conversation without a prefill can't be helped by leaving it out.
    assert type(meant(400, {"error": {"message": said}}, Think("act", (assistant("a"), user("q"))))) is BadRequest


def test_a_grammar_that_the_endpoint_can_not_read():
    think = Think("act", (user("q"),), grammar="root ::= ")
    found = meant(400, {"error": {"message": "Failed to parse grammar"}}, think)
    assert (type(found), found.ability) == (Unsupported, "grammar")


def test_an_ability_that_was_not_used_is_never_found_lacking():
    plain = Think("act", (user("q"),), temperature=None)
    said = "Unsupported parameter: 'stop' is not supported with this model."
    assert type(meant(400, {"error": {"message": said, "param": "stop"}}, plain)) is BadRequest


OMITTED = {
    "temperature": ("temperature", "Temperature", "`temperature`", "'temperature'"),
    "top_p": ("top_p", "top-p", "topP", "Top P", '"top_p"'),
    "seed": ("seed", "'seed'", "Seed"),
    "stop": ("stop", "stop sequences", "'stop'", "stopSequences", "stop_sequences", "Stop words"),
    "verbosity": ("verbosity", "`verbosity`"),
    "service_tier": ("service_tier", "service tier", "serviceTier"),
    "stream_usage": ("stream_options", "stream options", "streamOptions", "include_usage"),
}
WORDINGS = (
    "{} is not supported with this model.",
    "Argument not supported on this model: {}",
    "invalid {}: only 1 is allowed for this model",
    "We cannot honour {} here",
    "{}: Input should be less than or equal to 1",
    "Please remove {} from your request.",
    "The parameter {} was deprecated last year.",
    "Model m-9 ignores {}, so it must be left out",
    "参数{}不合法",
    "Le paramètre {} n'est pas accepté par ce modèle",
)
FIELDS = {"top_p": 0.5, "seed": 1, "verbosity": "low", "service_tier": "flex"}


@for_each("wording", WORDINGS)
@for_each("ability", OMITTED)
@for_each("status", [400, 422])
def test_a_field_that_can_be_left_out_is_found_in_any_wording(status, ability, wording):
    body = encode(EVERYTHING, WireOptions("m", ABLE, params=FIELDS)).body
    for name in OMITTED[ability]:
        error = json.dumps({"error": {"message": wording.format(name)}}).encode()
        found = failure(status, error, PLACE, asked=body)
        assert isinstance(found, Unsupported) and found.ability == ability, (name, found)


@for_each("error", [
    {"error": {"message": "Unknown parameter: 'foo'. You may send temperature and stop.", "param": "messages"}},
    {"error": {"message": "messages[1].content: expected text, got null; stop there."}},
    {"error": {"message": "Invalid schema for function 'set': 'temperature' is no type."}},
    {"error": {"message": "tools[0].function.parameters.properties.temperature is no schema"}},
    {"error": {"message": "Please stop sending such requests."}},
    {"error": {"message": "max_tokens must be above 1; stop and temperature are fine"}},
    {"error": {"message": "Invalid value: 'tool'. Messages with role 'tool' must follow 'tool_calls'.", "param": "messages"}},
    {"error": {"message": "The model `temperature-9b` is overloaded with work"}},
    {"error": {"message": "The function set_temperature has no description"}},
    {"detail": [{"loc": ["body", "messages", 0, "stop"], "msg": "Extra inputs are not permitted"}]},
    {"error": {"message": "Unexpected tool call in the last message"}},
])  # fmt: skip
def test_a_message_about_another_field_is_not_misread(error):
    assert type(meant(400, error)) is BadRequest


def test_a_condition_is_not_the_field_that_is_rejected():
    body = encode(EVERYTHING, WireOptions("m", ABLE, params={"reasoning_effort": "high"})).body
    for said in (
        "With reasoning_effort set, temperature must be 1.",
        "This model does not support temperature when reasoning_effort is high.",
    ):
        found = failure(400, json.dumps({"error": {"message": said}}).encode(), PLACE, asked=body)
        assert isinstance(found, Unsupported) and found.ability == "temperature", said
    said = {"error": {"message": "reasoning_effort 'high' is not supported; temperature is."}}
    assert type(failure(400, json.dumps(said).encode(), PLACE, asked=body)) is BadRequest


@pytest.mark.parametrize("error", [
    {"message": "Invalid 'stop[0]': string too long. Expected a maximum length of 64.", "param": "stop[0]", "code": "string_above_max_length"},
    {"message": "stop sequence exceeds max length 64"},
])  # fmt: skip
def test_a_stop_string_that_is_too_long_is_no_prompt_that_is_too_long(error):
    found = meant(400, {"error": error})
    assert isinstance(found, Unsupported) and found.ability == "stop"
    long_message = {"message": "string too long", "param": "messages[0].content", "code": "string_above_max_length"}
    assert isinstance(meant(400, {"error": long_message}), ContextOverflow)


@pytest.mark.parametrize("status", [401, 404, 408, 429, 503])
def test_other_statuses_need_words_of_refusal(status):
    assert not isinstance(meant(status, {"error": {"message": "Slow down and check your temperature."}}), Unsupported)


def test_a_credit_that_is_used_up():
    assert isinstance(meant(402, {"error": {"message": "Insufficient Balance"}}), AuthenticationError)


def test_no_message_holds_the_secret_wherever_it_stands():
    for status in (301, 400, 401, 402, 403, 404, 422, 429, 500):
        for body in ({"error": {"message": "key sk-secret"}}, b"plain sk-secret", {"detail": "sk-secret"}):
            assert "sk-secret" not in str(meant(status, body, headers={"Location": "http://x?k=sk-secret"}))


@for_each(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"[1]",
        b"null",
        b'{"error": null}',
        b'{"error": []}',
        b'{"error": {"message": {"a": 1}}}',
        b'{"error": 7}',
        b'{"detail": [{"x": 1}]}',
    ],
)
@for_each("status", [400, 404, 500])
def test_any_body_makes_a_typed_error(status, body):
    assert isinstance(meant(status, body), BadRequest | ServerFailed)
