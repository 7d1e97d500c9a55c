"""A chat-completions request read, and the answers to it: plain values, no I/O.

What a client may say that the agent decides by itself (temperature, the length of a reply) is passed over. What would
change what the client gets back, and can't be done, is refused: see docs/serve.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from plait.core import Exchange, Waiting
from plait.core.errors import UsageError
from plait.journal.codec import encode
from plait.journal.records import Waits
from plait.runtime.run import Run
from plait.runtime.sessions import named
from plait.tools.render import sound
from plait.window.errors import Rejected

ROLES = ("system", "developer", "user", "assistant")


class Said(Struct, frozen=True):
    """One message of the person or of the agent, as the client has it."""

    role: str
    text: str


class Wanted(Struct, frozen=True):
    """What a request asks for. `said` ends with the person's message; `system` are the client's instructions."""

    model: str
    said: tuple[Said, ...]
    system: str = ""
    stream: bool = False
    include_usage: bool = False
    session: str | None = None
    thoughts: bool = True

    @property
    def question(self) -> str:
        """What the agent is asked: the client's instructions stand in front."""
        last = self.said[-1].text
        return f"{self.system}\n\n{last}" if self.system else last

    @property
    def history(self) -> tuple[Exchange, ...]:
        """The conversation before the question, a turn each."""
        before = self.said[:-1]
        return tuple(Exchange(one.text, other.text) for one, other in zip(before[::2], before[1::2], strict=True))


def read(body: bytes, headers: Mapping[str, str]) -> Wanted:
    """A request's body, looked at. Raises `Rejected` naming the field that is wrong."""
    try:
        asked = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise Rejected(400, f"The body is not JSON: {why}.") from None
    if not isinstance(asked, dict):
        _wrong("The body is no JSON object.", None)
    model = asked.get("model")
    if not isinstance(model, str) or not model:
        _wrong("'model' is missing.", "model", hint="Name an agent; /v1/models lists them.")
    _refuse(asked)
    system, said = _messages(asked.get("messages"))
    options = asked.get("stream_options") or {}
    return Wanted(
        model=model,
        said=said,
        system=system,
        stream=_flag(asked, "stream", False),
        include_usage=_flag(options, "include_usage", False) if isinstance(options, dict) else False,
        session=_session(asked.get("session"), headers.get("x-plait-session")),
        thoughts=_flag(asked, "thoughts", True),
    )


def _refuse(asked: dict[str, Any]) -> None:
    """What can't be done, and whose absence the client would notice."""
    own = "The agent has tools of its own."
    unmet = {
        "tools": (asked.get("tools"), own),
        "functions": (asked.get("functions"), own),
        "n": (asked.get("n") not in (None, 1), "There is one answer."),
        "stop": (asked.get("stop"), "The agent's answer is given whole."),
        "logprobs": (asked.get("logprobs"), "An agent has no log probabilities."),
        "audio": (asked.get("audio"), "The answer is text."),
        "modalities": (asked.get("modalities") not in (None, [], ["text"]), "The answer is text."),
    }
    for name, (given, why) in unmet.items():
        if given:
            _wrong(f"'{name}' can't be used here. {why}", name, code="unsupported_parameter")
    form = asked.get("response_format")
    if form is not None and not (isinstance(form, dict) and form.get("type") == "text"):
        _wrong(
            "'response_format' can't be used here. The agent answers as it does.",
            "response_format",
            code="unsupported_parameter",
        )


