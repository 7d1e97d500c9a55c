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
    messages = [each.model_dump() for each in given.messages if each.role not in ("reasoning", "activity")]
    for each in messages:
        if isinstance(each.get("content"), list):
            each["content"] = [_as_chat_part(part) for part in each["content"]]
    context = "\n\n".join(f"{each.description}:\n{each.value}" for each in given.context or ())
    system, known, earlier = parse_messages(messages)
    said = {"state": given.state, "forwarded_props": given.forwarded_props}
    try:
        about = check_annotations(metadata={name: value for name, value in said.items() if value not in (None, {})})
    except ConfigError as why:
        reject(f"'state' and 'forwardedProps' are kept as the run's metadata. {why}", "state")
    return {"system": "\n\n".join(filter(str.strip, (system, context))), "messages": known, "earlier": earlier, **about}


def _as_chat_part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of a message of AG-UI as one of chat completions."""
    if part["type"] == "text":
        return part
    source, about = part["source"], part.get("metadata")
    url = f"data:{source['mime_type']};base64,{source['value']}" if source["type"] == "data" else source["value"]
    if part["type"] == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    name = about.get("filename") if isinstance(about, dict) else None
    return {"type": "file", "file": {"file_data": url, "filename": str(name or "")}}


def _read_resume(resume: Sequence[ResumeEntry], row: RunRow | None) -> dict[str, Any]:
    """Return the fields of a `ChatRequest` that answers the interrupt of a thread, whose last run is given. Raises
    `StaleAnswer`, `BadAnswer`."""
    waits = convert(row.outcome, Waiting) if row is not None and row.status == "waiting" else None
    run, (entry, *others) = row.head.run if row is not None else "", resume
    if waits is None or entry.interrupt_id != waits.question:
        text = f"Interrupt {entry.interrupt_id!r} is not open in this thread. It may have been answered before."
        raise StaleAnswer(text, run=run, waits=(waits,) if waits is not None else (), hint=None if waits else "")
    if others:
        raise BadAnswer("One interrupt is open, and there are more answers.", run=run, waits=waits)
    said = entry.payload if entry.status == "resolved" else False
    fields = said if isinstance(said, dict) else {"approved": said}
    edited, reason = fields.get("editedArgs"), fields.get("reason")
    has_reason = isinstance(reason, str) and reason.strip()
    match waits.kind, fields.get("approved"):
        case _ if isinstance(said, str):
            answer = said
        case "question", _:
            answer = encode(said).decode() if entry.status == "resolved" else "The user gave no answer."
        case _, True:
            answer = "yes" if edited is None else f"edit {encode(edited).decode()}"
        case kind, False if has_reason:  # other words than no say what to change in the plan
            answer = f"no: {reason}" if kind == "approval" else f"Change this: {reason}"
        case _, False:
            answer = "no"
        case _:
            text = f"The answer to interrupt {waits.question} does not fit its responseSchema."
            raise BadAnswer(text, run=run, waits=waits)
    return {"messages": (ChatMessage("user", answer),), "answers": waits.question}
