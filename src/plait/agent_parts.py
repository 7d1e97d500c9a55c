"""The parts that an agent makes once for all its runs: tools, models, prompts, journal. Also prepares its runs."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import cached_property
from typing import Any
from weakref import ref

import msgspec

from plait import __version__, config, loops
from plait.core import Loop, traits_of
from plait.core.errors import ConfigError, PlaitError
from plait.core.hosted import HostedTool, read_hosted_word, word_of_hosted
from plait.journal.owner import new_run_id
from plait.journal.records import RunHead
from plait.journal.store import Journal, Store
from plait.models.base import Model
from plait.models.fallback import has_native_calls, members_of
from plait.models.hosted import STAND_INS, add_hosted, why_not_with_functions
from plait.models.rejections import read_rejections, without_rejected
from plait.models.resolve import add_settings, check_spec, require_prices
from plait.models.settings import phases_with_settings
from plait.runtime.agents.agent_description import book_of, check_contexts
from plait.runtime.agents.agent_fields import AgentFields, find_prompts, list_hooks, record_settings
from plait.runtime.agents.output import OutputType, output_of
from plait.runtime.calls.tool_names import with_fitting_names, with_free_names
from plait.runtime.calls.tool_selection import Finder, most_shown, recorded_in
from plait.runtime.conversations.guarded_embedder import guard_embedder
from plait.runtime.conversations.sessions import AnyEmbedder, Conversation, session_spec
from plait.runtime.run_spec import RunSpec
from plait.runtime.templates.prompts import PromptBook
from plait.runtime.templates.system_prompt import warn_of_gaps
from plait.sandbox import Sandbox, check_sandbox, name_of
from plait.tools import Toolset, anchor_word, load, tools_from
from plait.tools.load import is_mcp_word
from plait.tools.mcp.server import TOOL_LISTS


class AgentParts:
    """The parts of one agent. Each is made when it is first needed."""

    def __init__(self, agent: AgentFields[Any, Any]) -> None:
        # The agent owns its parts. A cycle would keep both until the garbage collector comes.
        self._find_agent = ref(agent)
        self._toolset: Toolset | None = None
        self._making_tools = threading.RLock()  # two runs may begin at once

    @property
    def agent(self) -> AgentFields[Any, Any]:
        agent = self._find_agent()
        assert agent is not None, "whoever uses the parts holds the agent"
        return agent

    @cached_property
    def embedder(self) -> AnyEmbedder:
        """Return the embedder of the agent's conversations and tools. A word is loaded when it is first used."""
        return guard_embedder(self.agent.history.embedder, list_hooks(self.agent), self.agent._access.env)

    @cached_property
    def loop(self) -> Loop:
        """Return the agent's loop, or the one that fits its model. Raises `ConfigError` if the model has no key."""
        given = self.agent.loop
        if not isinstance(given, str):
            return given
        model = self.models.get("act") or self.models[""]
        model = without_rejected(model, read_rejections(), asks_for_tools=False)
        return loops.choose_loop(has_tools=has_native_calls(model))

    @cached_property
    def asks_for_tools(self) -> bool:
        """Return whether the loop cannot go on as another one, so that it asks for native tools."""
        return loops.fallback_of(self.loop) is None

    @property
    def toolset(self) -> Toolset:
        if self._toolset is None:
            self._make_changed_toolset()
            assert self._toolset is not None
        return self._toolset

    def _make_toolset(self) -> Toolset:
        self._changes = TOOL_LISTS.changes
        tools = self.make_tools(self.loop)
        if self.agent.system:
            warn_of_gaps(self.agent.system, self.loop, self.prompts, (tool.name for tool in tools))
        return tools

    def _make_changed_toolset(self) -> Toolset | None:
        """Make the tools for the first time; later return new ones if an MCP server may have others now."""
        with self._making_tools:
            if self._toolset is None:
                self._toolset = self._make_toolset()
            elif self._changes != TOOL_LISTS.changes or self._toolset.absent:
                with suppress(PlaitError):  # without a new list, the next call says what is wrong with the server
                    return self._make_toolset()
            return None

    def make_tools(self, loop: Loop) -> Toolset:
        """Return the tools with names that a loop can use. Raises `ConfigError` for tools that do not fit together."""
        tools = with_fitting_names(with_free_names(tools_from(self._given_tools), loop), loop)
        check_contexts(tools, self.agent.deps)
        return tools

    @cached_property
    def _given_tools(self) -> list[Any]:
        """Return the agent's tools, and the words of MCP servers, whose tools can change."""
        given: list[Any] = []
        for tool in self.agent.tools:
            if (word := word_of_hosted(tool)) is not None:  # a local tool, if no model has it
                tool = self._find_stand_in(read_hosted_word(word))
                if not tool:
                    continue
            given += load(tool) if isinstance(tool, str) and not is_mcp_word(tool) else (tool,)
        return given

    @cached_property
    def models(self) -> dict[str, Model]:
        """Return the models of the phases; the key "" is for the others."""
        return self.with_hosted(self.agent._access.resolve_all(self.given_models, self.agent.settings))

    @cached_property
    def hosted(self) -> tuple[HostedTool, ...]:
        """Return the hosted tools that the agent names."""
        words = filter(None, map(word_of_hosted, self.agent.tools))
        return tuple(dict.fromkeys(map(read_hosted_word, words)))

    @cached_property
    def hosted_words(self) -> tuple[str, ...]:
        """Return the words of those hosted tools that a model has. The others are local tools."""
        return tuple([each.word for each in self.hosted if not self._find_stand_in(each)])

    @property
    def all_tools(self) -> tuple[Any, ...]:
        """Return the tools as they were made, with the words of hosted ones."""
        return (*self.toolset, *self.hosted_words)

    def with_hosted(self, models: dict[str, Model]) -> dict[str, Model]:
        """Return the models with the hosted tools that their providers have."""
        return {phase: add_hosted(each, self.hosted) for phase, each in models.items()} if self.hosted else models

    @cached_property
    def _hosting_models(self) -> dict[str, Model]:
        """Return the models with their hosted tools. Needs no key."""
        return self.with_hosted(self.agent._access.resolve_all(self.given_models, self.agent.settings, False))

    def _find_stand_in(self, tool: HostedTool) -> str:
        """Return the word of a local tool in place of a hosted one that no model has; "" if a model has it. Raises
        `ConfigError` if there is none, and if the models cannot use it in this run."""
        models = {each.spec: members_of(each) for each in self._hosting_models.values()}
        having = {spec: [tool in getattr(each, "hosted", ()) for each in members] for spec, members in models.items()}
        for spec, found in having.items():
            if any(found) and not all(found):
                hint = "Choose fallback models that have it, or a local tool."
                raise ConfigError(f"Not every model of {spec} has {tool.word}.", hint=hint)
            with_functions = self.loop.name == "tool_calling" and len(tuple(self.agent.tools)) > len(self.hosted)
            if any(found) and with_functions and (why := why_not_with_functions(models[spec][0])):
                raise ConfigError(f"{spec} cannot use {tool.word} here: {why}.", hint="Or use a local tool.")
        if any(map(any, having.values())):
            return ""
        if tool.name == "mcp":
            return f"mcp:{tool.values[0]}"
        if word := STAND_INS.get(tool.name):
            return word
        said = f"{tool.word}: {', '.join(having)} does not have it, and there is no local tool for it."
        raise ConfigError(said, hint="Choose a model whose provider has it, or leave it out.")

    def check_models(self) -> None:
        """Check models that are words, and the settings of those that are objects. Raises `ConfigError`."""
        for model in (self.agent.model, *self.agent.models.values()):
            if isinstance(model, str):
                check_spec(model, self.agent._access.config)
        for phase, model in self.given_models.items():
            if not isinstance(model, str):
                add_settings(model, phase, self.agent.settings)

    def check_prices(self) -> None:
        """Raise `ConfigError` if there is a limit in USD and a model without a known price, or a spend limit and no
        journal."""
        spend: Any = self.agent.spend
        if spend:
            self.require_store()
        if self.agent.limits.usd is not None or (spend and any(each.usd is not None for each in spend)):
            require_prices(each for model in self.models.values() for each in members_of(model))

    @property
    def given_models(self) -> dict[str, str | Model]:
        """Return the models of the phases as the user gave them."""
        agent, loop = self.agent, self.agent.loop
        wanted = {**dict.fromkeys(phases_with_settings(agent.settings), agent.model), **agent.models}
        if any(phase not in wanted for phase in (("act",) if isinstance(loop, str) else loop.phases)):
            wanted.setdefault("", agent.model)
        return wanted

    def find_model(self, model: str | Model | None) -> Model:
        """Return the model that a tool names; for None the model of the phases without their own, or the first."""
        if model is None:
            return self.models.get("") or next(iter(self.models.values()))
        return self.agent._access.resolve_all({"": model})[""]

    @cached_property
    def prompts(self) -> PromptBook:
        return self._load_prompts(self.loop)

    @cached_property
    def output(self) -> OutputType[Any]:
        """Return the type of the agent's answers."""
        return output_of(self.agent.output)

    def check_prompts(self, loop: Loop) -> None:
        """Check the user's folder of prompts. Raises `ConfigError`; warns of prompts that the loop does not use."""
        prompts = self._load_prompts(loop)
        prompts.check()
        prompts.warn_of_unused(loops.options_of(loop))

    def _load_prompts(self, loop: Loop) -> PromptBook:
        return book_of(loop, find_prompts(self.agent))

    @cached_property
    def store(self) -> Store | None:
        if self.agent.journal is False:
            return None
        config.use_own_redaction()
        return Journal.at(self.agent.journal).store

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
        words = [tool for tool in self.agent.tools if isinstance(tool, str)]
        if words and (self._toolset is None or any(map(is_mcp_word, words))):
            changed = await asyncio.to_thread(self._make_changed_toolset)
            if changed is not None:  # set on the event loop: a run that is being prepared sees one toolset
                for name in ("finder", "max_shown", "_recorded_tools", "_sources"):
                    vars(self).pop(name, None)
                self._toolset = changed

    async def check_sandbox(self, sandbox: str | Sandbox) -> str | Sandbox:
        """Return the sandbox unchanged. Raises `ConfigError` if the loop runs code and the sandbox is not available."""
        if traits_of(self.loop).runs_code:
            await check_sandbox(sandbox)
        return sandbox

    # -- the tools that a run shows

    @cached_property
    def finder(self) -> Finder:
        return Finder(self.toolset, self.embedder)

    @cached_property
    def max_shown(self) -> int | None:
        agent = self.agent
        return most_shown(agent.limits.tools, self.loop, self.toolset, agent.history.embedder)

    def choose_tools(self, question: str, parent: RunHead | None = None) -> tuple[str, ...] | None:
        """Return the names of the tools to show; None for all. May take a while."""
        return None if self.max_shown is None else self.finder.chosen(question, self.max_shown, parent)

    # -- the record

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
                "instructions": run_spec.instructions,
                "output_method": run_spec.context.output.method if run_spec.context.output is not None else None,
                "context_tokens": run_spec.context.context_tokens,
                **({"context_text": run_spec.context_text} if run_spec.context_text else {}),
                **({"outside": run_spec.outside} if run_spec.outside else {}),
                **({"hosted": self.hosted_words} if self.hosted else {}),
                **({"modules": run_spec.context.modules} if run_spec.context.modules else {}),
                **({"absent": run_spec.tools.absent} if run_spec.tools.absent else {}),
            },
            plait=__version__,
            agent=self.agent.name,
        )
        if run_spec.context.search:
            head = recorded_in(head, self.max_shown, run_spec.context)
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
        return record_settings(self.agent)
