"""One call of a served agent over MCP: a run, told as it goes on, asked for answers, and given back.

Theory of operation. A call is a run, begun at the desk as any other: it has its place, its owner and its record. What
happens in it is told as progress where the client asks for that. A call that the client cancels, or goes away from,
cancels its run. A run that has no answer is a result that says it is an error, with the run's id; never a text that
could pass for an answer. A run that waits for the person asks by elicitation where the client can do that: in a
request of our own in the older protocol, and in the newer one as a result that asks to be called again (the run's id is
and the question's are the state that comes back with the answer; whether the caller may see that run is looked at
anew). Where it can't, the result says what is asked, and that the tool is called with `run`, `reply_to` and the answer
as the question. An answer is for one question of one agent: any other is an error, which names the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.core import Event, Waiting
from plait.core import events as ev
from plait.core.errors import BadAnswer, PlaitError, StaleAnswer, UsageError
from plait.core.loose_json import without_halves
from plait.runtime.run import Run
from plait.runtime.sessions import named
from plait.window import conversations
from plait.window.callers import ANYONE, Caller
from plait.window.desk import Desk
from plait.window.errors import Rejected, rejected
from plait.window.performing import Performing
from plait.window.shapes import asks, content_of

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

GONE = "the client cancelled the call"
TRIES = 5
"""As often the client's person is asked who gives an edit that can't be taken; then the result says what is asked."""

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "minLength": 1, "description": "What is to be answered or done."},
        "session": {
            "type": "string",
            "description": "Makes it a turn of the conversation of that name: the agent knows the turns before.",
        },
        "run": {
            "type": "string",
            "description": "The id of a run that waits for an answer: the question is that answer.",
        },
        "reply_to": {
            "type": "string",
            "description": "The id of the question that this answers, as the run that waits gave it.",
        },
    },
    "required": ["question"],
    "additionalProperties": False,
}

ANSWER = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@dataclass
class Asked:
    """One call of an agent."""

    desk: Desk
    ctx: ServerRequestContext[Any]
    params: types.CallToolRequestParams

    async def result(self) -> types.CallToolResult | types.InputRequiredResult:
        """What the client gets. Only the cancellation of the call is raised, and a tool that is not there."""
        try:
            return await self._result()
        except BadAnswer as why:
            return self._asks_still(why)
        except StaleAnswer as why:
            return self._stale(why)
        except (PlaitError, OSError) as why:
            return _error(str(rejected(why)))

    async def _result(self) -> types.CallToolResult | types.InputRequiredResult:
        if self.params.name not in self.desk.agents:
            from mcp.shared.exceptions import MCPError
            from mcp_types import INVALID_PARAMS

            raise MCPError(INVALID_PARAMS, f"There is no agent {self.params.name!r}. There are: {_names(self.desk)}.")
        given = _read(self.params.arguments or {})
        said = self._said()
        if said is not None and said[1] is None:  # the person was asked and gave no answer
            return self._waits(*said[0], "The person gave no answer.")
        if said is not None:
            run = await self._perform(said[0][0], str(said[1]), None, said[0][1])
        else:
            run = await self._perform(
                given.get("run", ""), given["question"], given.get("session"), given.get("reply_to")
            )
        tries, wrong = TRIES, ""
        while isinstance(run.outcome, Waiting) and tries and self._can_ask and self.ctx.session.can_send_request:
            answer = await self._ask(wrong + asks(run.outcome))
            if answer is None:
                break
            try:
                run = await self._perform(run.run, answer, None, run.outcome.question)
                tries, wrong = TRIES, ""
            except BadAnswer as why:
                tries, wrong = tries - 1, f"{why}\n\n"
        if isinstance(run.outcome, Waiting) and self._can_ask and self._newer:
            return self._asks_again(run.run, run.outcome.question, asks(run.outcome))
        return self._told(run)

    # -- the run

    @property
    def _caller(self) -> Caller:
        request = self.ctx.request
        found = request.scope.get("state", {}).get("caller") if request is not None else ANYONE
        if found is None:
            raise Rejected(401, "A token is needed.", hint="Send it as Authorization: Bearer TOKEN.")
        assert isinstance(found, Caller)
        return found

    async def _perform(self, waiting: str, question: str, session: str | None, reply_to: str | None) -> Run:
        """The run of a call, at its end or where it waits. A cancelled call cancels it."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        telling = asyncio.ensure_future(self._tell(events))
        performing: Performing | None = None
        try:
            performing = await self._begin(waiting, question, session, reply_to, events)
            run = await performing.done()
            events.put_nowait(None)
            await asyncio.wait([telling], timeout=5)  # a client that reads slowly hears the answer all the same
            return run
        except asyncio.CancelledError:
            if performing is not None:
                performing.cancel(GONE)
            raise
        finally:
            telling.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else asks for it
            telling.cancel()

    async def _begin(
        self,
        waiting: str,
        question: str,
        session: str | None,
        reply_to: str | None,
        events: asyncio.Queue[Event | None],
    ) -> Performing:
        caller, name = self._caller, self.params.name
        if waiting:
            conversations.check_agent(conversations.of_run(self.desk.row(waiting, caller)), name)
        if waiting and session is None:
            return await self.desk.go_on(waiting, question, question=reply_to, caller=caller, emit=events.put_nowait)
        on_record = caller.session(session) if session is not None else None
        async with self.desk.turn(on_record) as turn:
            if on_record is not None and not waiting:
                found = await asyncio.to_thread(conversations.by_name, self.desk.journal, on_record)
                conversations.check_agent(found, name)
                waiting = found.waiting
            if waiting:
                performing = await self.desk.resume(
                    waiting, question, question=reply_to, caller=caller, emit=events.put_nowait
                )
            elif reply_to:
                raise UsageError(f"No run waits with question {reply_to!r} here.", hint="It was answered before.")
            else:
                performing = await self.desk.start(
                    name, question, caller=caller, session=on_record, emit=events.put_nowait
                )
            turn.lasts(performing)
            return performing

    async def _tell(self, events: asyncio.Queue[Event | None]) -> None:
        """What happens, as progress: a step or a call each, in words and without what was thought or found."""
        number = 0
        while (event := await events.get()) is not None:
            if words := _words(event):
                number += 1
                await self.ctx.session.report_progress(number, None, words)

    # -- what it asks

    @property
    def _can_ask(self) -> bool:
        able = self.ctx.session.client_capabilities
        asked = able.elicitation if able is not None else None
        # A client that says nothing of the ways can show a form.
        return asked is not None and (asked.form is not None or asked.url is None)

    @property
    def _newer(self) -> bool:
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _ask(self, question: str) -> str | None:
        from mcp.shared.exceptions import MCPError

        try:
            reply = await self.ctx.session.elicit_form(question, ANSWER, self.ctx.request_id)
        except MCPError:  # it can't after all
            return None
        return _answer_in(reply)

    def _asks_again(self, run: str, id: str, question: str) -> types.InputRequiredResult:
        from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

        form = ElicitRequestFormParams(message=question, requested_schema=ANSWER)
        return InputRequiredResult(input_requests={"answer": ElicitRequest(params=form)}, request_state=f"{run} {id}")

    def _asks_still(self, why: BadAnswer) -> types.CallToolResult | types.InputRequiredResult:
        """An answer that can't be taken: what is wrong with it, and what the run still asks."""
        asked = f"{why}\n\n{asks(why.waits)}"
        if self._can_ask and self._newer:
            return self._asks_again(why.run, why.waits.question, asked)
        return self._waits(why.run, why.waits.question, asked).model_copy(update={"is_error": True})

    def _stale(self, why: StaleAnswer) -> types.CallToolResult:
        """An answer to no open question: what the run asks now, if it asks anything."""
        if not why.waits:
            return _error(str(rejected(why)))
        now = why.waits[0]
        return self._waits(why.run, now.question, asks(now), why.message).model_copy(update={"is_error": True})

    def _said(self) -> tuple[tuple[str, str], str | None] | None:
        """The run and the question that a result before asked, and what the person says to it: None for nothing."""
        state, replies = self.params.request_state, self.params.input_responses
        if not state or not replies:
            return None
        run, _, id = state.partition(" ")
        return (run, id), _answer_in(replies.get("answer"))

    # -- what is told

    def _told(self, run: Run) -> types.CallToolResult:
        row = self.desk.row(run.run, self._caller)
        session = self._caller.named(row.head.session) if row.head.session else ""
        if isinstance(run.outcome, Waiting):
            return self._waits(run.run, run.outcome.question, asks(run.outcome), "", session, run)
        try:
            text, _ = content_of(run)
        except Rejected as why:
            words = str(why) if run.run in str(why) else f"{why} (run {run.run})"
            return _error(words, {"status": run.status, "run": run.run, "cost_usd": run.cost_usd})
        early = f"\n\n(Stopped early: {run.reason})" if run.status == "stopped" else ""
        return _result(text + early, _structured(run, session, answer=without_halves(run.answer)[0]))

    def _waits(
        self, run: str, id: str, asked: str, wrong: str = "", session: str = "", held: Run | None = None
    ) -> types.CallToolResult:
        how = f'run="{run}", reply_to="{id}" and the answer as the question'
        words = f"The run waits for an answer:\n\n{asked}\n\nTo answer, call this tool again with {how}."
        words = f"{wrong} {words}".strip()
        base = {"status": "waiting", "answer": None, "run": run, "steps": 0, "cost_usd": None, "seconds": 0.0}
        known = _structured(held, session) if held is not None else base
        return _result(words, {**known, "asks": asked, "reply_to": id})


