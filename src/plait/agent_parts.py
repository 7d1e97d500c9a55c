"""The parts that an agent makes once for all its runs: tools, models, prompts, journal. Also prepares its runs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import ref

import msgspec

from plait import __version__, config, loops, telemetry
from plait.core import Loop, LoopContext, traits_of
from plait.core.errors import ConfigError, PlaitError
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead
from plait.journal.store import Journal, Store
from plait.journal.timeline import Timeline
from plait.loops.tool_descriptions import with_clean_tools
from plait.models.base import Model
from plait.models.fallback import has_native_calls, members_of
from plait.models.rejections import read_rejections, without_rejected
from plait.models.resolve import add_settings, check_spec, require_prices
from plait.models.settings import phases_with_settings
from plait.runtime.agent_description import (
    book_of,
    check_contexts,
    check_deps,
    check_hooks_of_run,
    check_run_arguments,
    sandbox_for,
)
from plait.runtime.agent_fields import AgentFields, list_hooks, record_settings
from plait.runtime.attachments import (
    NO_FILES,
    AttachedFiles,
    UserQuestion,
    check_acceptance,
    restore_files,
    split_question,
)
from plait.runtime.chat_messages import ChatMessages
from plait.runtime.child_runs import run_child
from plait.runtime.guarded_embedder import guard_embedder
from plait.runtime.guards.taint import CONVERSATION, EVIDENCE, read_outside
from plait.runtime.instructions import render_instructions
from plait.runtime.output import OutputType, choose_method, output_of, recorded_output
from plait.runtime.phase_models import Phases, models_of_run, special_tokens
from plait.runtime.prompts import PromptBook
from plait.runtime.run_spec import OnWait, RunSpec
from plait.runtime.sessions import (
    Conversation,
    Embedder,
    as_recorded,
    change_history,
    continue_conversation,
    has_read_outside,
    open_conversation,
    recorded_conversation,
    require_answered,
    require_loaded,
    session_spec,
)
from plait.runtime.system_prompt import warn_of_gaps
from plait.runtime.tool_names import with_fitting_names, with_free_names
from plait.runtime.tool_selection import Finder, most_shown, narrow_context, recorded_in, shown_by
from plait.sandbox import AUTO, Sandbox, check_sandbox, default_sandbox, name_of
from plait.toolkits.read_result import NAME as READ_RESULT
from plait.toolkits.read_result import read_result
from plait.tools import Toolset, anchor_word, load, tools_from
from plait.tools.load import is_mcp_word
from plait.tools.mcp.server import TOOL_LISTS


class AgentParts:
    """The parts of one agent. Each is made when it is first needed."""

    def __init__(self, agent: AgentFields[Any]) -> None:
        # The agent owns its parts. A cycle would keep both until the garbage collector comes.
        self._find_agent = ref(agent)

    @property
    def _agent(self) -> AgentFields[Any]:
        agent = self._find_agent()
        assert agent is not None, "whoever uses the parts holds the agent"
        return agent

    @cached_property
    def embedder(self) -> Embedder:
        """Return the embedder of the agent's conversations and tools. A word is loaded when it is first used."""
        return guard_embedder(self._agent.history.embedder, list_hooks(self._agent), self._agent._access.env)

    @cached_property
    def loop(self) -> Loop:
        """Return the agent's loop, or the one that fits its model. Raises `ConfigError` if the model has no key."""
        given = self._agent.loop
        if not isinstance(given, str):
            return given
        model = self.models.get("act") or self.models[""]
        model = without_rejected(model, read_rejections(), asks_for_tools=False)
        return loops.choose_loop(has_tools=has_native_calls(model))

    @cached_property
    def _asks_for_tools(self) -> bool:
        """Return whether the loop cannot go on as another one, so that it asks for native tools."""
        return loops.fallback_of(self.loop) is None

    @cached_property
    def toolset(self) -> Toolset:
        return self._make_toolset()

    def _make_toolset(self) -> Toolset:
        self._changes = TOOL_LISTS.changes
        tools = self.make_tools(self.loop)
        if self._agent.system:
            warn_of_gaps(self._agent.system, self.loop, self.prompts, (tool.name for tool in tools))
        return tools

    def make_tools(self, loop: Loop) -> Toolset:
        """Return the tools with names that a loop can use. Raises `ConfigError` for tools that do not fit together."""
        tools = with_fitting_names(with_free_names(tools_from(self._given_tools), loop), loop)
        check_contexts(tools, self._agent.deps)
        return tools

    @cached_property
    def _given_tools(self) -> list[Any]:
        """Return the agent's tools, and the words of MCP servers, whose tools can change."""
        given: list[Any] = []
        for tool in self._agent.tools:
            given += load(tool) if isinstance(tool, str) and not is_mcp_word(tool) else (tool,)
        return given

    @cached_property
    def models(self) -> dict[str, Model]:
        """Return the models of the phases; the key "" is for the others."""
        return self._agent._access.resolve_all(self._given_models, self._agent.settings)

    def check_models(self) -> None:
        """Check models that are words, and the settings of those that are objects. Raises `ConfigError`."""
        for model in (self._agent.model, *self._agent.models.values()):
            if isinstance(model, str):
                check_spec(model, self._agent._access.config)
        for phase, model in self._given_models.items():
            if not isinstance(model, str):
                add_settings(model, phase, self._agent.settings)

    def check_prices(self) -> None:
        """Raise `ConfigError` if there is a limit in USD and a model without a known price."""
        if self._agent.limits.usd is not None:
            require_prices(each for model in self.models.values() for each in members_of(model))

    @property
    def _given_models(self) -> dict[str, str | Model]:
        """Return the models of the phases as the user gave them."""
        agent, loop = self._agent, self._agent.loop
        wanted = {**dict.fromkeys(phases_with_settings(agent.settings), agent.model), **agent.models}
        if any(phase not in wanted for phase in (("act",) if isinstance(loop, str) else loop.phases)):
            wanted.setdefault("", agent.model)
        return wanted

    def find_model(self, model: str | Model | None) -> Model:
        """Return the model that a tool names; for None the model of the phases without their own, or the first."""
        if model is None:
            return self.models.get("") or next(iter(self.models.values()))
        return self._agent._access.resolve_all({"": model})[""]

    @cached_property
    def prompts(self) -> PromptBook:
        return self._load_prompts(self.loop)

    @cached_property
    def output(self) -> OutputType[Any]:
        """Return the type of the agent's answers."""
        return output_of(self._agent.output)

    def check_prompts(self, loop: Loop) -> None:
        """Check the user's folder of prompts. Raises `ConfigError`; warns of prompts that the loop does not use."""
        prompts = self._load_prompts(loop)
        prompts.check()
        prompts.warn_of_unused(loops.options_of(loop))

    def _load_prompts(self, loop: Loop) -> PromptBook:
        folder = self._agent.prompts
        return book_of(loop, Path(folder) if folder is not None else None)

    @cached_property
    def store(self) -> Store | None:
        if self._agent.journal is False:
            return None
        config.use_own_redaction()
        return Journal.at(self._agent.journal).store

    def require_store(self) -> Store:
        """Return the journal's store. Raises `ConfigError` if the agent keeps none."""
        if self.store is None:
            raise ConfigError(
                "This agent keeps no journal (journal=False), so it has no records and no sessions.",
                hint="Give journal=PATH.",
            )
        return self.store

    async def load_tools(self) -> None:
        """Make the tools in a thread, because a word may start a server; again if an MCP server has others now."""
        words = [tool for tool in self._agent.tools if isinstance(tool, str)]
        is_made = "toolset" in vars(self)
        if not words or (is_made and (self._changes == TOOL_LISTS.changes or not any(map(is_mcp_word, words)))):
            return
        if not is_made:
            await asyncio.to_thread(getattr, self, "toolset")
            return
        with suppress(PlaitError):  # without a new list, the next call says what is wrong with the server
            tools = await asyncio.to_thread(self._make_toolset)
            for name in ("_finder", "_max_shown", "_recorded_tools", "_sources"):
                vars(self).pop(name, None)
            vars(self)["toolset"] = tools

    async def check_sandbox(self, sandbox: str | Sandbox) -> str | Sandbox:
        """Return the sandbox unchanged. Raises `ConfigError` if the loop runs code and the sandbox is not available."""
        if traits_of(self.loop).runs_code:
            await check_sandbox(sandbox)
        return sandbox

    # -- the tools that a run shows

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.toolset, self.embedder)

    @cached_property
    def _max_shown(self) -> int | None:
        agent = self._agent
        return most_shown(agent.limits.tools, self.loop, self.toolset, agent.history.embedder)

    def choose_tools(self, question: str, parent: RunHead | None = None) -> tuple[str, ...] | None:
        """Return the names of the tools to show; None for all. May take a while."""
        return None if self._max_shown is None else self._finder.chosen(question, self._max_shown, parent)

    # -- a run

    async def prepare_run(
        self,
        asked: UserQuestion,
        session: str | None,
        on_wait: OnWait | None,
        history: ChatMessages | None,
        now: float | None,
        deps: Any = None,
    ) -> tuple[RunSpec, RunHead]:
        """Check the arguments of a new run and return what it needs."""
        question, files = split_question(asked)
        check_run_arguments(question, now)
        check_deps(self._agent.deps, deps)
        self.check_prices()
        await self.load_tools()
        await self.check_sandbox(self._agent.sandbox)
        conversation = None
        store = self.require_store() if session is not None else None
        if session is not None and store is not None:
            await require_answered(session, store)
        if history is not None:
            conversation = continue_conversation(session, self._agent.history, history)
        elif session is not None and store is not None:
            conversation = await open_conversation(
                session,
                store,
                self._agent.history,
                has_tools=bool(self.toolset) or traits_of(self.loop).searches_history,
            )
        shown = await asyncio.to_thread(self.choose_tools, question) if self._max_shown is not None else None
        run_spec = await self.make_run_spec(
            question, on_wait, conversation=conversation, shown=shown, now=now, files=files, deps=deps
        )
        check_acceptance(run_spec.task, run_spec.loop, run_spec.phases)
        head = self.make_head(question, run_spec, conversation)
        return run_spec, msgspec.structs.replace(head, attachments=files.attachments)

    async def prepare_resume(
        self,
        head: RunHead,
        timeline: Timeline,
        on_wait: OnWait | None,
        deps: Any = None,
        store: Store | None = None,
    ) -> RunSpec:
        """Return what a recorded run needs to go on. `timeline` is its record, with or without bodies. `store` has its
        files; None for the agent's own."""
        check_deps(self._agent.deps or head.settings.get("deps"), deps)
        check_hooks_of_run(self._agent, head)
        self.check_prices()
        require_loaded(self._agent.tools)
        await self.load_tools()
        sandbox = await self.check_sandbox(sandbox_for(self._agent, head, bool(timeline.code)))
        return await self.make_run_spec(head.question, on_wait, recorded=head, sandbox=sandbox, deps=deps, store=store)

    async def make_run_spec(
        self,
        question: str,
        on_wait: OnWait | None,
        recorded: RunHead | None = None,
        conversation: Conversation | None = None,
        shown: tuple[str, ...] | None = None,
        sandbox: str | Sandbox | None = None,
        now: float | None = None,
        files: AttachedFiles = NO_FILES,
        deps: Any = None,
        context_tokens: int | None = None,
        store: Store | None = None,
        replay: bool = False,
        outside: tuple[str, ...] = (),
    ) -> RunSpec:
        """Return the specification of a new run, or of a `recorded` one. `context_tokens`: None for the models' own.
        `outside`: that of the run that it is a fork of.

        With `replay`, the requests are those that the agent would make, else those that the recorded run made.
        """
        agent = self._agent
        models = self._agent._access.resolve_all(self._given_models, agent.settings, False) if replay else self.models
        phases = Phases(models_of_run(models, recorded, asks_for_tools=self._asks_for_tools, replay=replay))
        if recorded is not None:
            files = await restore_files(recorded, store or self.require_store()) if recorded.attachments else files
            shown, now = shown_by(recorded), recorded.settings.get("now")
            context_tokens = recorded.settings.get("context_tokens", 0)
            conversation = recorded_conversation(recorded)
            if replay:
                conversation = conversation and await change_history(conversation, recorded, agent.history, self.store)
        tools = self.toolset if recorded is None else as_recorded(self.toolset, recorded)
        if conversation is not None and conversation.searched:
            tools = msgspec.structs.replace(tools, tools=(*tools, conversation.tool(self.store, self.embedder)))
        if shown is not None:
            tools = self._finder.among(tools)
        tokens = special_tokens(models, recorded)
        output = self.output if recorded is None or replay else recorded_output(self.output, recorded)
        instructions = (
            render_instructions(agent.instructions, deps)
            if recorded is None or (replay and isinstance(agent.instructions, str))
            else recorded.settings.get("instructions", "")
        )
        context = LoopContext(
            tools=tools.specs,
            prompts=self.prompts,
            system=agent.system,
            observation_chars=agent.limits.observation_chars,
            can_ask=agent.can_ask,
            approve_plan=agent.approve == "plan",
            special_tokens=tokens,
            instructions=instructions,
            context_tokens=phases.context_tokens if context_tokens is None else context_tokens,
            compact_at=agent.limits.compact_at,
        )
        if shown is not None:
            context = narrow_context(context, shown, (tool.name for tool in self.toolset), self._finder.tool.name)
        fallback = ""
        if len(tools) and READ_RESULT not in tools and traits_of(self.loop).acts_on_results:
            # Not shown until a result is too long.
            tools = msgspec.structs.replace(tools, unlisted=(read_result,))
            context = msgspec.structs.replace(context, others=(*context.others, read_result.spec))
        if sandbox is None:
            sandbox = agent.sandbox
        if sandbox == AUTO:
            sandbox, why = default_sandbox()
            if why:
                fallback = "Code runs in the sandbox 'monty', which has less of Python: 'process' is not available here"
                fallback += f" ({why})."
        context = with_clean_tools(context)
        if output.spec is not None:
            method = output.method or choose_method(phases.of(self.loop.phases[-1]), bool(context.tools))
            context = msgspec.structs.replace(context, output=msgspec.structs.replace(output.spec, method=method))
        return RunSpec(
            agent=agent,
            loop=self.loop,
            task=files.make_task(question, conversation.history if conversation is not None else ()),
            contents=files.contents,
            context=context,
            tools=tools.for_run(),
            phases=phases,
            outside=read_outside(recorded.settings)
            if recorded is not None
            else await self._find_outside(tools, conversation, outside),
            on_wait=on_wait,
            output=output,
            sandbox=sandbox,
            fallback=fallback,
            now=now,
            deps=deps,
            session=conversation.session if conversation is not None else "",
            find_model=self.find_model,
            run_child=run_child,
            data_tokens=tuple(
                [each for each in tokens if each not in f"{self.prompts.text}\n{agent.system or ''}\n{instructions}"]
            ),
            tracer=telemetry.find_tracer(),
        )

    async def _find_outside(
        self, tools: Toolset, conversation: Conversation | None, inherited: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return what the context of a new run holds from outside before its first request."""
        found = [*inherited, *(f"the description of '{spec.name}'" for spec in tools.specs if spec.foreign)]
        if (plan := traits_of(self.loop).plan) is not None and plan.evidence:
            found.append(EVIDENCE)  # nobody knows who wrote it
        if conversation is not None and (
            conversation.outside
            or (conversation.session and self.store and await has_read_outside(self.store, conversation.session))
        ):
            found.append(CONVERSATION)
        return tuple(dict.fromkeys(found))

    def make_head(self, question: str, run_spec: RunSpec, conversation: Conversation | None) -> RunHead:
        """Return the head of a new run: what the journal stores of the agent and the question."""
        head = RunHead(
            run=new_run_id(),
            question=question,
            loop=self._recorded_loop,
            models=run_spec.phases.describe(),
            tools=self._recorded_tools,
            sources=self._sources,
            settings={
                **self._settings,
                "sandbox": name_of(run_spec.sandbox),
                "now": run_spec.now,
                "instructions": run_spec.context.instructions,
                "output_method": run_spec.context.output.method if run_spec.context.output is not None else None,
                "context_tokens": run_spec.context.context_tokens,
                **({"outside": run_spec.outside} if run_spec.outside else {}),
            },
            plait=__version__,
        )
        if run_spec.context.search:
            head = recorded_in(head, self._max_shown, run_spec.context)
        return head if conversation is None else conversation.taken_by(head, session_spec())

    @cached_property
    def _recorded_loop(self) -> dict[str, Any]:
        return {"name": self.loop.name, "options": loops.options_of(self.loop)}

    @cached_property
    def _recorded_tools(self) -> tuple[dict[str, Any], ...]:
        return tuple(msgspec.to_builtins(spec) for spec in self.toolset.specs)

    @cached_property
    def _sources(self) -> tuple[str, ...]:
        return tuple(anchor_word(tool.source) if tool.source else "" for tool in self.toolset)

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return record_settings(self._agent)
