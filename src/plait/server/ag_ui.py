"""AG-UI, the protocol with which pages talk to agents: its requests, each answered by a stream of events.

A thread of the protocol is a session of the caller. A run of the protocol is a part of a run of Plait (see
`recorded_reply`): one that waits for the user ends with an interrupt, and the client begins another one that answers
it. The journal has the ids of a thread and a run with the run of Plait, as it has an `Idempotency-Key`. So the same
request again, at any server, follows the run that there is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import convert, structs
from starlette.requests import Request
from starlette.responses import Response

from plait.core import Waiting
from plait.core.errors import BadAnswer, ConfigError, StaleAnswer
from plait.journal.codec import encode
from plait.journal.records import RunRow
from plait.runtime.agents.annotations import check_annotations
from plait.server.ag_ui_format import AgUiFormat, error_event
from plait.server.agent_turn import AgentTurn
from plait.server.auth import USE
from plait.server.chat_format import ChatMessage, ChatRequest, parse_messages, parse_session, reject
from plait.server.errors import RequestRejected, rejection_for
from plait.server.idempotency import open_key
from plait.server.openapi import ApiRoute, describe_body
from plait.server.runs import RunManager, agent_name

if TYPE_CHECKING:
    from ag_ui.core import ResumeEntry, RunAgentInput

GRACE = 15.0
"""Seconds in which the client of a run may come back."""
BODY = describe_body(
    "threadId:string runId:string messages:array",
    "state:object,array,string,number,boolean,null context:array forwardedProps:object resume:array",
)


def ag_ui_routes(manager: RunManager) -> list[ApiRoute]:
    async def ask_only_agent(request: Request) -> Response:
        """Ask the only agent by AG-UI; returns a stream of events."""
        if len(manager.agents) != 1:
            text = f"The server has several agents: {manager.agent_names}."
            raise RequestRejected(404, text, hint="Ask one of them at /ag-ui/NAME.", code="agent_not_named")
        return await answer(request, next(iter(manager.agents)))

    async def ask_agent(request: Request) -> Response:
        """Ask an agent by AG-UI; returns a stream of events."""
        return await answer(request, request.path_params["name"])

    async def answer(request: Request, name: str) -> Response:
        served, caller, store = manager.find_agent(name), request.state.caller, manager.journal.store
        given = _parse_input(await request.body())
        asked = ChatRequest(name, (), stream=True, session=parse_session(given.thread_id))
        named = "\0".join((caller.owner, "ag-ui", name, given.thread_id, given.run_id))
        key = await open_key(store, hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest(), "")
        format = AgUiFormat(manager, served, given)
        last = await store.list_turns(caller.session(given.thread_id), limit=1)
        try:
            if not key.has_begun and given.resume:
                row = await store.find_run(last[-1].run) if last else None
                asked = structs.replace(asked, **_read_resume(given.resume, row))
            elif not key.has_begun and given.messages:
                asked = structs.replace(asked, **_read_question(given))
            turn = AgentTurn(manager, asked, caller, format, key=key, grace=GRACE)
            if key.has_begun or asked.messages:
                return await turn.answer(request)
            if not last or agent_name((await store.find_run(last[-1].run)).head) != name:
                hint = "Send the user's message, or ask for a thread that this agent has."
                reject("'messages' is empty, and the agent knows no such thread.", "messages", hint=hint)
            return await turn.answer_again(request, last[-1].run)
        except (StaleAnswer, BadAnswer) as why:  # these are events by the protocol
            return Response(error_event(rejection_for(why)), media_type="text/event-stream")

    return [
        ApiRoute("/ag-ui", ask_only_agent, methods=["POST"], body=BODY, role=USE),
        ApiRoute("/ag-ui/{name}", ask_agent, methods=["POST"], body=BODY, role=USE),
    ]


def _parse_input(body: bytes) -> RunAgentInput:
    from ag_ui.core import RunAgentInput  # heavy: pydantic
    from pydantic import ValidationError

    try:
        given = RunAgentInput.model_validate_json(body)
    except ValidationError as why:
        wrong = why.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, wrong["loc"])) or "The body"
        reject(f"{where}: {wrong['msg']}.", where, hint="Send a RunAgentInput of AG-UI.")
    if given.tools:
        text = "'tools' can't be used here. The agent has tools of its own, and can't call those of a page."
        reject(text, "tools", hint="Leave it out.", code="unsupported_parameter")
    return given


def _read_question(given: RunAgentInput) -> dict[str, Any]:
    """Return the fields of a `ChatRequest` for a message of the user, with what the page adds to it."""
    messages = [_as_chat_message(each) for each in given.messages if each.role not in ("reasoning", "activity")]
    context = "\n\n".join(f"{each.description}:\n{each.value}" for each in given.context or ())
    system, known, earlier = parse_messages(messages)
    said = {"state": given.state, "forwarded_props": given.forwarded_props}
    try:
        about = check_annotations(metadata={name: value for name, value in said.items() if value not in (None, {})})
    except ConfigError as why:
        reject(f"'state' and 'forwardedProps' are kept as the run's metadata. {why}", "state")
    return {"system": "\n\n".join(filter(str.strip, (system, context))), "messages": known, "earlier": earlier, **about}


def _as_chat_message(message: Any) -> dict[str, Any]:
    """Return a message of AG-UI as one of chat completions."""
    content = message.content
    if isinstance(content, list):
        content = [_as_chat_part(each) for each in content]
    said = {"role": message.role, "content": content}
    if message.role == "tool":
        return said | {"tool_call_id": message.tool_call_id}
    if calls := getattr(message, "tool_calls", None):
        said["tool_calls"] = [{"id": each.id, "function": each.function.model_dump()} for each in calls]
    return said


def _as_chat_part(part: Any) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    url = part.source.value
    if part.source.type == "data":
        url = f"data:{part.source.mime_type};base64,{url}"
    if part.type == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    about = part.metadata if isinstance(part.metadata, dict) else {}
    return {"type": "file", "file": {"file_data": url, "filename": str(about.get("filename") or "")}}


def _read_resume(resume: Sequence[ResumeEntry], row: RunRow | None) -> dict[str, Any]:
    """Return the fields of a `ChatRequest` that answers the interrupt of a thread, whose last run is given. Raises
    `StaleAnswer`, `BadAnswer`."""
    waits = convert(row.outcome, Waiting) if row is not None and row.status == "waiting" else None
    run, (entry, *others) = row.head.run if row is not None else "", resume
    if waits is None or entry.interrupt_id != waits.question:
        text = f"Interrupt {entry.interrupt_id!r} is not open in this thread. It may have been answered before."
        raise StaleAnswer(text, run=run, waits=(waits,) if waits is not None else (), hint=None if waits else "")
    said = entry.payload if entry.status == "resolved" else False
    fields = said if isinstance(said, dict) else {"approved": said} if isinstance(said, bool) else {}
    approved, edited, reason = (fields.get(name) for name in ("approved", "editedArgs", "reason"))
    reason = reason if isinstance(reason, str) else ""
    answer: str | None = said if isinstance(said, str) else None
    if waits.kind == "question":
        if entry.status == "cancelled":
            answer = "The user gave no answer."
        elif answer is None:
            answer = encode(said).decode()
    elif approved is True:
        answer = "yes" if edited is None else f"edit {encode(edited).decode()}"
    elif approved is False and waits.kind == "approval":
        answer = f"no: {reason}" if reason.strip() else "no"
    elif approved is False:  # other words than no say what to change in the plan
        answer = f"Change this: {reason}" if reason.strip() else "no"
    if answer is None or others:
        text = f"The answer to interrupt {waits.question} does not fit its responseSchema."
        text = "One interrupt is open, and there are more answers." if others else text
        raise BadAnswer(text, run=run, waits=waits)
    return {"messages": (ChatMessage("user", answer),), "answers": waits.question}
