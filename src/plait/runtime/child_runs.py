"""Child runs: an agent that a tool of another run uses. Also the tool that an agent becomes.

Theory of operation. A child is a run of its own in the parent's journal. Its head names the call that started it, and
its id is derived from the key of that call. So when a call is made again after a crash, it finds its child, and resumes
it or takes its result. What led to the call is on the disk before the child begins. So no effect in the tree is
repeated, and the call itself is never in doubt.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import convert, structs

from plait.core import Stopped, Waiting
from plait.core.errors import BadAnswer, ConfigError, ToolError, UnknownRun
from plait.core.text import shorten
from plait.journal.log import ENDED, AnyLog
from plait.journal.records import ParentCall, RunHead, RunRow
from plait.journal.store import Journal
from plait.journal.timeline import Timeline
from plait.runtime import runs
from plait.runtime.approvals import waiting_with
from plait.runtime.attachments import UserQuestion, identify_question, split_question
from plait.runtime.context import Context
from plait.runtime.output import OutputForm, OutputT, output_of, recorded_output
from plait.runtime.recorded_events import recorded_loop
from plait.runtime.run import Run
from plait.runtime.run_context import ChildWaits, OnWait, RunSpec
from plait.runtime.spent import spent_in
from plait.tools import Tool, tool

if TYPE_CHECKING:
    from plait.runtime.call_services import ToolServices


class ChildParts(Protocol):
    """What an agent makes for its runs."""

    async def prepare_run(
        self, asked: UserQuestion, session: None, on_wait: OnWait | None, history: None, now: None, deps: Any
    ) -> tuple[RunSpec, RunHead]: ...

    async def prepare_resume(
        self, head: RunHead, timeline: Timeline, on_wait: OnWait | None, deps: Any, journal: Journal
    ) -> RunSpec: ...


class ChildAgent(Protocol[OutputT]):
    """An agent, as far as a child run needs it."""

    @property
    def deps(self) -> Any: ...

    @property
    def output(self) -> OutputForm[OutputT]: ...

    @property
    def _parts(self) -> ChildParts: ...

    def _with_loop_of(self, head: RunHead) -> ChildAgent[OutputT]: ...


async def run_child(
    services: ToolServices, agent: ChildAgent[OutputT], question: UserQuestion, deps: Any, number: int
) -> Run[OutputT]:
    """Run an agent as a child of a tool call, and return its run. `number` counts equal questions of the call from 1.

    Raises `ChildWaits` if the child waits for the user.
    """
    if not hasattr(agent, "_parts"):
        raise ConfigError(f"A {type(agent).__name__} is no agent.", hint="Give a plait.Agent.")
    context = services.run_context
    id = _derive_id(context.log.run, services.key, identify_question(question), number)
    row = _find_child(services, id)
    if row is not None and row.status in ENDED:
        assert context.journal is not None
        services.meter.children[id] = spent_in(row.totals)
        services.outside |= row.totals.get("outside", False)
        output = recorded_output(output_of(agent.output), row.head)
        return runs.read_finished_run(row, context.journal, recorded_loop(row.head), output)
    if row is None:
        services.meter.reserve_child(id)
    try:
        began = "resumed" if row is not None else "started"
        asked = shorten(split_question(question)[0], 200)[0]
        context.remark(services.step, "child", f"{services.call.tool} {began} run {id}: {asked}")
        await context.log.append()
        on_wait = context.ask_person if context.run_spec.on_wait is not None else None
        if row is None:
            run_spec, head = await agent._parts.prepare_run(question, None, on_wait, None, None, deps)
            caller = ParentCall(context.log.run, services.n, services.i)
            run_spec = _with_policies(run_spec, services)
            settings = {**head.settings, **({"outside": run_spec.outside} if run_spec.outside else {})}
            head = structs.replace(head, run=id, caller=caller, settings=settings)
            log = await runs.open_log(run_spec, head, context.journal)
        else:
            agent = agent._with_loop_of(row.head)  # kept until the run ends
            run_spec, log, head = await _claim_child(services, agent, row, on_wait, deps)
    except BaseException:
        if row is None:
            del services.meter.children[id]  # it has not begun
        raise
    run = await runs.perform(run_spec, head, log, context.journal, resumed=row is not None)
    services.outside |= run.outside
    if isinstance(run.outcome, Waiting):
        raise ChildWaits(id, run.outcome)
    if context.journal is None:
        context.children.append(run)
    return run


async def _claim_child(
    services: ToolServices, agent: ChildAgent[Any], row: RunRow, on_wait: OnWait | None, deps: Any
) -> tuple[RunSpec, AnyLog, RunHead]:
    """Claim a child that an earlier process did not bring to its end, with the user's answer if there is one."""
    journal, head = services.run_context.journal, row.head
    assert journal is not None
    timeline = journal.timeline(head.run, bodies=False)
    answers = services.past.of_children
    asked = next((each for each in timeline.open_questions if answers.get(each.question)), None)
    if asked is None and row.status == "waiting" and on_wait is None and row.outcome is not None:
        raise ChildWaits(head.run, convert(row.outcome, Waiting))
    answer = answers.get(asked.question) if asked is not None else None
    run_spec = _with_policies(await agent._parts.prepare_resume(head, timeline, on_wait, deps, journal), services)
    try:
        run_spec, log = await runs.claim(
            run_spec,
            head,
            journal,
            answer=answer.text if answer is not None else None,
            question=asked.question if asked is not None else None,
            force=True,  # whoever may go on with the parent may go on with its children
        )
    except BadAnswer as why:
        assert asked is not None
        waiting = structs.replace(waiting_with(asked), reason=f"{why.message}\n{asked.text}")
        raise ChildWaits(head.run, waiting) from None
    return run_spec, log, head


