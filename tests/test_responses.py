"""The Responses API: the official client gets what it expects, from any process, while the run goes on and later."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import plait
from conftest import CAMPAIGN
from lazily import Lazy, skip_without

skip_without("server", "starlette", "uvicorn", "prometheus_client")

from starlette.requests import Request  # noqa: E402

from patience import patience  # noqa: E402
from plait.config import ServeTable  # noqa: E402
from plait.core import Call, Reply, Think  # noqa: E402
from plait.core.errors import BadRequest  # noqa: E402
from plait.journal.owner import owner_of_this_process  # noqa: E402
from plait.journal.postgres.store import PostgresStore  # noqa: E402
from plait.journal.records import RunHead  # noqa: E402
from plait.journal.store import Journal  # noqa: E402
from plait.models.base import Abilities  # noqa: E402
from plait.server.agent_turn import AgentTurn  # noqa: E402
from plait.server.agents import serve_agent  # noqa: E402
from plait.server.auth import ANYONE  # noqa: E402
from plait.server.chat_format import parse_request  # noqa: E402
from plait.server.completions import CompletionFormat  # noqa: E402
from plait.server.errors import RequestRejected  # noqa: E402
from plait.server.recorded_reply import RecordedReply  # noqa: E402
from plait.server.response_format import ResponseFormat, parse_response_request  # noqa: E402
from plait.server.runs import RunManager  # noqa: E402
from plait.workers import QueueWorker  # noqa: E402
from postgres_server import shared_server  # noqa: E402
from window_server import FULL, ONE, TWO, Here, Process, script, serving  # noqa: E402
from window_support import Held  # noqa: E402

openai = Lazy("openai")
ADD = 'Thought: I add.\nAction:\n```\n{"action": "add", "action_input": {"a": 2, "b": 3}}\n```'
SEND = 'Thought: I send.\nAction:\n```\n{"action": "send", "action_input": {"text": "hi"}}\n```'
LONG = "I look at the numbers first. " * 10


@plait.tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@plait.tool(destructive=True)
def send(text: str) -> str:
    """Sends."""
    return f"sent {text}"


def make(loop: str, replies: list[Any], journal: Path, **more: Any) -> plait.Agent:
    script = plait.Scripted(replies, chunk=4, by_turn=more.pop("by_turn", True))
    return plait.Agent(loop, model=script, **{"tools": [add, send], "journal": journal, **more})


@pytest.fixture
def agent(journal: Path) -> plait.Agent:
    return make("react", [ADD, "Thought: So.\nFinal Answer: It is 5."], journal)


@contextmanager
def client(here: Here | Process, key: str = "none") -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key=key, timeout=120, max_retries=0) as made:
        yield made


def checked(value: Any, kind: str = "Response") -> dict[str, Any]:
    """What the client got, after its own types were satisfied."""
    found: dict[str, Any] = value.to_dict()
    adapter(kind).validate_python(found)
    return found


@cache
def adapter(kind: str) -> Any:
    from openai.types import responses
    from pydantic import TypeAdapter

    return TypeAdapter(getattr(responses, kind))


def events(stream: Any) -> list[dict[str, Any]]:
    return [checked(each, "ResponseStreamEvent") for each in stream]


def joined(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with neighbouring pieces of a text joined."""
    made: list[dict[str, Any]] = []
    for each in found:
        if each["type"].endswith(".delta") and made and made[-1]["type"] == each["type"]:
            made[-1] = {**each, "delta": made[-1]["delta"] + each["delta"]}
        else:
            made.append(each)
    return made


def text_of(found: list[dict[str, Any]]) -> str:
    return "".join(each["delta"] for each in found if each["type"] == "response.output_text.delta")


def until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + patience(60)
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


ASK: Any = {"model": "plait", "input": "What is 2 + 3?"}


