"""Conversation = session: a request's earlier messages are recognised, or are what was said before."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.config import ServeTable
from plait.core import Think
from plait.core.errors import BadRequest
from plait.journal.store import Journal
from plait.server.agents import ServedAgent, serve_agent
from window_server import FULL, ONE, TWO, Here, asked, serving

SEEN: list[str] = []


def answer(think: Think) -> str:
    """Says what it was asked last, and how many turns it is shown before."""
    text = "\n".join(message.content for message in think.messages)
    SEEN.append(text)
    words = think.messages[-1].content.strip().splitlines()[-1]
    return f"Final Answer: You said {words!r}."


@pytest.fixture
def agent(journal: Path) -> plait.Agent:
    SEEN.clear()
    return plait.Agent("react", model=plait.Scripted([answer] * 50, by_turn=False), journal=journal)


@pytest.fixture
def here(agent: plait.Agent) -> Iterator[Here]:
    with serving(agent) as server:
        yield server


def say(here: Here, messages: list[dict[str, Any]], token: str | None = None, **more: Any) -> tuple[str, str]:
    """The answer to a conversation, and its session."""
    status, headers, body = here.ask(
        "POST", "/v1/chat/completions", {"model": "plait", "messages": messages, **more}, token=token
    )
    assert status == 200, body
    return body["choices"][0]["message"]["content"], headers["x-plait-session"]


def test_each_request_of_a_conversation_begins_a_script_again(journal: Path) -> None:
    script = [{"calls": [{"name": "calculator", "input": {"formula": "2+2"}}]}, {"answer": "The first answer."}]
    for loop in ("react", "json", "codeact", "tool_calling"):
        model = plait.Scripted([*script, *script[:1], {"answer": "The second answer."}])
        with serving(plait.Agent(loop, model=model, tools=["calculator"], journal=journal)) as server:
            messages, sessions = talk(server, f"One, {loop}?", "Two?", "Three?")
            assert [each["content"] for each in messages[1::2]] == ["The first answer."] * 3
            assert len(set(sessions)) == 1


def question_in(said: str) -> str:
    """The id of the question that is asked."""
    return said.rpartition("Say yes ")[2][:8]


def talk(here: Here, *questions: str, before: list[dict[str, Any]] | None = None) -> tuple[list[Any], list[str]]:
    """A client that keeps the conversation itself: all messages, and the session of each turn."""
    messages = list(before or [])
    sessions = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        said, session = say(here, messages)
        messages.append({"role": "assistant", "content": said})
        sessions.append(session)
    return messages, sessions


def test_a_conversation_is_recognised_by_its_messages(here: Here) -> None:
    _, sessions = talk(here, "One?", "Two?", "Three?")
    assert len(set(sessions)) == 1
    turns = here.manager.journal.turns(sessions[0])
    assert [turn.question for turn in turns] == ["One?", "Two?", "Three?"]
    assert "One?" in SEEN[2] and "Two?" in SEEN[2]


def test_it_is_recognised_after_a_restart_and_whatever_the_client_trims(agent: plait.Agent) -> None:
    with serving(agent) as here:
        messages, first = talk(here, "One?")
    messages[0]["content"] = " One?\n"
    with serving(agent) as here:
        _, later = talk(here, "Two?", before=messages)
    assert first == later


def test_a_question_asked_again_otherwise_begins_a_session_of_its_own(here: Here) -> None:
    messages, (first, _) = talk(here, "One?", "Two?")
    _, (other,) = talk(here, "Two, otherwise?", before=messages[:2])
    assert other != first
    assert "One?" in SEEN[-1] and "Two?" not in SEEN[-1].replace("Two, otherwise?", "")


def test_a_conversation_begun_elsewhere_is_what_was_said_before_and_is_on_record(here: Here, journal: Path) -> None:
    before = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello, Ada."}]
    _, (session, later) = talk(here, "Who am I?", "And now?", before=before)
    assert "My name is Ada." in SEEN[0] and "Hello, Ada." in SEEN[0]
    assert session == later
    assert "My name is Ada." in SEEN[1] and "Who am I?" in SEEN[1]
    for row in Journal(journal).runs():
        replayed = here.manager.agent_for(row.head).replay(row.head.run)  # the history comes from the record
        assert replayed.whole and replayed.requests == 1


def test_what_is_more_than_the_window_shows_can_be_searched(agent: plait.Agent) -> None:
    def look(think: Think) -> str:
        SEEN.append("\n".join(message.content for message in think.messages))
        return 'Thought: x\nAction:\n```\n{"action": "chat_history", "action_input": {"query": "cat"}}\n```'

    model = plait.Scripted([look, answer], by_turn=False)
    before = [
        {"role": role, "content": text}
        for i in range(20)
        for role, text in (("user", f"Fact {i}: the {'cat' if i == 3 else 'dog'} has {i} spots."), ("assistant", "Ah."))
    ]
    with serving(agent.using(model=model, history=plait.History(share=0.003))) as here:
        say(here, [*before, {"role": "user", "content": "Which cat?"}])
        (row,) = here.manager.journal.runs()
        assert "Fact 3" not in SEEN[0] and "Fact 19" in SEEN[0]
        assert "the cat has 3 spots" in SEEN[1]
        assert [tool["name"] for tool in row.head.tools] == ["chat_history"]


def test_a_conversation_that_is_shown_whole_brings_no_tool_to_search_it(here: Here) -> None:
    _, sessions = talk(here, "One?", "Two?")
    assert [row.head.tools for row in here.manager.journal.runs(session=sessions[0])] == [(), ()]


def test_a_named_session_needs_no_messages_before(here: Here) -> None:
    say(here, [{"role": "user", "content": "I am Ada."}], session="trip")
    _, session = say(here, [{"role": "user", "content": "Who?"}], session="trip")
    assert session == "trip" and "I am Ada." in SEEN[-1]
    status, headers, _ = here.ask("POST", "/v1/chat/completions", asked("Again?"), {"X-Plait-Session": "trip"})
    assert (status, headers["x-plait-session"]) == (200, "trip")
    assert [turn.question for turn in here.manager.journal.turns("trip")] == ["I am Ada.", "Who?", "Again?"]
    assert [turn.number for turn in here.manager.journal.turns("trip")] == [1, 2, 3]


def test_a_session_may_be_named_in_any_script(here: Here) -> None:
    _, session = say(here, [{"role": "user", "content": "?"}], session="Reise nach Köln 100%")
    assert session == "Reise nach K%C3%B6ln 100%25"
    _, again = say(here, [{"role": "user", "content": "?"}], session="Reise nach Köln 100%")
    assert session == again and len(here.manager.journal.turns("Reise nach Köln 100%")) == 2


def test_two_turns_of_one_session_do_not_run_side_by_side(journal: Path) -> None:
    going, most = 0, 0
    count = threading.Lock()

    @plait.tool
    def work() -> str:
        """Works."""
        nonlocal going, most
        with count:
            going += 1
            most = max(most, going)
        threading.Event().wait(0.3)
        with count:
            going -= 1
        return "done"

    act = 'Thought: x\nAction:\n```\n{"action": "work", "action_input": {}}\n```'

    def model(think: Think) -> str:
        return "Final Answer: ok" if "done" in think.messages[-1].content else act

    agent = plait.Agent("react", model=plait.Scripted([model] * 50, by_turn=False), tools=[work], journal=journal)
    with serving(agent) as here:
        threads = [
            threading.Thread(target=say, args=(here, [{"role": "user", "content": f"{i}?"}]), kwargs={"session": "s"})
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert most == 1
        assert len(here.manager.journal.turns("s")) == 4


@pytest.mark.parametrize("named", [None, "trip"])
def test_a_journal_that_is_slow_to_read_holds_up_nobody_else(
    here: Here, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    more = {"session": named} if named else {}
    said, _ = say(here, [{"role": "user", "content": "One?"}], **more)
    messages: list[Any] = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": said}]
    messages.append({"role": "user", "content": "Two?"})
    reading, go_on = threading.Event(), threading.Event()
    turns = Journal.turns

    def slow(*args: Any, **rest: Any) -> Any:
        reading.set()
        assert go_on.wait(60)
        return turns(*args, **rest)

    monkeypatch.setattr(Journal, "turns", slow)
    answers: list[tuple[str, str]] = []
    asking = threading.Thread(target=lambda: answers.append(say(here, messages, **more)))
    asking.start()
    try:
        assert reading.wait(60)
        assert here.ask("GET", "/health")[0] == 200 and not answers
    finally:
        go_on.set()
        asking.join(60)
    assert answers and answers[0][0].endswith("Two?'.")


def test_of_many_that_go_on_with_a_conversation_at_once_one_does_and_the_others_begin_their_own(here: Here) -> None:
    messages, (session,) = talk(here, "One?")
    found: list[str] = []

    def ask() -> None:
        found.append(say(here, [*messages, {"role": "user", "content": "Two?"}])[1])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == len(set(found)) == 8 and session in found
    assert [turn.question for turn in here.manager.journal.turns(session)] == ["One?", "Two?"]


def test_turns_of_a_named_session_that_come_at_once_each_know_the_ones_before(here: Here) -> None:
    threads = [
        threading.Thread(target=say, args=(here, asked(f"Q{i}?")["messages"]), kwargs={"session": "s"})
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    turns = here.manager.journal.turns("s")
    assert len(turns) == 8 and all(turn.answer for turn in turns)
    for i, turn in enumerate(turns):
        before = [each.question for each in here.manager.journal.run(turn.run).head.history]
        assert before == [each.question for each in turns[:i]][-len(before) or i :], (i, before)
        assert len(before) >= min(i, 4)


# -- a run that waits for the person


@plait.tool
def send(to: str) -> str:
    """Sends."""
    return f"sent to {to}"


SEND = 'Thought: x\nAction:\n```\n{"action": "send", "action_input": {"to": "Ada"}}\n```'


@pytest.mark.parametrize("named", [None, "trip"])
@pytest.mark.parametrize(("reply", "seen"), [("yes", "sent to Ada"), ("no, not her", "not her")])
def test_what_a_run_waits_for_is_the_answer_and_the_next_message_answers_it(
    journal: Path, named: str | None, reply: str, seen: str
) -> None:
    def close(think: Think) -> str:
        assert seen in "\n".join(message.content for message in think.messages)
        return "Final Answer: Done."

    model = plait.Scripted([SEND, close, answer], by_turn=False)
    agent = plait.Agent("react", model=model, tools=[send], approve="effects", journal=journal)
    more = {"session": named} if named else {}
    with serving(agent) as here:
        messages: list[Any] = [{"role": "user", "content": "Send it."}]
        said, session = say(here, messages, **more)
        assert said.startswith('Approve this call?\n\nsend(to="Ada"')
        asked = question_in(said)
        assert said.endswith(f"Say yes {asked}, or no {asked} and why, or edit {asked} and another input as JSON.")
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": reply}]
        said, same = say(here, messages, **more)
        assert (said, same) == ("Done.", session)
        (row,) = here.manager.journal.runs()
        assert row.status == "answered"
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And?"}]
        _, same = say(here, messages, **more)
        assert same == session and len(here.manager.journal.turns(session)) == 2


def test_a_message_for_one_agent_does_not_answer_another_that_waits_in_the_session(journal: Path) -> None:
    def agent(name: str) -> ServedAgent:
        model = plait.Scripted([SEND, "Final Answer: Sent."], by_turn=False)
        made = plait.Agent("react", model=model, tools=[send], approve="effects", journal=journal)
        return serve_agent(name, made, ServeTable())

    with serving(agent("notes"), agent("cities")) as here:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "Send it."}], "session": "trip"}
        _, _, told = here.ask("POST", "/v1/chat/completions", {**body, "model": "notes"})
        asked = question_in(told["choices"][0]["message"]["content"])
        yes = {**body, "messages": [{"role": "user", "content": f"yes {asked}"}]}
        status, headers, told = here.ask("POST", "/v1/chat/completions", {**yes, "model": "cities"})
        assert (status, told["error"]["code"]) == (409, "other_agent_waits")
        assert f"'notes' waits for an answer with question {asked}" in told["error"]["message"]
        assert headers["x-should-retry"] == "false"
        assert [row.status for row in here.manager.journal.runs()] == ["waiting"]
        status, _, told = here.ask("POST", "/v1/chat/completions", {**yes, "model": "notes"})
        assert told["choices"][0]["message"]["content"] == "Sent."


def test_an_edit_that_does_not_fit_is_an_error_and_the_conversation_goes_on_with_another(journal: Path) -> None:
    def close(think: Think) -> str:
        assert "sent to Eve" in "\n".join(message.content for message in think.messages)
        return "Final Answer: Done."

    model = plait.Scripted([SEND, close], by_turn=False)
    agent = plait.Agent("react", model=model, tools=[send], approve="effects", journal=journal)
    with serving(agent) as here:
        messages: list[Any] = [{"role": "user", "content": "Send it."}]
        said, _ = say(here, messages)
        messages.append({"role": "assistant", "content": said})
        bad = [*messages, {"role": "user", "content": 'edit {"too": "Eve"}'}]
        for stream in (False, True):
            body = {"model": "plait", "messages": bad, "stream": stream}
            status, _, told = here.ask("POST", "/v1/chat/completions", body)
            assert (status, told["error"]["code"]) == (400, "bad_answer") and "'too'" in told["error"]["message"]
        messages.append({"role": "user", "content": 'edit {"to": "Eve"}'})
        assert say(here, messages)[0] == "Done."
        assert [row.status for row in here.manager.journal.runs()] == ["answered"]


def test_a_question_of_the_models_is_answered_by_the_next_message(journal: Path) -> None:
    ask = '{"thought": "x", "tool": "ask_user", "tool_input": "Which town?"}'
    done = '{"thought": "x", "tool": "final_answer", "tool_input": "Lyon it is."}'
    with serving(plait.Agent("json", model=plait.Scripted([ask, done], by_turn=False), journal=journal)) as here:
        messages: list[Any] = [{"role": "user", "content": "The weather?"}]
        said, _ = say(here, messages)
        assert said == "Which town?"
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Lyon"}]
        assert say(here, messages)[0] == "Lyon it is."
        assert len(here.manager.journal.runs()) == 1


# -- whose it is


def test_each_client_token_has_sessions_of_its_own(agent: plait.Agent) -> None:
    with serving(agent, tokens=(FULL,), clients=(ONE, TWO)) as here:
        say(here, [{"role": "user", "content": "My secret is 42."}], ONE, session="trip")
        _, session = say(here, [{"role": "user", "content": "What is my secret?"}], TWO, session="trip")
        assert session == "trip" and "42" not in SEEN[-1]
        _, session = say(here, [{"role": "user", "content": "What is my secret?"}], ONE, session="trip")
        assert session == "trip" and "42" in SEEN[-1]
        # Nor by the name that it has on record, nor by knowing what was said.
        (of_one,) = {row.head.session for row in here.manager.journal.runs() if "secret is" in row.head.question}
        say(here, [{"role": "user", "content": "And here?"}], TWO, session=of_one)
        assert "42" not in SEEN[-1]
        sessions = {row.head.session for row in here.manager.journal.runs()}
        assert len(sessions) == 3


def test_a_conversation_of_another_token_is_not_recognised(agent: plait.Agent) -> None:
    with serving(agent, clients=(ONE, TWO)) as here:
        said, session = say(here, [{"role": "user", "content": "One?"}], ONE)
        messages = [
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "Two?"},
        ]
        assert say(here, messages, TWO)[1] != session
        assert say(here, messages, ONE)[1] == session


def test_a_run_that_waits_is_not_answered_by_another_token(journal: Path) -> None:
    model = plait.Scripted([SEND] * 9, by_turn=False)
    agent = plait.Agent("react", model=model, tools=[send], approve="effects", journal=journal)
    with serving(agent, clients=(ONE, TWO)) as here:
        said, _ = say(here, [{"role": "user", "content": "Send it."}], ONE)
        messages = [
            {"role": "user", "content": "Send it."},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "yes"},
        ]
        say(here, messages, TWO)
        assert [row.status for row in here.manager.journal.runs()] == ["waiting", "waiting"]


def test_the_journal_holds_no_token(agent: plait.Agent, journal: Path) -> None:
    with serving(agent, clients=(ONE,)) as here:
        say(here, [{"role": "user", "content": "One?"}], ONE)
    for file in journal.parent.glob("runs.db*"):
        assert ONE.encode() not in file.read_bytes()


def test_a_turn_that_came_to_nothing_is_asked_again_in_the_same_session(journal: Path) -> None:
    model = plait.Scripted([answer, BadRequest("no"), answer, answer], by_turn=False)
    with serving(plait.Agent("react", model=model, journal=journal)) as here:
        messages, (session,) = talk(here, "One?")
        messages.append({"role": "user", "content": "Two?"})
        assert here.ask("POST", "/v1/chat/completions", {"model": "plait", "messages": messages})[0] == 500
        said, same = say(here, messages)
        assert same == session
        messages.append({"role": "assistant", "content": said})
        assert talk(here, "Three?", before=messages)[1] == [session]
        assert [turn.answer is None for turn in here.manager.journal.turns(session)] == [False, True, False, False]


def test_an_agent_may_speak_first(here: Here) -> None:
    say(here, [{"role": "assistant", "content": "Welcome to Lyon."}, {"role": "user", "content": "Where am I?"}])
    assert "Welcome to Lyon." in SEEN[0]


def test_a_message_to_a_waiting_session_is_refused_with_the_question(journal: Path) -> None:
    @plait.tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        return "paid"

    script = plait.Scripted(
        [plait.core.Reply("", calls=(plait.core.Call("pay", {"amount": 5}),)), "done"], by_turn=False
    )
    agent = plait.Agent("tool_calling", model=script, tools=[pay], approve="effects", journal=journal)
    with serving(agent) as server:
        run = {"agent": next(iter(server.manager.agents)), "question": "Pay.", "session": "trip"}
        assert server.ask("POST", "/v1/runs", run)[0] == 202
        deadline = time.monotonic() + 5
        while Journal(journal).runs()[0].status != "waiting" and time.monotonic() < deadline:
            time.sleep(0.01)
        (question,) = Journal(journal).timeline(Journal(journal).runs()[0].head.run).open_questions
        chat = {"model": run["agent"], "messages": [{"role": "user", "content": "Never mind."}], "session": "trip"}
        for path, body, code in (("/v1/runs", run, "session_waits"), ("/v1/chat/completions", chat, "stale_answer")):
            status, headers, told = server.ask("POST", path, body)
            assert (status, told["error"]["code"], headers["x-should-retry"]) == (409, code, "false")
            assert [each["question"] for each in told["waits"]] == [question.question]
            assert question.question in told["error"]["message"]
        for part in ("Reply: yes {} (approve)", "no {} and why", "edit {} and the input as JSON"):
            assert part.format(question.question) in told["error"]["message"]
        assert len(Journal(journal).runs()) == 1
