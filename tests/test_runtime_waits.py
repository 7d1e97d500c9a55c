"""Questions and approvals: the run waits, and anyone can go on with it, from any process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import plait
from journal_rows import is_request
from plait.core import Artifact, Waiting
from plait.core import events as ev
from plait.core.errors import BadAnswer, ConfigError

SENT: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@plait.tool
def send(text: str) -> str:
    """Send a text to everybody."""
    SENT.append(text)
    return "sent"


@plait.tool(read_only=True)
def read(key: str) -> str:
    """Read something."""
    return f"{key}: 7"


class Letter(Artifact):
    """An object that JSON can't hold."""

    kind = "letter"

    def about(self) -> str:
        return "a letter"

    def dump(self) -> bytes:
        return b"letter"

    @classmethod
    def load(cls, data: bytes) -> Letter:
        return cls()


def turn(tool: str, value: object) -> str:
    return json.dumps({"thought": "on", "tool": tool, "tool_input": value})


def asking(journal: Path) -> plait.Agent:
    replies = [turn("ask_user", "Which city?"), turn("final_answer", {"answer": ["Lyon"]})]
    return plait.Agent("json", model=plait.Scripted(replies), journal=journal)


def test_ask_user_suspends_the_run_until_someone_answers(journal: Path) -> None:
    run = asking(journal).run("Plan my trip")
    assert (run.status, run.reason, run.answer) == ("waiting", "Which city?", None)
    again = asking(journal).resume(run.id)
    assert again.status == "waiting"
    done = asking(journal).resume(run, "Lyon")
    assert (done.status, done.answer) == ("answered", ["Lyon"])
    assert any("Lyon" in (row.body or b"").decode() for row in done.trace if is_request(row.record))


def test_ask_user_is_absent_when_switched_off(journal: Path) -> None:
    run = asking(journal).using(can_ask=False).run("Plan my trip")
    first = next(row.body for row in run.trace if row.body)
    assert b"ask_user" not in first
    assert run.status == "answered"


def test_a_person_at_hand_is_asked_at_once() -> None:
    async def person(waiting: Waiting) -> str:
        assert waiting.kind == "question"
        return "Lyon"

    agent = plait.Agent(
        "json",
        model=plait.Scripted([turn("ask_user", "Which city?"), turn("final_answer", "ok")]),
        journal=False,
    )
    assert agent.run("Plan", on_wait=person).answer == "ok"


def sending(journal: Path, approve: plait.agent.Approve = "effects") -> plait.Agent:
    replies = [turn("read", "x"), turn("send", "hello"), turn("final_answer", "over")]
    return plait.Agent("json", model=plait.Scripted(replies), tools=[read, send], journal=journal, approve=approve)