def test_an_agent_answers_whole_and_as_a_stream(agent: plait.Agent) -> None:
    with serving(agent) as here, client(here) as api:
        whole = checked(api.responses.create(**ASK, metadata={"a": "b"}, user="ada"))
        found = events(api.responses.create(**ASK, stream=True))
        with api.responses.stream(**ASK) as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == "It is 5."
        (_, _, run) = here.manager.journal.runs()
    assert whole["id"] == f"resp_{run.head.run}" and whole["status"] == "completed" and whole["model"] == "plait"
    assert (whole["metadata"], whole["user"], run.head.user) == ({"a": "b"}, "ada", "ada")
    assert whole["usage"]["total_tokens"] == run.totals["input_tokens"] + run.totals["output_tokens"]
    reasoning, message = whole["output"]
    assert '"action": "add"' in reasoning["content"][0]["text"] and message["content"][0]["text"] == "It is 5."
    assert found[-1]["type"] == "response.completed" and text_of(found) == "It is 5."
    assert [each["content"] for each in found[-1]["response"]["output"]] == [
        each["content"] for each in whole["output"]
    ]
    numbers = [each["sequence_number"] for each in found]
    assert numbers == sorted(set(numbers)) and kinds[:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]


def test_calls_are_no_items_and_thoughts_are_only_sent_where_the_agent_sends_them(agent: plait.Agent) -> None:
    with serving(serve_agent("plait", agent, ServeTable())) as here, client(here) as api:
        whole = checked(api.responses.create(**ASK))
        assert [each["type"] for each in whole["output"]] == ["message"]
        assert "I add" not in json.dumps(events(api.responses.create(**ASK, stream=True)))


STREAMED: dict[str, tuple[str, list[Any], Any]] = {
    "react": ("react", [ADD, "Thought: So.\nFinal Answer: It is 5."], {}),
    "tool_calling": ("tool_calling", [Reply("Hm.", calls=(Call("add", {"a": 1, "b": 2}, "a"),)), "It is 3."], {}),
    "text before calls": ("tool_calling", [Reply(LONG, calls=(Call("add", {"a": 1, "b": 2}, "a"),)), LONG], {}),
    "no tools": ("tool_calling", ["It is 3, I say."], {"tools": []}),
    "typed": ("tool_calling", ['{"n": 3}'], {"tools": []}),
    "rewoo": ("rewoo", ['Plan: I add.\n#E1 = add[{"a": 1, "b": 2}]', "It is 3."], {}),
    "json": ("json", ['{"thought": "x", "tool": "final_answer", "tool_input": {"sum": [5]}}'], {}),
    "a limit": ("react", [ADD, "Final Answer: About 5."], {"limits": plait.Limits(steps=1)}),
    "no answer": ("react", [BadRequest("no money")] * 3, {}),
    "asks": ("react", [SEND, "Final Answer: ok"], {"approve": "effects"}),
}