def _with_policies(run_spec: RunSpec, services: ToolServices) -> RunSpec:
    """Return the child's specification with the policies and hooks of the runs above it, and with what they saw."""
    above, outside = services.run_context.run_spec, services.run_context.outside
    return replace(
        run_spec,
        approve=(*above.approve, *run_spec.approve),
        inherited_hooks=(*above.inherited_hooks, *above.hooks),
        taint="ask" if "ask" in (above.taint, run_spec.taint) else "off",
        outside=tuple(dict.fromkeys((*outside.sources, *run_spec.outside))),
    )


def _find_child(services: ToolServices, id: str) -> RunRow | None:
    journal = services.run_context.journal
    if journal is None:
        return None
    try:
        return journal.run(id)
    except UnknownRun:
        return None


def _derive_id(run: str, key: str, question: str, number: int) -> str:
    """Return the id of a child: it begins with the time of the run at the top."""
    text = f"{key}\0{number}\0{question}".encode("utf-8", "surrogatepass")
    digest = base64.b32encode(hashlib.blake2b(text, digest_size=10).digest()).decode().lower()
    return f"{run.rpartition('-')[0]}-{digest[:12]}"


def make_agent_tool(agent: ChildAgent[Any], name: str, description: str, hand_off: bool) -> Tool:
    """Make the tool that runs an agent as a child. See `Agent.as_tool`."""
    for field, given in (("name", name), ("description", description)):
        if not isinstance(given, str):
            raise ConfigError(f"as_tool({field}={given!r}) is invalid.", hint="Give a text.")

    async def run_agent(ctx: Context[Any], question: str) -> Any:
        """Give a task to another agent, and get its answer.

        Args:
            question: the whole task; the agent sees nothing else
        """
        run = await ctx.arun(agent, question)
        if run.answer is None:
            raise ToolError(f"The agent gave no answer: {run.status}. {run.reason or ''}".strip())
        if isinstance(run.outcome, Stopped) and ctx.services is not None:
            ctx.services.stopped = structs.replace(run.outcome, answer=None)
        return run.answer

    # The run that calls the tool must have the dependencies of this agent. The tool changes nothing by itself:
    # the calls of the child have records and approvals of their own.
    run_agent.__annotations__["ctx"] = GenericAlias(Context, agent.deps or object)
    run_agent.make_tool = partial(make_agent_tool, agent, name, description, hand_off)  # type: ignore[attr-defined]
    made = tool(name=name, description=description, read_only=True)(run_agent)
    return structs.replace(made, hand_off=hand_off)
