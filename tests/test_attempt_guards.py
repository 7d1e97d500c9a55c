"""Guards of attempts, and questions of which the user answers some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plait
from plait.core import Call, Reply, Waiting
from plait.runtime.guard import Attempt


class Asap(plait.Guard):
    """Asks about each attempt."""

    points = (Attempt,)

    async def before(self, entry: plait.Entry) -> Any:
        return plait.AskApproval("Send it?")


def test_a_run_whose_attempts_a_guard_asks_about_goes_on_whatever_the_guards_name(tmp_path: Path) -> None:
    """The key of a decision about an attempt has letters that look like those of attempts."""
    for i in range(6):
        agent = plait.Agent(
            "react", model=plait.Scripted(["Final Answer: 42"]), hooks=[Asap()], journal=tmp_path / f"{i}.db"
        )
        run = agent.run(f"question {i}")
        assert run.status == "waiting" and run.reason is not None and "Send it?" in run.reason
        assert agent.resume(run, "yes").answer == "42"


def test_a_run_waits_with_a_question_that_is_still_open(tmp_path: Path) -> None:
    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        return f"sent {text}"

    asked: list[Waiting] = []

    def say(waiting: Waiting) -> str | None:
        asked.append(waiting)
        return "yes" if len(asked) == 1 else None

    calls = tuple(Call("send", {"text": each}, id=each) for each in ("one", "two"))
    model = plait.Scripted([Reply("", finish="calls", calls=calls), "Over."])
    agent = plait.Agent("tool_calling", model=model, tools=[send], approve="effects", journal=tmp_path / "j.db")
    run = agent.run("Send both.", on_wait=say)
    assert run.status == "waiting" and isinstance(run.outcome, Waiting)
    assert run.outcome.question == asked[1].question != asked[0].question
    assert agent.resume(run, "yes").answer == "Over."