@pytest.mark.parametrize(
    ("thoughts", "case"), list(product([True, False], STREAMED) if CAMPAIGN else zip(cycle([True, False]), STREAMED))
)
def test_a_stream_is_made_again_from_the_record_after_any_of_its_numbers(
    case: str, thoughts: bool, journal: Path
) -> None:
    loop, replies, more = STREAMED[case]
    agent = make(loop, replies, journal, **more)
    asked: Any = {"text": {"format": {"type": "json_object"}}} if case == "typed" else {}
    with serving(serve_agent("plait", agent, ServeTable(), thoughts=thoughts)) as here, client(here) as api:
        live = events(api.responses.create(**ASK, **asked, stream=True))
    id, text = live[0]["response"]["id"], text_of(live)
    assert bool(text) == (case != "no answer")
    # Another process, which serves the same journal.
    again = serve_agent("plait", make(loop, replies, journal, **more), ServeTable(), thoughts=thoughts)
    with serving(again) as here, client(here) as api:
        assert checked(api.responses.retrieve(id)) == live[-1]["response"]
        assert joined(events(api.responses.retrieve(id, stream=True))) == joined(live)
        for at in range(1, len(live), 1 + len(live) // 5):
            number = live[at]["sequence_number"]
            path = f"/v1/responses/{id}?stream=true&starting_after={number}"
            rest = [json.loads(each[6:]) for each in here.ask("GET", path)[2].splitlines() if each.startswith("data: ")]
            assert text_of(live[: at + 1]) + text_of(rest) == text
            numbers = [each["sequence_number"] for each in (live[at], *rest)]
            assert numbers == sorted(set(numbers))
            late = [each for each in live[at + 1 :] if not each["type"].endswith(".delta")]
            # The last event always comes.
            assert [each for each in rest if not each["type"].endswith(".delta")][: len(late)] == late
            assert rest[-1]["response"] == live[-1]["response"]


def test_text_before_a_call_is_a_commentary_and_no_part_of_the_answer(journal: Path) -> None:
    _, replies, _ = STREAMED["text before calls"]
    agent = make("tool_calling", [*replies[:1], "It is 3."], journal)
    with serving(serve_agent("plait", agent, ServeTable())) as here, client(here) as api:
        found = events(api.responses.create(**ASK, stream=True))
        done = [each["item"] for each in found if each["type"] == "response.output_item.done"]
        assert [(each["content"][0]["text"], each.get("phase")) for each in done] == [
            (LONG.strip(), "commentary"),
            ("It is 3.", None),
        ]
        with api.responses.stream(**ASK) as stream:
            assert stream.get_final_response().output_text == "It is 3."
        assert api.responses.create(**ASK).output_text == "It is 3."


def test_a_run_is_followed_while_another_process_performs_it(journal: Path) -> None:
    model = Held(["Thought: I think a while.\nFinal Answer: Four words of answer."])
    agent = plait.Agent("react", model=model, journal=journal)
    with serving(agent) as here, client(here) as api, serving(agent) as other, client(other) as second:
        started = checked(api.responses.create(**ASK, background=True))
        assert started["status"] == "in_progress" and started["output"] == []
        assert second.responses.retrieve(started["id"]).status == "in_progress"
        stream = second.responses.retrieve(started["id"], stream=True)
        assert next(stream).type == "response.created"
        model.go.set()
        rest = events(stream)
        assert rest[-1]["response"]["status"] == "completed" and text_of(rest) == "Four words of answer."
        assert checked(api.responses.retrieve(started["id"])) == rest[-1]["response"]


def test_a_foreground_client_that_goes_away_cancels_its_run_and_a_background_one_does_not(journal: Path) -> None:
    model = Held(["Final Answer: done"] * 9)
    with serving(plait.Agent("react", model=model, journal=journal)) as here, client(here) as api:
        ids = []
        for background in (False, True):
            stream = api.responses.create(**ASK, stream=True, background=background)
            ids.append(next(stream).response.id)
            stream.close()
        until(lambda: api.responses.retrieve(ids[0]).status == "cancelled")
        assert api.responses.retrieve(ids[1]).status == "in_progress"
        model.go.set()
        until(lambda: api.responses.retrieve(ids[1]).status == "completed")
        assert api.responses.retrieve(ids[1]).output_text == "done"


def test_a_background_response_is_cancelled_and_deleted(journal: Path) -> None:
    model = plait.Scripted(["Final Answer: never"], delay=300)
    with serving(plait.Agent("react", model=model, journal=journal)) as here, client(here) as api:
        id = api.responses.create(**ASK, background=True).id
        with pytest.raises(openai.ConflictError, match="has not ended"):
            api.responses.delete(id)
        assert checked(api.responses.cancel(id))["status"] == "cancelled"
        assert api.responses.cancel(id).status == "cancelled"
        last = events(api.responses.retrieve(id, stream=True))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        api.responses.delete(id)
        assert here.manager.journal.runs() == []
        for gone in (id, "resp_x", "resp_", "x", id + "_1"):
            with pytest.raises(openai.NotFoundError):
                api.responses.retrieve(gone)


def test_a_response_continues_the_session_of_the_one_before(journal: Path) -> None:
    seen: list[str] = []

    def answer(think: Think) -> str:
        seen.append("\n".join(each.content for each in think.messages))
        return f"Final Answer: Answer {len(seen)}."

    with serving(make("react", [answer] * 9, journal, by_turn=False)) as here, client(here) as api:
        first = api.responses.create(model="plait", input="First?", instructions="Be brief.")
        second = checked(api.responses.create(model="plait", input="Second?", previous_response_id=first.id))
        assert second["previous_response_id"] == first.id
        assert checked(api.responses.retrieve(second["id"]))["previous_response_id"] == first.id
        assert "Be brief." in seen[1] and "First?" in seen[1] and "Answer 1." in seen[1]
        branch = api.responses.create(model="plait", input="Other?", previous_response_id=first.id)
        assert "Answer 1." in seen[2] and "Second?" not in seen[2]
        api.responses.create(model="plait", input="Last?", previous_response_id=branch.id)
        assert "Other?" in seen[3] and "Second?" not in seen[3]
        sessions = [run.head.session for run in here.manager.journal.runs()][::-1]
        assert sessions[0] == sessions[1] and sessions[2] == sessions[3] != sessions[0]
        # The whole conversation again, with the items that the client got.
        items: Any = [{"role": "user", "content": "Be brief.\n\nFirst?"}, *(each.to_dict() for each in first.output)]
        api.responses.create(model="plait", input=[*items, {"role": "user", "content": "And then?"}])
        assert seen[4].count("Answer 1.") == 1
        named = checked(api.responses.create(**ASK, conversation="ours"))
        assert named["conversation"] == {"id": "ours"} and here.manager.journal.runs()[0].head.session == "ours"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_conversation_keeps_the_turns_with_which_it_began(store: str, journal: Path) -> None:
    seen: list[str] = []

    def answer(think: Think) -> str:
        seen.append("\n".join(each.content for each in think.messages))
        return f"Final Answer: Answer {len(seen)}."

    place: Any = shared_server().new_journal() if store == "postgres" else journal
    with serving(make("react", [answer] * 12, place, by_turn=False)) as here, client(here) as api:
        ids: list[str] = []

        def say(text: str, after: int) -> None:
            ids.append(api.responses.create(model="plait", input=text, previous_response_id=ids[after]).id)

        ids.append(api.responses.create(model="plait", input="First?").id)
        for text, after in (("Second?", 0), ("Other?", 0), ("Third?", 2), ("Fourth?", 3), ("Branch?", 3), ("Last?", 5)):
            say(text, after)
        for text in seen[3:]:
            assert text.count("First?") == text.count("Answer 1.") == text.count("Other?") == 1
            assert "Second?" not in text
        assert "Third?" in seen[4] and all("Third?" in text and "Fourth?" not in text for text in seen[5:])

        turns: list[Any] = [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "As said."}]
        for text in ("B?", "C?"):
            turns.append({"role": "user", "content": text})
            api.chat.completions.create(model="plait", messages=turns, extra_headers={"x-plait-session": "ours"})
            turns.append({"role": "assistant", "content": f"Answer {len(seen)}."})
        assert seen[-1].count("As said.") == seen[-1].count("B?") == 1
        texts = here.manager.texts

        async def watch() -> None:
            texts.watch("x").__enter__()

        asyncio.run_coroutine_threadsafe(watch(), here.loop).result()
    tasks = (texts._showing, texts._reading)  # they have ended with the server
    assert all(task.done() if store == "postgres" else task is None for task in tasks)


