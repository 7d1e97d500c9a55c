"""Chat-completions requests as values, and runs as their answers; no I/O.

A field that the agent decides by itself (temperature, the length of a reply) is ignored. A field that would change what
the client gets, and that an agent cannot do, is refused: see docs/serve.md.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from plait.core import Exchange, File, Waiting
from plait.core.attachments import with_names
from plait.core.errors import ConfigError
from plait.journal.codec import encode
from plait.journal.timeline import Question
from plait.runtime.attachments import UserQuestion, attach
from plait.runtime.run import Run
from plait.runtime.sessions import check_session_name
from plait.server.errors import RequestRejected
from plait.tools.render import replace_surrogates

_DATA_URL = re.compile(r"data:[\w.+/-]*;base64,([A-Za-z0-9+/=]+)")
ROLES = ("system", "developer", "user", "assistant")


class ChatMessage(Struct, frozen=True):
    """One message of the user or of the agent, as the client has it. `files` are the user's."""

    role: str
    text: str
    files: tuple[File, ...] = ()

    @property
    def text_with_names(self) -> str:
        """Return the text with the names of the files, as later turns see it."""
        return with_names(self.text, [each.attachment for each in self.files])


class ChatRequest(Struct, frozen=True):
    """A request. `messages` alternate between user and agent and end with the user; `system` has the instructions,
    `output` the JSON Schema of the answer, if the client gives one."""

    model: str
    messages: tuple[ChatMessage, ...]
    system: str = ""
    stream: bool = False
    include_usage: bool = False
    session: str | None = None
    thoughts: bool = True
    output: dict[str, Any] | None = None

    @property
    def question(self) -> str:
        """Return the agent's question: the client's instructions, then the last message."""
        last = self.messages[-1].text
        return f"{self.system}\n\n{last}" if self.system else last

    @property
    def parts(self) -> UserQuestion:
        """Return the agent's question with the files of the last message."""
        return [self.question, *self.messages[-1].files]

    @property
    def history(self) -> tuple[Exchange, ...]:
        before = self.messages[:-1]
        return tuple(
            Exchange(one.text_with_names, other.text) for one, other in zip(before[::2], before[1::2], strict=True)
        )


def parse_request(body: bytes, headers: Mapping[str, str]) -> ChatRequest:
    """Read a request. Raises `RequestRejected` naming the wrong field."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRejected(400, f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        _reject("The body is not a JSON object.", None)
    model = given.get("model")
    if not isinstance(model, str) or not model:
        _reject("'model' is missing.", "model", hint="Name an agent; /v1/models lists them.")
    _refuse_unsupported(given)
    system, messages = _parse_messages(given.get("messages"))
    options = given.get("stream_options")
    return ChatRequest(
        model=model,
        messages=messages,
        system=system,
        stream=_parse_flag(given, "stream", False),
        include_usage=_parse_flag(options, "include_usage", False) if isinstance(options, dict) else False,
        session=_parse_session(given.get("session"), headers.get("x-plait-session")),
        thoughts=_parse_flag(given, "thoughts", True),
        output=_parse_response_format(given.get("response_format")),
    )


def _refuse_unsupported(given: dict[str, Any]) -> None:
    unsupported = {
        "tools": (given.get("tools"), "The agent has tools of its own."),
        "functions": (given.get("functions"), "The agent has tools of its own."),
        "n": (given.get("n") not in (None, 1), "There is one answer."),
        "stop": (given.get("stop"), "The agent's answer is given whole."),
        "logprobs": (given.get("logprobs"), "An agent has no log probabilities."),
        "audio": (given.get("audio"), "The answer is text."),
        "modalities": (given.get("modalities") not in (None, [], ["text"]), "The answer is text."),
    }
    for name, (is_used, why) in unsupported.items():
        if is_used:
            _reject(f"'{name}' can't be used here. {why}", name, code="unsupported_parameter")


def _parse_response_format(given: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of the answer; None for text."""
    match given:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            return schema
    hint = "Give the type text, json_object, or json_schema with a 'json_schema' that has a 'schema'."
    return _reject("'response_format' is not valid.", "response_format", hint=hint)


