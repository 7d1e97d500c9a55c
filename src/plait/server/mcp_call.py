"""One MCP call of a served agent: a run with progress reports, its questions, and its result.

Cancelling the call, or closing the connection, cancels the run. A run without an answer is an error result with the
run's id, never a text that looks like an answer.

A run that waits asks by elicitation if the client supports it: in the older protocol by a request of the server, in the
newer one by a result that asks for another call. The state in that result is the ids of the run and the question; the
server checks the next caller again. Without elicitation, the result shows the question and how to answer it with `run`
and `reply_to`. An answer to any other question is an error that names the open one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from plait.core import Event, Waiting
from plait.core import events as ev
from plait.core.errors import BadAnswer, ConfigError, PlaitError, StaleAnswer
from plait.core.loose_json import without_halves
from plait.runtime.conversations.sessions import check_session_name
from plait.runtime.run import Run
from plait.server.auth import ANYONE, Caller
from plait.server.chat_format import content_of, question_text
from plait.server.conversations import check_agent, find_session, state_of
from plait.server.errors import RequestRejected, rejection_for
from plait.server.runs import ActiveRun, OnEvent, RunManager

CANCELLED = "the client cancelled the call"
TRIES = 5
"""Number of times that the user may correct an invalid answer. Then the result shows the question."""

ARGUMENTS = {
    "question": "What is to be answered or done.",
    "session": "Makes it a turn of the conversation of that name: the agent knows the turns before.",
    "run": "The id of a run that waits for an answer: the question is that answer.",
    "reply_to": "The id of the question that this answers, as the run that waits gave it.",
}
INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string", "description": about} for name, about in ARGUMENTS.items()},
    "required": ["question"],
    "additionalProperties": False,
}
INPUT["properties"]["question"]["minLength"] = 1
ANSWER = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

CallResult = types.CallToolResult | types.InputRequiredResult


@dataclass
class AgentCall:
    manager: RunManager
    ctx: ServerRequestContext[Any]
    params: types.CallToolRequestParams

    async def result(self) -> CallResult:
        """Perform the call. Raises only its cancellation, and `MCPError` for an unknown agent."""
        if self.params.name not in self.manager.agents:
            text = f"There is no agent {self.params.name!r}. These exist: {self.manager.agent_names}."
            raise MCPError(types.INVALID_PARAMS, text)
        try:
            return await self._result()
        except BadAnswer as error:
            asked = f"{error}\n\n{question_text(error.waits)}"
            if self._can_ask and self._is_modern:
                return _ask_again(error.run, error.waits.question, asked)
            return self._waiting(error.run, error.waits.question, asked, is_error=True)
        except StaleAnswer as error:
            if not error.waits:
                return _result(str(rejection_for(error)), None, is_error=True)
            now = error.waits[0]
            return self._waiting(error.run, now.question, question_text(now), error.message, is_error=True)
        except (PlaitError, OSError) as error:
            return _result(str(rejection_for(error)), None, is_error=True)

    async def _result(self) -> CallResult:
        given = _read_arguments(self.params.arguments or {})
        if self.params.request_state and self.params.input_responses:  # the reply to an earlier result of this call
            run_id, _, question = self.params.request_state.partition(" ")
            answer = _answer_in(self.params.input_responses.get("answer"))
            if answer is None:
                return self._waiting(run_id, question, "The person gave no answer.")
            run = await self._perform(answer, run_id, reply_to=question)
        else:
            run = await self._perform(given.pop("question"), **given)
        tries, problem = TRIES, ""
        while isinstance(run.outcome, Waiting) and tries and self._can_ask and self.ctx.session.can_send_request:
            asked = problem + question_text(run.outcome)
            try:
                answer = _answer_in(await self.ctx.session.elicit_form(asked, ANSWER, self.ctx.request_id))
                if answer is None:
                    break
                run = await self._perform(answer, run.id, reply_to=run.outcome.question)
                tries, problem = TRIES, ""
            except MCPError:  # the client cannot ask
                break
            except BadAnswer as error:
                tries, problem = tries - 1, f"{error}\n\n"
        if isinstance(run.outcome, Waiting) and self._can_ask and self._is_modern:
            return _ask_again(run.id, run.outcome.question, question_text(run.outcome))
        return await self._finish(run)

    # -- the run

    @property
    def _caller(self) -> Caller:
        request = self.ctx.request
        caller = request.scope["state"]["caller"] if request is not None else ANYONE
        assert isinstance(caller, Caller)
        return caller

    async def _perform(self, text: str, run: str = "", session: str | None = None, reply_to: str | None = None) -> Run:
        """Return the call's run, at its end or when it waits. Cancelling the call cancels the run."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        reporting = asyncio.ensure_future(self._report_progress(events))
        active: ActiveRun | None = None
        try:
            active = await self._begin(text, run, session, reply_to, events.put_nowait)
            result = await active.done()
            events.put_nowait(None)
            await asyncio.wait([reporting], timeout=5)  # a client that reads slowly still gets the answer
            return result
        except asyncio.CancelledError:
            if active is not None:
                active.cancel(CANCELLED)
            raise
        finally:
            reporting.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else retrieves it
            reporting.cancel()

    async def _begin(
        self, text: str, run: str, session: str | None, reply_to: str | None, on_event: OnEvent
    ) -> ActiveRun:
        manager, caller, name = self.manager, self._caller, self.params.name
        if run:
            check_agent(state_of(await manager.find_run(run, caller)), name)
            return await manager.resume_in_turn(run, text, question=reply_to, caller=caller, on_event=on_event)
        session = caller.session(session) if session is not None else None
        with await manager.take_turn(session) as turn:
            if session is not None:
                state = await asyncio.to_thread(find_session, manager.journal, session)
                check_agent(state, name)
                run = state.waiting_run
            if run:
                active = await manager.resume(run, text, question=reply_to, caller=caller, on_event=on_event)
            elif reply_to:
                raise ConfigError(f"No run waits with question {reply_to!r} here.", hint="It was answered before.")
            else:
                active = await manager.start(name, text, caller=caller, session=session, on_event=on_event)
            active.keep(turn)
            return active

    async def _report_progress(self, events: asyncio.Queue[Event | None]) -> None:
        """Report each step and call, without thoughts and results."""
        number = 0
        while (event := await events.get()) is not None:
            if text := _describe_event(event):
                number += 1
                await self.ctx.session.report_progress(number, None, text)

    # -- its questions

    @property
    def _can_ask(self) -> bool:
        able = self.ctx.session.client_capabilities
        elicitation = able.elicitation if able is not None else None
        # A client that names no form of elicitation can show a form.
        return elicitation is not None and (elicitation.form is not None or elicitation.url is None)

    @property
    def _is_modern(self) -> bool:
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    # -- its result

    async def _finish(self, run: Run) -> types.CallToolResult:
        row = await self.manager.find_run(run.id, self._caller)
        session = self._caller.name_session(row.head.session) if row.head.session else ""
        known: dict[str, Any] = {"status": run.status, "answer": None, "run": run.id}
        known |= {"session": session} if session else {}
        known |= {"steps": run.steps, "cost_usd": run.total_cost_usd, "seconds": round(run.seconds, 3)}
        if isinstance(run.outcome, Waiting):
            return self._waiting(run.id, run.outcome.question, question_text(run.outcome), known=known)
        try:
            text, _ = content_of(run)
        except RequestRejected as error:
            words = str(error) if run.id in str(error) else f"{error} (run {run.id})"
            return _result(words, {"status": run.status, "run": run.id, "cost_usd": run.total_cost_usd}, is_error=True)
        early = f"\n\n(Stopped early: {run.reason})" if run.status == "stopped" else ""
        return _result(text + early, known | {"answer": without_halves(run.answer)[0]})

    def _waiting(
        self,
        run: str,
        id: str,
        asked: str,
        problem: str = "",
        *,
        known: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> types.CallToolResult:
        how = f'run="{run}", reply_to="{id}" and the answer as the question'
        text = f"The run waits for an answer:\n\n{asked}\n\nTo answer, call this tool again with {how}."
        base = {"status": "waiting", "answer": None, "run": run, "steps": 0, "cost_usd": None, "seconds": 0.0}
        return _result(f"{problem} {text}".strip(), {**(known or base), "asks": asked, "reply_to": id}, is_error)


def _result(text: str, structured: dict[str, Any] | None, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=structured, is_error=is_error
    )


def _ask_again(run: str, id: str, question: str) -> types.InputRequiredResult:
    form = types.ElicitRequestFormParams(message=question, requested_schema=ANSWER)
    asked: types.InputRequests = {"answer": types.ElicitRequest(params=form)}
    return types.InputRequiredResult(input_requests=asked, request_state=f"{run} {id}")


def _read_arguments(given: Mapping[str, Any]) -> dict[str, str]:
    for name, value in given.items():
        if name not in ARGUMENTS:
            raise ConfigError(f"There is no argument {name!r}.", hint=f"These exist: {', '.join(ARGUMENTS)}.")
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"'{name}' is not text.", hint="Give a string.")
    found = {name: value for name, value in given.items() if value is not None}
    if not found.get("question", "").strip():
        raise ConfigError("'question' is missing, or empty.", hint="Say what is to be done.")
    if "session" in found:
        found["session"] = check_session_name(found["session"])
    return found


def _answer_in(reply: Any) -> str | None:
    if getattr(reply, "action", "") != "accept":
        return None
    answer = (getattr(reply, "content", None) or {}).get("answer")
    return str(answer) if answer is not None else None


def _describe_event(event: Event) -> str:
    match event:
        case ev.Began(run=run, resumed=resumed):
            return f"run {run} {'goes on' if resumed else 'began'}"
        case ev.Asked(step=step, phase=phase, model=model):
            return f"step {step}: {model} is asked ({phase})"
        case ev.Called(step=step, call=call):
            return f"step {step}: {call.tool} is called"
        case ev.Observed(step=step, call=call, observation=seen):
            return f"step {step}: {call.tool} {'gave a result' if seen.ok else f'gave none ({seen.trouble})'}"
        case ev.Executing(step=step):
            return f"step {step}: code runs"
        case ev.Noted(step=step, kind="progress", text=text):
            return f"step {step}: {text}"
    return ""
