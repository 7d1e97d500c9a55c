"""Runs with each feature beside plain tools, in every loop: skills, context files, memory, plans, hosted tools, MCP,
messages, cancelled calls, background, reviewers and claims. `feature_kills.py` kills and resumes them.

Effects are lines `send WORD` of the file `counts`, `sent WORD` of the log of an MCP server, and notes of a memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

import plait
from hosted_blocks import FOUND, SEARCH, blocks_as_events
from kill_points import KillPoints
from loop_scripts import ANSWER, LOOPS, SCRIPTS, SENT, reply_of
from plait.core import Reply, Think
from plait.journal.notes import Memory, MemoryNote, Notes
from plait.journal.store import Store, wait_for
from plait.models.base import OnText, Request, Response
from plait.models.chat import ChatModel
from plait.models.prices import Rate
from plait.runtime import inbox
from plait.trust import trust

Call = tuple[str, dict[str, Any]]
HERE = Path(__file__).parent
DONE = "I have sent the mail."
"""An answer that claims a call."""


@dataclass
class Place:
    """What an agent of a feature is made with: its folder, journal and loop, and the points at which it is killed."""

    folder: Path
    journal: Path | str
    loop: str
    points: KillPoints
    store: Store

    def tally(self, line: str) -> None:
        with (self.folder / "counts").open("a") as file:
            file.write(line + "\n")


@dataclass(frozen=True)
class Feature:
    """A feature in a run of each loop.

    `calls`: what the model calls, one after the other, before it answers; none for the script of `loop_scripts`.
    `options`: of the agent; `prepare` makes what it needs, once. `effects`: what happens, each of them once. `shows`:
    texts of which each is on the record once a run was not killed. `doubts`: calls in doubt of an undisturbed run.
    `instead`: another status with which a killed run may end. `answers`: how often the model answers.
    """

    options: Callable[[Place], dict[str, Any]]
    effects: frozenset[str]
    calls: tuple[Call, ...] = ()
    prepare: Callable[[Place], None] = lambda place: None
    shows: tuple[str, ...] = ()
    doubts: int = 0
    instead: tuple[str, ...] = ()
    answer: str = ANSWER
    answers: int = 1
    loops: tuple[str, ...] = LOOPS


def write_script(loop: str, calls: tuple[Call, ...], answer: str, answers: int) -> Any:
    """Return what a scripted model of a loop says to make these calls and to answer."""
    if loop == "rewoo":
        steps = [f"Plan: next\n#E{i} = {tool}[{json.dumps(given)}]" for i, (tool, given) in enumerate(calls, 1)]
        return {"plan": ["\n".join(steps)], "solve": [answer]}
    if loop == "compiler":
        lines = [
            f"{i}. {tool}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
            for i, (tool, given) in enumerate(calls, 1)
        ]
        return {
            "plan": ["\n".join([*lines, f"{len(calls) + 1}. join()"])],
            "join": [f"Thought: done.\nFinish: {answer}"],
        }
    if loop == "phased":
        actions = [{"ACTION": tool, "ARGUMENTS": [*given.values()], "EXPLANATION": "next"} for tool, given in calls]
        return {"reason": ["Go on."], "react": [json.dumps(actions)], "reply": [answer]}
    if loop == "codeact":  # the first turn is made by the loop
        lines = [f"print({tool}(**{given!r}))" for tool, given in calls]
        parts = [f"```python\ntry:\n    {line}\nexcept Exception as why:\n    print(why)\n```" for line in lines]
        ends = [*(f"Wait for part {i}." for i in range(1, answers)), answer]
        parts += [f"```python\nstop({end!r})\n```" for end in ends]
        return {"decompose": ["1. Go on"], "act": ["", *(f"Next.\nACTION {i}:\n{x}" for i, x in enumerate(parts, 2))]}
    turns = [
        {"text": f"Step {i}.", "calls": [{"name": tool, "input": given}]} for i, (tool, given) in enumerate(calls, 1)
    ]
    early = [{"answer": f"Wait for part {i}."} for i in range(1, answers)]
    return {"act": [*turns, *early, {"answer": answer}]}


# -- tools


def make_send(place: Place) -> plait.Tool:
    @plait.tool
    def send(text: str) -> str:
        """Send a text; has an effect outside."""
        place.points.point("before send")
        place.tally(f"send {text}")
        place.points.point("after send")
        return f"sent {text}"

    return send


def make_fetch(place: Place) -> plait.Tool:
    @plait.tool(read_only=True)
    def fetch(key: str) -> str:
        """Fetch a value."""
        place.points.point("before fetch")
        return f"value of {key}"

    return fetch


def make_mail(place: Place) -> plait.Tool:
    @plait.tool(background=True)
    async def mail(text: str) -> str:
        """Mail a text, which takes a while."""
        place.points.point("before mail")
        place.tally(f"send {text}")
        await asyncio.sleep(0.05)
        place.points.point("after mail")
        return f"mailed {text}"

    return mail


def make_nudge(place: Place) -> plait.Tool:
    @plait.tool(idempotent=True)
    async def nudge(ctx: plait.Context[None]) -> str:
        """Send a message to this run, once, as its user does meanwhile."""
        if not await inbox.list_messages(place.store, ctx.run_id):
            await inbox.send(place.store, ctx.run_id, inbox.Sent("Hurry, please."))
        place.points.point("after nudge")
        return "nudged"

    return nudge


def make_hang(place: Place) -> plait.Tool:
    @plait.tool
    async def hang(ctx: plait.Context[None], text: str) -> str:
        """Have an effect, and hang until the user cancels this call."""
        place.points.point("before hang")
        place.tally(f"send {text}")
        place.points.point("after hang")
        assert ctx.services is not None
        await inbox.send(place.store, ctx.run_id, inbox.Sent(call=ctx.services.entry.key))
        await asyncio.sleep(60)
        return "nobody cancelled it"

    return hang


def make_helper(place: Place, **options: Any) -> plait.Tool:
    model = plait.Scripted([{"calls": [{"name": "send", "input": {"text": "one"}}]}, {"answer": "helped"}])
    return plait.Agent("react", model=model, tools=[make_send(place)], journal=False).as_tool(
        "helper", "Helps.", **options
    )


def mcp(place: Place, **options: Any) -> str:
    command = [sys.executable, "-S", str(HERE / "mcp_asks.py"), str(place.folder / "log")]
    return "mcp:" + json.dumps({"command": command, **options})


# -- what a feature needs


def write_skill(place: Place) -> None:
    skill = place.folder / "skills" / "hello"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: hello\ndescription: Explains hello.\n---\nSay hello to all.\n")
    (skill / "words.md").write_text("good day\n")
    (skill / "scripts" / "note.sh").write_text('echo "send $1" >> lines\n')
    (place.folder / "work").mkdir()


def write_context_file(place: Place) -> None:
    (place.folder / "repo" / ".git").mkdir(parents=True)
    file = place.folder / "repo" / "AGENTS.md"
    file.write_text("Be as brief as a haiku.\n")
    trust(file)


def write_first_note(place: Place) -> None:
    note = MemoryNote("old1", "Ada likes coal.")
    wait_for(Notes(place.store).write(Memory("", "likes"), note, is_new=True))


def remember(place: Place, name: str = "memory:likes") -> dict[str, Any]:
    """Have points around each change of the notes."""
    for change in ("write", "forget"):
        kept = getattr(Notes, change)

        async def with_points(*given: Any, kept: Any = kept, change: str = change, **named: Any) -> Any:
            place.points.point(f"before {change}")
            done = await kept(*given, **named)
            place.points.point(f"after {change}")
            return done

        setattr(Notes, change, with_points)
    return {"tools": [name, make_send(place)]}


# -- hosted tools

RAN = [
    {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "print(6 * 7)"}},
    {
        "type": "code_execution_tool_result",
        "tool_use_id": "s1",
        "content": {"type": "code_execution_result", "stdout": "42\n", "stderr": "", "return_code": 0, "content": []},
    },
]
ORDERED = [
    {"type": "mcp_tool_use", "id": "m1", "name": "order", "server_name": "a", "input": {"what": "tea"}},
    {
        "type": "mcp_tool_result",
        "tool_use_id": "m1",
        "is_error": False,
        "content": [{"type": "text", "text": "ordered tea"}],
    },
]


class Hosting(ChatModel, frozen=True, kw_only=True):
    """A model at Anthropic that says the script of a loop, and does `blocks` before; with `pauses`, in two parts."""

    place: Place
    script: plait.Scripted
    blocks: list[dict[str, Any]]
    pauses: bool = False
    effect: bool = False

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        self.place.points.point("before model")
        asked = json.loads(request.body)["messages"][-1]
        goes_on = asked["role"] == "assistant" and "server_tool_use" in json.dumps(asked)
        if self.effect:  # each request makes the provider do something, so none may come twice
            self.place.tally(f"send {hashlib.sha256(request.body).hexdigest()[:8]}")
        if self.pauses and not goes_on:
            response = Response(200, blocks_as_events(*self.blocks, reason="pause_turn"))
        else:
            known = think.messages[:-1] if goes_on else think.messages
            whole = structs.replace(think, messages=known) if goes_on else think
            said: Reply = self.script.decode(await self.script.send(request, whole), whole)
            calls = [
                {"type": "tool_use", "id": f"{each.id}-{len(known)}", "name": each.tool, "input": each.input}
                for each in said.calls
            ]
            text = [{"type": "text", "text": said.text}] if said.text else []
            first = [] if goes_on else self.blocks
            reason = "tool_use" if calls else "end_turn"
            response = Response(200, blocks_as_events(*first, *text, *calls, reason=reason))
        self.place.points.point("after model")
        return response


def host(word: str, blocks: list[dict[str, Any]], **how: Any) -> Callable[[Place], dict[str, Any]]:
    def options(place: Place) -> dict[str, Any]:
        script = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[place.loop].items()}
        model = Hosting(
            spec="anthropic:claude-haiku-5-5",
            name="claude-haiku-5-5",
            endpoint="http://127.0.0.1:9/v1",
            wire="anthropic",
            provider="anthropic",
            rate=Rate("tokens", 1.0, 1.0),
            place=place,
            script=plait.Scripted(script),
            blocks=blocks,
            **how,
        )
        return {"model": model, "tools": [make_fetch(place), make_send(place), word]}

    return options


def review(think: Think) -> str:
    return json.dumps({"verdict": "approve", "reason": "The policy allows it."})


IN_ORDER = ("react", "json", "codeact")
"""Loops that make one call after the other."""
ONE = frozenset({"one"})
SEND_ONE: Call = ("send", {"text": "one"})

FEATURES: dict[str, Feature] = {
    "skills": Feature(
        lambda place: {
            "tools": [
                f"skills:{place.folder / 'skills'}",
                f"shell:{place.folder / 'work'},readable={place.folder / 'skills'}",
                make_send(place),
            ]
        },
        frozenset({"one", "script"}),
        (
            ("read_skill", {"skill": "hello"}),
            ("read_skill", {"skill": "hello", "file": "words.md"}),
            ("run_command", {"command": "sh ../skills/hello/scripts/note.sh script"}),
            SEND_ONE,
        ),
        write_skill,
        ("Say hello to all.", "good day"),
    ),
    "context files": Feature(
        lambda place: {"context_files": place.folder / "repo", "tools": [make_send(place)]},
        ONE,
        (SEND_ONE,),
        write_context_file,
        ("as brief as a haiku",),
    ),
    "memory": Feature(
        remember,
        frozenset({"one", "note Ada likes tea."}),
        (
            ("search_notes", {"query": "coal"}),
            ("write_note", {"text": "Ada likes tea."}),
            ("forget_note", {"note": "old1"}),
            SEND_ONE,
        ),
        write_first_note,
        ("Ada likes coal.", "is kept."),
    ),
    "memory, approved": Feature(
        lambda place: remember(place, "memory:likes,approved"),
        frozenset({"one", "note Ada likes tea."}),
        (("write_note", {"text": "Ada likes tea."}), ("forget_note", {"note": "old1"}), SEND_ONE),
        write_first_note,
        ("is kept.", "is removed."),
    ),
    "todo": Feature(
        lambda place: {"tools": ["todo", make_send(place)]},
        ONE,
        (
            ("write_todos", {"tasks": [{"task": "buy tea", "state": "in_progress"}]}),
            SEND_ONE,
            ("write_todos", {"tasks": [{"task": "buy tea", "state": "completed"}]}),
        ),
        shows=("1 of 1 done",),
    ),
    "hosted search": Feature(host("hosted:web_search", [SEARCH, FOUND]), frozenset(SENT), shows=("final 2026",)),
    "hosted search, paused": Feature(
        host("hosted:web_search", [SEARCH, FOUND], pauses=True), frozenset(SENT), shows=("final 2026",)
    ),
    "hosted code": Feature(host("hosted:code_execution", RAN), frozenset(SENT), shows=("print(6 * 7)",)),
    "hosted MCP": Feature(
        host("hosted:mcp:https://a.org/mcp", ORDERED, effect=True),
        frozenset(SENT),
        shows=("ordered tea",),
        instead=("failed",),
    ),
    "MCP elicitation": Feature(
        lambda place: {"tools": [mcp(place, only=["fetch", "send"])]}, ONE, (("fetch", {"key": "a"}), SEND_ONE)
    ),
    "MCP elicitations": Feature(  # a server that asks for the first time must have no other call that asks
        lambda place: {"tools": [mcp(place, only=["fetch", "send"])]},
        frozenset(SENT),
        loops=IN_ORDER,
    ),
    "MCP sampling": Feature(
        lambda place: {"tools": [mcp(place, only=["think"], sampling=True), make_send(place)]},
        frozenset({"one", "tea"}),
        (("think", {"about": "tea"}), SEND_ONE),
    ),
    "MCP resources": Feature(
        lambda place: {"tools": [mcp(place, only=[], resources=True), make_send(place)]},
        ONE,
        (("read_resource", {"uri": "note://today"}), SEND_ONE),
        shows=("Water the plants.",),
    ),
    "a message": Feature(
        lambda place: {"tools": [make_nudge(place), make_send(place)]},
        ONE,
        (("nudge", {}), SEND_ONE),
        shows=("Hurry, please.",),
    ),
    "a cancelled call": Feature(
        lambda place: {"tools": [make_hang(place), make_send(place)]},
        frozenset({"one", "hanging"}),
        (("hang", {"text": "hanging"}), SEND_ONE),
        shows=("cancelled this call",),
        doubts=1,
    ),
    "background tool": Feature(
        lambda place: {"tools": [make_mail(place), make_send(place)]},
        frozenset({"one", "two"}),
        (("mail", {"text": "two"}), SEND_ONE),
        shows=("mailed two",),
        answers=2,
    ),
    "background sub-agent": Feature(
        lambda place: {"tools": [make_helper(place, background=True), make_fetch(place)]},
        ONE,
        (("helper", {"question": "now"}), ("fetch", {"key": "a"})),
        shows=("helped",),
        answers=2,
    ),
    "reviewer": Feature(
        lambda place: {
            "tools": [make_send(place)],
            "approve": plait.Reviewer(plait.Scripted(review, name="reviewer"), "Texts to friends."),
        },
        ONE,
        (SEND_ONE,),
        shows=("The policy allows it.",),
    ),
    "claims": Feature(
        lambda place: {"tools": [make_fetch(place), make_send(place)], "claims": "ask"},
        frozenset(),
        (("fetch", {"key": "a"}),),
        shows=("no call did it",),
        answer=DONE,
    ),
}
CASES = [(feature, loop) for feature, made in FEATURES.items() for loop in made.loops]


def make_agent(feature: str, place: Place, **others: Any) -> plait.Agent[Any]:
    """Return the agent of a feature in a loop."""
    wanted = FEATURES[feature]
    script: Any = (
        write_script(place.loop, wanted.calls, wanted.answer, wanted.answers)
        if wanted.calls
        else {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS[place.loop].items()}
    )
    limits = plait.Limits(tools=0 if place.loop == "codeact" else None)
    if wanted.calls:
        script[""] = ["Tea is fine."]  # what an MCP server asks
    usual = {"model": plait.Scripted(script), "limits": limits, "sandbox": "monty"}
    given: dict[str, Any] = {**usual, **wanted.options(place), **others}
    return plait.Agent(place.loop, journal=place.journal, **given)