def _parse_messages(given: Any) -> tuple[str, tuple[ChatMessage, ...]]:
    if not isinstance(given, list) or not given:
        _reject("'messages' is missing, or empty.", "messages")
    system: list[str] = []
    messages: list[ChatMessage] = []
    for i, message in enumerate(given):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            _reject(f"'{where}' needs a role: {', '.join(ROLES)}.", f"{where}.role")
        role = str(message["role"])
        if message.get("tool_calls") or message.get("function_call"):
            _reject(f"'{where}' calls tools. The agent has tools of its own.", f"{where}.tool_calls")
        content, files = message.get("content"), tuple[File, ...]()
        if role == "user" and isinstance(content, list):
            content, files = _split_files(content, f"{where}.content")
        text = _parse_text(content, f"{where}.content", may_be_empty=role == "assistant")
        if role in ("system", "developer"):
            system.append(text)
        elif messages and messages[-1].role == role:
            before = messages[-1]
            messages[-1] = ChatMessage(role, f"{before.text}\n\n{text}", (*before.files, *files))
        elif not messages and role == "assistant":
            messages += [ChatMessage("user", "(nothing was asked yet)"), ChatMessage(role, text)]  # a greeting
        else:
            messages.append(ChatMessage(role, text, files))
    if not messages or messages[-1].role != "user":
        _reject("The last message is not the user's.", "messages", hint="End with the question.")
    return "\n\n".join(each for each in system if each), tuple(messages)


def _split_files(parts: list[Any], where: str) -> tuple[list[Any], tuple[File, ...]]:
    """Return the text parts of a user's message, and its images and files. They have to be data URLs: the server
    fetches no address."""
    texts: list[Any] = []
    files: list[File] = []
    for i, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("image_url", "file"):
            texts.append(part)
            continue
        inner = part.get(kind) if isinstance(part.get(kind), dict) else {}
        data = _DATA_URL.fullmatch(str(inner.get("url" if kind == "image_url" else "file_data")))
        if data is None:
            _reject(f"'{where}[{i}]' is no data URL.", where, hint="Send the content as data:image/png;base64,...")
        try:
            files.append(attach(base64.b64decode(data[1], validate=True), str(inner.get("filename") or "")))
        except binascii.Error:
            _reject(f"'{where}[{i}]' is not valid base64.", where)
        except ConfigError as error:
            _reject(f"'{where}[{i}]': {error}", where)
    return texts, tuple(files)


def _parse_text(content: Any, where: str, *, may_be_empty: bool) -> str:
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict):
            if part.get("type") not in ("text", "input_text", "output_text"):
                _reject(
                    f"'{where}' has a part of type {part.get('type')!r}. Agents take text, images and files.", where
                )
            part = part.get("text")
        if part is None and may_be_empty:
            continue
        if not isinstance(part, str):
            _reject(f"'{where}' is not text.", where)
        texts.append(part)
    text = "\n".join(texts)
    if not text.strip() and not may_be_empty:
        _reject(f"'{where}' is empty.", where)
    try:
        text.encode()
    except UnicodeEncodeError:
        _reject(f"'{where}' has half a surrogate pair, which is not text.", where)
    return text


def _parse_session(field: Any, header: str | None) -> str | None:
    """Return the session that the body names, or the header (percent-encoded where needed)."""
    try:
        given = field if field is not None or header is None else unquote(header, errors="strict")
        return check_session_name(given) if given is not None else None
    except UnicodeDecodeError:
        _reject("'X-Plait-Session' is percent-encoded, but not as UTF-8.", "session")
    except ConfigError as error:
        _reject(f"'session': {error}", "session")


def _parse_flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        _reject(f"'{name}' is {value!r}, not true or false.", name)
    return value


def _reject(message: str, param: str | None, *, hint: str = "", code: str | None = None) -> NoReturn:
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


def question_text(waits: Waiting | Question) -> str:
    """Return what a waiting run asks the user. The next message is the answer."""
    text = replace_surrogates(waits.reason if isinstance(waits, Waiting) else waits.text)
    id = waits.question
    match waits.kind:
        case "approval":
            how = f"Say yes {id}, or no {id} and why, or edit {id} and another input as JSON."
            return f"May this be done?\n\n{text}\n\n{how}"
        case "plan":
            how = f"Say yes {id}, or no {id}, or {id} and what to change, or {id} and the plan as it should be."
            return f"This is the plan:\n\n{text}\n\n{how}"
        case _:
            return text


def content_of(run: Run) -> tuple[str, str]:
    """Return a run's answer as content, and its finish reason. Raises `RequestRejected` for a run without an answer.

    The error tells the client not to retry, because that would start another run.
    """
    if isinstance(run.outcome, Waiting):
        return question_text(run.outcome), "stop"
    if run.answer is not None and run.status in ("answered", "stopped"):
        return answer_text(run.answer), "stop" if run.status == "answered" else "length"
    text = f"Run {run.id} {'was ' if run.status in ('stopped', 'cancelled') else ''}{run.status}: {run.reason}"
    hint = str(getattr(run.outcome, "hint", ""))
    status = {"failed": 422, "stopped": 422, "cancelled": 503}.get(run.status, 500)
    code = f"run_{run.status}"
    raise RequestRejected(
        status, replace_surrogates(text), hint=replace_surrogates(hint), kind="run_error", code=code, may_retry=False
    )
