"""Claims about a result that is too long to be shown: the model can page through it and search it, in each loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import Call, Reply
from plait.core.errors import ToolError
from plait.core.events import Observed

FACT = "the vault opens with 7731"
LONG = "\n".join(f"row {number}: {FACT if number == 4000 else 'nothing'}" for number in range(8000))


@plait.tool(read_only=True, open_world=True)
def read_log(name: str) -> str:
    """Reads a log."""
    return LONG if name == "long" else "short"


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    return "sent"


def react(tool: str, **given: Any) -> str:
    return f"Thought: n.\nAction:\n```json\n{json.dumps({'action': tool, 'action_input': given})}\n```\n"


def phased(tool: str, **given: Any) -> str:
    return json.dumps([{"ACTION": tool, "ARGUMENTS": list(given.values()), "EXPLANATION": "x"}])


READ = {"result": "1.0", "find": "VAULT"}
SCRIPTS: dict[str, Any] = {
    "tool_calling": [
        Reply("", calls=(Call("read_log", {"name": "long"}, "1"),)),
        Reply("", calls=(Call("read_result", READ, "2"),)),
        Reply("7731"),
    ],
    "react": [react("read_log", name="long"), react("read_result", **READ), "Thought: d\nFinal Answer: 7731"],
    "json": [
        json.dumps({"thought": "t", "tool": "read_log", "tool_input": "long"}),
        json.dumps({"thought": "t", "tool": "read_result", "tool_input": READ}),
        json.dumps({"thought": "t", "tool": "final_answer", "tool_input": "7731"}),
    ],
    "phased": {
        "reason": ["Read it.", "Search it."],
        "react": [phased("read_log", name="long"), phased("read_result", result="3.0", find="VAULT")],
        "reply": ["7731"],
    },
    "compiler": {
        "plan": ['1. read_log("long")\n2. join()\n', '1. read_result("4.0", "VAULT")\n2. join()\n'],
        "join": ["Thought: search it.\nReplan: search it", "Thought: d\nFinish: 7731"],
    },
}


def make(loop: str, script: Any, journal: Path | bool, **fields: Any) -> plait.Agent[Any]:
    fields = {"tools": [read_log, send], "journal": journal, **fields}
    return plait.Agent(loop, model=plait.Scripted(script), **fields)


def results_of(run: plait.Run[Any]) -> list[Any]:
    return [event.observation for event in run.events if isinstance(event, Observed)]


@pytest.mark.parametrize("loop", SCRIPTS)
def test_a_long_result_can_be_searched_in_each_loop_and_the_run_is_replayed(loop: str, tmp_path: Path) -> None:
    agent = make(loop, SCRIPTS[loop], tmp_path / "runs.db")
    run = agent.run("How does the vault open?")
    assert run.answer == "7731", run.reason
    assert (
        "read_result" in results_of(run)[0].note
        and FACT in results_of(run)[1].text
        and len(results_of(run)[1].text) < 8000
    )
    requests = [call.request.decode() for call in run.timeline.model_calls]
    assert "read_result" not in requests[0] and any("read_result" in each for each in requests)
    assert FACT in requests[-1] and max(map(len, requests)) < 40_000
    assert agent.replay(run).whole


def test_a_request_is_the_same_as_without_the_tool_if_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    script = [
        Reply("", calls=(Call("read_log", {"name": "short"}, "1"), Call("nothing", {}, "2"))),
        Reply("done"),
    ]

    def requests() -> list[bytes]:
        run = make("tool_calling", script, False).run("q")
        return [call.request for call in run.timeline.model_calls]

    before = requests()
    monkeypatch.setattr("plait.run_maker.READ_RESULT", "read_log")  # a tool of the user has its name
    assert requests() == before and b"read_result" not in b"".join(before)


def call(find: str = "", start: int = 0, result: str = "1.0", chars: int = 8000, **fields: Any) -> Any:
    """What `read_result` gives after one long result."""
    script = [
        Reply("", calls=(Call("read_log", {"name": "long"}, "1"),)),
        Reply("", calls=(Call("read_result", {"result": result, "find": find, "start": start}, "2"),)),
        Reply("done"),
    ]
    run = make("tool_calling", script, False, limits=plait.Limits(observation_chars=chars), **fields).run("q")
    return results_of(run)[-1]


def test_pages_follow_each_other_and_are_shown_whole() -> None:
    start, text = 0, ""
    while True:
        seen = call(start=start, chars=40_000)
        head, _, page = seen.text.partition("\n")
        text += page
        assert not seen.note and len(seen.text) < 40_000
        if "Next" not in head:
            break
        start = int(head.partition("start=")[2].rstrip(".]"))
    assert text == LONG


def test_wrong_input_says_what_there_is() -> None:
    assert "There are: 1.0." in call(result="9.9").text
    assert "there is no character" in call(start=10**9).text
    assert "has 'zebra'" in call(find="zebra").text
    assert call(find="row", chars=1000).text.count("[character") in range(1, 8)
    assert "Next: start=" in call(find="row").text
    assert FACT in call(find="7731", result='"1.0"').text


def test_a_part_of_a_result_from_outside_is_from_outside(tmp_path: Path) -> None:
    assert call(find="vault").outside
    script = [
        Reply("", calls=(Call("read_log", {"name": "long"}, "1"),)),
        Reply("", calls=(Call("read_result", READ, "2"),)),
        Reply("", calls=(Call("send", {"text": "x"}, "3"),)),
    ]
    run = make("tool_calling", script, tmp_path / "runs.db", taint="ask").run("q")
    assert run.status == "waiting" and run.outside


def test_a_hook_that_changes_the_result_changes_what_can_be_read() -> None:
    class Mask(plait.Hook):
        def after_tool(self, context: Any, call: Call, observation: Any) -> Any:
            from msgspec import structs

            return structs.replace(observation, text=observation.text.replace(FACT, "***"))

    assert FACT not in call(find="vault", hooks=[Mask()]).text


def test_a_resumed_run_can_still_read_its_results(tmp_path: Path) -> None:
    script = [
        Reply("", calls=(Call("read_log", {"name": "long"}, "1"),)),
        Reply("", calls=(Call("send", {"text": "x"}, "2"),)),
        Reply("", calls=(Call("read_result", READ, "3"),)),
        Reply("7731"),
    ]
    agent = make("tool_calling", script, tmp_path / "runs.db", approve="effects")
    run = agent.resume(agent.run("q"), "yes")
    assert run.answer == "7731" and FACT in results_of(run)[-1].text


def test_outside_of_a_run_the_tool_says_so() -> None:
    from plait.runtime.calls.context import Context
    from plait.toolkits.read_result import read_result

    with pytest.raises(ToolError, match="no run"):
        read_result.function(Context(None), "1.0")
