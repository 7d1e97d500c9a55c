"""A request that breaks a prefix which the provider had cached is noted: the first byte that differs, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import plait
from plait.core import Call, Message, Think, ToolSpec, Usage, assistant, system, user
from plait.core import events as ev
from plait.journal.store import Journal
from plait.models.base import OnText, Request, Response
from plait.models.chat import ChatModel
from plait.models.presets import HOSTS
from plait.runtime.prompt_cache import CAUSES, CacheWatch, find_break
from recorded_wires import recorded

LOOK, PAY = ToolSpec("look", "Looks."), ToolSpec("pay", "Pays.")
RULES = "You are a clerk. It is 09:41 on 2026-11-26. " + "Follow the house rules. " * 40
RESULT = "A long result. " * 60
TALK = (
    system(RULES),
    user("What is open? " * 30),
    Message("assistant", "", (Call("look", {"at": 1}, "c1"),)),
    Message("tool", RESULT, call_id="c1"),
    assistant("Two bills are open."),
    user("Pay the first."),
)
ASKED = Think("act", TALK, tools=(LOOK,))
HOSTED = ("openai:gpt-6-sol", "anthropic:claude-haiku-5-5", "gemini:gemini-3.8-flash", "responses:gpt-6-sol")


def model_of(spec: str) -> ChatModel:
    provider, _, name = spec.partition(":")
    host = HOSTS["openai" if provider == "responses" else provider]
    wire = "responses" if provider == "responses" else host.wire
    return ChatModel(spec=spec, name=name, endpoint="http://h/v1", wire=wire, provider=host.name)


def changed(at: int, text: str) -> Think:
    talk = list(TALK)
    talk[at] = structs.replace(talk[at], content=text)
    return structs.replace(ASKED, messages=tuple(talk))


CHANGES = {
    "time": changed(0, RULES.replace("09:41", "09:42")),
    "system": changed(0, RULES.replace("clerk", "judge")),
    "tools": structs.replace(ASKED, tools=(LOOK, PAY)),
    "trimmed": structs.replace(ASKED, messages=(TALK[0], *TALK[4:])),
    "shortened": changed(3, RESULT[:200]),
    "message": changed(1, "What else is open? " * 30),
}


@pytest.mark.parametrize("spec", HOSTED)
@pytest.mark.parametrize("cause", CHANGES)
def test_each_cause_is_found_on_each_wire_with_its_byte(spec: str, cause: str) -> None:
    model = model_of(spec)
    before, now = model.encode(ASKED).body, model.encode(CHANGES[cause]).body
    found = find_break(before, now)
    assert found is not None
    assert found.cause == cause
    if cause not in ("tools", "trimmed"):
        assert (now[found.at :][:1], before[found.at :][:1]) == (found.now[:1].encode(), found.before[:1].encode())
    assert 0 <= found.share < 0.95


@pytest.mark.parametrize("spec", HOSTED)
def test_a_conversation_that_goes_on_breaks_nothing(spec: str) -> None:
    model = model_of(spec)
    more = structs.replace(ASKED, messages=(*TALK, assistant("Done."), user("And the second?")))
    assert find_break(model.encode(ASKED).body, model.encode(more).body) is None
    grown = changed(5, "Pay the first. And the second.")
    assert find_break(model.encode(ASKED).body, model.encode(grown).body) is None


def test_only_a_loss_that_the_usage_shows_is_reported_and_each_cause_once() -> None:
    model = model_of("openai:gpt-6-sol")
    body, other = model.encode(ASKED).body, model.encode(CHANGES["time"]).body
    cached, lost = Usage(5000, 1, cached_tokens=4900), Usage(5000, 1)
    watch = CacheWatch(())
    looks = [(body, lost), (other, lost), (body, cached), (other, lost), (body, cached), (other, lost)]
    said = [watch.look("m", "act", *each) for each in looks]
    assert [bool(each) for each in said] == [False, False, False, True, False, False]
    assert "a time or a date in the prompt changed ('1 on 2026-11-26. Follow " in said[3]
    assert "4,900 tokens" in said[3]
    # What an earlier process reported, another request that is the same, or estimates, are not reported.
    for start, last, used in ((said, other, lost), ([], body, lost), ([], other, Usage(5000, 1, estimated=True))):
        again = CacheWatch(start)
        assert again.look("m", "act", body, cached) == ""
        assert again.look("m", "act", last, used) == ""


def test_a_changed_setting_is_named() -> None:
    model = model_of("anthropic:claude-haiku-5-5")
    other = structs.replace(model, params={"tool_choice": {"type": "any"}})
    found = find_break(model.encode(ASKED).body, other.encode(ASKED).body)
    assert found is not None
    assert (found.cause, found.now) == ("setting", "tool_choice")


def test_recorded_requests_that_hit_the_cache_are_not_reported_and_a_changed_one_is() -> None:
    pairs = [exchange for name, exchange in recorded("openai-chat") if "prompt_cache_e2e" in name]
    bodies = [json.dumps(each["request"], separators=(",", ":")).encode() for each in pairs]
    used = [each["response"]["usage"] for each in pairs]
    usages = [
        Usage(
            each["prompt_tokens"],
            4,
            each["prompt_tokens_details"]["cached_tokens"],
            each["prompt_tokens_details"]["cache_write_tokens"],
        )
        for each in used
    ]
    watch = CacheWatch(())
    assert [watch.look("m", "act", *each) for each in zip(bodies, usages, strict=True)] == ["", ""]
    changed = bodies[1].replace(b"Entry 0000", b"Entry 000X")
    said = watch.look("m", "act", changed, usages[0])
    at = changed.index(b"Entry 000X") + len(b"Entry 000")
    assert f"at byte {at:,}:" in said
    assert CAUSES["message"] in said or CAUSES["system"] in said


class Cached(ChatModel, frozen=True, kw_only=True):
    """An endpoint that reads a prompt from its cache as far as it is that of the last request, in bytes."""

    bodies: list[bytes]
    replies: list[dict[str, Any]]

    async def send(self, request: Request, think: Think, on_text: OnText | None = None) -> Response:
        last, body = (self.bodies or [b""])[-1], request.body
        same = next((i for i, (a, b) in enumerate(zip(last, body, strict=False)) if a != b), min(len(last), len(body)))
        self.bodies.append(body)
        usage = {"prompt_tokens": len(body), "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": same}}
        message = {"role": "assistant", **self.replies.pop(0)}
        choice = {"message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        return Response(200, json.dumps({"choices": [choice], "usage": usage}).encode())


class Clock(plait.Hook):
    """Puts the time into the system text of each request, as people do."""

    def __init__(self) -> None:
        self.asked = 0

    def before_model(self, context: Any, think: Think) -> Think:
        self.asked += 1
        first, *rest = think.messages
        text = f"It is 10:{self.asked // 3 + 10}. {first.content}"
        return structs.replace(think, messages=(structs.replace(first, content=text), *rest))


@plait.tool(read_only=True)
def look(at: int) -> str:
    """Looks at something."""
    return RESULT * 3


def test_a_run_notes_a_time_in_its_prompt_once(tmp_path: Path) -> None:
    made = {"function": {"name": "look", "arguments": '{"at": 1}'}}
    call = {"content": None, "tool_calls": [made]}

    def make(replies: int, *hooks: plait.Hook) -> tuple[plait.Agent[Any], Cached]:
        script: list[dict[str, Any]] = [call] * replies + [{"content": "Done."}]
        model = Cached(spec="t:m", name="m", endpoint="http://h/v1", bodies=[], replies=script)
        return plait.Agent("tool_calling", model=model, tools=[look], hooks=hooks, journal=tmp_path / "j.db"), model

    agent, _ = make(5)
    assert [each.text for each in _notes(agent)] == []
    agent, _ = make(5, Clock())
    [note] = _notes(agent)
    assert "a time or a date in the prompt changed" in note.text
    [row] = Journal.at(tmp_path / "j.db").runs(limit=1)
    assert agent.replay(row.head.run).whole


def _notes(agent: plait.Agent[Any]) -> list[ev.Noted]:
    seen: list[ev.Noted] = []
    run = agent.run("What is open?", on_event=lambda event: seen.append(event) if isinstance(event, ev.Noted) else None)
    assert run.answer == "Done."
    return [each for each in seen if each.kind == "cache"]