def test_a_tool_with_effects_waits_for_leave(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    assert run.status == "waiting" and SENT == []
    assert run.reason == 'May \'send\' be called with {"text":"hello"}?'
    done = sending(journal).resume(run, "yes")
    assert done.status == "answered" and SENT == ["hello"]


def test_a_refused_call_is_not_made_and_the_model_is_told_why(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    done = sending(journal).resume(run, "Not on a Sunday")
    assert done.status == "answered" and SENT == []
    last = [row.body for row in done.trace if is_request(row.record)][-1]
    assert last is not None and b"Not on a Sunday" in last


def test_an_edited_call_is_made_with_what_the_person_gave_and_the_model_is_told(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    done = sending(journal).resume(run, 'edit {"text": "good morning"}')
    assert done.status == "answered" and SENT == ["good morning"]
    last = [row.body for row in done.trace if is_request(row.record)][-1]
    assert last is not None and b"The person changed this call" in last and b"good morning" in last
    made = [event.call.input for event in done.events if isinstance(event, ev.Called | ev.Observed)]
    assert made[2:] == [{"text": "good morning"}] * 2
    assert sending(journal).replay(run.id).whole


def test_an_edit_that_is_no_json_makes_no_call_and_leaves_the_run_waiting(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    with pytest.raises(ConfigError, match="The edited input is no JSON"):
        sending(journal).resume(run, "edit {text: good morning}")
    assert SENT == []
    assert sending(journal).resume(run.id).status == "waiting"


@pytest.mark.parametrize(
    ("edit", "wrong"),
    [
        ('{"txt": "good morning"}', ["send", "no parameter 'txt'", "known: text"]),
        ('{"text": ["a", "list"]}', ["send", "text must be", "the list ['a', 'list']"]),
        ("{}", ["send", "text is missing"]),
    ],
)
def test_an_edit_that_does_not_fit_the_tool_is_not_taken_and_another_may_be_given(
    journal: Path, edit: str, wrong: list[str]
) -> None:
    run = sending(journal).run("Say hello")
    with pytest.raises(BadAnswer, match="The edited input does not fit") as why:
        sending(journal).resume(run, f"edit {edit}")
    assert not [words for words in [*wrong, f"run {run.id} still waits"] if words not in str(why.value)]
    assert why.value.run == run.id and SENT == []
    again = sending(journal).resume(run.id)
    assert (again.status, again.reason) == ("waiting", run.reason)
    assert not [each for each in again.timeline.questions if each.answer is not None]
    done = sending(journal).resume(run, 'edit {"text": "good morning"}')
    assert (done.status, SENT) == ("answered", ["good morning"])


def test_a_person_at_hand_is_told_what_is_wrong_with_an_argument(journal: Path) -> None:
    said, asked = iter(['edit {"txt": "good day"}', 'edit {"text": "good day"}']), []

    async def person(waiting: Waiting) -> str:
        asked.append(waiting.reason)
        return next(said)

    assert sending(journal).run("Say hello", on_wait=person).status == "answered"
    assert SENT == ["good day"]
    assert "no parameter 'txt'" in asked[1] and "May 'send' be called" in asked[1]


def test_an_edit_may_name_what_a_tool_gave_by_its_handle(journal: Path) -> None:
    @plait.tool(read_only=True)
    def write() -> Letter:
        """Write a letter."""
        return Letter()

    @plait.tool
    def post(letter: Letter) -> str:
        """Post a letter."""
        SENT.append(letter.about())
        return "posted"

    replies = [turn("write", {}), turn("post", {"letter": "letter-1"}), turn("final_answer", "over")]
    agent = plait.Agent("json", model=plait.Scripted(replies), tools=[write, post], journal=journal, approve="effects")
    run = agent.run("Post it")
    with pytest.raises(BadAnswer, match="letter must be"):
        agent.resume(run, 'edit {"letter": "letter-2"}')
    assert agent.resume(run, 'edit {"letter": "letter-1"}').status == "answered" and SENT == ["a letter"]


def test_words_that_begin_with_edit_refuse_like_any_others(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    done = sending(journal).resume(run, "Edit the text first, please")
    assert done.status == "answered" and SENT == []
    last = [row.body for row in done.trace if is_request(row.record)][-1]
    assert last is not None and b"Edit the text first, please" in last


def test_a_person_at_hand_who_edits_badly_is_asked_again(journal: Path) -> None:
    said, asked = iter(['edit {"text"', 'EDIT: "good day"']), []

    async def person(waiting: Waiting) -> str:
        asked.append(waiting.reason)
        return next(said)

    assert sending(journal).run("Say hello", on_wait=person).status == "answered"
    assert SENT == ["good day"]
    assert "no JSON" not in asked[0] and "no JSON" in asked[1] and "May 'send' be called" in asked[1]


def test_what_a_person_put_into_a_call_is_not_made_up(journal: Path) -> None:
    replies = [turn("send", "12345"), turn("send", "67890"), turn("final_answer", "over")]
    agent = plait.Agent("json", model=plait.Scripted(replies), tools=[send], journal=journal, approve="effects")
    agent = agent.using(grounding="note")
    run = agent.resume(agent.run("Send 12345"), 'edit "67890"')
    run = agent.resume(run, "yes")
    assert SENT == ["67890", "67890"]
    assert not [event for event in run.events if isinstance(event, ev.Noted) and event.kind == "invented"]


def test_a_person_at_hand_who_only_gives_edits_that_cant_be_read_leaves_the_run_waiting(journal: Path) -> None:
    asked = []

    async def person(waiting: Waiting) -> str:
        asked.append(waiting.reason)
        return "edit {"

    run = sending(journal).run("Say hello", on_wait=person)
    assert (run.status, run.reason, SENT) == ("waiting", asked[0], [])
    assert 2 <= len(asked) <= 10
    assert sending(journal).resume(run, "yes").status == "answered"


def test_a_fork_behind_an_edited_call_has_it_as_it_was_made(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    sending(journal).resume(run, 'edit {"text": "good morning"}')
    fork = sending(journal).fork(run.id, 3)
    assert (fork.status, SENT) == ("answered", ["good morning"])
    assert [event.call.input for event in fork.events if isinstance(event, ev.Called)][1:] == [{"text": "good morning"}]
    assert sending(journal).replay(fork.id).whole


async def test_an_edited_call_that_is_in_doubt_is_said_to_be_the_persons(journal: Path) -> None:
    began = asyncio.Event()

    @plait.tool
    async def send(text: str) -> str:
        """Send a text to everybody."""
        began.set()
        await asyncio.sleep(60)
        return "sent"

    agent = sending(journal).using(tools=[read, send])
    run = await agent.arun("Say hello")
    going_on = asyncio.create_task(agent.aresume(run, 'edit {"text": "good morning"}'))
    await began.wait()
    going_on.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going_on
    done = await agent.aresume(run.id)
    (seen,) = [each for each in done.events if isinstance(each, ev.Observed) and each.call.tool == "send"]
    assert seen.observation.trouble == "in_doubt" and "good morning" in seen.observation.note
    last = [row.body for row in done.trace if is_request(row.record)][-1]
    assert last is not None and b"not known" in last and b"The person changed this call" in last


async def test_going_on_with_a_run_makes_its_tools_off_the_event_loop(tmp_path: Path, journal: Path) -> None:
    (tmp_path / "where.py").write_text(
        "import threading\nimport plait\n\nHERE = threading.current_thread() is threading.main_thread()\n\n\n"
        "@plait.tool\ndef send(text: str) -> str:\n"
        '    "Sends."\n    return f"made on the loop: {HERE}"\n'
    )
    agent = sending(journal).using(tools=[str(tmp_path / "where.py"), read])
    run = await agent.arun("Say hello")
    assert run.status == "waiting"
    for going_on in (agent.using().aresume(run, "yes"), agent.using(approve="never").afork(run.id, 2)):
        done = await going_on
        (seen,) = [e for e in done.events if isinstance(e, ev.Observed) and e.call.tool == "send"]
        assert seen.observation.text == "made on the loop: False"


def test_always_asks_before_reading_too_and_a_function_decides_for_itself(journal: Path) -> None:
    assert "'read'" in (sending(journal, "always").run("Say hello").reason or "")
    assert sending(journal, lambda call: call.input == {"text": "hello"}).run("Say hello").status == "waiting"
    assert sending(journal, "never").run("Say hello").status == "answered"


def test_an_answer_nobody_asked_for_is_refused(journal: Path) -> None:
    run = sending(journal).run("Say hello")
    sending(journal).resume(run, "yes")
    assert sending(journal).resume(run.id).status == "answered"  # it has ended: nothing is done again
    assert SENT == ["hello"]


def test_several_runs_wait_at_once(journal: Path) -> None:
    agent = sending(journal)

    async def main() -> list[plait.Run]:
        return await asyncio.gather(*(agent.arun(f"Say hello {i}") for i in range(5)))

    waiting = asyncio.run(main())
    assert {run.status for run in waiting} == {"waiting"}
    for run in waiting:
        assert agent.resume(run, "yes").status == "answered"
    assert SENT == ["hello"] * 5


def test_a_function_that_approves_and_fails_is_named_and_the_run_can_be_resumed(journal: Path) -> None:
    def fails(call: object) -> bool:
        raise KeyError("no such rule")

    agent = sending(journal).using(approve=fails)
    run = agent.run("Say hello")
    assert run.status == "crashed" and SENT == []
    assert run.reason == "The function approve= failed for a call of 'read': KeyError: 'no such rule'."
    assert agent.using(approve="never").resume(run).status == "answered" and len(SENT) == 1