def test_another_answer_is_refused_and_each_part_keeps_its_response(journal: Path) -> None:
    agent = make("react", [SEND, SEND, "Final Answer: ok"], journal, approve="effects")
    with serving(agent) as here, client(here) as api:
        live = events(api.responses.create(**ASK, stream=True))
        asks = live[-1]["response"]
        then = events(api.responses.create(model="plait", input="yes", previous_response_id=asks["id"], stream=True))
        more = then[-1]["response"]
        assert more["id"] == asks["id"] + "_1" and more["previous_response_id"] == asks["id"]
        with pytest.raises(openai.ConflictError, match="answered before"):
            api.responses.create(model="plait", input="yes", previous_response_id=asks["id"])
        ended = checked(api.responses.create(model="plait", input="no, why", previous_response_id=more["id"]))
        assert ended["id"] == asks["id"] + "_2" and ended["output"][-1]["content"][0]["text"] == "ok"
        assert len(here.manager.journal.runs()) == 1
        for found, stream in ((asks, live), (more, then)):
            again = checked(api.responses.retrieve(found["id"]))
            assert again["output"] == found["output"] and again["status"] == "completed"
            made = joined(events(api.responses.retrieve(found["id"], stream=True)))
            assert made[:-1] == [{**each, **_started(each, made[0])} for each in joined(stream)[:-1]]
        assert checked(api.responses.retrieve(ended["id"])) == ended
        texts = [api.responses.input_items.list(each["id"]).data[0].content[0].text for each in (asks, more, ended)]
        assert texts == ["What is 2 + 3?", "yes", "no, why"]
        # Other words to a question that is closed are the next turn.
        assert api.responses.create(model="plait", input="Something else", previous_response_id=asks["id"]).output
        assert len(here.manager.journal.runs()) == 2


