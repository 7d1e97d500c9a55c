"""An approval is for one call with one input, whichever door it comes by, and however often it comes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import plait
from approval_clients import approve_at_once, duplicates
from cli_support import PLAIT, Shell, action, final, question
from fork_server import run_together
from mcp_support import until
from plait.config import ServeTable
from plait.core import Answered, Call, LoopContext, LoopRun, OneKind, Reply, Splitter, Task, Waiting, ask
from plait.core.errors import BadAnswer, JournalError, StaleAnswer
from plait.core.events import Noted
from plait.journal.open_questions import read_questions
from plait.journal.owner import owner_of_this_process
from plait.journal.records import Decision, ResultRecord
from plait.journal.store import Journal, wait_for
from plait.server.agents import ServedAgent, serve_agent
from test_mcp_server import client, text
from window_server import Here, serving

SENT: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@plait.tool
def send(text: str) -> str:
    """Sends a text."""
    SENT.append(text)
    return f"sent {text}"


def sending(journal: Path, *texts: str, **fields: Any) -> plait.Agent:
    """An agent that sends these texts, one a step, and then answers."""
    script = [*(action("send", {"text": each}) for each in texts), final("Over.")]
    given: dict[str, Any] = {"tools": [send], "journal": journal, "approve": "effects", **fields}
    return plait.Agent("react", model=plait.Scripted(script), **given)


def asked(run: plait.Run) -> str:
    """The id of the question that a run waits with."""
    assert isinstance(run.outcome, Waiting), run
    return run.outcome.question


def asked_in(journal: Path, run: str = "last") -> str:
    """The same, of a run on record."""
    return str((Journal.at(journal).run(run).outcome or {})["question"])


def answers(journal: Path, run: str = "last") -> list[str]:
    """What was said to a run, in order."""
    said = [each.answer for each in wait_for(read_questions(Journal.at(journal).store, run)) if each.answer is not None]
    return [each if isinstance(each, str) else each.text or str(each.action != "refuse") for each in said]


# -- in Python


def test_an_answer_that_comes_twice_does_not_approve_the_next_call(journal: Path) -> None:
    agent = sending(journal, "one", "two")
    first = agent.run("Send both.")
    second = agent.resume(first, "yes")
    assert (second.status, SENT) == ("waiting", ["one"])
    with pytest.raises(StaleAnswer, match=f"{asked(first)} .*was answered before.*{asked(second)}.*two") as why:
        agent.resume(first, "yes")
    assert why.value.waits == (second.outcome,) and SENT == ["one"]
    with pytest.raises(StaleAnswer, match=r"names no question.*two"):
        agent.resume(first.id, "yes")
    with pytest.raises(StaleAnswer, match="asks no question 'other'"):
        agent.resume(first.id, "yes", question="other")
    assert agent.resume(first.id).status == "waiting"
    assert agent.resume(first.id, "yes", question=asked(second)).status == "answered" and SENT == ["one", "two"]
    with pytest.raises(StaleAnswer, match="is over"):
        agent.resume(second, "yes")
    assert agent.replay(first.id).whole


def test_a_question_has_another_id_for_another_input_another_place_and_another_run(journal: Path) -> None:
    agent = sending(journal, "one", "one")
    first = agent.run("?")
    second = agent.resume(first, "yes")
    assert first.reason == second.reason
    other = sending(journal, "two").run("?")
    again = agent.run("?")
    assert len({asked(each) for each in (first, second, other, again)}) == 4
    assert asked(agent.resume(again.id)) == asked(again)  # and the same one while it is the same question


def test_an_edited_call_and_a_refusal_are_for_one_question_too(journal: Path) -> None:
    agent = sending(journal, "one", "two", "three")
    first = agent.run("?")
    second = agent.resume(first, 'edit {"text": "other"}')
    for late in ('edit {"text": "other"}', "no", "why?"):
        with pytest.raises(StaleAnswer):
            agent.resume(first, late)
    third = agent.resume(second, f"no {asked(second)}, not that")  # an answer may say the id itself
    assert SENT == ["other"] and answers(journal)[-1] == "no not that"
    assert agent.resume(third, "yes").status == "answered" and SENT == ["other", "three"]


def test_of_several_open_questions_each_is_answered_by_its_own_id(journal: Path) -> None:
    plan = "Plan: a\n#E1 = send[one]\nPlan: b\n#E2 = send[two]\n"
    model = plait.Scripted({"plan": [plan], "solve": ["Over."]})
    agent = plait.Agent("rewoo", model=model, tools=[send], journal=journal, approve="effects")
    run = agent.run("?")
    ids = [each.question for each in run.timeline.open_questions]
    assert len(ids) == 2
    run = agent.resume(run.id, "yes", question=ids[1])
    assert SENT == ["two"] and asked(run) == ids[0]
    with pytest.raises(StaleAnswer):
        agent.resume(run.id, "yes", question=ids[1])
    assert agent.resume(run, "no").status == "answered" and SENT == ["two"]


def test_many_clients_that_approve_at_once_approve_one_call(tmp_path: Path) -> None:
    figures = duplicates(tmp_path, 12, clients=6)
    assert (figures["taken"], figures["calls"], figures["unapproved"], figures["lost"]) == (2, 2, 0, 0)


def test_while_the_journal_is_locked_nothing_is_approved_and_then_once(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = sending(journal, "one", "two")
    first = agent.run("?")
    monkeypatch.setattr(Journal.at(journal).store, "busy_seconds", 0.05)
    Journal.at(journal).close()
    other = sqlite3.connect(journal, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(JournalError, match="locked"):
            agent.resume(first, "yes")
        assert SENT == [] and answers(journal) == []
        monkeypatch.setattr(Journal.at(journal).store, "busy_seconds", 60.0)
        Journal.at(journal).close()
        release = threading.Timer(0.2, other.execute, ("ROLLBACK",))
        release.start()
        found = approve_at_once(4, lambda i: agent.resume(first, "yes"))
    finally:
        release.join()
        other.close()
    assert (found[""], sum(found.values()), SENT, answers(journal)) == (1, 4, ["one"], ["True"])


# -- the command line and another process


def test_the_command_line_names_the_question_and_takes_an_answer_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    model = shell.script([action("send", "one"), action("send", "two"), final("ok")])
    waits = shell("run", "q", "--model", model, "--tools", "tools.py", "--approve", "effects")
    named = question(shell)
    (hint,) = [line for line in waits.err.splitlines() if line.startswith("Approve with: ")]
    words = hint.removeprefix("Approve with: plait ").partition("    ")[0].split()
    assert tuple(words[2:4]) == named
    missing = shell("resume", "last", "--answer", "yes")
    assert missing.code == 2 and "names no question" in missing.err and " ".join(named) in missing.err
    both = run_together([[PLAIT, *words]] * 2, cwd=tmp_path, env=shell.env)
    said = [(done.stderr, done.returncode) for done in both]
    assert (tmp_path / "sent.txt").read_text() == "one\n" and not any("Traceback" in err for err, _ in said)
    assert [code for _, code in said].count(5) == 1, said
    late = shell(*words)
    assert late.code == 2 and "was answered before" in late.err
    assert '"two"' in late.err and " ".join(question(shell)) in late.err
    assert (tmp_path / "sent.txt").read_text() == "one\n"


def test_what_was_typed_before_the_question_was_shown_approves_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    model = shell.script([action("send", "one"), final("ok")])
    master, slave = pty.openpty()
    os.write(master, b"yes\n")
    args = ("run", "q", "--model", model, "--tools", "tools.py", "--approve", "effects")
    process = shell.start(*args, stdin=slave, stderr=slave, env={"TERM": "xterm"})
    os.close(slave)
    drawn = b""
    while b"the run waits)" not in drawn:
        drawn += os.read(master, 4096)
    os.write(master, b"no\n")
    assert process.communicate(timeout=60)[0] == "ok\n"
    os.close(master)
    assert not (tmp_path / "sent.txt").exists()


# -- the viewer and its API


def test_the_same_post_twice_or_from_another_tab_approves_one_call(journal: Path) -> None:
    with serving(sending(journal, "one", "two")) as here:
        run = here.ask("POST", "/v1/runs", {"agent": "plait", "question": "?"})[2]["run"]
        until(lambda: here.manager.journal.run(run).status == "waiting")
        first = here.ask("GET", f"/api/runs/{run}")[2]["waiting"][0]["question"]
        status, headers, told = here.ask("POST", f"/v1/runs/{run}/answer", {"answer": "yes"})
        assert (status, told["error"]["code"], headers["x-should-retry"]) == (409, "stale_answer", "false")
        assert [each["question"] for each in told["waits"]] == [first] and "one" in told["waits"][0]["text"]
        post = {"answer": "yes", "question": first}
        found: list[int] = []
        tabs = [
            threading.Thread(target=lambda: found.append(here.ask("POST", f"/v1/runs/{run}/answer", post)[0]))
            for _ in range(4)
        ]
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join(60)
        until(lambda: here.manager.journal.run(run).status == "waiting")
        assert sorted(found) == [202, 409, 409, 409] and SENT == ["one"]
        for late in ("yes", "no", 'edit {"text": "x"}'):
            status, _, told = here.ask("POST", f"/v1/runs/{run}/answer", {**post, "answer": late})
            assert status == 409 and [each["question"] for each in told["waits"]] == [asked_in(journal)]
        assert SENT == ["one"] and answers(journal) == ["True"]
        assert here.ask("POST", f"/v1/runs/{run}/answer", {**post, "question": asked_in(journal)})[0] == 202
        until(lambda: here.manager.journal.run(run).status == "answered")
        assert SENT == ["one", "two"]


# -- chat clients


def say(here: Here, messages: list[dict[str, str]], **more: Any) -> tuple[int, Any]:
    """A conversation sent: the status, and what is said or the error."""
    body = {"model": "plait", "messages": messages, **more}
    status, _, told = here.ask("POST", "/v1/chat/completions", body)
    return status, told["choices"][0]["message"]["content"] if status == 200 else told["error"]


def both(user: str, assistant: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


@pytest.mark.parametrize("texts", [("one", "two"), ("one", "one")])
def test_a_chat_message_that_is_sent_again_approves_nothing(journal: Path, texts: tuple[str, str]) -> None:
    with serving(sending(journal, *texts)) as here:
        _, first = say(here, both("Send.", "")[:1])
        yes = [*both("Send.", first), {"role": "user", "content": "yes"}]
        status, second = say(here, yes)
        assert status == 200 and SENT == ["one"]
        for again in (yes, [*yes[:2], {"role": "user", "content": "no"}]):
            status, why = say(here, again)
            assert (status, why["code"], SENT) == (409, "stale_answer", ["one"]), why
        assert len(here.manager.journal.runs()) == 1
        more = [*yes[:2], *both("yes", second), {"role": "user", "content": "Yes"}]
        assert say(here, more) == (200, "Over.") and list(texts) == SENT
        assert say(here, more)[0] == 409 and len(here.manager.journal.runs()) == 1


def test_a_chat_goes_on_after_its_question_was_answered_in_the_viewer(journal: Path) -> None:
    seen: list[str] = []

    def close(think: Any) -> str:
        seen.append("\n".join(each.content for each in think.messages))
        return "Final Answer: Over."

    model = plait.Scripted([action("send", {"text": "one"}), close, close, close], by_turn=False)
    agent = plait.Agent("react", model=model, tools=[send], journal=journal, approve="effects")
    with serving(agent) as here:
        before = both("My name is Ada.", "Hello.")
        _, asks = say(here, [*before, *both("Send.", "")[:1]])
        question = asked_in(journal)
        (run,) = [each.head.run for each in here.manager.journal.runs()]
        chat = [*before, *both("Send.", asks)]
        assert here.ask("POST", f"/v1/runs/{run}/answer", {"answer": "yes", "question": question})[0] == 202
        until(lambda: here.manager.journal.run(run).status == "answered")
        # What may be meant for that question starts nothing.
        for late in ("yes", "No.", f"no {question}, wait", f"Please {question}", "edit {}", "okay"):
            status, why = say(here, [*chat, *both(late, "")[:1]])
            assert (status, why["code"]) == (409, "stale_answer") and "Say something else" in why["message"], late
        assert len(here.manager.journal.runs()) == 1 and SENT == ["one"]
        # Anything else is the next turn, in the same session. From then on the model sees how that run ended.
        assert say(here, [*chat, *both("No, wait!", "")[:1]]) == (200, "Over.")
        assert say(here, [*chat, *both("No, wait!", "Over."), *both("And?", "")[:1]]) == (200, "Over.")
        assert len({row.head.session for row in here.manager.journal.runs()}) == 1 and SENT == ["one"]
        for each in seen[1:]:
            assert "My name is Ada." in each and each.index(question) < each.index("Over.") < each.index("No, wait!")


def test_a_message_waits_for_a_run_that_was_approved_in_the_viewer(journal: Path) -> None:
    may_end = threading.Event()

    def close(think: Any) -> str:
        assert may_end.wait(60)
        return f"Final Answer: Over, {'Hello?' in think.messages[-1].content}."

    model = plait.Scripted([action("send", {"text": "one"}), close, close], by_turn=False)
    agent = plait.Agent("react", model=model, tools=[send], journal=journal, approve="effects")
    with serving(agent) as here:
        _, asks = say(here, both("Send.", "")[:1])
        run = here.manager.journal.runs()[0].head.run
        said = {"answer": "yes", "question": asked_in(journal)}
        assert here.ask("POST", f"/v1/runs/{run}/answer", said)[0] == 202
        found: dict[str, Any] = {}
        messages = {word: [*both("Send.", asks), *both(word, "")[:1]] for word in ("Hello?", "yes")}
        clients = [threading.Thread(target=lambda w=w: found.update({w: say(here, messages[w])})) for w in messages]
        for each in clients:
            each.start()
        until(lambda: len(SENT) == 1)
        clients[0].join(0.3)
        assert clients[0].is_alive() and not found
        may_end.set()
        for each in clients:
            each.join(60)
        assert found["Hello?"] == (200, "Over, True.") and found["yes"][0] == 409
        assert len(here.manager.journal.runs()) == 2 and SENT == ["one"]


def test_in_a_named_session_an_approval_names_its_question(journal: Path) -> None:
    with serving(sending(journal, "one", "two")) as here:
        say(here, both("Send.", "")[:1], session="s")
        first = asked_in(journal)
        for words in ("yes", "ok", "yes aaaaaaaa"):
            status, why = say(here, both(words, "")[:1], session="s")
            assert status == 409 and f"question {first}" in why["message"] and SENT == []
        status, second = say(here, both(f"Yes {first}", "")[:1], session="s")
        assert status == 200 and SENT == ["one"]
        for words in (f"yes {first}", "yes"):
            status, why = say(here, both(words, "")[:1], session="s")
            assert status == 409 and f"question {asked_in(journal)}" in why["message"] and SENT == ["one"]
        # Or it is the reply to the message that asks.
        assert (
            say(here, [*both("x", "y"), *both("?", "Approve this call?"), *both("yes", "")[:1]], session="s")[0] == 409
        )
        assert say(here, [*both("Send.", second), *both("yes", "")[:1]], session="s") == (200, "Over.")
        status, why = say(here, both(f"yes {first}", "")[:1], session="s")
        assert status == 409 and "answered before" in why["message"] and SENT == ["one", "two"]
        assert len(here.manager.journal.runs()) == 1


def test_a_question_of_the_models_in_a_named_session_is_answered_by_words_alone(journal: Path) -> None:
    script = [
        json.dumps({"thought": "x", "tool": "ask_user", "tool_input": "Which town?"}),
        json.dumps({"thought": "x", "tool": "send", "tool_input": "Lyon"}),
        json.dumps({"thought": "x", "tool": "final_answer", "tool_input": "Over."}),
    ]
    agent = plait.Agent("json", model=plait.Scripted(script), tools=[send], journal=journal, approve="effects")
    with serving(agent) as here:
        assert say(here, both("Where?", "")[:1], session="s") == (200, "Which town?")
        assert say(here, both("yes", "")[:1], session="s")[0] == 200
        assert say(here, both("yes", "")[:1], session="s")[0] == 409 and SENT == []  # it was the answer, sent twice


# -- MCP


def named(journal: Path, name: str, *texts: str) -> ServedAgent:
    return serve_agent(name, sending(journal, *texts), ServeTable())


async def test_over_mcp_a_yes_to_one_agent_approves_no_call_of_another(journal: Path) -> None:
    with serving(named(journal, "notes", "one"), named(journal, "cities", "two")) as here:
        async with client(here.url) as one:
            first = (await one.call_tool("notes", {"question": "Send.", "session": "s"})).structured_content
            for more in ({"session": "s"}, {"session": "s", "reply_to": first["reply_to"]}, {"run": first["run"]}):
                wrong = await one.call_tool("cities", {"question": "yes", **more})
                assert wrong.is_error and f"'notes' waits for an answer with question {first['reply_to']}" in text(
                    wrong
                )
            assert SENT == [] and [row.status for row in here.manager.journal.runs()] == ["waiting"]
            right = {"session": "s", "reply_to": first["reply_to"]}
            assert text(await one.call_tool("notes", {"question": "yes", **right})) == "Over." and SENT == ["one"]


async def test_over_mcp_an_answer_names_its_question_and_counts_once(journal: Path) -> None:
    with serving(sending(journal, "one", "two")) as here:
        async with client(here.url) as one:
            first = (await one.call_tool("plait", {"question": "Send.", "session": "s"})).structured_content
            for to in ({"run": first["run"]}, {"session": "s"}):
                wrong = await one.call_tool("plait", {"question": "yes", **to})
                assert wrong.is_error and wrong.structured_content["reply_to"] == first["reply_to"] and SENT == []
            answer = {"question": "yes", "run": first["run"], "reply_to": first["reply_to"]}
            found = await asyncio.gather(*(one.call_tool("plait", answer) for _ in range(3)))
            assert sorted(each.is_error for each in found) == [False, True, True] and SENT == ["one"]
            for to in ({"run": first["run"]}, {"session": "s"}):
                late = await one.call_tool("plait", {"question": "yes", **to, "reply_to": first["reply_to"]})
                assert late.is_error and '"two"' in text(late) and "answered before" in text(late)
                assert late.structured_content["reply_to"] == asked_in(journal) and SENT == ["one"]


# -- what is stored, resumed and forked


def test_approval_by_a_function_is_stored_as_always_until_a_function_is_given_again(journal: Path) -> None:
    agent = sending(journal, "one", "two", approve=lambda call: call.input == {"text": "two"})
    run = agent.run("?")
    assert run.status == "waiting" and SENT == ["one"]
    again = plait.Agent.from_journal(Journal.at(journal).head(run.id), journal=journal, tools=[send], model=agent.model)
    assert again.approve == "always"
    fork = again.fork(run.id, 1)
    assert fork.status == "waiting" and SENT == ["one"]
    assert agent.fork(run.id, 1).reason == run.reason and SENT == ["one", "one"]


async def approved_and_left(journal: Path, run: str) -> None:
    (question,) = Journal.at(journal).timeline(run).open_questions
    told = ResultRecord(question.key, question.step, "decision", Decision("yes"))
    log = await Journal.at(journal).store.claim(run, owner_of_this_process(), records=((told, None),))
    await log.end("cancelled", {"type": "cancelled", "reason": "x"}, {})


def test_a_fork_takes_no_open_question_and_no_unused_approval_along(journal: Path) -> None:
    agent = sending(journal, "one", "two")
    run = agent.run("?")
    fork = agent.fork(run.id, 2)
    assert fork.status == "waiting" and asked(fork) != asked(run)
    with pytest.raises(StaleAnswer):
        agent.resume(fork.id, "yes", question=asked(run))
    # The approval is on record, and its process died before the call began.
    asyncio.run(approved_and_left(journal, run.id))
    assert agent.fork(run.id, 2).status == "waiting" and SENT == []
    assert agent.resume(run.id).status == "waiting" and SENT == ["one"]  # in the run itself it counts


def test_who_approved_stays_on_record_when_the_process_is_killed_before_the_call(journal: Path) -> None:
    agent = sending(journal, "one", "two")
    run = agent.run("?")
    # The first event of a resumed run comes when the answer is on record.
    code = f"""
