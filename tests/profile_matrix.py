"""Profiles of hosted models, and runs of each loop against their strict endpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

import plait
from loop_scripts import ANSWER, LOOPS, QUESTION, SCRIPTS, SENT
from models_server import Server
from plait.models.chat import ChatModel
from plait.models.config import ModelConfig
from plait.models.resolve import resolve
from profile_chat_server import ChatServer
from profile_servers import ClaudeServer, GeminiServer, ProfileServer, ResponsesServer, with_script

MISTRALS_FIELDS = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed", "n"),
        *("response_format", "tools", "tool_choice", "parallel_tool_calls", "presence_penalty", "frequency_penalty"),
        *("prediction", "prompt_mode", "reasoning_effort", "safe_prompt", "metadata"),
    }
)
NOT_CHAT = ("This model is only supported in v1/responses and not in v1/chat/completions.", 404)
NO_TOOLS_IN_CHAT = (
    "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'.",
)


@dataclass(frozen=True)
class Profile:
    """A hosted model: its spec in Plait, and how its endpoint behaves. `params` are the user's."""

    spec: str
    make_server: type[ProfileServer]
    rules: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        return self.spec.partition(":")[2]

    def endpoints(self, url: str) -> dict[str, dict[str, Any]]:
        """The provider's table in plait.toml, for this address."""
        provider = self.spec.partition(":")[0]
        if provider == "strict":
            return {provider: {"base_url": url, "abilities": {"schema": True}}}
        return {provider: {"base_url": url, "kind": provider, "wire": self.make_server.wire}}

    def server(self) -> ProfileServer:
        """A new endpoint of this profile."""
        return self.make_server(self.model, **self.rules)

    def resolve(self, url: str) -> ChatModel:
        """The model as a user gets it, at this address."""
        model = resolve(self.spec, ModelConfig.from_mapping({"params": self.params, "endpoints": self.endpoints(url)}))
        assert isinstance(model, ChatModel)
        return model


PROFILES: dict[str, Profile] = {
    "Claude": Profile("anthropic:claude-opus-4-7", ClaudeServer, {"thinks": "never"}),
    "Claude, fixed thinking": Profile(
        "anthropic:claude-sonnet-4-5",
        ClaudeServer,
        {"thinks": "fixed", "samples": True, "prefills": True},
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    ),
    "Claude, always thinking": Profile("anthropic:claude-opus-5-5", ClaudeServer, {"thinks": "always", "binds": True}),
    "GPT-5.6": Profile("openai:gpt-5.6", ResponsesServer, {"chat": NO_TOOLS_IN_CHAT}),
    "Responses only": Profile("openai:gpt-5-pro", ResponsesServer, {"chat": NOT_CHAT}),
    "Gemini 3": Profile("gemini:gemini-3-pro-preview", GeminiServer),
    "DeepSeek V4": Profile(
        "deepseek:deepseek-v4-pro",
        ChatServer,
        {"reasoning": "reasoning_content", "needs": (None,), "reasoning_words": "deepseek", "no_schema": True},
    ),
    "Kimi K2": Profile(
        "moonshot:kimi-k2.6",
        ChatServer,
        {"reasoning": "reasoning_content", "needs": (None, ""), "reasoning_words": "kimi", "temperature": 1.0},
    ),
    "Grok": Profile("xai:grok-4.5", ChatServer, {"refused_fields": ("presence_penalty", "frequency_penalty", "stop")}),
    "Mistral": Profile(
        "mistral:mistral-large-latest",
        ChatServer,
        {"reasoning": "content", "known_fields": MISTRALS_FIELDS, "nine": True},
    ),
    "Groq": Profile("groq:openai/gpt-oss-120b", ChatServer, {"reasoning": "reasoning", "failed_call": 1}),
    "Strict schemas": Profile("strict:qwen3-235b-thinking", ChatServer, {"reasoning": "<think>", "strict": True}),
}


ONE_OF_EACH_WIRE = {
    "chat": "Kimi K2",
    "responses": "GPT-5.6",
    "anthropic": "Claude, always thinking",
    "gemini": "Gemini 3",
}


@dataclass
class Tally:
    """The texts that a run's tool sent. `length`: characters of the other tool's result."""

    sent: list[str] = field(default_factory=list)
    length: int = 0

    def tools(self) -> list[Any]:
        """The tools of the scripts."""

        @plait.tool(read_only=True, inline=True)
        def fetch(key: str) -> str:
            """Fetch a value.

            Args:
                key: what to fetch
            """
            return f"value of {key}".ljust(self.length, ".")

        @plait.tool(inline=True)
        def send(text: str) -> str:
            """Send a text.

            Args:
                text: what to send
            """
            self.sent.append(text.split()[0])
            return f"sent {text}"

        return [fetch, send]

    def find_fault(self, run: plait.Run) -> str:
        """What is wrong with a run; "" for nothing."""
        if (run.status, run.answer) != ("answered", ANSWER):
            return f"{run.status}: {run.reason or run.answer}"
        return "" if sorted(self.sent) == sorted(SENT) else f"sent {self.sent}"


def make_agent(model: ChatModel, loop: str, tools: list[Any], journal: Path, **limits: Any) -> plait.Agent:
    """An agent whose phases follow the loop's script."""
    models = {phase: with_script(model, loop, phase) for phase in SCRIPTS[loop]}
    most = plait.Limits(**{"tools": 0 if loop == "codeact" else None, "retries": 0, **limits})
    first = next(iter(models.values()))
    return plait.Agent(loop, model=first, models=models, tools=tools, journal=journal, limits=most)


@dataclass
class Cell:
    """One loop with one profile: requests and refusals of two runs, and what went wrong."""

    requests: list[int] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """The figures of both runs, as `3 2`, with refusals as `4-1 3`."""
        pairs = zip(self.requests, self.refused, strict=True)
        return ("!" if self.faults else "") + " ".join(f"{n}-{len(said)}" if said else str(n) for n, said in pairs)


async def run_cell(profile: Profile, loop: str, folder: Path, stream: bool = True) -> Cell:
    """Run a loop twice with a profile, and replay both runs. In the second run, nothing may be refused."""
    cell, handler = Cell(), profile.server()
    async with Server(handler) as server:
        for number in (1, 2):
            before, refused = len(server.asked), len(handler.refused)
            tally = Tally()
            model = profile.resolve(server.url)
            model = structs.replace(model, abilities=structs.replace(model.abilities, stream=stream))
            agent = make_agent(model, loop, tally.tools(), folder / "journal.db")
            run = await agent.arun(QUESTION)
            cell.requests.append(len(server.asked) - before)
            cell.refused.append(handler.refused[refused:])
            if fault := tally.find_fault(run):
                cell.faults.append(f"run {number}: {fault}")
            replayed = agent.replay(run.id)
            if not replayed.whole or replayed.requests != cell.requests[-1]:
                cell.faults.append(f"run {number} is replayed with {replayed.requests} equal requests")
    cell.faults += [f"run 2 was refused: {said}" for said in cell.refused[1]]
    return cell


async def run_matrix(folder: Path) -> dict[tuple[str, str], Cell]:
    """Run each loop with each profile."""
    return {(name, loop): await run_cell(profile, loop, folder) for name, profile in PROFILES.items() for loop in LOOPS}