def _started(event: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    return {"response": first["response"]} if "response" in event else {}


def test_parts_of_the_input_are_text_images_and_files(journal: Path) -> None:
    png = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n rest").decode()
    letter = "data:text/plain;base64," + base64.b64encode(b"Dear Ann").decode()
    parts = [
        {"type": "input_text", "text": "What is in these?"},
        {"type": "input_image", "image_url": png, "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": letter},
    ]
    model = plait.Scripted(["Final Answer: ok"], abilities=Abilities(images=True))
    with serving(plait.Agent("react", model=model, journal=journal)) as here, client(here) as api:
        made = api.responses.create(model="plait", input=[{"role": "user", "content": parts}])
        (run,) = here.manager.journal.runs()
        assert [each.media_type for each in run.head.attachments] == ["image/png", "text/plain"]
        (item,) = api.responses.input_items.list(made.id)
        assert [checked(each, "ResponseInputContent")["type"] for each in item.content] == [
            "input_text",
            "input_file",
            "input_file",
        ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "Hi."}]}, "input"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input[0].content"),
        ({"input": 5}, "input"),
        ({"instructions": 5}, "instructions"),
        ({"background": "yes"}, "background"),
        ({"metadata": "x"}, "metadata"),
        ({"safety_identifier": 5}, "safety_identifier"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"previous_response_id": "resp_x", "conversation": "c"}, "previous_response_id"),
        ({"conversation": {"id": 5}}, "session"),
        ({"model": "other"}, "model"),
    ],
)
def test_what_an_agent_cannot_follow_is_named(agent: plait.Agent, fields: dict[str, Any], param: str) -> None:
    with serving(agent) as here:
        status, _, body = here.ask("POST", "/v1/responses", {**ASK, **fields})
        assert (status, body["error"]["param"]) == (404 if param == "model" else 400, param)
        assert not Path(here.manager.journal.place).exists()


def test_fields_that_change_nothing_are_accepted(agent: plait.Agent) -> None:
    more: Any = {"temperature": 1, "max_output_tokens": 5, "reasoning": {"effort": "low"}, "store": False, "tools": []}
    with serving(agent) as here, client(here) as api:
        assert api.responses.create(**ASK, **more, truncation="auto", safety_identifier="u").output_text == "It is 5."
        assert here.manager.journal.runs()[0].head.user == "u"
        path = f"/v1/responses/resp_{here.manager.journal.runs()[0].head.run}"
        status, _, body = here.ask("GET", f"{path}?stream=true&starting_after=x")
        assert (status, body["error"]["param"]) == (400, "starting_after")


