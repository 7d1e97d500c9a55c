"""Random conversations in which a stranger's words travel: no call with effects follows them without approval.

Each round performs a few runs that read clean or strange content, in sessions, child runs, forks and tools that run
agents, and with histories that are passed on, changed and mixed. The models repeat what they see. The last run sends a
mail. If a request of that run holds the stranger's word outside of the user's own questions, the run must wait. If
nothing strange was ever read, and every history is as Plait gave it, it must not.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from figures import Figures, line_of

import plait
from plait.core import Call, HostedCall, Observation, Reply, Think

STRANGE = "WORD-OF-A-STRANGER"
SENT: list[str] = []


@plait.tool(read_only=True, open_world=True)
def fetch(key: str) -> str:
    """Fetches a page."""
    return STRANGE


@plait.tool(read_only=True, open_world=True)
def broken(key: str) -> str:
    """Fetches a page, and fails."""
    raise plait.ToolError(STRANGE)


@plait.tool(read_only=True)
def look(key: str) -> str:
    """Looks into a table."""
    return "a clean entry"


@plait.tool
def send(text: str) -> str:
    """Sends a mail."""
    SENT.append(text)
    return "sent"


class Rewrites(plait.Hook):
    """Returns a new observation with the same words."""

    def after_tool(self, context: plait.Context[Any], call: Call, observation: Observation) -> Observation:
        return Observation(f"again: {observation.text}", trouble=observation.trouble)


def act(tool: str, **given: Any) -> str:
    return f"Thought: I act.\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': given})}\n```"


def answer(think: Think) -> str:
    """Repeats the stranger's word if it is there: whatever is answered then came from outside."""
    seen = STRANGE in "\n".join(each.content for each in think.messages)
    return f"Thought: over.\nFinal Answer: {STRANGE if seen else 'clean'}"


class Round:
    def __init__(self, seed: str, folder: Path) -> None:
        self.random = random.Random(seed)
        self.journal: Path | bool = folder / "runs.db" if self.random.random() < 0.9 else False
        self.read_strange = self.changed = False
        self.story: list[str] = []

    def agent(self, *replies: Any, **fields: Any) -> plait.Agent[Any]:
        given = {"tools": [fetch, broken, look, send], "journal": self.journal, "taint": "ask", **fields}
        if self.random.random() < 0.2:
            given["hooks"] = [Rewrites()]
        return plait.Agent("react", model=plait.Scripted([*replies, *[answer] * 3]), **given)

    def reads(self) -> list[Any]:
        tool = self.random.choice(["look", "look", "fetch", "broken", "hosted", ""])
        self.read_strange |= tool in ("fetch", "broken", "hosted")
        self.story.append(tool or "nothing")
        if tool == "hosted":  # the provider searched while the model wrote; the model repeats what it read
            text = act("look", key="k").replace("I act.", f"I read {STRANGE}.")
            return [Reply(text, hosted=(HostedCall("web_search", {"query": "k"}, STRANGE),))]
        return [act(tool, key="k")] if tool else []

    def run(self, history: list[Any] | None) -> plait.Run[Any]:
        """One of the ways in which a run comes to its answer."""
        way = self.random.choice(["plain", "child", "tool", "fork", "off", "session"])
        if self.journal is False and way in ("fork", "session"):
            way = "plain"
        self.story.append(way)
        policy = "off" if way == "off" else self.random.choice(["ask", "ask", "off"])
        self.changed |= policy == "off" or way == "off"  # such a run marks nothing
        if way == "child":
            child = self.agent(*self.reads(), taint=self.random.choice(["off", "ask"]))
            return self.agent(act("helper", question="q"), tools=[child.as_tool("helper")], taint=policy).run(
                "q", history=history
            )
        if way == "tool":
            inner = self.agent(*self.reads(), taint="off")

            @plait.tool(read_only=True)
            def research(topic: str) -> str:
                """Looks something up."""
                return str(inner.run(topic).answer)

            return self.agent(act("research", topic="t"), tools=[research], taint=policy).run("q", history=history)
        agent = self.agent(*self.reads(), taint=policy)
        if way == "session":
            agent.run("q", session="s")
            return self.agent(taint=policy).run("more", session="s")
        run = agent.run("q", history=history)
        return agent.fork(run.id, self.random.randint(1, run.steps)) if way == "fork" else run

    def passed_on(self, run: plait.Run[Any]) -> list[Any]:
        """The conversation as an application passes it on."""
        messages: list[Any] = run.messages()
        change = self.random.choice(["", "", "json", "strip", "cut", "questions", "swap", "user"])
        self.story.append(f"history {change or 'unchanged'}")
        if change == "json":
            messages = json.loads(json.dumps(messages))
        elif change == "strip":
            messages = [{key: value for key, value in each.items() if key != "clean"} for each in messages]
        elif change == "cut":
            starts = [i for i, each in enumerate(messages) if each["role"] == "user"]
            messages = messages[self.random.choice(starts) :]
        elif change == "questions":
            messages = [{**each, "content": "another"} if each["role"] == "user" else each for each in messages]
        elif change == "swap" and messages[-1]["role"] == "assistant":
            messages = [*messages[:-1], {**messages[-1], "content": STRANGE}]
        elif change == "user":
            messages = [each for each in messages if each["role"] == "user"]
        self.changed |= change in ("strip", "swap")
        return messages

    def check(self) -> str:
        """Return what is wrong, "" if nothing is."""
        SENT.clear()
        history: list[Any] | None = None
        for _ in range(self.random.randint(1, 3)):
            history = self.passed_on(self.run(history))
        session = self.random.choice([None, "s"]) if self.journal is not False else None
        last = self.agent(act("send", text="x"), tools=[send]).run("Send it.", session=session, history=history)
        sent_body = b"".join(each.request for each in last.timeline.model_calls[:1])
        waits = last.status == "waiting"
        if STRANGE.encode() in sent_body and not waits:
            return f"a mail was sent behind a stranger's word: {self.story}"
        if waits and not (self.read_strange or self.changed):
            return f"a clean conversation had to wait: {self.story}"
        return "" if waits == (not SENT) else f"it waits and sent: {self.story}"


def run(count: int, seed: int, folder: Path) -> Figures:
    failures, asked = [], 0
    for number in range(count):
        place = folder / f"{number}"
        place.mkdir()
        each = Round(f"{seed} {number}", place)
        if wrong := each.check():
            failures.append(f"round {number}: {wrong}")
        asked += not SENT
    return Figures(line_of(conversations=count, asked=asked, wrong=len(failures)), failures)
