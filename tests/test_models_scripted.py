"""Models that answer from a list or a record: right in every transcript, for many runs, after a resume."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import plait
from plait.core import Call, Reply, Think, Usage, assistant, user
from plait.core.errors import BadRequest, ConfigError, RateLimited
from plait.models.base import Abilities, Model, Response
from plait.models.chat import ChatModel
from plait.models.prices import Price
from plait.models.recorded import NotRecorded, Recorded
from plait.models.scripted import Scripted

REPLIES = ["Thought: look\nAction: lookup", "Thought: add\nAction: calculator", "Final Answer: 42"]


async def ask(model, think, shown=None):
    response = await model.send(model.encode(think), think, shown.append if shown is not None else None)
    return model.decode(response, think)


def chat(*said, **options):
    messages = [user("q")]
    for text in said:
        messages += [assistant(text), user("Observation: o")]
    return Think("act", tuple(messages), **options)


async def test_the_turn_is_read_off_a_chat():
    model = Scripted(REPLIES)
    for n in (2, 0, 1):
        assert (await ask(model, chat(*REPLIES[:n]))).text == REPLIES[n]


async def test_the_turn_is_read_off_one_growing_text():
    model = Scripted(REPLIES)
    for n in (2, 0, 1):
        log = "Question: q\n" + "".join(f"{reply}\nObservation: o\n" for reply in REPLIES[:n]) + "Thought:"
        assert (await ask(model, Think("act", prompt=log))).text == REPLIES[n]
        assert (await ask(model, Think("act", (user(log),)))).text == REPLIES[n]


async def test_a_reply_cut_at_a_stop_string_is_still_found():
    model = Scripted([REPLIES[0] + "\nObservation: made up", "done"])
    first = await ask(model, chat(stop=("\nObservation:",)))
    assert first.text == REPLIES[0]
    assert (await ask(model, chat(first.text, stop=("\nObservation:",)))).text == "done"


async def test_a_bad_turn_that_was_taken_out_again_does_not_come_back():
    model = Scripted(["bad", "good", "end"])
    assert (await ask(model, chat("bad"))).text == "good"
    assert (await ask(model, chat("good"))).text == "end"


async def test_the_same_reply_several_times():
    model = Scripted(["again", "again", "again", "end"])
    assert [(await ask(model, chat(*["again"] * n))).text for n in range(4)] == ["again"] * 3 + ["end"]


async def test_a_turn_that_the_loop_rewrote_counts_as_one():
    model = Scripted(['{"a":1}', "second", "third"])
    assert (await ask(model, chat('{"a": 1}'))).text == "second"
    assert (await ask(model, chat('{"a": 1}', "second"))).text == "third"


async def test_a_reply_that_is_continued():
    model = Scripted([Reply("The beginning of a long", finish="length"), " story."])
    first = await ask(model, chat())
    assert first.finish == "length"
    assert (await ask(model, chat(prefill=first.text))).text == " story."
    # An opening that is no reply of ours is no turn.
    assert (await ask(model, chat(prefill="Thought:"))).text == first.text


async def test_phases_have_their_own_lists():
    model = Scripted({"plan": ["the plan"], "": ["other"]})
    assert (await ask(model, Think("plan", (user("q"),)))).text == "the plan"
    assert (await ask(model, Think("solve", (user("q"),)))).text == "other"


async def test_any_number_of_runs_at_once_and_a_new_process_go_on_right():
    model = Scripted(REPLIES, delay=0.001)

    async def run(i):
        said = []
        for _ in REPLIES:
            messages = [user(f"q{i}"), *(m for text in said for m in (assistant(text), user("o")))]
            said.append((await ask(model, Think("act", tuple(messages)))).text)
        return said

    assert await asyncio.gather(*map(run, range(50))) == [REPLIES] * 50
    assert (await ask(Scripted(REPLIES), chat(*REPLIES[:2]))).text == REPLIES[2]


async def test_errors_come_before_their_turn_once_each():
    model = Scripted(["one", RateLimited("wait", after=0.0), RateLimited("wait"), "two"])
    assert (await ask(model, chat())).text == "one"
    for _ in range(2):
        with pytest.raises(RateLimited):
            await ask(model, chat("one"))
    assert (await ask(model, chat("one"))).text == "two"
    assert (await ask(model, chat())).text == "one"


async def test_functions_replies_calls_and_usage():
    calls = Reply("", calls=(Call("add", {"a": 1}, "c1"), Call("x", "no json", "c2")), usage=Usage(10, 5, 4))
    model = Scripted([lambda think: f"to {think.messages[0].content}", calls])
    first = await ask(model, chat())
    assert first.text == "to q"
    assert first.usage.estimated
    second = await ask(model, chat(first.text))
    assert (second.calls, second.usage, second.finish) == (calls.calls, Usage(10, 5, 4), "calls")


async def test_one_after_another_whatever_is_asked():
    model = Scripted(["a", "b"], by_turn=False)
    assert [(await ask(model, chat())).text for _ in range(2)] == ["a", "b"]
    with pytest.raises(BadRequest, match="has 2 replies"):
        await ask(model, chat())


async def test_the_end_of_the_script_is_said():
    with pytest.raises(BadRequest, match=r"'act'.*Add a reply"):
        await ask(Scripted(["a"]), chat("a"))


async def test_more_unknown_turns_than_replies_are_the_end_of_the_script():
    with pytest.raises(BadRequest, match="2 replies for the phase 'act'"):
        await ask(Scripted(["one", "two"]), chat("x", "y", "z", "w"))


async def test_it_streams_in_pieces():
    shown: list[str] = []
    assert (await ask(Scripted(["abcdefg"], chunk=3), chat(), shown)).text == "abcdefg"
    assert shown == ["abc", "def", "g"]


async def test_a_script_in_a_file(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(
        json.dumps(
            {
                "replies": [
                    {"error": "RateLimited", "message": "wait"},
                    "one",
                    {"text": "two", "finish": "length", "usage": {"input_tokens": 3, "output_tokens": 1}},
                ],
                "chunk": 2,
            }
        )
    )
    model = Scripted.from_file(path)
    with pytest.raises(RateLimited, match="wait"):
        await ask(model, chat())
    assert (await ask(model, chat())).text == "one"
    two = await ask(model, chat("one"))
    assert (two.text, two.finish, two.usage) == ("two", "length", Usage(3, 1))
    assert model.spec == f"scripted:{path}"


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "not JSON"),
        ("3", "list of replies"),
        ('{"replies": 3}', "list of replies"),
        ("[3]", "reply 1 should be text"),
        ('["a", {"text": 3}]', "reply 2 is not a reply"),
        ('[{"error": "Nope"}]', "not a model error"),
        ('{"replies": [], "dealy": 1}', "dealy"),
    ],
)
def test_a_script_that_is_none(tmp_path, text, says):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        Scripted.from_file(path)
    assert str(path) in str(caught.value)


def test_they_are_models():
    for model in (Scripted([]), Recorded([]), ChatModel(spec="a:b", name="b", endpoint="http://h")):
        assert isinstance(model, Model)
        assert json.dumps(model.describe())
        assert model.without("stop").abilities == model.abilities.without("stop")


def body(text):
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()


async def test_recorded_bytes_are_answered_with_recorded_bytes():
    like = ChatModel(spec="openai:m", name="m", endpoint="http://h/v1", abilities=Abilities(stop=False))
    requests = [like.encode(chat(*REPLIES[:n])).body for n in range(3)]
    model = Recorded({request: body(text) for request, text in zip(requests, REPLIES, strict=True)}, like)
    for n in (2, 0, 1, 1):
        shown: list[str] = []
        assert (await ask(model, chat(*REPLIES[:n]), shown)).text == REPLIES[n] == "".join(shown)
    assert model.spec == "openai:m"


async def test_an_attempt_that_failed_fails_again_and_the_next_succeeds():
    request = Recorded([]).encode(chat()).body
    model = Recorded([(request, Response(429, b'{"error": "slow"}')), (request, body("at last"))])
    with pytest.raises(RateLimited):
        await ask(model, chat())
    assert (await ask(model, chat())).text == "at last"
    assert (await ask(model, chat())).text == "at last"


async def test_a_request_that_is_not_recorded_shows_the_first_difference():
    model = Recorded([(Recorded([]).encode(chat()).body, body("x"))])
    with pytest.raises(NotRecorded) as caught:
        await ask(model, Think("act", (user("quite another"),)))
    assert "uite another" in str(caught.value)
    assert "differs" in str(caught.value)
    with pytest.raises(NotRecorded, match="no record of any"):
        await ask(Recorded([]), chat())


def test_a_price_is_the_rate_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('["Final Answer: 4"]', "utf-8")
    price = Price(1000, 2000)
    for model in (Scripted(["Final Answer: 4"], rate=price), Scripted.from_file(tmp_path / "s.json", rate=price)):
        run = plait.Agent("react", model=model, journal=tmp_path / "j.db").run("2 + 2?")
        assert run.status == "answered" and run.cost_usd and model.rate == price.rate
