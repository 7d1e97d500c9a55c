"""What the tests of the window's pages share: recorded runs of every loop, hostile texts, rows of long runs."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import plait
from journal_rows import begin as made
from journal_rows import end as ended
from journal_rows import reply, request, response
from plait import Agent, Scripted
from plait.core import Call, Observation, Reply, Usage
from plait.core.effects import Think
from plait.core.outcomes import Answered, Outcome, Waiting
from plait.journal.owner import owner_of_this_process
from plait.journal.records import Asking, IntentRecord, Record, RunHead
from plait.journal.store import Journal
from plait.models.base import OnText, Request, Response

HOSTILE = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'></script><script>window.ran = 3</script>"
    "<!-- <a href='javascript:window.ran=4'>x</a> javascript:window.ran=5 & &lt;b&gt; \"quoted\" 👩‍🔬"
)
"""Markup and addresses that must stay text."""
HIDDEN = "\x1b[31mred\x1b[0m \u202etxt.exe\u2066 nul\x00 bell\x07 \u2028 tag\U000e0041 zero\u200bwidth \ud800"
"""Characters that must be seen."""


@plait.tool(read_only=True)
def population(town: str) -> int:
    "How many people live in a town."
    return {"Lyon": 522_250, "Nice": 348_085}[town]


@plait.tool
def send(text: str) -> str:
    "Sends a text."
    return f"sent: {text}"


class Held(Scripted):
    """Streams half of each reply, then waits until somebody says `go`."""

    def __init__(self, replies: list[Any], **more: Any) -> None:
        super().__init__(replies, **more)
        self.go = threading.Event()

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        whole: list[str] = []
        response = await super().send(request, think, whole.append)
        if on_text is not None:
            text = "".join(whole)
            on_text(text[: len(text) // 2])
            await asyncio.to_thread(self.go.wait, 300)
            self.go.clear()
            on_text(text[len(text) // 2 :])
        return response


def action(tool: str, given: Any = None, thought: str = "Let me see.") -> str:
    """A turn of text ReAct that calls a tool."""
    blob = json.dumps({"action": tool, "action_input": given})
    return f"Thought: {thought}\nAction:\n```json\n{blob}\n```\n"


def answer(text: str) -> str:
    """A turn of text ReAct that answers."""
    return f"Thought: That is all.\nFinal Answer: {text}"


def react(journal: Path, replies: list[Any] | None = None, **fields: Any) -> Agent:
    """A ReAct agent with a script: two towns, then the answer."""
    script = replies or [
        action("population", {"town": "Lyon"}, "I need both towns."),
        action("population", {"town": "Nice"}, "Now the other."),
        answer("870335"),
    ]
    return Agent(
        **{"loop": "react", "model": Scripted(script), "tools": (population, send), "journal": journal, **fields}
    )


def turn(tool: str, given: Any) -> str:
    """A turn of the loop `json`."""
    return json.dumps({"thought": "Let me see.", "tool": tool, "tool_input": given})


PLAN = """Plan: the first town
#E1 = population[{"town": "Lyon"}]
Plan: the second town
#E2 = population[{"town": "Nice"}]
"""


def rewoo(journal: Path) -> Agent:
    """A rewoo agent whose plan has two steps."""
    script = {"plan": [PLAN], "solve": ["870335"], "": ["?"]}
    return Agent("rewoo", model=Scripted(script), tools=(population,), journal=journal)


def codeact(journal: Path) -> Agent:
    """A codeact agent that prints, calls, and fails once."""
    script = [
        "I compute it.\n```python\na = population(town='Lyon')\nprint('a', a)\n```\n",
        "And the other.\n```python\nprint(1 / 0)\n```\n",
        "Now it is clear.\n```python\nstop(870335)\n```\n",
    ]
    return Agent("codeact", model=Scripted(script), tools=(population,), journal=journal)


def usage(tokens: int = 100) -> Usage:
    return Usage(tokens, 10, 50)


async def written(
    journal: Path,
    steps: int,
    *,
    observation: str = "fine",
    thought: str = "Thought: I look.\nAction: look",
    question: str = "What is there?",
    outcome: Outcome | None = None,
    tool: str = "look",
    run: str = "20260101-000000-longer",
) -> str:
    """A run of so many steps written straight into a journal, as the runtime would; its id."""
    head = RunHead(run, question, {"name": "react", "options": {}}, {"": {"spec": "scripted:long"}})
    log = await Journal.at(journal).store.begin(head, owner_of_this_process())
    body = '{"messages":[{"role":"user","content":"?"}]}'
    for step in range(1, steps + 1):
        n = 2 * (step - 1)
        body = body[:-2] + f',{{"role":"assistant","content":"turn {step}"}}]}}'
        records: list[tuple[Record, bytes | None]] = [
            (request(f"{n}a0", step, model="scripted:long"), body.encode()),
            (response(f"{n}a0", step=step), b'{"choices":[]}'),
            (reply(f"{n}", Reply(thought, usage=usage(), seconds=0.5, cost=0.001), step), None),
            (made(f"{n + 1}.0", Call(tool, {"at": step}), step), None),
            (ended(f"{n + 1}.0", Observation(observation, seconds=0.1), step), None),
        ]
        await log.append(*records)
    end = outcome or Answered("done")
    if isinstance(end, Waiting):
        await log.append((IntentRecord(f"{2 * steps}", steps, "question", Asking(end.kind, end.reason)), None))
    await log.end(
        end.status,
        end,
        {
            "steps": steps,
            "calls": steps,
            "input_tokens": 0,
            "output_tokens": 0,
            "cached_tokens": 0,
            "seconds": 1.0,
            "cost_usd": 0.0,
        },
    )
    return run


def begin(agent: Agent, question: str = "How many people live in Lyon and Nice?") -> plait.Run:
    """Run it to its end."""
    return asyncio.run(agent.arun(question))
