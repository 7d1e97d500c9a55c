"""A run of any loop that kills itself with SIGKILL at a point: before and after every effect and every write. The LOOP
"children" is a run whose tool runs two agents at once, one of which runs a third. In "approved" the user approves each
effect of such a tree.

    python crash_script.py JOURNAL COUNTS POINT LOOP         runs to the end or dies
    python crash_script.py JOURNAL COUNTS POINT LOOP resume  resumes the run, and ends or dies as well

POINT is the number of the point, or its kind ("after send": the first of it). 0 never dies. A script that ends prints
one JSON object: status, answer, troubles of the tool calls on record, and the kinds of the points that it passed.
Points are passed around each model call, around the effect of each tool, and around each write to the journal. Each
tool call that takes effect adds a line to the file COUNTS.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plait
from plait.core import Call, Reply
from plait.journal.log import RunLog
from plait.journal.records import ObservedRecord

journal, counts, fatal, loop = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
passed: list[str] = []


def point(kind: str) -> None:
    passed.append(kind)
    if fatal in (kind, str(len(passed))):
        os.kill(os.getpid(), signal.SIGKILL)


def tally(name: str) -> None:
    with counts.open("a") as file:
        file.write(name + "\n")


@plait.tool(idempotent=True)
def fetch(key: str) -> str:
    """Fetch a value; may be called again.

    Args:
        key: what to fetch
    """
    point("before fetch")
    tally(f"fetch {key}")
    point("after fetch")
    return f"value of {key}"


@plait.tool
def send(text: str) -> str:
    """Send a text; has an effect outside.

    Args:
        text: what to send
    """
    point("before send")
    tally(f"send {text}")
    point("after send")
    return f"sent {text}"


def action(tool: str, value: str) -> str:
    return f'Thought: next.\nAction:\n```json\n{{"action": "{tool}", "action_input": "{value}"}}\n```\n'


def turn(thought: str, tool: str, value: str) -> str:
    return json.dumps({"thought": thought, "tool": tool, "tool_input": value})


def calls(*made: tuple[str, str]) -> Reply:
    return Reply(
        "", "calls", calls=tuple(Call(tool, {name: value}, f"{tool}-{value}") for tool, name, value in named(made))
    )


def named(made: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    return [(tool, "key" if tool == "fetch" else "text", value) for tool, value in made]


PLAN = """\
Plan: get a value
#E1 = fetch[a]
Plan: send, beside it
#E2 = send[one]
Plan: send what was fetched, and get another
#E3 = send[two #E1]
#E4 = fetch[b]
Plan: put it into words
#E5 = LLM[say #E4]
Plan: send once more
#E6 = send[three #E5]
"""

NUMBERED = """\
1. fetch("a")
2. send("one")
3. send("two $1")
4. fetch("b")
5. send("three ${4}")
6. join()
"""

ACTIONS = json.dumps(
    [
        {"ACTION": "fetch", "ARGUMENTS": ["a"], "EXPLANATION": "get a value"},
        {"ACTION": "send", "ARGUMENTS": ["one"], "EXPLANATION": "beside it"},
        {"ACTION": "send", "ARGUMENTS": ["two $1"], "EXPLANATION": "what was fetched"},
        {"ACTION": "fetch", "ARGUMENTS": ["b"], "EXPLANATION": "another"},
        {"ACTION": "send", "ARGUMENTS": ["three"], "EXPLANATION": "once more"},
    ]
)

CODE = """\
ACTION 2:
```python
done = []
a = fetch("a")
for text in ["one", f"two {a}"]:
    try:
        done.append(send(text))
    except Exception as why:
        print("not sent:", why)
print(len(done))
```"""

AWAITED = """\
ACTION 3:
```python
try:
    print(await asyncio.gather(fetch("b"), send(f"three {a}")))
except Exception as why:
    print("not sent:", why)
```"""

STOP = 'Done.\nACTION 4:\n```python\nstop("all is sent")\n```'

SCRIPTS: dict[str, Any] = {
    "react": [
        action("fetch", "a"),
        action("send", "one"),
        action("fetch", "b"),
        action("send", "two"),
        action("send", "three"),
        "Thought: done.\nFinal Answer: all is sent",
    ],
    "json": [
        turn("first", "fetch", "a"),
        turn("then", "send", "one"),
        turn("again", "fetch", "b"),
        turn("then", "send", "two"),
        turn("then", "send", "three"),
        turn("done", "final_answer", "all is sent"),
    ],
    "rewoo": {"plan": [PLAN], "work": ["it is b"], "solve": ["all is sent"]},
    "compiler": {"plan": [NUMBERED], "join": ["Thought: done.\nFinish: all is sent"]},
    "phased": {"reason": ["Fetch and send."], "react": [ACTIONS], "reply": ["all is sent"]},
    "codeact": {
        "decompose": ["1. Fetch a value\n2. Send it"],
        # The first turn is made by the loop: its reply is that of the other phase.
        "act": ["", "I send.\n" + CODE, "And the rest.\n" + AWAITED, STOP],
    },
    "tool_calling": [
        calls(("fetch", "a"), ("send", "one")),
        calls(("send", "two"), ("fetch", "b"), ("send", "three")),
        Reply("all is sent"),
    ],
    "children": [
        action("fetch", "a"),
        action("send", "one"),
        action("delegate", "two and three"),
        "Thought: done.\nFinal Answer: all is sent",
    ],
}


class Dying(plait.Scripted):
    """The scripted model with a point before and after each call."""

    async def send(self, *args: Any, **kwargs: Any) -> Any:
        point("before model")
        response = await super().send(*args, **kwargs)
        point("after model")
        return response


_append = RunLog.append


async def append(self: RunLog, *entries: Any) -> None:
    kinds = "+".join(type(record).__name__ for record, _ in entries)
    point(f"before {kinds}")
    await _append(self, *entries)
    point(f"after {kinds}")


def helper(text: str, *, below: bool = False) -> plait.Agent:
    """An agent that sends a text, as a child run; with `below` it lets another agent do so."""
    if below:
        delegating = Dying([action("inner", f"Send {text}."), "Final Answer: sent"], chunk=20)
        return plait.Agent(model=delegating, tools=[helper(text).as_tool("inner")], journal=False)
    model = Dying([action("fetch", text), action("send", text), "Final Answer: sent"], chunk=20)
    return plait.Agent(model=model, tools=[fetch, send], journal=False)


@plait.tool(idempotent=True)
async def delegate(ctx: plait.Context[None], what: str) -> str:
    """Let two agents send texts at once.

    Args:
        what: what to send
    """
    runs = await asyncio.gather(
        ctx.arun(helper("two"), "Send two."), ctx.arun(helper("three", below=True), "Send three.")
    )
    return " ".join(run.status for run in runs)


def find_troubles(run: plait.Run) -> list[str]:
    """The troubles of the tool calls on record, those of child runs included."""
    own = [row.record.observation.trouble for row in run.trace if isinstance(row.record, ObservedRecord)]
    return [*own, *(trouble for child in run.children for trouble in find_troubles(child))]


if __name__ == "__main__":
    RunLog.append = append  # type: ignore[method-assign]
    is_tree = loop in ("children", "approved")
    agent = plait.Agent(
        "react" if is_tree else loop,
        model=Dying(SCRIPTS["children" if is_tree else loop], chunk=20),
        tools=[fetch, send, delegate] if is_tree else [fetch, send],
        approve=(lambda call: call.tool == "send") if loop == "approved" else "never",
        journal=journal,
        limits=plait.Limits(tools=0 if loop == "codeact" else None),
    )
    run = agent.resume("last") if "resume" in sys.argv else agent.run("Send one, two and three.")
    while run.status == "waiting":
        run = agent.resume(run, "yes")
    found = {"status": run.status, "answer": run.answer, "troubles": find_troubles(run), "points": passed}
    print(json.dumps({**found, "requests": run.tree.requests, "children": len(run.children)}))
