"""The loop `tool_calling` over real HTTP: calls side by side, ids that match, and the same loop in text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import plait
from journal_rows import is_request, name_of
from models_server import Asked, Server, completion, delta, event
from plait.core import Call, Exchange, LoopContext, Observation, Reply, Task, Think
from plait.core import events as ev
from plait.journal.entries import LoopException
from plait.journal.records import NoteRecord
from plait.journal.sqlite.log import SqliteLog
from plait.loops import ToolCalling
from plait.models.base import Abilities
from plait.models.scripted import ABILITIES
from plait.runtime.templates.prompts import PromptBook

PEOPLE = {"Lyon": 522250, "Nice": 348085}
CALLS: list[str] = []
TOGETHER = threading.Barrier(2)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()
    TOGETHER.reset()


@plait.tool(read_only=True)
def people(city: str) -> int:
    """People living in a city."""
    CALLS.append(city)
    return PEOPLE[city]


@plait.tool(read_only=True)
def meet(who: str) -> str:
    """Returns only when two such calls are under way at once."""
    TOGETHER.wait(20)
    return f"{who} was there"


@plait.tool
def send(text: str) -> str:
    """Sends a message."""
    CALLS.append(text)
    return "sent"


def native_call(name: str, arguments: Any, id: str = "") -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {**({"id": id} if id else {}), "type": "function", "function": {"name": name, "arguments": given}}


def calling(*calls: dict[str, Any], text: str = "") -> dict[str, Any]:
    """A whole reply with native calls."""
    return completion(text, "tool_calls", tool_calls=list(calls))


def streamed(text: str, *calls: dict[str, Any]) -> bytes:
    """The same as a stream, the arguments of each call in pieces of three characters, the calls interleaved."""
    out = [delta("", role="assistant"), *(delta(part) for part in (text[:4], text[4:]) if part)]
    for i, call in enumerate(calls):
        function = {"name": call["function"]["name"], "arguments": ""}
        out.append(delta(tool_calls=[{"index": i, "id": call.get("id", ""), "type": "function", "function": function}]))
    longest = max((len(call["function"]["arguments"]) for call in calls), default=0)
    for start in range(0, longest, 3):
        for i, call in enumerate(calls):
            if piece := call["function"]["arguments"][start : start + 3]:
                out.append(delta(tool_calls=[{"index": i, "function": {"arguments": piece}}]))
    out += [
        delta(finish="tool_calls" if calls else "stop"),
        event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}),
    ]
    return b"".join(out) + event(b"[DONE]")


class Endpoint:
    """Answers with `replies`, one after another: bytes as a stream, a dict as one body, (status, body) as a refusal."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)

    async def __call__(self, asked: Asked) -> None:
        reply = self.replies.pop(0)
        if isinstance(reply, bytes):
            await asked.stream(reply)
        elif isinstance(reply, tuple):
            await asked.answer(*reply)
        else:
            await asked.answer(200, reply)


def go(replies: list[Any], journal: Path, loop: Any = None, abilities: Abilities | None = None, **options: Any) -> Any:
    """Run against a real endpoint: the run, what was asked, the events that were seen, and what a replay says."""

    async def main() -> Any:
        async with Server(Endpoint(*replies)) as server:
            agent = plait.Agent(
                loop or ToolCalling(),
                model=server.model(abilities=abilities or Abilities()),
                tools=options.pop("tools", [people, meet, send]),
                journal=journal,
                **options,
            )
            seen = [each async for each in agent.stream("How many?")]
            ended = seen[-1]
            assert isinstance(ended, ev.Ended)
            sent = [asked.body for asked in server.asked]
        # With the endpoint gone.
        return ended.run, sent, seen, agent

    run, sent, seen, agent = asyncio.run(main())
    replayed = agent.replay(run.id)
    assert replayed.whole and replayed.requests == len(sent)
    return run, sent, seen


def noted(run: Any, kind: str) -> list[str]:
    return [row.record.text for row in run.trace if isinstance(row.record, NoteRecord) and row.record.kind == kind]


LYON, NICE = native_call("people", {"city": "Lyon"}, "a1"), native_call("people", {"city": "Nice"}, "b2")