import asyncio, os, pathlib
from test_approvals import sending
agent, die = sending(pathlib.Path({str(journal)!r}), "one", "two"), lambda event: os.kill(os.getpid(), 9)
asyncio.run(agent.aresume({run.id!r}, "yes", question={asked(run)!r}, by="bob", on_event=die))
"""
    died = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, timeout=60)
    assert died.returncode == -9 and Journal.at(journal).run(run.id).status == "interrupted"
    run = agent.resume(run.id)
    assert run.status == "waiting" and SENT == ["one"]
    run = agent.resume(run, 'edit {"text": "three"}')  # in Python nobody has a name
    assert SENT == ["one", "three"] and agent.replay(run).whole
    data_of_run: Any = None
    for each in (run, agent.fork(run.id, 3)):
        said = [event.data for event in each.events if isinstance(event, Noted) and event.kind == "told"]
        assert [data["by"] for data in said] == ["bob", ""] and data_of_run in (None, said)  # in a fork, the same times
        data_of_run = said
    assert b"bob" not in b"".join(row.body or b"" for row in run.trace)  # the model does not learn it


def test_what_was_asked_needs_an_answer_though_the_policy_has_changed(journal: Path) -> None:
    run = sending(journal, "one").run("?")
    assert sending(journal, "one", approve="never").resume(run.id).status == "waiting" and SENT == []


@dataclass(frozen=True)
class Asks:
    """Asks for approval of a plan that is `plan`."""

    plan: str = "pay 1"

    name: ClassVar[str] = "asks"
    phases: ClassVar[tuple[str, ...]] = ("plan",)
    prompts: ClassVar[dict[str, str]] = {"none": "it renders none"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        said = yield from ask(self.plan, kind="plan")
        return Answered(f"{said}: {self.plan}")

    def splitter(self, phase: str) -> Splitter:
        return OneKind("thought")


def test_the_approval_of_a_plan_is_not_for_another_plan(journal: Path) -> None:
    def agent(plan: str) -> plait.Agent:
        return plait.Agent(Asks(plan), model=plait.Scripted(["x"]), journal=journal)

    run = agent("pay 1").run("?")
    other = agent("pay 900").resume(run, "yes")
    assert other.status == "crashed" and "pay 900" in str(other.reason)
    assert agent("pay 1").resume(run.id).answer == "yes: pay 1"


async def test_a_person_at_hand_is_asked_about_each_call_by_itself(journal: Path) -> None:
    seen: list[Waiting] = []

    async def person(waiting: Waiting) -> str:
        seen.append(waiting)
        return "yes"

    run = await sending(journal, "one", "two").arun("?", on_wait=person)
    assert run.status == "answered" and SENT == ["one", "two"]
    assert len({each.question for each in seen}) == 2 and all(each.question for each in seen)


@pytest.mark.parametrize("loop", ["react", "json", "tool_calling", "rewoo"])
@pytest.mark.parametrize("inline", [True, False])
def test_a_tool_that_requires_approval_waits_for_it_under_every_policy(journal: Path, loop: str, inline: bool) -> None:
    @plait.tool(requires_approval=True, read_only=True, inline=inline)
    def look(place: str) -> str:
        """Looks at a place."""
        SENT.append(place)
        return "seen"

    script = {
        "react": [action("look", "door"), final("Over.")],
        "json": ['{"thought": "", "tool": "look", "tool_input": {"place": "door"}}'],
        "tool_calling": [Reply("", calls=(Call("look", {"place": "door"}),))],
        "rewoo": ["Plan: Look.\n#E1 = look[door]", "Over."],
    }[loop]
    run = plait.Agent(loop, model=plait.Scripted(script), tools=[look], journal=journal, approve="never").run("Look.")
    assert run.status == "waiting" and not SENT


def test_a_waiting_run_names_the_call_and_its_input_also_for_on_wait_and_in_the_journal(journal: Path) -> None:
    waits: list[Waiting] = []
    run = sending(journal, "one").run("Send it.", on_wait=lambda waiting: waits.append(waiting))
    assert isinstance(run.outcome, Waiting)
    assert (run.outcome.tool, run.outcome.input) == ("send", {"text": "one"})
    assert waits == [run.outcome]
    recorded = Journal.at(journal).run(run.id).outcome or {}
    assert (recorded["tool"], recorded["input"]) == ("send", {"text": "one"})


def test_a_waiting_run_names_the_call_of_its_child(journal: Path) -> None:
    child = sending(journal, "one")
    script = [action("helper", {"question": "Send it."}), final("Over.")]
    parent = plait.Agent("react", model=plait.Scripted(script), tools=[child.as_tool("helper")], journal=journal)
    run = parent.run("Have it sent.")
    assert isinstance(run.outcome, Waiting)
    assert (run.outcome.tool, run.outcome.input) == ("send", {"text": "one"})


@pytest.mark.parametrize("words", ["", "  ", "yes, please", "Yes please", "ok do it", "approve. Then stop", "y -"])
def test_an_answer_that_is_no_clear_yes_changes_nothing_and_the_run_still_waits(journal: Path, words: str) -> None:
    agent = sending(journal, "one")
    run = agent.run("go")
    with pytest.raises(BadAnswer, match=r"is empty|only yes alone approves") as why:
        agent.resume(run, words)
    assert "no and why" in str(why.value) and SENT == []
    told: list[str] = []

    def answer(waits: Waiting) -> str:
        told.append(waits.reason)
        return words

    assert agent.run("go", on_wait=answer).status == "waiting" and (len(told), SENT) == (5, [])
    assert agent.resume(run, "yes").answer == "Over." and SENT == ["one"]


@pytest.mark.parametrize("words", ["no", "No, yes was wrong", "not now", "yesterday was better", "ja", "edit the text"])
def test_other_words_refuse_and_are_the_reason(journal: Path, words: str) -> None:
    agent = sending(journal, "one")
    assert agent.resume(agent.run("go"), words).answer == "Over." and SENT == []