def test_a_client_sees_only_its_own_responses(agent: plait.Agent) -> None:
    with serving(agent, tokens=(FULL,), clients=(ONE, TWO)) as here:
        with client(here, ONE) as api:
            made = api.responses.create(**ASK, user="ada", conversation="mine")
            assert checked(made)["user"] == "ada" and checked(made)["conversation"] == {"id": "mine"}
        with client(here, TWO) as other:
            for act in (
                other.responses.retrieve,
                other.responses.delete,
                other.responses.cancel,
                other.responses.input_items.list,
                lambda id: other.responses.retrieve(id, stream=True),
                lambda id: other.responses.create(**ASK, previous_response_id=id),
            ):
                with pytest.raises(openai.NotFoundError):
                    act(made.id)
        with client(here, FULL) as full:
            assert full.responses.retrieve(made.id).output_text == "It is 5."
            with pytest.raises(openai.NotFoundError):
                full.responses.retrieve(made.id[:-2])  # no near match
            assert full.responses.delete(made.id) is None
        assert here.ask("GET", f"/v1/responses/{made.id}")[0] == 401


def test_a_child_run_is_no_response(journal: Path) -> None:
    inner = plait.Agent("tool_calling", model=plait.Scripted(["The child says 3."]))
    script = [Reply("", calls=(Call("inner", {"question": "i"}, "a"),)), "All in all 3."]
    with serving(make("tool_calling", script, journal, tools=[inner.as_tool("inner")])) as here, client(here) as api:
        made = api.responses.create(**ASK)
        (child,) = here.manager.journal.children(made.id.removeprefix("resp_"))
        for act in (api.responses.retrieve, api.responses.delete):
            with pytest.raises(openai.NotFoundError):
                act(f"resp_{child.head.run}")
        with pytest.raises(openai.NotFoundError):
            api.responses.create(**ASK, previous_response_id=f"resp_{child.head.run}")
        for id in ("x", "resp_", "resp_x y", made.id + "_1", made.id + "_0", made.id[:-1]):
            with pytest.raises(openai.NotFoundError):
                api.responses.create(**ASK, previous_response_id=id)


def test_a_run_without_an_answer_is_an_error_and_a_failed_response_later(journal: Path) -> None:
    with serving(make("react", [BadRequest("no money")] * 9, journal)) as here, client(here) as api:
        with pytest.raises(openai.InternalServerError, match="no money") as raised:
            api.responses.create(**ASK)
        assert raised.value.code == "run_crashed"
        id = f"resp_{here.manager.journal.runs()[0].head.run}"
        found = checked(api.responses.retrieve(id))
        assert found["status"] == "failed" and "no money" in found["error"]["message"]


def test_a_response_outlives_its_agent(agent: plait.Agent, journal: Path) -> None:
    with serving(agent) as here, client(here) as api:
        made = api.responses.create(**ASK)
    other = serve_agent("other", make("react", ["Final Answer: x"], journal), ServeTable())
    with serving(other) as here, client(here) as api:
        assert api.responses.retrieve(made.id).output_text == "It is 5."
        assert Journal(journal).run(made.id.removeprefix("resp_")).status == "answered"


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_any_request_is_answered_again_from_the_record_of_its_run(
    agent: plait.Agent, path: str, streams: bool
) -> None:
    asked = {**ASK, "messages": [{"role": "user", "content": "What is 2 + 3?"}], "stream": streams}
    with serving(agent) as here:
        _, headers, first = here.ask("POST", path, asked)
        turn = _turn(here.manager, path, asked)
        again = b"".join([part async for part in _parts(turn, headers["x-plait-run"])]).decode()
        assert len(here.manager.journal.runs()) == 1
    if streams:
        texts = [_texts(each) for each in (first, again)]
        assert texts[0] == texts[1] and "It is 5." in texts[0]
    else:
        assert {**json.loads(again), "created": 0} == {**first, "created": 0}


