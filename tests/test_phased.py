"""The phased loop: reason, react, act, reply, in one chat, each phase with a model of its own if one likes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

import plait
from conftest import for_each
from journal_rows import is_request, is_result
from models_server import Asked, Server, whole_stream
from plait.core import Exchange, LoopContext, Task, Think, events
from plait.journal.records import NoteRecord
from plait.loops.phased import action_list
from plait.loops.phased.loop import Phased, is_whole_question
from plait.runtime.templates.prompts import PromptBook

HEIGHTS = {"Ferris": 188, "Garnet": 243}


@plait.tool(read_only=True)
def height(tower: str) -> int:
    """Height of a tower in metres."""
    if tower not in HEIGHTS:
        raise plait.ToolError(f"Nothing is known of {tower}.")
    return HEIGHTS[tower]


@plait.tool(read_only=True)
def less(a: float, b: float) -> float:
    """The first number less the second."""
    return a - b


def actions(*each: tuple[Any, ...]) -> str:
    return json.dumps(
        [{"ACTION": name, "ARGUMENTS": list(arguments), "EXPLANATION": "needed"} for name, *arguments in each]
    )


BOTH = actions(("height", "Garnet"), ("height", "Ferris"), ("less", "$1", "$2"))
QUESTION = "How much higher is Garnet than Ferris?"


def agent(replies: Any, journal: Path, *, tools: Any = (height, less), **options: Any) -> plait.Agent:
    loop = Phased(**{name: options.pop(name) for name in list(options) if name in Phased.__dataclass_fields__})
    model = replies if isinstance(replies, plait.Scripted) else plait.Scripted(replies)
    return plait.Agent(loop, model=model, tools=tools, journal=journal, **options)


def requests(run: plait.Run) -> list[tuple[str, list[dict[str, str]]]]:
    """(phase, messages) of each request, as it was sent."""
    return [
        (row.record.asked.phase, json.loads(row.body)["messages"])
        for row in run.trace
        if is_request(row.record) and row.body
    ]


def notes(run: plait.Run) -> list[tuple[str, str]]:
    return [(row.record.kind, row.record.text) for row in run.trace if isinstance(row.record, NoteRecord)]


def called(run: plait.Run) -> list[tuple[str, Any]]:
    return [(each.planned.tool, each.planned.input) for each in run.timeline.tool_calls]


def last_prompt(run: plait.Run) -> str:
    return requests(run)[-1][1][-1]["content"]


# -- the four phases


def test_it_reasons_chooses_acts_and_replies(journal: Path) -> None:
    its = agent(["Both heights, then the difference.", BOTH, "By 55 metres."], journal)
    run = its.run(QUESTION)
    assert (run.status, run.answer) == ("answered", "By 55 metres.")
    assert [phase for phase, _ in requests(run)] == ["reason", "react", "reply"]
    assert called(run) == [("height", ["Garnet"]), ("height", ["Ferris"]), ("less", ["243", "188"])]
    assert '3. less("243", "188") gave: 55.0' in last_prompt(run)
    assert notes(run) == []
    assert its.replay(run.id).outcome == run.outcome


def test_one_chat_grows_at_its_end_and_nothing_else_changes(journal: Path) -> None:
    run = agent(["Both.", BOTH, "By 55 metres."], journal).run(QUESTION)
    first, second, third = (messages for _, messages in requests(run))
    assert [message["role"] for message in third] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert third[: len(second)] == second and second[: len(first)] == first
    assert (third[2]["content"], third[4]["content"]) == ("Both.", BOTH)


def test_the_persons_own_identity_is_sent_byte_for_byte(journal: Path) -> None:
    own = "  You are Ada.\r\n{{ not a template }} é\n\n"
    run = agent(["Think.", "[]", "I am Ada."], journal, system=own).run("Who are you?")
    assert {messages[0]["content"] for _, messages in requests(run)} == {own}
    ours = agent(["Think.", "[]", "Nobody."], journal).run("Who are you?")
    assert requests(ours)[0][1][0]["content"].startswith("You are a careful assistant")


@pytest.mark.parametrize("nothing", ["[]", '[{"ACTION": "Basic", "ARGUMENTS": [], "EXPLANATION": "a greeting"}]'])
def test_when_nothing_is_needed_it_replies_at_once(nothing: str, journal: Path) -> None:
    run = agent(["A greeting.", nothing, "Hello!"], journal, rounds=3).run("Hi")
    assert run.answer == "Hello!" and len(requests(run)) == 3 and called(run) == []
    assert "carried out" not in last_prompt(run)
    assert requests(run)[-1][1][-2]["content"] == nothing


def test_without_tools_it_thinks_and_replies(journal: Path) -> None:
    run = agent(["A greeting.", "Hello!"], journal, tools=()).run("Hi")
    assert run.answer == "Hello!"
    assert [phase for phase, _ in requests(run)] == ["reason", "reply"]


def test_an_empty_reply_is_no_answer(journal: Path) -> None:
    run = agent(["Think.", "[]", "  "], journal).run("Hi")
    assert (run.status, run.reason) == ("failed", "The reply is empty.")


def test_only_the_reply_is_told_as_answer(journal: Path) -> None:
    async def watched() -> list[Any]:
        return [event async for event in agent(["Think.", BOTH, "By 55 metres."], journal).stream(QUESTION)]

    seen = asyncio.run(watched())
    for kind, text in ((events.Thought, "Think."), (events.Action, BOTH), (events.Answer, "By 55 metres.")):
        assert "".join(event.text for event in seen if isinstance(event, kind)) == text


def test_the_turns_before_stand_as_messages_behind_the_identity() -> None:
    context = LoopContext((height.spec,), PromptBook("phased"))
    loop = Phased().run(Task("And Ferris?", (Exchange("How high is Garnet?", "243 m."),)), context)
    effect = next(loop)
    assert isinstance(effect, Think)
    assert [(message.role, message.content) for message in effect.messages[1:3]] == [
        ("user", "How high is Garnet?"),
        ("assistant", "243 m."),
    ]
    assert "And Ferris?" in effect.messages[3].content and len(effect.messages) == 4


def test_the_memory_is_spoken_of_only_where_there_is_one(journal: Path) -> None:
    @plait.tool(read_only=True)
    def chat_history(query: str) -> str:
        """What was said before."""
        return "Nothing."

    words = "earlier in this conversation"
    with_it = agent(["Think.", "[]", "Hi."], journal, tools=[chat_history]).run("Hi")
    without = agent(["Think.", "[]", "Hi."], journal).run("Hi")
    assert words in requests(with_it)[0][1][1]["content"] and words not in requests(without)[0][1][1]["content"]


# -- act


async def test_actions_run_side_by_side_and_one_that_needs_another_waits(journal: Path) -> None:
    """Each of the first two ends only when the other has begun; the third begins only when they have ended."""
    begun: list[str] = []
    both = asyncio.Event()

    @plait.tool(read_only=True)
    async def work(what: str) -> str:
        """Works."""
        begun.append(what)
        if len(begun) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 30)
        return f"{what} done"

    chosen = actions(("work", "$2+$3"), ("work", "a"), ("work", "b"))
    run = await agent(["Think.", chosen, "Done."], journal, tools=[work]).arun("Do a and b, then both.")
    assert run.answer == "Done."
    assert sorted(begun[:2]) == ["a", "b"] and begun[2] == "a done+b done"


def test_an_action_that_fails_is_a_result_and_what_needs_it_is_not_carried_out(journal: Path) -> None:
    chosen = actions(("height", "Nowhere"), ("height", "Garnet"), ("less", "$1", "$2"))
    run = agent(["Think.", chosen, "DONE", "Nothing is known of Nowhere."], journal).run(QUESTION)
    assert run.answer == "Nothing is known of Nowhere."
    assert ("less", ["$1", "243"]) not in called(run) and len(called(run)) == 2
    prompt = requests(run)[-2][1][-1]["content"]
    assert '1. height("Nowhere") failed:' in prompt and "Nothing is known of Nowhere." in prompt
    assert '2. height("Garnet") gave: 243' in prompt
    assert "failed: It needs the result of action 1, which gave none." in prompt
    assert [kind for kind, _ in notes(run)] == ["skipped", "again"]


def test_an_unknown_action_is_asked_for_again_before_any_action_runs(journal: Path) -> None:
    wrong = actions(("height", "Ferris"), ("heigth", "Garnet"))
    run = agent(plait.Scripted(["Think.", wrong, BOTH, "By 55 metres."], by_turn=False), journal).run(QUESTION)
    assert run.answer == "By 55 metres." and len(called(run)) == 3
    assert "Action 2 uses 'heigth', which is no tool. There are: height, less." in requests(run)[2][1][-1]["content"]


def test_an_unknown_action_that_comes_twice_goes_to_the_runtime_and_the_model_reasons_again(journal: Path) -> None:
    wrong = actions(("heigth", "Garnet"))
    replies = ["Think.", wrong, wrong, "It is called height.", BOTH, "By 55 metres."]
    its = agent(plait.Scripted(replies, by_turn=False), journal)
    run = its.run(QUESTION)
    seen = [row.record.value for row in run.trace if is_result(row.record)]
    assert seen[0].trouble == "unknown_tool" and seen[0].text in requests(run)[3][1][-1]["content"]
    assert run.answer == "By 55 metres." and [phase for phase, _ in requests(run)][3:] == ["reason", "react", "reply"]
    assert its.replay(run.id).outcome == run.outcome


def test_more_actions_than_allowed_are_cut_and_noted(journal: Path) -> None:
    chosen = actions(*[("height", name) for name in ("Garnet", "Ferris", "C", "D")])
    run = agent(["Think.", chosen, "So."], journal, most=2).run(QUESTION)
    assert len(called(run)) == 2
    assert ("cut", "2 of 4 actions: 2 count") in notes(run)


def test_of_two_actions_that_exclude_each_other_the_later_is_left_out(journal: Path) -> None:
    @plait.tool(read_only=True, excludes=["search_news"])
    def search_web(query: str) -> str:
        """Searches the web."""
        return "web"

    @plait.tool(read_only=True)
    def search_news(query: str) -> str:
        """Searches the news."""
        return "news"

    chosen = actions(("search_news", "x"), ("search_web", "x"), ("search_news", "y"))
    run = agent(["Think.", chosen, "So."], journal, tools=[search_web, search_news]).run("What is new?")
    assert called(run) == [("search_news", ["x"]), ("search_news", ["y"])]
    assert ("cut", "action 2 of the list: It was left out: search_news does the same job.") in notes(run)
    assert 'search_web("x") failed: It was left out' in last_prompt(run)
    assert "Never together with search_news." in requests(run)[0][1][1]["content"]


def test_the_same_question_many_times_is_one_call_and_what_names_any_of_them_gets_its_result(journal: Path) -> None:
    chosen = actions(*[("height", "Garnet")] * 6, ("less", "$5", "1"))
    run = agent(["Think.", chosen, "So."], journal).run(QUESTION)
    assert run.status == "answered"
    assert called(run) == [("height", ["Garnet"]), ("less", ["243", "1"])]
    assert last_prompt(run).count("243") == 2
    assert notes(run)[0] == ("cut", "action 2 of the list is the same as action 1: one call is made")


def test_the_same_effect_twice_happens_twice(journal: Path) -> None:
    sent = []

    @plait.tool
    def send(text: str) -> str:
        """Sends."""
        sent.append(text)
        return "sent"

    agent(["Think.", actions(("send", "a"), ("send", "a")), "So."], journal, tools=[send]).run("Send a twice, please.")
    assert sent == ["a", "a"]


def test_a_tool_cannot_exclude_itself() -> None:
    with pytest.raises(plait.PlaitError, match="can't exclude itself"):
        plait.tool(name="x", excludes=("x",))(lambda: None)
    assert plait.tool(name="x", excludes="y")(lambda: None).spec.excludes == ("y",)


def test_an_argument_longer_than_the_tool_takes_is_told_and_held(journal: Path) -> None:
    opened = []

    @plait.tool(read_only=True)
    def page(title: Annotated[str, Field(max_length=20)], section: Annotated[str, Field(max_length=5)] | None = None) -> str:  # fmt: skip  # noqa: E501
        """Reads a page."""
        opened.append(title)
        return "text"

    paragraph = "the page that tells about the towers of the town"
    chosen = actions(("page", paragraph), ("page", "Towers"), ("page", "Towers", "History"))
    run = agent(["Think.", chosen, chosen, "DONE", "So."], journal, tools=[page]).run("What does the page say?")
    assert opened == ["Towers"]
    assert "title (string of at most 20 characters)" in requests(run)[0][1][1]["content"]
    seen = [row.record.value for row in run.trace if is_result(row.record)]
    assert sorted(one.trouble for one in seen) == ["", "bad_input", "bad_input"]
    told = next(one.text for one in seen if "title has" in one.text)
    assert "title has 48 characters, but at most 20 are allowed" in told and "FieldInfo" not in told
    assert page.spec.parameters["properties"]["title"]["maxLength"] == 20
    assert "title has 48 characters, but at most 20 are allowed" in requests(run)[2][1][-1]["content"]


# -- the whole question


@for_each(
    ("argument", "question", "is_it"),
    [
        (QUESTION, QUESTION, True),
        ("how much higher is GARNET than Ferris", QUESTION, True),
        ("“How much higher is Garnet than Ferris”?!", QUESTION, True),
        ("How much higher is Garnet", QUESTION, False),
        ("里昂有多少人口", "里昂有多少人口?", True),
        ("Lyon", "Lyon?", False),
        ("17 * (3 + 4) / 2", "17*(3+4)/2", False),
        ("", "?!", False),
    ],
)
def test_what_counts_as_the_whole_question(argument: str, question: str, is_it: bool) -> None:
    for given in ([argument], {"query": argument}, [1, argument]):
        (step,) = action_list.ACTIONS.read(json.dumps([{"ACTION": "search", "ARGUMENTS": given}])).steps
        assert is_whole_question(step, question) is is_it


def test_an_action_given_the_whole_question_is_complained_about_once(journal: Path) -> None:
    raw = actions(("height", QUESTION))
    its = agent(["Think.", raw, BOTH, "By 55 metres."], journal)
    run = its.run(QUESTION)
    assert run.answer == "By 55 metres." and len(called(run)) == 3
    repair = requests(run)[2][1]
    assert repair[-2]["content"] == raw and "whole question" in repair[-1]["content"]
    assert raw not in json.dumps([message["content"] for message in requests(run)[3][1]])  # it left the prompt
    its.replay(run.id)


def test_the_second_time_it_is_left_out(journal: Path) -> None:
    raw = actions(("height", QUESTION.upper()), ("height", "Garnet"))
    run = agent(plait.Scripted(["Think.", raw, raw, "243 metres."], by_turn=False), journal).run(QUESTION)
    assert run.answer == "243 metres."
    assert called(run) == [("height", ["Garnet"])]
    assert [kind for kind, _ in notes(run)] == ["unreadable", "cut"]
    assert "its argument is the whole question" in notes(run)[1][1]


def test_the_memory_is_searched_with_it_when_the_model_insists(journal: Path) -> None:
    @plait.tool(read_only=True)
    def chat_history(query: str) -> str:
        """What was said before."""
        return "The dog is called Rex."

    raw = actions(("chat_history", "What is my dog called?"))
    script = plait.Scripted(["Think.", raw, raw, "Rex."], by_turn=False)
    run = agent(script, journal, tools=[chat_history]).run("What is my dog called?")
    assert called(run) == [("chat_history", ["What is my dog called?"])]
    assert [kind for kind, _ in notes(run)] == ["unreadable"]


# -- replies that are no list


def test_a_model_that_talks_is_asked_again_once_and_then_its_text_is_for_the_reply(journal: Path) -> None:
    its = agent(["Think.", "I would look it up.", "It is 55, I believe.", "By 55 metres."], journal)
    run = its.run(QUESTION)
    assert (run.status, run.answer) == ("answered", "By 55 metres.")
    assert [phase for phase, _ in requests(run)] == ["reason", "react", "react", "reply"]
    assert notes(run)[0][0] == "unreadable" and "no JSON list" in notes(run)[0][1]
    assert notes(run)[1] == ("unreadable", "no list of actions came: the text is taken for the reply phase")
    said = [message["content"] for message in requests(run)[-1][1]]
    assert "It is 55, I believe." in said and "I would look it up." not in said
    its.replay(run.id)


def test_a_second_try_that_is_a_list_is_carried_out(journal: Path) -> None:
    run = agent(["Think.", "I would look it up.", BOTH, "By 55 metres."], journal).run(QUESTION)
    assert len(called(run)) == 3 and run.answer == "By 55 metres."
    assert run.steps == 3  # the second try is no step of its own


def test_silence_is_no_empty_message(journal: Path) -> None:
    run = agent(plait.Scripted(["", "", " ", "Hello."], by_turn=False), journal).run("Hi")
    assert run.answer == "Hello."
    assert all(message["content"].strip() for _, messages in requests(run) for message in messages)


def test_misses_say_how_often_it_is_asked(journal: Path) -> None:
    one = agent(["Think.", "Talk.", "Hello."], journal, max_parse_errors=1).run("Hi")
    assert [phase for phase, _ in requests(one)] == ["reason", "react", "reply"]
    three = agent(["Think.", "Talk.", "More talk.", "[]", "Hello."], journal, max_parse_errors=3).run("Hi")
    assert [phase for phase, _ in requests(three)] == ["reason", "react", "react", "react", "reply"]


def test_a_list_with_other_spelling_is_noted_and_stays_in_the_chat_as_the_model_wrote_it(journal: Path) -> None:
    reply = "Sure!\n```json\n{'action': 'height', 'arguments': 'Garnet', 'explaination': 'x'}\n```"
    run = agent(["Think.", reply, "243 metres."], journal).run("How high is Garnet?")
    assert called(run) == [("height", ["Garnet"])]
    assert {kind for kind, _ in notes(run)} == {"repaired"}
    kept = requests(run)[-1][1][4]["content"]
    assert kept == "{'action': 'height', 'arguments': 'Garnet', 'explaination': 'x'}"


# -- rounds


def test_with_more_rounds_it_goes_on_until_it_says_done(journal: Path) -> None:
    first, then = actions(("height", "Garnet"), ("height", "Ferris")), actions(("less", 243, 188))
    its = agent(["Heights.", first, "The difference.", then, "DONE", "By 55 metres."], journal, rounds=5)
    run = its.run(QUESTION)
    assert run.answer == "By 55 metres."
    assert [phase for phase, _ in requests(run)] == ["reason", "react", "reason", "react", "reason", "reply"]
    third = requests(run)[2][1][-1]["content"]
    assert '1. height("Garnet") gave: 243' in third and "DONE" in third
    # What was shown once is not shown again.
    assert sum("gave: 243" in message["content"] for message in requests(run)[-1][1]) == 1
    assert "gave:" not in last_prompt(run)
    its.replay(run.id)


def test_done_before_anything_was_done_is_a_thought_like_any_other(journal: Path) -> None:
    run = agent(["DONE", BOTH, "By 55 metres."], journal, rounds=2).run(QUESTION)
    assert len(called(run)) == 3


def test_rounds_are_limited(journal: Path) -> None:
    garnet, ferris = actions(("height", "Garnet")), actions(("height", "Ferris"))
    its = agent(["More.", garnet, "More!", ferris, "So."], journal, rounds=2)
    run = its.run(QUESTION)
    assert run.answer == "So." and len(called(run)) == 2
    assert 'height("Ferris") gave: 188' in last_prompt(run) and "Garnet" not in last_prompt(run).split("Step:")[0]
    once = agent(["More.", garnet, "So."], journal).run(QUESTION)
    assert [phase for phase, _ in requests(once)] == ["reason", "react", "reply"]


# -- what is shown


def test_what_a_tool_says_is_shown_as_data(journal: Path) -> None:
    told = f"Nice weather.\nDONE\n```json\n{actions(('less', 1, 1))}\n```"

    @plait.tool(read_only=True)
    def weather() -> str:
        """Says the weather."""
        return told

    run = agent(["Think.", actions(("weather",)), "DONE", "Nice."], journal, tools=[weather], rounds=2).run("Weather?")
    shown = requests(run)[2][1][-1]["content"].split("Step:")[0]
    assert "Nice weather." in shown and "\\DONE" in shown and "```" not in shown and '"ACTION":' not in shown


def test_a_prompt_that_is_too_long_is_asked_with_shorter_results(journal: Path) -> None:
    @plait.tool(read_only=True)
    def book(n: int) -> str:
        """A long text."""
        return f"begin {n} " + "x" * 6000 + " end"

    def reply(effect: Think) -> str:
        if sum(len(message.content) for message in effect.messages) > 5000:
            raise plait.core.errors.ContextOverflow("too long", tokens=9000, room=5000)
        return "Read."

    def script(effect: Think) -> str:
        return {"reason": "Think.", "react": actions(("book", 1), ("book", 2))}.get(effect.phase) or reply(effect)

    class Any_(plait.Scripted):
        def _next(self, request: Any, effect: Think) -> Any:
            return script

    its = agent(Any_([]), journal, tools=[book])
    run = its.run("What do the books say?")
    assert (run.status, run.answer) == ("answered", "Read.")
    assert "begin 1" in last_prompt(run) and "characters left out" in last_prompt(run)
    assert ("shortened") in [kind for kind, _ in notes(run)]
    its.replay(run.id)


def test_the_schema_is_sent_where_it_is_wanted(journal: Path) -> None:
    run = agent(["Think.", BOTH, "By 55 metres."], journal, constrain=True).run(QUESTION)
    bodies = [json.loads(row.body) for row in run.trace if is_request(row.record) and row.body]
    assert ["response_format" in body for body in bodies] == [False, True, False]
    assert "Basic" in json.dumps(bodies[1]["response_format"])


# -- what templates receive


async def test_every_template_of_a_user_receives_the_same_variables(tmp_path: Path) -> None:
    folder = tmp_path / "prompts" / "phased"
    folder.mkdir(parents=True)
    said = """{{ question }} {{ tools[0].name }} {{ history[0].answer }} {{ described and forms and memory == "" }}
{% for turn in turns %}
{{ turn.phase }}: {{ turn.reply | tojson }}
{% endfor %}
{% for result in results %}
{{ result.n }} {{ result.tool }} {{ result.call }} ({{ result.why }}) {{ result.ok }} {{ result.text }}
{% endfor %}
{{ complaint[:8] }}{{ reason }}"""
    names = ("identity", "reason", "react", "repair", "again", "refused", "reply", "conclude")
    for name in names:
        (folder / f"{name}.j2").write_text(f"{name}. {said}", encoding="utf-8")
    chosen = '[{"ACTION": "height", "ARGUMENTS": ["Garnet"], "EXPLAINATION": "its height"},]'
    model = plait.Scripted(["  Look. ", "Talk.", chosen, "Go on."], by_turn=False)
    its = plait.Agent(
        Phased(rounds=2), model=model, tools=[height], prompts=folder.parent, limits=plait.Limits(calls=4)
    )
    run = await its.arun("How high?", session="s", history=[Exchange("Hi.", "Hello!")])
    head = "How high? height Hello! True\n"
    turns = 'reason: "  Look. "\n', 'react: "Talk."\n', f"react: {json.dumps(chosen)}\n"
    found = '1 height height("Garnet") (its height) True 243\n'
    sent = [messages for _, messages in requests(run)]
    assert sent[0][0]["content"] == f"identity. {head}"
    assert [messages[-1]["content"] for messages in sent] == [
        f"reason. {head}",
        f"react. {head}{turns[0]}",
        f"repair. {head}{turns[0]}{turns[1]}There is",
        f"conclude. {head}{''.join(turns)}{found}one of 4 model calls is left",
    ]


def test_the_page_of_prompts_lists_every_variable(journal: Path) -> None:
    received: dict[str, Any] = {}

    class Watched(PromptBook):
        def render(self, name: str, values: Any) -> str:
            received.update(values)
            return super().render(name, values)

    loop = Phased().run(Task(QUESTION), LoopContext((height.spec,), Watched("phased")))
    next(loop)
    page = Path(__file__).parents[1].joinpath("docs", "prompts.md").read_text(encoding="utf-8")
    table = page.partition("## The prompts of `phased`")[2].partition("\n## ")[0]
    assert {"question", "tools", "turns", "results"} <= received.keys()
    assert all(f"`{name}`" in table for name in (*received, *PromptBook("phased").names()))


# -- limits


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_at_a_limit_it_replies_once_with_what_there_is(calls: int, journal: Path) -> None:
    script = {"reason": ["Both."], "react": [BOTH], "reply": ["As far as I got."]}
    its = agent(script, journal, limits=plait.Limits(calls=calls))
    run = its.run(QUESTION)
    if calls == 1:
        assert len(requests(run)) == 1
    assert (run.status, run.answer, run.outcome.limit) == ("stopped", "As far as I got.", "calls")
    assert requests(run)[-1][0] == "reply" and len(requests(run)) == calls
    assert ("gave: 243" in last_prompt(run)) is (calls == 3)
    assert run.steps == calls - 1  # the reply in reserve is no step
    assert "no room" in last_prompt(run)
    its.replay(run.id)


def test_actions_repeated_without_end_end_in_a_reply(journal: Path) -> None:
    again = actions(("height", "Garnet"))
    script = plait.Scripted(["More."] + [again, "More."] * 9, by_turn=False)
    its = agent(script, journal, rounds=9, limits=plait.Limits(repeats=2))
    run = its.run(QUESTION)
    assert run.status == "stopped" and run.outcome.limit == "loop"
    assert requests(run)[-1][0] == "reply"
    its.replay(run.id)


# -- a model for each phase


async def test_each_phase_asks_its_own_endpoint_and_the_record_says_whom(journal: Path) -> None:
    """Three endpoints over real HTTP: what each got, and what the record says each got, are the same bytes."""
    says = {"reason": "Both heights, then the difference.", "react": BOTH, "reply": "By 55 metres."}

    def handler(text: str) -> Any:
        async def answer(asked: Asked) -> None:
            await asked.stream(whole_stream(text))

        return answer

    async with Server(handler(says["reason"])) as one, Server(handler(BOTH)) as two, Server(handler(says["reply"])) as three:  # fmt: skip  # noqa: E501
        servers = {"reason": one, "react": two, "reply": three}
        models = {phase: server.model(spec=f"{phase}er:m", name=f"m-{phase}") for phase, server in servers.items()}
        its = plait.Agent(Phased(), models=models, tools=[height, less], journal=journal)
        run = await its.arun(QUESTION)
    assert (run.status, run.answer) == ("answered", "By 55 metres.")
    rows = [row for row in run.trace if is_request(row.record)]
    assert [(row.record.asked.phase, row.record.asked.model) for row in rows] == [
        ("reason", "reasoner:m"),
        ("react", "reacter:m"),
        ("reply", "replyer:m"),
    ]
    seen: list[dict[str, str]] = []
    for row, (phase, server) in zip(rows, servers.items(), strict=True):
        (asked,) = server.asked
        assert asked.raw == row.body and asked.body["model"] == f"m-{phase}"
        # One growing chat, whoever is asked: each finds the words of those before it as the assistant's.
        assert asked.body["messages"][: len(seen)] == seen
        seen = [*asked.body["messages"], {"role": "assistant", "content": says[phase]}]
    its.replay(run.id)


def test_a_script_by_phase_is_read_by_phase(journal: Path) -> None:
    script = {"reason": ["One.", "DONE"], "react": [BOTH], "reply": ["By 55 metres."]}
    assert agent(script, journal, rounds=2).run(QUESTION).answer == "By 55 metres."


def test_resuming_goes_on_where_it_was(journal: Path) -> None:
    sent = []

    @plait.tool
    def send(text: str) -> str:
        """Sends."""
        sent.append(text)
        return "sent"

    chosen = actions(("send", "a"), ("height", "Garnet"))
    its = agent(["Think.", chosen, "Sent."], journal, tools=[send, height], approve="effects")
    run = its.run("Send a, please, and say how high Garnet is.")
    assert run.status == "waiting" and sent == []
    run = its.resume(run, "yes")
    assert (run.status, run.answer, sent) == ("answered", "Sent.", ["a"])
    its.replay(run.id)


def test_an_action_shows_what_it_was_called_with() -> None:
    (step,) = action_list.ACTIONS.read('{"ACTION": "less", "ARGUMENTS": {"a": "$2", "b": 1}}').steps
    assert action_list.call_words(step, step.input) == 'less(a="$2", b=1)'


def test_a_model_that_lists_for_ever_is_cut_and_not_asked_to_go_on(journal: Path) -> None:
    entries = ", ".join(
        json.dumps({"ACTION": "height", "ARGUMENTS": [f"Tower {n}"], "EXPLANATION": str(n)}) for n in range(9)
    )
    endless = plait.core.Reply("[" + entries[:-5], "length")
    run = agent(plait.Scripted(["Look.", endless, "DONE", "243"], by_turn=False), journal, most=3).run(QUESTION)
    assert run.answer == "243" and len(called(run)) == 3 and run.calls == 4
    (react,) = [json.loads(row.body or b"") for row in run.trace if is_request(row.record)][1:2]
    assert react["max_tokens"] == action_list.CHUNK


def test_a_long_list_that_does_not_hold_all_that_count_is_continued(journal: Path) -> None:
    whole = actions(("height", "Garnet"), ("height", "Ferris"))
    half = plait.core.Reply(whole[:60], "length")
    run = agent(plait.Scripted(["Look.", half, whole[60:], "55"], by_turn=False), journal).run(QUESTION)
    assert run.answer == "55" and [given for _, given in called(run)] == [["Garnet"], ["Ferris"]]


# -- what an action may be given


@plait.tool(read_only=True)
def price(symbol: str) -> int:
    """Price of a share."""
    return {"IBM": 120, "T": 20}[symbol]


@plait.tool(read_only=True)
def today() -> str:
    """The date of today."""
    return "2031-02-03"


def test_a_list_for_a_tool_with_one_parameter_means_several_calls(journal: Path) -> None:
    its = agent(
        ["Both prices.", actions(("price", "IBM", "T"), ("less", "$1", 1)), "DONE", "Done."],
        journal,
        tools=[price, less],
    )
    run = its.run("What do IBM and T cost?")
    assert called(run)[:2] == [("price", ["IBM"]), ("price", ["T"])]
    shown = next(messages[-1]["content"] for _, messages in requests(run) if "carried out" in messages[-1]["content"])
    assert '1. price("IBM", "T") gave: 120\n20' in shown
    assert its.replay(run.id).outcome == run.outcome


@pytest.mark.parametrize("nothing", [[""], ["None"], [None], [], {}, "none"])
def test_what_stands_for_nothing_is_no_input_of_a_tool_without_parameters(nothing: Any, journal: Path) -> None:
    chosen = json.dumps([{"ACTION": "today", "ARGUMENTS": nothing, "EXPLANATION": "x"}])
    run = agent(["The date.", chosen, "The third."], journal, tools=[today]).run("Which day is it?")
    assert called(run) == [("today", None)] and run.answer == "The third." and run.calls == 3


def test_a_list_for_a_tool_with_a_list_parameter_is_one_call(journal: Path) -> None:
    @plait.tool(read_only=True)
    def prices(symbols: list[str]) -> list[int]:
        """Prices of shares."""
        return [len(symbol) for symbol in symbols]

    run = agent(["Prices.", actions(("prices", "IBM", "T", "BALL")), "Done."], journal, tools=[prices]).run("Prices?")
    assert called(run) == [("prices", ["IBM", "T", "BALL"])]
    assert "gave: [3, 1, 4]" in last_prompt(run)


@pytest.mark.parametrize("given", [["the date"], "the date", ["a", "b"]])
def test_arguments_for_a_tool_without_parameters_are_dropped_if_it_only_reads(given: Any, journal: Path) -> None:
    chosen = json.dumps([{"ACTION": "today", "ARGUMENTS": given, "EXPLANATION": "x"}])
    run = agent(["The date.", chosen, "The third."], journal, tools=[today]).run("Which day is it?")
    assert called(run) == [("today", None)] and run.calls == 3
    assert notes(run) == [("repaired", "the arguments of today, which takes none, were dropped")]
    assert requests(run)[-1][1][4]["content"] == chosen


def test_arguments_for_an_effect_without_parameters_are_asked_about(journal: Path) -> None:
    """An effect without its argument could reach further than the model meant."""
    deleted = []

    @plait.tool
    def delete_all() -> str:
        """Deletes all notes."""
        deleted.append("all")
        return "deleted"

    chosen = actions(("delete_all", "the note of Monday"))
    its = agent(["Delete it.", chosen, "[]", "I can only delete all."], journal, tools=[delete_all])
    run = its.run("Delete the note of Monday.")
    assert deleted == [] and run.answer == "I can only delete all."
    assert "It takes no input" in requests(run)[2][1][-1]["content"]


def test_basic_beside_other_actions_means_nothing(journal: Path) -> None:
    run = agent(["Look.", actions(("Basic", "a greeting"), ("height", "Garnet")), "243 m."], journal).run("How high?")
    assert called(run) == [("height", ["Garnet"])] and run.status == "answered"


@pytest.mark.parametrize(
    "name", ["'height'", "ACTION height", "ACTION: height", "Action:height", "`height`", "height action", "<height>"]
)
def test_quotes_and_the_word_action_around_a_tools_name_are_dropped(name: str, journal: Path) -> None:
    run = agent(["Think.", actions((name, "Garnet")), "243 metres."], journal).run("How high is Garnet?")
    assert called(run) == [("height", ["Garnet"])]


def test_words_in_a_search_that_looks_like_a_formula_cost_no_model_call(journal: Path) -> None:
    @plait.tool(read_only=True)
    def search(query: str) -> str:
        """Searches the web."""
        return "found"

    for query in ("7-eleven", "catch-22, 1961", "mass of Jupiter - $1"):
        chosen = actions(("search", "something else"), ("search", query))
        run = agent(["Think.", chosen, "So."], journal, tools=[search]).run("Find out about it, please.")
        assert [phase for phase, _ in requests(run)] == ["reason", "react", "reply"], query


def test_an_amount_of_money_stays_as_it_is_and_a_reference_to_no_action_is_asked_for_again(journal: Path) -> None:
    @plait.tool(read_only=True)
    def search(query: str) -> str:
        """Searches the web."""
        return "found"

    its = agent(["Think.", actions(("search", "lunch under $5"), ("search", "$7")), "So."], journal, tools=[search])
    run = its.run("What can I eat for $7 or less?")
    assert called(run) == [("search", ["lunch under $5"]), ("search", ["$7"])]
    assert [phase for phase, _ in requests(run)] == ["reason", "react", "reply"]
    replies = ["Think.", actions(("search", "a"), ("search", "$7")), actions(("search", "a")), "So."]
    run = agent(plait.Scripted(replies, by_turn=False), journal, tools=[search]).run("What can I eat?")
    assert "Action 2 names $7, which no other action of the list gives" in requests(run)[2][1][-1]["content"]
    assert called(run) == [("search", ["a"])]
