"""Chat-completions requests as values, and runs as their answers; no I/O.

A field that the agent decides by itself (temperature, the length of a reply) is ignored. A field that would change what
the client gets, and that an agent cannot do, is refused: see docs/serve.md.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct, structs

from plait.core import File, Waiting
from plait.core.attachments import MAX_BYTES
from plait.core.errors import ConfigError
from plait.core.notebook import repr_short
from plait.journal.codec import encode
from plait.journal.entries import Question
from plait.runtime.agents.annotations import check_annotations
from plait.runtime.conversations.attachments import FILE_PARTS, NO_TEXT, UserQuestion, read_file_part
from plait.runtime.conversations.chat_messages import ROLES, TEXT_PARTS, GivenTurns, read_content, read_turns
from plait.runtime.conversations.sessions import NO_QUESTION, check_session_name
from plait.runtime.run import Run
from plait.server.errors import RequestRejected, repair_halves
from plait.tools.render import replace_surrogates

SESSION_HEADER = "x-plait-session"
RULERS, RESULTS = ("system", "developer"), ("tool", "function")
REPLIERS = ("assistant", *RESULTS)
"""Roles of messages that are not the user's."""
ROOT = ContextVar("ROOT", default="")
"""The path below which the client of this request has the server, because of an application or a proxy around it."""
KINDS = ["text", "image", "file"]
"""Modalities: kinds of content that a client can take."""


class ChatMessage(Struct, frozen=True):
    """One message of the user or of the agent, as the client has it. `files` are the user's."""

    role: str
    text: str
    files: tuple[File, ...] = ()


class ChatRequest(Struct, frozen=True):
    """A request. `messages` alternate between user and agent and end with the user; `earlier` are the turns before the
    last message. `system` has the instructions, `output` the JSON Schema of the answer, if the client gives one.
    `modalities` are the kinds of content that the client takes. `user` and `metadata` are for the journal. `previous`
    is the id of the response that the message follows, `answers` that of the question that it must answer.
    `background`: the client does not wait for the end."""

    model: str
    messages: tuple[ChatMessage, ...]
    earlier: GivenTurns = GivenTurns()
    system: str = ""
    stream: bool = False
    include_usage: bool = False
    session: str | None = None
    thoughts: bool = True
    output: dict[str, Any] | None = None
    modalities: tuple[str, ...] = ("text",)
    user: str = ""
    metadata: dict[str, Any] = {}
    previous: str = ""
    answers: str = ""
    background: bool = False

    @property
    def question(self) -> str:
        """Return the agent's question: the client's instructions, then the last message."""
        last = self.messages[-1].text
        return f"{self.system}\n\n{last}" if self.system else last

    @property
    def parts(self) -> UserQuestion:
        """Return the agent's question with the files of the last message."""
        return [self.question, *self.messages[-1].files]


