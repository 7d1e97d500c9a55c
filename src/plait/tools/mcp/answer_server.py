"""Answers what a server asks for during a call: a question to the user, or to a model."""

from __future__ import annotations

from typing import Any

from plait.core.errors import ToolError
from plait.core.tools import ToolSpec
from plait.tools.mcp.elicitation import read_elicited, write_question
from plait.tools.mcp.server import McpServer
from plait.tools.mcp.server_call import ServerCall, ServerRequest

MAX_ASKED = 30
"""How often one call may ask the user."""


async def answer_server(server: McpServer, spec: ToolSpec, call: ServerCall, request: ServerRequest) -> dict[str, Any]:
    """Return the result of a server's request, as JSON; {"error": TEXT} if it gets none. Raises what the services of
    the run raise if it must wait for the user."""
    services, params = call.services, request.params
    if services is None:
        return {"action": "cancel"} if request.method == "elicitation/create" else {"error": "There is no run."}
    if request.method == "sampling/createMessage" and server.sampling:
        most, rules = params.get("maxTokens"), str(params.get("systemPrompt") or "")
        most = most if isinstance(most, int) and most > 0 else None
        try:
            text = await services.ask_model(_read_conversation(params.get("messages")), None, rules, most)
        except ToolError as error:
            return {"error": str(error)}
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": "the run's model", "stopReason": "endTurn"}
    if request.method != "elicitation/create":
        return {"error": f"This client does not support {request.method}."}
    try:
        asked = write_question(server.label, params, spec.repeatable or request.state is not None)
    except ValueError as error:
        return {"error": str(error)}
    if call.asked.total() >= MAX_ASKED:
        return {"error": "The user has answered enough questions of this call."}
    request.question = request.question or asked
    while True:
        number = call.asked[request.question]
        answer = await services.ask_user(request.question, number, request.state)
        call.asked[request.question] += 1
        reply = read_elicited(answer, params)
        if isinstance(reply, dict):
            break
        request.question = f"This answer does not fit: {reply}\n{asked}"
    await services.note_use(request.question, number)
    call.has_answered = True
    return reply


def _read_conversation(messages: Any) -> str:
    """Return the messages of a server as one question: the only one as it is, several with their roles."""
    found: list[tuple[str, str]] = []
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, dict):
            content = message.get("content")
            blocks = [each for each in (content if isinstance(content, list) else [content]) if isinstance(each, dict)]
            texts = [str(each.get("text") or f"(a part of type {each.get('type')})") for each in blocks]
            found.append((str(message.get("role", "user")), "\n".join(texts)))
    if len(found) == 1:
        return found[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in found)