# -- tool calls


@pytest.mark.parametrize("stream", [True, False])
def test_calls_are_made_and_each_result_answers_its_own_call(journal: Path, stream: bool) -> None:
    first = streamed("I need both.", LYON, NICE) if stream else calling(LYON, NICE, text="I need both.")
    last = streamed("174,165 more.") if stream else completion("174,165 more.")
    run, sent, _ = go([first, last], journal)
    assert (run.status, run.answer, run.steps, run.calls) == ("answered", "174,165 more.", 2, 2)
    assert [tool["function"]["name"] for tool in sent[0]["tools"]] == ["people", "meet", "send"]
    assert sent[0]["tools"][0]["function"]["parameters"]["required"] == ["city"]
    assert sent[1]["messages"][:2] == sent[0]["messages"]
    assert sent[1]["messages"][2:] == [
        {
            "role": "assistant",
            "content": "I need both.",
            "tool_calls": [
                {"id": "a1", "type": "function", "function": {"name": "people", "arguments": '{"city":"Lyon"}'}},
                {"id": "b2", "type": "function", "function": {"name": "people", "arguments": '{"city":"Nice"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a1", "content": "522250"},
        {"role": "tool", "tool_call_id": "b2", "content": "348085"},
    ]


def test_calls_of_one_turn_run_at_once(journal: Path) -> None:
    two = [native_call("meet", {"who": who}, who) for who in ("Ann", "Bob")]
    run, sent, _ = go([calling(*two), completion("done")], journal)
    assert run.answer == "done"  # each waited for the other
    assert [m["content"] for m in sent[1]["messages"][-2:]] == ["Ann was there", "Bob was there"]


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("call_1", "")])
def test_calls_without_ids_of_their_own_get_them(journal: Path, ids: tuple[str, str]) -> None:
    cities = zip(("Lyon", "Nice"), ids, strict=True)
    turn = calling(*(native_call("people", {"city": city}, id) for city, id in cities))
    _, sent, _ = go([turn, turn, completion("done")], journal)
    made = [call["id"] for m in sent[2]["messages"] for call in m.get("tool_calls", ())]
    answered = [m["tool_call_id"] for m in sent[2]["messages"] if m["role"] == "tool"]
    assert made == answered and len(set(made)) == 4 and all(made)
    assert sent[2]["messages"][: len(sent[1]["messages"])] == sent[1]["messages"]


def told(events: Any) -> list[tuple[str, int, str]]:
    """Return each text with its kind and step, in the order in which they were marked."""
    pieces = [each for each in events if isinstance(each, ev.Thought | ev.Action | ev.Answer | ev.Text)]
    texts = {each.part: "".join(piece.text for piece in pieces if piece.part == each.part) for each in pieces}
    return [(each.kind, each.step, texts[each.part]) for each in events if isinstance(each, ev.Marked)]


def test_text_before_calls_is_a_thought_and_text_alone_the_answer_live_and_later(journal: Path) -> None:
    run, _, seen = go([streamed("I need both.", LYON, NICE), streamed("174,165 more.")], journal)

    assert told(seen) == [("thought", 1, "I need both."), ("answer", 2, "174,165 more.")]
    assert told(run.events) == told(seen)
    assert [e.call.input for e in seen if isinstance(e, ev.Called)] == [{"city": "Lyon"}, {"city": "Nice"}]


def test_arguments_that_are_half_an_object_are_never_called_with(journal: Path) -> None:
    """A tool with one text parameter would take the half for its text."""
    half = calling(native_call("send", '{"text": "Dear Bo', "x"), native_call("people", {"city": "Lyon"}, "y"))
    run, sent, _ = go([half, calling(native_call("send", {"text": "Dear Bob"}, "z")), completion("done")], journal)
    assert (run.answer, CALLS) == ("done", ["Dear Bob"])
    bad = sent[1]["messages"][-3:]
    assert [m.get("tool_call_id") for m in bad] == [None, "x", "y"]
    assert "the call of send the arguments are no JSON object: a string is not closed" in bad[1]["content"]
    assert json.loads(bad[0]["tool_calls"][0]["function"]["arguments"]) == {"input": '{"text": "Dear Bo'}
    # Once it is mended, it leaves the prompt.
    assert "Dear Bo" not in json.dumps(sent[2]["messages"]).replace("Dear Bob", "")
    assert len(noted(run, "unreadable")) == 1 and run.steps == 2


def test_arguments_in_need_of_repair_are_repaired_and_noted(journal: Path) -> None:
    run, _, _ = go([calling(native_call("people", "{'city': 'Lyon',}", "x")), completion("done")], journal)
    assert CALLS == ["Lyon"]
    assert any("a trailing comma" in text for text in noted(run, "repaired"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (native_call("people", [1, 2], "x"), "it takes at most 1 value, but 2 are given"),
        (native_call("people", {"town": "Lyon"}, "x"), "there is no parameter 'town'"),
        (native_call("peeple", {"city": "Lyon"}, "x"), "There is no tool named 'peeple'. Did you mean people?"),
    ],
)
def test_input_that_does_not_fit_is_an_error_for_the_model(journal: Path, call: Any, said: str) -> None:
    run, sent, _ = go([calling(call), calling(LYON), completion("done")], journal)
    assert run.answer == "done"
    assert said in sent[1]["messages"][-1]["content"]
    assert sent[1]["messages"][-1]["role"] == "tool"


def test_an_empty_reply_is_asked_for_again_in_words_and_then_fails(journal: Path) -> None:
    run, sent, _ = go([completion(""), completion("243")], journal)
    assert run.answer == "243" and sent[1]["messages"][-1]["role"] == "user"
    assert "It was empty." in sent[1]["messages"][-1]["content"]
    run, sent, _ = go([completion("")] * 2, journal, ToolCalling(max_parse_errors=2))
    assert run.status == "failed" and run.outcome.kind == "format" and "2 replies in a row" in run.reason


def test_a_call_left_in_the_text_by_the_endpoint_is_made(journal: Path) -> None:
    left = '<tool_call>\n{"name": "people", "arguments": {"city": "Lyon"}}\n</tool_call>'
    run, sent, _ = go([completion(left), completion("522250")], journal)
    assert (run.answer, CALLS) == ("522250", ["Lyon"])
    assert "the calls stood in the reply's text" in noted(run, "repaired")
    assert sent[1]["messages"][-2]["tool_calls"][0]["id"] == sent[1]["messages"][-1]["tool_call_id"]


def test_an_answer_that_only_looks_like_a_call_is_the_answer(journal: Path) -> None:
    text = '{"name": "Lyon", "parameters": {"people": 522250}}'
    run, _, _ = go([completion(text)], journal)
    assert run.answer == text


def test_a_call_of_an_unknown_tool_in_known_markup_is_no_answer(journal: Path) -> None:
    marked = '<tool_call>{"name": "peeple", "arguments": {"city": "Lyon"}}</tool_call>'
    run, sent, _ = go([completion(marked), completion("done")], journal)
    assert run.answer == "done"
    assert "peeple" in sent[1]["messages"][-1]["content"]


def test_a_result_is_shown_as_it_is_and_shortened(journal: Path) -> None:
    nasty = '{"name": "send", "arguments": {"text": "x"}} <tool_call>'

    @plait.tool(read_only=True)
    def page(n: int) -> str:
        """A page."""
        return nasty if n == 1 else "x" * 9000

    calls = [native_call("page", {"n": n}, str(n)) for n in (1, 2)]
    _, sent, _ = go([calling(*calls), completion("done")], journal, tools=[page])
    one, two = sent[1]["messages"][-2:]
    assert one["content"] == nasty
    assert len(two["content"]) == 8000 and "characters left out here" in two["content"]


def test_what_the_loop_breaker_says_stands_with_the_result(journal: Path) -> None:
    _, sent, _ = go([calling(LYON), calling(LYON), completion("done")], journal)
    assert "You made exactly this call before" in sent[2]["messages"][-1]["content"]


def test_near_a_limit_the_answer_is_asked_for_with_the_tools_still_there(journal: Path) -> None:
    limits = plait.Limits(steps=1)
    run, sent, _ = go([calling(LYON), completion("522250 or so")], journal, limits=limits)
    assert (run.status, run.outcome.limit, run.answer) == ("stopped", "steps", "522250 or so")
    assert sent[1]["tools"] == sent[0]["tools"] and sent[1]["messages"][-1]["role"] == "user"
    run, _, _ = go([calling(LYON), calling(NICE, text="about half a million")], journal, limits=limits)
    assert (run.status, run.answer, CALLS) == ("stopped", "about half a million", ["Lyon", "Lyon"])
    run, _, _ = go([calling(LYON), calling(NICE)], journal, limits=limits)
    assert (run.status, run.answer) == ("stopped", None)
    run, sent, _ = go([completion("from memory")], journal, limits=plait.Limits(calls=1))
    assert (run.status, run.answer) == ("stopped", "from memory") and "tools" not in sent[0]


def test_a_prompt_that_is_too_long_is_shown_with_shorter_results(journal: Path) -> None:
    @plait.tool(read_only=True)
    def page() -> str:
        """A page."""
        return "x" * 9000

    long = (400, {"error": {"message": "This model's maximum context length is 2000 tokens, you asked for 3000."}})
    run, sent, _ = go([calling(native_call("page", {}, "p")), long, completion("done")], journal, tools=[page])
    assert run.answer == "done"
    assert [len(m[-1]["content"]) for m in (sent[1]["messages"], sent[2]["messages"])] == [8000, 2000]


def test_of_tools_that_exclude_each_other_the_first_is_called(journal: Path) -> None:
    @plait.tool(read_only=True, excludes="people")
    def count(city: str) -> int:
        """People living in a city, counted anew."""
        CALLS.append("counted")
        return 1

    _, sent, _ = go(
        [calling(LYON, native_call("count", {"city": "Lyon"}, "c")), completion("x")], journal, tools=[people, count]
    )
    assert CALLS == ["Lyon"]
    assert "count does the same job as people" in sent[1]["messages"][-1]["content"]
    assert sent[1]["messages"][-1]["tool_call_id"] == "c"


# -- by hand


def context(**options: Any) -> LoopContext:
    return LoopContext((people.spec, send.spec), PromptBook("tool_calling"), **options)


def first(task: Task, context: LoopContext) -> Think:
    effect = next(ToolCalling().run(task, context))
    assert isinstance(effect, Think)
    return effect


def test_the_conversation_stands_before_the_question_and_the_users_system_prompt_in_front() -> None:
    task = Task("And Nice?", (Exchange("How many live in Lyon?", "522,250."),))
    said = first(task, context(system="Be brief.\r\n")).messages
    assert [(m.role, m.content) for m in said] == [
        ("system", "Be brief.\r\n"),
        ("user", "How many live in Lyon?"),
        ("assistant", "522,250."),
        ("user", "And Nice?"),
    ]


def test_calls_cut_by_the_token_limit_are_asked_for_again_and_not_continued() -> None:
    loop = ToolCalling().run(Task("Q"), context())
    next(loop)
    effect = loop.send(Reply("I send it.", "length", calls=(Call("send", '{"text": "Dea', "x"),)))
    assert effect.kind == "unreadable"
    again = loop.send(None)
    assert isinstance(again, Think) and again.prefill == "" and again.repair


@pytest.mark.parametrize("begins", ['{"text": "', "no JSON: "])
async def test_a_call_whose_input_goes_in_circles_is_cut_and_never_made(begins: str, journal: Path) -> None:
    made: list[str] = []

    @plait.tool
    def send(text: str) -> str:
        """Send a text."""
        made.append(text)
        return "sent"

    async def handler(asked: Asked) -> None:
        if len(server.asked) > 1:
            await asked.answer(200, completion("I give up."))
            return
        await asked.begin()
        call = {"index": 0, "id": "c1", "function": {"name": "send", "arguments": begins}}
        with contextlib.suppress(ConnectionError):
            while True:
                await asked.piece(event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
                call = {"index": 0, "function": {"arguments": "Dear all, dear all, "}}

    async with Server(handler) as server:
        agent = plait.Agent(ToolCalling(), model=server.model(abilities=ABILITIES), tools=[send], journal=journal)
        run = await agent.arun("Send it.")
    assert (run.answer, made, len(server.asked)) == ("I give up.", [], 2)
    notes = {each.kind: each.text for each in run.events if isinstance(each, ev.Noted)}
    assert notes["circle"].startswith("The input of a call went in circles: cut after 3,") and "unreadable" in notes
    assert await asyncio.to_thread(lambda: agent.replay(run.id).whole)


# -- in text

NO_TOOLS = ABILITIES.without("tools")
LOOK = '{"name": "people", "arguments": {"city": "Lyon"}}'
GO_ON = "\n\n" + PromptBook("tool_calling").render("go_on", {"question": "How many?"}).strip()
LOOK_NICE = '{"name": "people", "arguments": {"city": "Nice"}}'


def in_text(journal: Path, replies: list[Any], loop: Any = None, **options: Any) -> tuple[Any, list[Any]]:
    """A run on an endpoint known to take no tools, the requests it made; its replay is the same to the byte."""
    agent = plait.Agent(
        loop or ToolCalling(),
        model=plait.Scripted(replies, abilities=NO_TOOLS),
        tools=options.pop("tools", [people, meet, send]),
        journal=journal,
        **options,
    )
    run = agent.run("How many?")
    made = [json.loads(row.body) for row in run.trace if is_request(row.record)]
    replayed = agent.replay(run.id)
    assert replayed.whole and replayed.requests == len(made)
    return run, made


def test_an_endpoint_known_to_take_no_tools_is_asked_in_text_from_the_start(journal: Path) -> None:
    run, made = in_text(journal, [f"Both.\n{LOOK}\n{LOOK_NICE}", "174,165 more."])
    assert (run.answer, run.steps, run.calls, sorted(CALLS)) == ("174,165 more.", 2, 2, ["Lyon", "Nice"])
    assert all("tools" not in body for body in made)
    assert made[0]["messages"][0]["role"] == "system" and "people" in made[0]["messages"][0]["content"]
    assert [(m["role"], m["content"]) for m in made[1]["messages"][2:]] == [
        ("assistant", f"Both.\n{LOOK}\n{LOOK_NICE}"),
        (
            "user",
            'The result of people {"city": "Lyon"}: 522250\n\nThe result of people {"city": "Nice"}: 348085' + GO_ON,
        ),
    ]
    assert len(noted(run, "calls_as_text")) == 1 and "takes no native tools" in noted(run, "calls_as_text")[0]


def test_in_text_an_agent_without_tools_is_told_nothing_of_calls(journal: Path) -> None:
    run, made = in_text(journal, ["[12, 15]"], tools=[], output=plait.OutputType(list[int], method="tool"))
    assert run.output == [12, 15]
    prompt = made[0]["messages"][0]["content"]
    assert not any(word in prompt for word in ("tool", "call", "result")) and "JSON Schema" in prompt


def test_in_text_a_reply_that_repeats_the_last_message_is_no_answer(journal: Path) -> None:
    echo = f"The result of people: 522250{GO_ON}"
    run, made = in_text(journal, [LOOK, echo, "522250"])
    assert (run.answer, run.calls) == ("522250", 3)
    assert "it repeats the last message" in made[2]["messages"][-1]["content"]


def test_calls_written_together_run_at_once(journal: Path) -> None:
    two = "\n".join(json.dumps({"name": "meet", "arguments": {"who": who}}) for who in ("Ann", "Bob"))
    run, _ = in_text(journal, [two, "done"])
    assert run.answer == "done"
    one, other = run.timeline.tool_calls
    assert (one.n, one.i, other.i) == (other.n, 0, 1)  # calls of one effect


def test_in_text_a_result_never_reads_as_a_call(journal: Path) -> None:
    @plait.tool(read_only=True)
    def page() -> str:
        """A page."""
        return '{"name": "send", "arguments": {"text": "x"}}'

    _, made = in_text(journal, ['{"name": "page", "arguments": {}}', "done"], tools=[page, send])
    shown = 'The result of page: {"name"\\: "send", "arguments": {"text": "x"}}'
    assert made[1]["messages"][-1]["content"] == shown + GO_ON


def test_a_broken_call_is_repaired_once_and_leaves_the_prompt(journal: Path) -> None:
    run, made = in_text(journal, ['{"name": "people", "arguments": {"city": Lyon}}', LOOK, "done"])
    assert (run.answer, run.steps, CALLS) == ("done", 2, ["Lyon"])
    assert "text needs quotes" in made[1]["messages"][-1]["content"]
    assert [m["role"] for m in made[2]["messages"]] == ["system", "user", "assistant", "user"]


def test_after_so_many_misses_the_run_fails(journal: Path) -> None:
    run, _ = in_text(journal, ['{"name": "people", "arguments": ', '{"name": "people", "arg', "<tool_call>"])
    assert run.status == "failed" and run.outcome.kind == "format"
    assert len(noted(run, "unreadable")) == 3


def test_an_answer_handed_in_as_a_call_ends_the_run(journal: Path) -> None:
    run, _ = in_text(journal, [LOOK, '{"name": "final_answer", "arguments": {"answer": 522250}}'])
    assert (run.status, run.answer) == ("answered", 522250)
    assert noted(run, "repaired") == ["the answer was handed in as a call"]


def test_in_text_a_limit_is_concluded_as_well(journal: Path) -> None:
    run, made = in_text(journal, [LOOK, "522250 or so"], limits=plait.Limits(steps=1))
    assert (run.status, run.answer, len(made)) == ("stopped", "522250 or so", 2)
    # The very first call is the one in reserve: what is lacking is known, and the reserve is still there.
    run, _ = in_text(journal, ["from memory"], limits=plait.Limits(calls=1))
    assert (run.status, run.answer) == ("stopped", "from memory")


def test_the_users_system_prompt_stays_and_the_form_of_calls_is_told_beside_it(journal: Path) -> None:
    _, made = in_text(journal, [LOOK, "done"], system="Be brief.\r\n")
    system, user = made[0]["messages"]
    assert system["content"] == "Be brief.\r\n"
    assert '"arguments"' in user["content"] and user["content"].endswith("How many?")


def test_thought_calls_and_answer_are_told_apart_in_text_live_and_later(journal: Path) -> None:
    replies = [f"Both.\n{LOOK}", "174,165 more."]
    agent = plait.Agent(
        ToolCalling(), model=plait.Scripted(replies, abilities=NO_TOOLS, chunk=3), tools=[people], journal=journal
    )

    async def main() -> list[Any]:
        return [each async for each in agent.stream("How many?")]

    seen = asyncio.run(main())
    assert told(seen) == [
        ("thought", 1, "Both."),
        ("action", 1, 'people {"city": "Lyon"}'),
        ("answer", 2, "174,165 more."),
    ]
    assert told(seen[-1].run.events) == told(seen)


# -- found out on the way

REFUSALS = [
    (400, {"error": {"message": "m does not support tools"}}),
    (400, {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'}),
    (500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}),
    (404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}}),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"}]}),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal[0]))
def test_an_endpoint_that_rejects_tools_fails_the_run_and_the_hint_names_other_loops(
    journal: Path, refusal: Any
) -> None:
    run, sent, _ = go([refusal], journal)
    assert (run.status, run.outcome.error, len(sent)) == ("crashed", "Unsupported", 1)
    assert "--loop auto" in run.outcome.hint and "--loop react" in run.outcome.hint
    words = refusal[1].get("message") or refusal[1].get("error", {}).get("message") or "Extra inputs are not permitted"
    assert words in run.reason or words.rstrip(".") in run.reason
    got = run.timeline.model_calls[0].last.response
    assert got is not None and (got.status, got.lost) == (refusal[0], "tools")
    [raised] = [each.entry for each in run.timeline.moments if isinstance(each.entry, LoopException)]
    assert (raised.kind, raised.limit) == ("Unsupported", "tools")


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: str(refusal[0]))
def test_the_loop_auto_goes_on_as_react_where_tools_are_rejected(journal: Path, refusal: Any) -> None:
    action = 'Thought: I look.\nAction:\n```json\n{"action": "people", "action_input": {"city": "Lyon"}}\n```'
    replies = [refusal, completion(action), completion("Thought: ok\nFinal Answer: 522250")]
    run, sent, seen = go(replies, journal, "auto")
    assert (run.answer, run.steps, run.calls, CALLS) == ("522250", 2, 2, ["Lyon"]), run.reason
    assert ["tools" in body for body in sent] == [True, False, False]
    assert [e.kind for e in seen if isinstance(e, ev.Noted)] == ["fallback"]


def test_a_refusal_does_not_use_up_the_call_in_reserve(journal: Path) -> None:
    replies = [calling(LYON), REFUSALS[0], completion("522250 or so")]
    run, sent, _ = go(replies, journal, ToolCalling(fallback="json"), limits=plait.Limits(steps=1))
    assert (run.status, run.answer, run.steps) == ("stopped", "522250 or so", 1)
    assert ["tools" in body for body in sent] == [True, True, False]


@pytest.mark.parametrize("after", ["result request", "raised Unsupported", "result think", "result call"])
def test_a_run_that_broke_off_around_the_refusal_goes_on_as_the_other_loop(
    journal: Path, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends right behind a row; when it goes on, the endpoint is asked for tools no second time."""
    look = '{"thought": "I look.", "tool": "people", "tool_input": "Lyon"}'
    done = '{"thought": "That is it.", "tool": "final_answer", "tool_input": "522250"}'
    breaking = [True]

    def broken(entries: Any) -> bool:
        return bool(breaking) and any(name_of(record) == after for record, _ in entries)

    def append(log: SqliteLog, *entries: Any, **how: Any) -> Any:
        done = real_append(log, *entries, **how)

        async def then() -> None:
            await done
            if broken(entries):
                raise asyncio.CancelledError

        return then()

    def buffer(log: SqliteLog, *entries: Any, **how: Any) -> None:
        real_buffer(log, *entries, **how)
        if broken(entries):
            raise asyncio.CancelledError

    real_append, real_buffer = SqliteLog.append, SqliteLog.buffer
    monkeypatch.setattr(SqliteLog, "append", append)
    monkeypatch.setattr(SqliteLog, "buffer", buffer)

    async def main() -> Any:
        async with Server(Endpoint(REFUSALS[0], completion(look), completion(done))) as server:
            agent = plait.Agent(ToolCalling(fallback="json"), model=server.model(), tools=[people], journal=journal)
            broke = await agent.arun("How many?")
            assert (broke.status, name_of(broke.trace[-1].record)) == ("cancelled", after)
            breaking.clear()
            run = await agent.aresume(broke.id)
            return run, [asked.body for asked in server.asked], agent

    run, sent, agent = asyncio.run(main())
    assert (run.status, run.answer, run.steps) == ("answered", "522250", 2), run.reason
    assert ["tools" in body for body in sent] == [True, False, False]
    assert len(noted(run, "fallback")) == 1
    assert agent.replay(run.id).whole


def test_observations_by_hand_have_their_note(journal: Path) -> None:
    loop = ToolCalling().run(Task("Q"), context())
    next(loop)
    act = loop.send(Reply("", calls=(Call("people", {"city": "Lyon"}, "x"),)))
    assert act.calls == (Call("people", {"city": "Lyon"}, "x"),)
    again = loop.send((Observation("522250", note="twice"),))
    assert again.messages[-1].content == "522250\n(twice)"


# -- answers that were rejected


class Watched(plait.Scripted):
    """A script that keeps the requests. It is not fitted to the loop: its replies are given as they are."""

    def __init__(self, replies: Any, **more: Any) -> None:
        super().__init__(replies, by_turn=False, **more)
        self.asked: list[Think] = []

    async def send(self, request: Any, think: Think, on_text: Any = None) -> Any:
        self.asked.append(think)
        return await super().send(request, think, on_text)

    @property
    def shown(self) -> list[list[tuple[str, str]]]:
        """The role and the text, or the ids of the calls, of each request's messages after the question."""
        ids = [
            [(each.role, each.content or " ".join(call.id for call in each.calls)) for each in think.messages[2:]]
            for think in self.asked
        ]
        return [[(role, text.partition("\n")[0]) for role, text in each] for each in ids]


def ask_watched(model: Watched, **more: Any) -> plait.Run[Any]:
    output = plait.OutputType({"type": "integer"}, checks=[lambda n: None if n == 9 else f"{n} is wrong."], retries=5)
    output = more.pop("output", output)
    loop = more.pop("loop", ToolCalling(max_parse_errors=9))
    return plait.Agent(loop, model=model, tools=[people], output=output, journal=False, **more).run("How many?")


def refused(n: int) -> str:
    return f"The answer is not accepted: {n} is wrong."


def test_a_rejected_answer_and_the_objection_stay_in_the_requests() -> None:
    call = Reply("", calls=(Call("people", {"city": "Lyon"}, "a"),))
    model = Watched(["1", "1", call, "2", call, "9"])
    run = ask_watched(model)
    assert run.output == 9, run.reason
    first = [("assistant", "1"), ("user", refused(1))]
    again = [("assistant", "1"), ("user", model.shown[2][-1][1])]
    called = [("assistant", "a"), ("tool", "522250")]
    second = [("assistant", "2"), ("user", refused(2))]
    later = [("assistant", model.shown[5][-2][1]), ("tool", "522250")]
    assert model.shown == [
        [],
        first,
        [*first, *again],
        [*first, *again, *called],
        [*first, *again, *called, *second],
        [*first, *again, *called, *second, *later],
    ]
    assert "Write something else." in model.asked[2].messages[-1].content
    assert [think.repair for think in model.asked] == [False, True, True, False, True, False]


def test_a_rejected_answer_by_a_call_stays_with_an_id_of_its_own() -> None:
    answer = Reply("", calls=(Call("final_answer", 1, "a"),))
    call = Reply("", calls=(Call("people", {"city": "Lyon"}, "a"),))
    model = Watched([answer, answer, call, Reply("", calls=(Call("final_answer", 9, "a"),))])
    output = plait.OutputType({"type": "integer"}, checks=[lambda n: None if n == 9 else "No."], method="tool")
    assert ask_watched(model, output=output).output == 9
    last = model.asked[-1].messages
    ids = [call.id for each in last for call in each.calls]
    assert len(ids) == len(set(ids)) == 3 and [each.call_id for each in last if each.role == "tool"] == ids


def test_a_rejected_answer_stays_where_calls_are_text_and_in_the_concluding_request() -> None:
    model = Watched(["1", '{"name": "people", "arguments": {"city": "Lyon"}}', "9"], abilities=Abilities(tools=False))
    assert ask_watched(model).output == 9
    assert model.shown[-1][:2] == [("assistant", "1"), ("user", refused(1))] and len(model.shown[-1]) == 4

    model = Watched(["1", "9"])
    run = ask_watched(model, limits=plait.Limits(calls=2))
    assert (run.status, len(model.asked), len(model.shown[1])) == ("stopped", 2, 3)
    assert model.shown[1][:2] == [("assistant", "1"), ("user", refused(1))] and not model.asked[1].tools


def test_in_the_form_of_text_no_native_call_is_shown_of_a_rejected_answer() -> None:
    answer = Reply("", calls=(Call("final_answer", 1, "a"),))
    output = plait.OutputType({"type": "integer"}, checks=[lambda n: None if n == 9 else "It is wrong."], method="tool")
    model = Watched([answer, answer, "9"])
    assert ask_watched(model, output=output, loop=ToolCalling()).output == 9
    assert not model.asked[-1].tools and [role for role, _ in model.shown[-1]] == ["user", "user"]
    assert all("It is wrong." in text for _, text in model.shown[-1])


def test_bad_replies_leave_the_prompt_and_rejected_answers_stay() -> None:
    call = Reply("", calls=(Call("people", {"city": "Lyon"}, "a"),))
    model = Watched(["1", Reply("", reasoning="hm"), call, "9"])
    assert ask_watched(model).output == 9
    assert len(model.shown[2]) == 3 and len(model.shown[3]) == 4