def _turn(manager: RunManager, path: str, asked: dict[str, Any]) -> AgentTurn:
    body, served = json.dumps(asked).encode(), manager.find_agent("plait")
    if path == "/v1/responses":
        found = parse_response_request(body, {})
        return AgentTurn(manager, found, ANYONE, ResponseFormat(manager, ANYONE, found))
    found = parse_request(body, {})
    return AgentTurn(manager, found, ANYONE, CompletionFormat(served, found))


def _texts(stream: str) -> str:
    """All texts of a stream, of either kind; raises if it has no end."""
    found = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert stream.endswith("data: [DONE]\n\n") or found[-1]["type"] == "response.completed"
    deltas = [each["choices"][0]["delta"] if "choices" in each else {"": each.get("delta")} for each in found]
    names = ("", "reasoning_content", "content")
    return "".join(delta.get(name) or "" for delta in deltas for name in names)


def test_another_process_goes_on_with_a_response_after_a_kill(tmp_path: Path) -> None:
    words = ("--loop", "react", "--model", script(tmp_path, "Thought: Hm.\nFinal Answer: At last.", delay=1.0))
    with Process(*words, cwd=tmp_path) as server, client(server) as api:
        stream = api.responses.create(**ASK, background=True, stream=True)
        first = next(stream)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(60)
    with Process(*words, "--resume", cwd=tmp_path) as server, client(server) as api:
        end = time.monotonic() + patience(30)
        while api.responses.retrieve(first.response.id).status == "queued":  # until the new process goes on with it
            assert time.monotonic() < end
            time.sleep(0.05)
        rest = events(api.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number))
        assert text_of(rest) == "At last." == api.responses.retrieve(first.response.id).output_text
        server.stop()


class Replace(plait.Hook):
    """Replaces a word in replies, or in answers."""

    def __init__(self, at: str) -> None:
        self.at = at

    def after_model(self, context: Any, reply: Reply) -> Reply:
        return structs.replace(reply, text=reply.text.replace("hidden", "other")) if self.at == "model" else reply

    def after_answer(self, context: Any, answer: Any) -> Any:
        return answer.replace("hidden", "other")


@pytest.mark.parametrize("at", ["model", "answer"])
@pytest.mark.parametrize("loop", ["react", "tool_calling", "phased"])
async def test_what_a_hook_withheld_never_comes_from_the_record(loop: str, at: str, journal: Path) -> None:
    secret = "Thought: I know.\nFinal Answer: hidden" if loop == "react" else "hidden " * 50
    model = plait.Scripted({"": [secret], "reason": ["Think."], "reply": [secret]}, chunk=2)
    agent = plait.Agent(loop, model=model, hooks=[Replace(at)], journal=journal)
    with serving(agent) as here:
        _, headers, live = here.ask("POST", "/v1/responses", {**ASK, "stream": True})
        run = headers["x-plait-run"]
        path = f"/v1/responses/resp_{run}"
        made = [here.ask("GET", f"{path}?stream=true")[2], json.dumps(here.ask("GET", path)[2])]
        chat = {"model": "plait", "messages": [{"role": "user", "content": "q"}], "stream": True}
        made += [part.decode() async for part in _parts(_turn(here.manager, "/v1/chat/completions", chat), run)]
        page = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "q"}]}
        made += [here.ask("POST", "/ag-ui", page)[2] for _ in range(2)]  # live, and from the record
        assert made[-1].count("RUN_FINISHED") == made[-2].count("RUN_FINISHED") == 1
        assert "hidden" not in live and "hidden" not in str(made) and "other" in made[0] and "other" in made[1]
        assert "answer_changed" not in str(made)


async def _parts(turn: AgentTurn, run: str) -> AsyncIterator[bytes]:
    answer = await turn.answer_again(Request({"type": "http"}, asyncio.Event().wait), run)  # type: ignore[arg-type]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await answer({"type": "http"}, asyncio.Event().wait, send)  # type: ignore[arg-type]
    for each in sent[1:]:
        yield each["body"]