def _structured(run: Run, session: str, answer: Any = None) -> dict[str, Any]:
    return {
        "status": run.status,
        "answer": answer,
        "run": run.run,
        **({"session": session} if session else {}),
        "steps": run.steps,
        "cost_usd": run.cost_usd,
        "seconds": round(run.seconds, 3),
    }


def _result(text: str, structured: dict[str, Any]) -> types.CallToolResult:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], structured_content=structured)


def _error(text: str, structured: dict[str, Any] | None = None) -> types.CallToolResult:
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], structured_content=structured, is_error=True)


def _read(given: Mapping[str, Any]) -> dict[str, str]:
    for name, value in given.items():
        if name not in INPUT["properties"]:
            raise UsageError(f"There is no argument {name!r}.", hint=f"There are: {', '.join(INPUT['properties'])}.")
        if value is not None and not isinstance(value, str):
            raise UsageError(f"'{name}' is no text.", hint="Give a string.")
    found = {name: value for name, value in given.items() if value is not None}
    if not found.get("question", "").strip():
        raise UsageError("'question' is missing, or empty.", hint="Say what is to be done.")
    if "session" in found:
        found["session"] = named(found["session"])
    return found


def _answer_in(reply: Any) -> str | None:
    if getattr(reply, "action", "") != "accept":
        return None
    answer = (getattr(reply, "content", None) or {}).get("answer")
    return str(answer) if answer is not None else None


def _names(desk: Desk) -> str:
    return ", ".join(list(desk.agents)[:20])


def _words(event: Event) -> str:
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
    return ""