def _messages(given: Any) -> tuple[str, tuple[Said, ...]]:
    if not isinstance(given, list) or not given:
        _wrong("'messages' is missing, or empty.", "messages")
    system: list[str] = []
    said: list[Said] = []
    for i, message in enumerate(given):
        where = f"messages[{i}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            _wrong(f"'{where}' needs a role: {', '.join(ROLES)}.", f"{where}.role")
        role = str(message["role"])
        if message.get("tool_calls") or message.get("function_call"):
            _wrong(f"'{where}' calls tools. The agent has tools of its own.", f"{where}.tool_calls")
        text = _text(message.get("content"), f"{where}.content", empty=role == "assistant")
        if role in ("system", "developer"):
            system.append(text)
        elif said and said[-1].role == role:
            said[-1] = Said(role, f"{said[-1].text}\n\n{text}")
        elif not said and role == "assistant":
            said += [Said("user", "(nothing was asked yet)"), Said(role, text)]  # a greeting
        else:
            said.append(Said(role, text))
    if not said or said[-1].role != "user":
        _wrong("The last message is not the user's.", "messages", hint="End with what is asked.")
    return "\n\n".join(each for each in system if each), tuple(said)


def _text(content: Any, where: str, *, empty: bool) -> str:
    parts = content if isinstance(content, list) else [content]
    found: list[str] = []
    for part in parts:
        if isinstance(part, dict):
            if part.get("type") not in ("text", "input_text", "output_text"):
                _wrong(f"'{where}' has a part of type {part.get('type')!r}. Agents take text.", where)
            part = part.get("text")
        if part is None and empty:
            continue
        if not isinstance(part, str):
            _wrong(f"'{where}' is no text.", where)
        found.append(part)
    text = "\n".join(found)
    if not text.strip() and not empty:
        _wrong(f"'{where}' is empty.", where)
    try:
        text.encode()
    except UnicodeEncodeError:
        _wrong(f"'{where}' has half a surrogate pair, which is no text.", where)
    return text


def _session(field: Any, header: str | None) -> str | None:
    """The session a request names, in its body or (percent-encoded where need be) in a header."""
    try:
        given = field if field is not None or header is None else unquote(header, errors="strict")
        return named(given) if given is not None else None
    except UnicodeDecodeError:
        _wrong("'X-Plait-Session' is percent-encoded, but no UTF-8.", "session")
    except UsageError as why:
        _wrong(f"'session': {why}", "session")


def _flag(asked: Mapping[str, Any], name: str, usual: bool) -> bool:
    value = asked.get(name)
    if value is None:
        return usual
    if not isinstance(value, bool):
        _wrong(f"'{name}' is {value!r}, not true or false.", name)
    return value


def _wrong(message: str, param: str | None, *, hint: str = "", code: str | None = None) -> NoReturn:
    raise Rejected(400, message, hint=hint, param=param, code=code)


# -- what is answered


def text_of(answer: Any) -> str:
    """An answer as text: text as it is (half a surrogate pair, which is no text, as "?"), other values as JSON."""
    return sound(answer) if isinstance(answer, str) else encode(answer).decode()


def usage_of(run: Run) -> dict[str, Any]:
    """A run's tokens as clients know them."""
    used = run.usage
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }


def asks(waits: Waiting | Waits) -> str:
    """What a run that waits says to the person; the next message is the answer to it."""
    text = sound(waits.reason if isinstance(waits, Waiting) else waits.text)
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
    """A run's answer as content, and its finish reason. Raises `Rejected` for a run that has none."""
    if isinstance(run.outcome, Waiting):
        return asks(run.outcome), "stop"
    if run.answer is not None and run.status in ("answered", "stopped"):
        return text_of(run.answer), "stop" if run.status == "answered" else "length"
    raise no_answer(run)


def no_answer(run: Run) -> Rejected:
    """Why there is no answer, as an error. A client that asks again would begin another run, so it is told not to."""
    said = f"Run {run.run} {'was ' if run.status in ('stopped', 'cancelled') else ''}{run.status}: {run.reason}"
    hint = str(getattr(run.outcome, "hint", ""))
    kind, code = "run_error", f"run_{run.status}"
    status = {"failed": 422, "stopped": 422, "cancelled": 503}.get(run.status, 500)
    return Rejected(status, sound(said), hint=sound(hint), kind=kind, code=code, again=False)