async def test_a_run_that_waits_in_a_queue_is_followed_with_the_settings_that_it_begins_with() -> None:
    journal = shared_server().new_journal()
    model = plait.Scripted(["hidden " * 50], chunk=2)
    agent = plait.Agent("tool_calling", model=model, hooks=[Replace("answer")], journal=journal, name="plait")
    manager, store = RunManager([serve_agent("plait", agent, ServeTable())]), PostgresStore.at(journal)
    format = ResponseFormat(manager, ANYONE)
    reply = RecordedReply(manager, await agent.asubmit("q"), 0, format)
    sent, ending = await reply.read()
    assert b'"queued"' in sent and ending is None and await reply.read() == (b"", None)
    worker = QueueWorker({"plait": agent}, store)
    working = asyncio.ensure_future(worker.work())
    while ending is None:
        sent, ending = await reply.read()
        assert b"hidden" not in sent
    assert "other" in format.whole(ending)["output"][0]["content"][0]["text"]
    worker.drain()
    await working
    manager.journal.close()
    await store.close()


async def test_a_run_that_has_just_begun_is_followed_and_an_interrupted_one_is_not(journal: Path) -> None:
    manager = RunManager([serve_agent("plait", make("react", ["Final Answer: x"], journal), ServeTable())])
    store, dead = manager.journal.store, owner_of_this_process().split(":")
    dead[2] = "1"  # another process had the number before
    await store.begin(RunHead("r0", "q", {"name": "react", "options": {}}, {}, plait="0"), ":".join(dead))
    chat = {"model": "plait", "messages": [{"role": "user", "content": "q"}]}
    with pytest.raises(RequestRejected, match="goes on elsewhere"):
        await _turn(manager, "/v1/chat/completions", chat).answer_again(
            Request({"type": "http"}, asyncio.Event().wait),  # type: ignore[arg-type]
            "r0",
        )
    await store.begin(RunHead("r1", "q", {"name": "react", "options": {}}, {}, plait="0"), owner_of_this_process())
    beginning = RecordedReply(manager, "r1", 0, ResponseFormat(manager, ANYONE))
    assert (await beginning.read())[0].count(b"event:") == 2 and await beginning.read() == (b"", None)
    parts = [part async for part in RecordedReply(manager, "r0", 0, ResponseFormat(manager, ANYONE)).follow()]
    assert b"response.created" in parts[-1][0] and b'"queued"' in parts[-1][0] and not parts[-1][1]
    manager.journal.close()


def test_files_of_a_run_are_named_in_its_message_also_after_a_question(journal: Path) -> None:
    @plait.tool(read_only=True)
    def draw() -> Any:
        """Draw."""
        return plait.attach(b"a,b", "data.csv")

    calls = [Reply("", calls=(Call(name, given, name),)) for name, given in (("draw", {}), ("send", {"text": "x"}))]
    agent = make("tool_calling", [*calls, "Done."], journal, tools=[draw, send], approve="effects")
    with serving(agent) as here, client(here) as api:
        asks = api.responses.create(**ASK)
        done = checked(api.responses.create(model="plait", input="yes", previous_response_id=asks.id))
        assert [each["name"] for each in done["output"][-1]["files"]] == ["data.csv"]
        assert checked(api.responses.retrieve(done["id"])) == done


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = ["message", "reasoning", "function_call", "function_call_output", "web_search_call"]
item = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(KINDS) | anything,
        "role": st.sampled_from(["user", "assistant", "system"]),
        **dict.fromkeys(("content", "call_id", "name", "arguments", "output"), anything),
    },
)
FIELDS = ("instructions", "stream", "background", "previous_response_id", "conversation", "text", "metadata", "user")


@given(
    st.fixed_dictionaries({"input": st.lists(item, max_size=5) | anything}, optional=dict.fromkeys(FIELDS, anything))
)
def test_a_request_is_understood_or_refused_by_name(asked: dict[str, Any]) -> None:
    try:
        found = parse_response_request(json.dumps({"model": "m", **asked}).encode(), {})
    except RequestRejected as why:
        assert why.status == 400 and why.param
        return
    assert found.messages[-1].role == "user" and found.question.strip()
