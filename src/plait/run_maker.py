"""Prepares the runs of an agent: new ones, and those that resume, replay or fork a recorded one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from plait import telemetry
from plait.agent_parts import AgentParts
from plait.core import LoopContext, traits_of
from plait.journal.owner import new_run_id
from plait.journal.records import LastTurn, RunHead
from plait.journal.store import Store
from plait.journal.timeline import Timeline
from plait.loops.tool_descriptions import with_clean_tools
from plait.models.base import Model
from plait.runtime.agents.agent_description import check_deps, check_hooks_of_run, check_run_arguments, sandbox_for
from plait.runtime.agents.agent_fields import list_hooks
from plait.runtime.agents.context_files import read_context_files
from plait.runtime.agents.instructions import render_instructions
from plait.runtime.agents.output import OutputType, choose_method, recorded_output
from plait.runtime.calls.recorded_tools import require_loaded, restore_tools
from plait.runtime.calls.tool_selection import narrow_context, shown_by
from plait.runtime.conversations.attachments import (
    NO_FILES,
    AttachedFiles,
    UserQuestion,
    check_acceptance,
    is_accepted,
    restore_files,
    split_question,
)
from plait.runtime.conversations.chat_messages import ChatMessages
from plait.runtime.conversations.sessions import (
    Conversation,
    change_history,
    check_session_name,
    continue_conversation,
    has_read_outside,
    open_conversation,
    recorded_conversation,
    require_answered,
)
from plait.runtime.guards.taint import CONVERSATION, EVIDENCE, read_outside
from plait.runtime.hooks import require_hooks
from plait.runtime.phase_models import Phases, models_of_run, special_tokens
from plait.runtime.run_spec import OnWait, RunSpec
from plait.sandbox import AUTO, Sandbox, default_sandbox, modules_of
from plait.toolkits.read_result import NAME as READ_RESULT
from plait.toolkits.read_result import read_result
from plait.tools import Toolset


@dataclass(frozen=True)
class RunStart:
    """What a run begins with. A new one has it from the agent and the caller, a recorded one from its head.

    `tokens` are the special tokens of the models. `shown` are the tools to show, `context_tokens` is the room of the
    models; None for all of it. `outside` is what the context holds from outside. `modules` are those that code may
    import of installed packages; None for those of the sandbox.
    """

    question: str
    deps: Any
    phases: Phases
    tokens: tuple[str, ...]
    tools: Toolset
    output: OutputType[Any]
    instructions: str
    context_text: str
    conversation: Conversation | None
    shown: tuple[str, ...] | None
    now: float | None
    files: AttachedFiles
    context_tokens: int | None
    outside: tuple[str, ...]
    modules: tuple[str, ...] | None = None


class RunMaker:
    """Prepares the runs of the agent with these parts."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts

    async def prepare_run(
        self,
        asked: UserQuestion,
        session: str | None,
        on_wait: OnWait | None,
        history: ChatMessages | None,
        now: float | None,
        deps: Any = None,
        run: str | None = None,
    ) -> tuple[RunSpec, RunHead]:
        """Check the arguments of a new run and return what it needs. `run`: its id; None for a new one."""
        parts = self._parts
        question, files = split_question(asked)
        check_run_arguments(question, now)
        check_deps(parts.agent.deps, deps)
        parts.check_prices()
        await parts.load_tools()
        await parts.check_sandbox(parts.agent.sandbox)
        conversation = None
        if session is not None or history is not None:
            room = parts.agent.history.find_room(Phases(parts.models).context_tokens)
        if session is not None:
            store = parts.require_store()
            await require_answered(session, store)
            if history is None:
                always = traits_of(parts.loop).searches_history
                conversation = await open_conversation(session, store, room, always_searched=always)
        if history is not None:
            conversation = continue_conversation(session, room, history)
            if session is not None and conversation.last_turn is None:
                turns = await parts.require_store().list_turns(session, limit=1)
                conversation = msgspec.structs.replace(conversation, last_turn=LastTurn.of(turns))
        shown = await asyncio.to_thread(parts.choose_tools, question) if parts.max_shown is not None else None
        if conversation is not None:
            files = msgspec.structs.replace(files, contents={**conversation.contents, **files.contents})
            conversation = msgspec.structs.replace(conversation, run=run or conversation.run)
        run_spec = await self.make_run_spec(
            question, on_wait, deps, conversation=conversation, shown=shown, now=now, files=files
        )
        check_acceptance(run_spec.task, run_spec.loop, run_spec.phases)
        head = parts.make_head(question, run_spec, conversation)
        return run_spec, msgspec.structs.replace(head, run=run or head.run, attachments=files.attachments)

    def make_queued_head(self, asked: UserQuestion, session: str | None) -> tuple[RunHead, AttachedFiles]:
        """Return what a queue holds of a run: who asks what. A worker adds the rest when it begins. Raises
        `ConfigError` for an invalid question."""
        question, files = split_question(asked)
        check_run_arguments(question, None)
        loop = {"name": str(getattr(self._parts.agent.loop, "name", self._parts.agent.loop)), "options": {}}
        session = check_session_name(session) if session is not None else ""
        name = self._parts.agent.name
        return RunHead(
            new_run_id(), question, loop, {}, session=session, attachments=files.attachments, agent=name
        ), files

    async def prepare_resume(
        self, head: RunHead, timeline: Timeline, on_wait: OnWait | None, deps: Any = None, store: Store | None = None
    ) -> RunSpec:
        """Return what a recorded run needs to go on, with the requests that it made. `timeline` is its record, with or
        without bodies. `store` has its files; None for the agent's own."""
        parts = self._parts
        check_hooks_of_run(parts.agent, head)
        sandbox = await self._check_recorded(head, bool(timeline.code), deps)
        start = await self._start_recorded(head, parts.models, store, deps)
        return self._make_spec(start, on_wait, sandbox)

    async def prepare_replay(self, head: RunHead) -> RunSpec:
        """Return what the replay of a recorded run needs, with the requests that the agent would make. Needs no key."""
        parts, agent = self._parts, self._parts.agent
        models = parts.with_hosted(agent._access.resolve_all(parts.given_models, agent.settings, False))
        start = await self._start_recorded(head, models, None, None, replay=True)
        if start.conversation is not None:
            conversation = await change_history(start.conversation, head, agent.history, parts.store)
            start = replace(start, conversation=conversation)
        if isinstance(agent.instructions, str):
            start = replace(start, instructions=render_instructions(agent.instructions, None))
        return self._make_spec(start, None, agent.sandbox)

    async def prepare_fork(
        self,
        parent: RunHead,
        at: int,
        has_code: bool,
        on_wait: OnWait | None,
        deps: Any,
        store: Store,
        question: str | None = None,
    ) -> tuple[RunSpec, RunHead]:
        """Return what a run needs that takes the steps before `at` from a recorded one. `has_code`: they run code.
        `question` is another one than that of the recorded run."""
        question = parent.question if question is None else question
        check_run_arguments(question, None)
        sandbox = await self._check_recorded(parent, has_code, deps)
        conversation = recorded_conversation(parent, new_run_id())
        run_spec = await self.make_run_spec(
            question,
            on_wait,
            deps,
            conversation=conversation,
            shown=await asyncio.to_thread(self._parts.choose_tools, question, parent),
            sandbox=sandbox,
            now=parent.settings.get("now"),
            files=await restore_files(parent, store),
            context_tokens=parent.settings.get("context_tokens", 0),
            outside=read_outside(parent.settings),
        )
        check_acceptance(run_spec.task, run_spec.loop, run_spec.phases)
        head = self._parts.make_head(question, run_spec, conversation)
        kept = {name: getattr(parent, name) for name in ("attachments", "user", "tags", "metadata")}
        kept["agent"] = head.agent or parent.agent
        return run_spec, msgspec.structs.replace(head, parent=parent.run, fork_at=at, **kept)

    async def _check_recorded(self, head: RunHead, has_code: bool, deps: Any) -> str | Sandbox:
        """Check that the agent can perform steps of a recorded run. Returns their sandbox."""
        parts = self._parts
        check_deps(parts.agent.deps or head.settings.get("deps"), deps)
        require_hooks(list_hooks(parts.agent), head.run)
        require_loaded(parts.agent.tools)
        parts.check_prices()
        await parts.load_tools()
        return await parts.check_sandbox(sandbox_for(parts.agent, head, has_code))

    async def make_run_spec(
        self,
        question: str,
        on_wait: OnWait | None = None,
        deps: Any = None,
        *,
        conversation: Conversation | None = None,
        shown: tuple[str, ...] | None = None,
        sandbox: str | Sandbox | None = None,
        now: float | None = None,
        files: AttachedFiles = NO_FILES,
        context_tokens: int | None = None,
        outside: tuple[str, ...] = (),
    ) -> RunSpec:
        """Return the specification of a new run. `context_tokens`: None for the models' own. `outside`: that of the run
        that it is a fork of."""
        parts = self._parts
        start = RunStart(
            question,
            deps,
            Phases(models_of_run(parts.models, None, asks_for_tools=parts.asks_for_tools)),
            special_tokens(parts.models, None),
            parts.toolset,
            parts.output,
            render_instructions(parts.agent.instructions, deps),
            await asyncio.to_thread(read_context_files, parts.agent.context_files),
            conversation,
            shown,
            now,
            files,
            context_tokens,
            await self._find_outside(conversation, outside),
        )
        return self._make_spec(start, on_wait, parts.agent.sandbox if sandbox is None else sandbox)

    async def _start_recorded(
        self, head: RunHead, models: dict[str, Model], store: Store | None, deps: Any, *, replay: bool = False
    ) -> RunStart:
        parts = self._parts
        return RunStart(
            head.question,
            deps,
            Phases(models_of_run(models, head, asks_for_tools=parts.asks_for_tools, replay=replay)),
            special_tokens(models, head),
            restore_tools(parts.toolset, head),
            parts.output if replay else recorded_output(parts.output, head),
            head.settings.get("instructions", ""),
            head.settings.get("context_text", ""),
            recorded_conversation(head),
            shown_by(head),
            head.settings.get("now"),
            await restore_files(head, store or parts.require_store()) if head.files else NO_FILES,
            head.settings.get("context_tokens", 0),
            read_outside(head.settings),
            tuple(head.settings.get("modules", ())),
        )

    def _make_spec(self, start: RunStart, on_wait: OnWait | None, sandbox: str | Sandbox) -> RunSpec:
        parts = self._parts
        agent, tools, phases, conversation = parts.agent, start.tools, start.phases, start.conversation
        if conversation is not None and conversation.searched:
            tools = msgspec.structs.replace(tools, tools=(*tools, conversation.tool(parts.store, parts.embedder)))
        if start.shown is not None:
            tools = parts.finder.among(tools)
        instructions = "\n\n".join(filter(None, (start.instructions, start.context_text)))
        context = LoopContext(
            tools=tools.specs,
            prompts=parts.prompts,
            system=agent.system,
            observation_chars=agent.limits.observation_chars,
            can_ask=agent.can_ask,
            approve_plan=agent.approve == "plan",
            special_tokens=start.tokens,
            instructions=instructions,
            context_tokens=phases.context_tokens if start.context_tokens is None else start.context_tokens,
            compact_at=agent.limits.compact_at,
            modules=modules_of(sandbox) if start.modules is None else start.modules,
        )
        if start.shown is not None:
            context = narrow_context(
                context, start.shown, (tool.name for tool in parts.toolset), parts.finder.tool.name
            )
        if len(tools) and READ_RESULT not in tools and traits_of(parts.loop).acts_on_results:
            # Not shown until a result is too long.
            tools = msgspec.structs.replace(tools, unlisted=(read_result,))
            context = msgspec.structs.replace(context, others=(*context.others, read_result.spec))
        fallback = ""
        if sandbox == AUTO:
            sandbox, why = default_sandbox()
            if why:
                fallback = "Code runs in the sandbox 'monty', which has less of Python: 'process' is not available here"
                fallback += f" ({why})."
        context = with_clean_tools(context)
        if (spec := start.output.spec) is not None:
            method = start.output.method or choose_method(phases.of(parts.loop.phases[-1]), bool(context.tools))
            context = msgspec.structs.replace(context, output=msgspec.structs.replace(spec, method=method))
        history = conversation.history if conversation is not None else ()
        task = start.files.make_task(start.question, history, lambda file: is_accepted(file, parts.loop, phases))
        phases.fit_to_run(parts.loop, task)
        prompt_texts = f"{parts.prompts.text}\n{agent.system or ''}\n{instructions}"
        return RunSpec(
            agent=agent,
            loop=parts.loop,
            task=task,
            contents=start.files.contents,
            context=context,
            tools=tools.for_run(),
            phases=phases,
            instructions=start.instructions,
            context_text=start.context_text,
            outside=start.outside,
            on_wait=on_wait,
            output=start.output,
            sandbox=sandbox,
            fallback=fallback,
            now=start.now,
            deps=start.deps,
            session=conversation.session if conversation is not None else "",
            last_turn=conversation.last_turn if conversation is not None else None,
            find_model=parts.find_model,
            data_tokens=tuple([each for each in start.tokens if each not in prompt_texts]),
            tracer=telemetry.find_tracer(),
        )

    async def _find_outside(self, conversation: Conversation | None, inherited: tuple[str, ...]) -> tuple[str, ...]:
        """Return what the context of a new run holds from outside before its first request."""
        parts = self._parts
        found = [*inherited, *(f"the description of '{spec.name}'" for spec in parts.toolset.specs if spec.foreign)]
        if getattr(traits_of(parts.loop).plan, "evidence", None):
            found.append(EVIDENCE)  # nobody knows who wrote it
        if conversation is not None and (
            conversation.outside
            or (conversation.session and parts.store and await has_read_outside(parts.store, conversation.session))
        ):
            found.append(CONVERSATION)
        return tuple(dict.fromkeys(found))
