"""A run of any loop that kills itself with SIGKILL at a point: before and after every effect and every write. The LOOP
"children" is a run whose tool runs two agents at once, one of which runs a third. In "approved" the user approves each
effect of such a tree.

    python crash_script.py JOURNAL COUNTS POINT LOOP         runs to the end or dies
    python crash_script.py JOURNAL COUNTS POINT LOOP resume  resumes the run, and ends or dies as well
    ... PROFILE ADDRESS                                      asks this profile's endpoint, not a scripted model
    ... hooks                                                has hooks at all points, which change values and ask

POINT is described in `kill_points.py`; 0 never dies. A script that ends prints
one JSON object: status, answer, troubles of the tool calls on record, and the kinds of the points that it passed.
Points are passed around each model call, around the effect of each tool, and around each write to the journal. Each
tool call that takes effect adds a line to the file COUNTS.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from msgspec import structs

import plait
from journal_rows import is_result
from kill_points import KillPoints
from loop_scripts import QUESTION, SCRIPTS, reply_of, write_action
from plait.core import Call, Observation, Reply, Think
from plait.models.chat import ChatModel
from profile_matrix import PROFILES
from profile_servers import with_script

journal, counts, fatal, loop = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
endpoint = [word for word in sys.argv[5:] if word not in ("resume", "hooks")]
is_tree = loop in ("children", "approved")
points = KillPoints(fatal)
point, passed = points.point, points.passed


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


def make_models() -> dict[str, Any]:
    """The models of the loop's phases."""
    if endpoint:
        name, address = endpoint
        model = PROFILES[name].resolve(address)
        return {phase: with_script(model, loop, phase) for phase in SCRIPTS[loop]}
    script = {phase: [*map(reply_of, turns)] for phase, turns in SCRIPTS["children" if is_tree else loop].items()}
    return dict.fromkeys(script, plait.Scripted(script, chunk=20))


def helper(text: str, *, below: bool = False) -> plait.Agent:
    """An agent that sends a text, as a child run; with `below` it lets another agent do so."""
    if below:
        delegating = plait.Scripted([write_action("inner", f"Send {text}."), "Final Answer: sent"], chunk=20)
        return plait.Agent(model=delegating, tools=[helper(text).as_tool("inner")], journal=False)
    model = plait.Scripted([write_action("fetch", text), write_action("send", text), "Final Answer: sent"], chunk=20)
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


class Changing(plait.Hook):
    """Changes requests, replies, calls and results, and asks the user about some of them."""

    async def before_model(self, context: Any, request: Think) -> Think:
        point("before_model hook")
        await asyncio.sleep(0)
        messages = [structs.replace(each, content=each.content.replace("Send", "SEND")) for each in request.messages]
        return structs.replace(request, messages=tuple(messages))

    def after_model(self, context: Any, reply: Reply) -> Reply:
        point("after_model hook")
        return structs.replace(reply, reasoning="")

    def before_tool(self, context: Any, call: Call) -> plait.AskApproval | None:
        point("before_tool hook")
        return plait.AskApproval("Really?") if call.tool == "send" and "three" in str(call.input) else None

    async def after_tool(self, context: Any, call: Call, seen: Observation) -> Observation | plait.AskApproval:
        point("after_tool hook")
        await asyncio.sleep(0)
        if call.tool == "fetch" and "b" in str(call.input):
            return plait.AskApproval("May the model see this?")
        return structs.replace(seen, text=seen.text.replace("value", "VALUE"), value=seen.text)

    def before_answer(self, context: Any, answer: Any) -> plait.AskApproval:
        point("before_answer hook")
        return plait.AskApproval("Is that right?")

    def after_answer(self, context: Any, answer: Any) -> plait.AskApproval:
        point("after_answer hook")
        return plait.AskApproval("May it leave the house?")


def find_troubles(run: plait.Run) -> list[str]:
    """The troubles of the tool calls on record, those of child runs included."""
    own = [row.record.value.trouble for row in run.trace if is_result(row.record)]
    return [*own, *(trouble for child in run.children for trouble in find_troubles(child))]


if __name__ == "__main__":
    points.watch(ChatModel if endpoint else plait.Scripted, is_postgres=journal.startswith("postgresql:"))
    models = make_models()
    agent = plait.Agent(
        "react" if is_tree else loop,
        model=next(iter(models.values())),
        models=models,
        tools=[fetch, send, delegate] if is_tree else [fetch, send],
        approve=(lambda call: call.tool == "send") if loop == "approved" else "never",
        hooks=[Changing()] if "hooks" in sys.argv else [],
        journal=journal,
        limits=plait.Limits(tools=0 if loop == "codeact" else None),
    )
    run = agent.resume("last") if "resume" in sys.argv else agent.run(QUESTION)
    while run.status == "waiting":
        run = agent.resume(run, "yes")
    found = {"status": run.status, "answer": run.answer, "troubles": find_troubles(run), "points": passed}
    print(json.dumps({**found, "requests": run.tree.requests, "children": len(run.children)}))