def parse_request(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """Read a request. Raises `RequestRejected` naming the wrong field."""
    given, common = parse_body(body, headers)
    system, messages, earlier = parse_messages(given.get("messages"))
    options = given.get("stream_options")
    return ChatRequest(
        messages=messages,
        earlier=earlier,
        system=system,
        include_usage=parse_flag(options, "include_usage", False) if isinstance(options, dict) else False,
        thoughts=parse_flag(given, "thoughts", True),
        output=parse_answer_format(given.get("response_format")),
        modalities=tuple(given.get("modalities") or ("text",)),
        **common,
    )


def parse_body(body: bytes, headers: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the object in a body, and the fields that all requests have: model, stream, session, user, metadata.
    Raises `RequestRejected`, also for fields that an agent cannot follow."""
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        try:
            given = msgspec.json.decode(body)
        except msgspec.DecodeError as why:
            given = msgspec.json.decode(repair_halves(body, why))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRejected(400, f"The body is not JSON: {error}.", hint="Send JSON in UTF-8.") from None
    if not isinstance(given, dict):
        reject("The body is not a JSON object.", None)
    model = given.get("model")
    if not isinstance(model, str) or not model:
        reject("'model' is missing.", "model", hint="Name an agent; /v1/models lists them.")
    _refuse_unsupported(given)
    about: dict[str, Any] = {}
    for field, name in (("safety_identifier", "user"), ("user", "user"), ("metadata", "metadata")):
        try:
            about |= check_annotations(**{name: given.get(field)})
        except ConfigError as error:
            reject(f"'{field}': {error}", field)
    session = parse_session(given.get("session"), headers.get(SESSION_HEADER))
    return given, {"model": model, "stream": parse_flag(given, "stream", False), "session": session, **about}


def _refuse_unsupported(given: dict[str, Any]) -> None:
    tool_choice, function_call = given.get("tool_choice"), given.get("function_call")
    has_tools, no_probabilities = "The agent has tools of its own.", "An agent has no log probabilities."
    takes = given.get("modalities") or []
    unsupported = {
        "tools": (given.get("tools") and tool_choice != "none", has_tools),
        "tool_choice": (tool_choice not in (None, "", "none", "auto"), has_tools),
        "functions": (given.get("functions") and function_call != "none", has_tools),
        "function_call": (function_call not in (None, "", "none", "auto"), has_tools),
        "n": (given.get("n") not in (None, 1), "There is one answer."),
        "stop": (given.get("stop"), "The agent's answer is given whole."),
        "logprobs": (given.get("logprobs"), no_probabilities),
        "top_logprobs": (given.get("top_logprobs"), no_probabilities),
        "audio": (given.get("audio"), "The answer is text."),
        "prompt": (given.get("prompt"), "The agent has a prompt of its own."),
        "modalities": (not isinstance(takes, list) or any(each not in KINDS for each in takes), f"It takes {KINDS}."),
    }
    for name in ("guided_json", "guided_choice", "guided_regex", "guided_grammar", "grammar", "structured_outputs"):
        unsupported[name] = (given.get(name), "'response_format' takes a JSON Schema of the answer.")
    for name, (is_used, why) in unsupported.items():
        if is_used:
            reject(f"'{name}' can't be used here. {why}", name, hint="Leave it out.", code="unsupported_parameter")


def parse_answer_format(given: Any, field: str = "response_format") -> dict[str, Any] | None:
    """Return the JSON Schema of the answer; None for text."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
        case {"type": "json_schema" | "json_object", "schema": dict() as schema}:  # llama.cpp and others
            return schema
        case {"type": "json_object"}:
            return {"type": "object"}
    hint = "Give the type text, json_object, or json_schema with a 'json_schema' that has a 'schema'."
    return reject(f"'{field}' is not valid.", field, hint=hint)


def parse_messages(given: Any, field: str = "messages") -> tuple[str, tuple[ChatMessage, ...], GivenTurns]:
    """Return the instructions, the messages that identify the conversation, and the turns before the last one.
    `field` has them in the request."""
    if not isinstance(given, list) or not given:
        hint = "Send chat completions: a list of messages that ends with the user's question."
        reject(f"'{field}' is missing, or empty.", field, hint=hint if field == "messages" else "")
    for i, message in enumerate(given):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            reject(f"'{field}[{i}]' needs a role: {', '.join(ROLES)}.", f"{field}[{i}].role")
    # The question: the user's messages at the end. Some clients send the message that they will fill with the answer.
    last = max((i for i, each in enumerate(given) if each["role"] == "user"), default=-1)
    begins = next((i + 1 for i in reversed(range(last)) if given[i]["role"] in REPLIERS), 0)
    rest = [each for each in given[last + 1 :] if each["role"] in REPLIERS]
    fields = ("content", "tool_calls", "function_call")
    if last < 0 or any(each["role"] in RESULTS or any(map(each.get, fields)) for each in rest):
        reject("The last message is not the user's.", field, hint="End with the question.")
    try:
        # The instructions stand above the question.
        earlier = read_turns([{**each, "content": None} if each["role"] in RULERS else each for each in given[:begins]])
    except ConfigError as error:
        reject(error.message.replace("history", field), field, hint="Send messages as clients do.")
    system: list[str] = []
    messages: list[ChatMessage] = []
    for i, message in enumerate(given):
        if i > last and message["role"] not in RULERS:
            continue
        role = "assistant" if message["role"] in REPLIERS else message["role"]
        content = message.get("content") if message["role"] not in RESULTS else ""
        if role in RULERS or i >= begins:
            _check_content(content, role, f"{field}[{i}].content")
        text, files = read_content(content, "\n")
        text = replace_surrogates(text)
        if role in RULERS:
            system.append(text)
        elif messages and messages[-1].role == role:
            before = messages[-1]
            text = "\n\n".join(filter(str.strip, (before.text, text)))
            messages[-1] = ChatMessage(role, text, (*before.files, *files))
        elif not messages and role == "assistant":  # a greeting
            greeting = (ChatMessage("user", NO_QUESTION), ChatMessage(role, text))
            messages += greeting if text.strip() else ()
        else:
            messages.append(ChatMessage(role, text, tuple(files)))
    if not messages[-1].text.strip() and not messages[-1].files:
        where = f"{field}[{last}].content"
        reject(f"'{where}' is empty.", where, hint="Send a question, an image or a file.")
    for i, each in enumerate(messages):
        if each.role == "user" and not each.text.strip():
            messages[i] = structs.replace(each, text=NO_TEXT)
    return "\n\n".join(filter(str.strip, system)), tuple(messages), earlier


def _check_content(content: Any, role: str, where: str) -> None:
    """Reject a question, or instructions, with a part of which the agent can make no use."""
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type", "") if isinstance(part, dict) else "text"
        if kind in FILE_PARTS and role == "user":
            try:
                read_file_part(part)
            except ConfigError as error:
                reject(f"'{where}': {error.message}", where, hint=error.hint)
        elif not isinstance(kind, str) or kind not in TEXT_PARTS:
            takes = f"A message of the role {role} takes text (type text)."
            if role == "user":
                takes = "Agents take text, images and files (types text, image_url, file)."
            reject(f"'{where}' has a part of type {repr_short(kind or None)}. {takes}", where)
        elif not isinstance(part.get(TEXT_PARTS[kind], part) if isinstance(part, dict) else part, str | None):
            reject(f"'{where}' is not text.", where)
    try:
        read_content(content)[0].encode()
    except UnicodeEncodeError:
        reject(f"'{where}' has half a surrogate pair, which is not text.", where)


def parse_session(field: Any, header: str | None = None) -> str | None:
    """Return the session that the body names, or the header (percent-encoded where needed)."""
    try:
        given = field if field is not None or header is None else unquote(header, errors="strict")
        return check_session_name(given) if given is not None else None
    except UnicodeDecodeError:
        reject("'X-Plait-Session' is percent-encoded, but not as UTF-8.", "session")
    except ConfigError as error:
        reject(f"'session': {error}", "session")


def parse_flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        reject(f"'{name}' is {value!r}, not true or false.", name)
    return value


def reject(message: str, param: str | None, *, hint: str = "", code: str | None = None) -> NoReturn:
    raise RequestRejected(400, message, hint=hint, param=param, code=code)


# -- answers


def answer_text(answer: Any) -> str:
    """Return an answer as text: text unchanged (half a surrogate pair as "?"), other values as JSON."""
    return replace_surrogates(answer) if isinstance(answer, str) else encode(answer).decode()


def usage_of(run: Run) -> dict[str, Any]:
    """Return the tokens of a run and its child runs as clients know them."""
    used = run.tree.usage
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": used.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
    }


def list_files(run: Run, modalities: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields with the files of a run, if it has some. A full token can fetch each from its address.

    Files of the `modalities` are content parts, up to `MAX_BYTES`: pictures in `images`, as OpenRouter sends them, each
    other one in its entry. `content` stays a text, because clients expect one."""
    found, images, left = list[dict[str, Any]](), list[dict[str, Any]](), MAX_BYTES
    for file in run.files:
        found.append(file.json() | {"url": f"{quote(ROOT.get())}/api/runs/{file.run}/files/{file.id}"})
        if ("image" if file.is_picture else "file") in modalities and len(file.data) <= left:
            left -= len(file.data)
            if file.is_picture:
                images.append({"type": "image_url", "image_url": {"url": file.data_url}})
            else:
                found[-1] |= {"type": "file", "file": {"filename": file.name, "file_data": file.data_url}}
    return {name: files for name, files in (("files", found), ("images", images)) if files}


def question_text(waits: Waiting | Question) -> str:
    """Return what a waiting run asks the user. The next message is the answer."""
    text = replace_surrogates(waits.reason if isinstance(waits, Waiting) else waits.text)
    id = waits.question
    match waits.kind:
        case "approval":
            how = f"Say yes {id}, or no {id} and why, or edit {id} and another input as JSON."
            return f"Approve this call?\n\n{_as_call(text)}\n\n{how}"
        case "plan":
            how = f"Say yes {id}, or no {id}, or {id} and what to change, or {id} and the plan as it should be."
            return f"This is the plan:\n\n{text}\n\n{how}"
        case _:
            return text


def _as_call(text: str) -> str:
    """Return a question for approval with the call as in code: `send(to='ann')`; other text unchanged."""
    asked = re.match(r"May '([^']+)' be called with ", text)
    try:
        end = json.JSONDecoder().raw_decode(text, asked.end())[1] if asked is not None else 0
    except ValueError:
        asked = None
    if asked is None:
        return text
    given = text[asked.end() : end]  # as it is, because another form could lose digits
    if given.startswith("{"):
        named = msgspec.json.decode(given, type=dict[str, msgspec.Raw])
        if all(name.isascii() and name.isidentifier() for name in named):
            given = ", ".join(f"{name}={bytes(value).decode()}" for name, value in named.items())
    return f"{asked[1]}({given}){text[end:].removeprefix('?')}"


def content_of(run: Run) -> tuple[str, str]:
    """Return a run's answer as content, and its finish reason. Raises `RequestRejected` for a run without an answer.
    The error tells the client not to retry, because that would start another run."""
    if isinstance(run.outcome, Waiting):
        return question_text(run.outcome), "stop"
    if run.answer is not None and run.status in ("answered", "stopped"):
        return answer_text(run.answer), "stop" if run.status == "answered" else "length"
    text = f"Run {run.id} {'was ' if run.status in ('stopped', 'cancelled') else ''}{run.status}: {run.reason}"
    hint = replace_surrogates(str(getattr(run.outcome, "hint", "")))
    status = {"failed": 422, "stopped": 422, "cancelled": 503}.get(run.status, 500)
    status = 429 if getattr(run.outcome, "limit", "") == "spend" else status
    code = f"run_{run.status}"
    raise RequestRejected(status, replace_surrogates(text), hint=hint, kind="run_error", code=code, may_retry=False)
