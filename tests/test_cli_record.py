"""What is on record, from the command line: runs, show, replay, resume, fork, export, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from cli_support import Ended, Shell, action, final, question, turn
from plait.core import Answered, LoopContext, LoopRun, OneKind, Task, think, user


@pytest.fixture
def plait(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def two_steps(plait: Shell, *flags: str) -> Ended:
    model = plait.script([action("calculator", "6 * 7", "I multiply."), final("It is 42.")])
    return plait("run", "What is 6 times 7?", "--model", model, "--tools", "calculator", *flags)


def test_runs_lists_the_newest_first_and_by_status(plait: Shell) -> None:
    empty = plait("runs")
    assert (empty.code, empty.out) == (0, "")
    assert "No runs" in empty.err
    two_steps(plait)
    plait("run", "another", "--loop", "json", "--model", plait.script([turn("fail_task", "no")], "f.json"))
    listed = json.loads(plait("runs", "--json").out)
    assert [each["status"] for each in listed] == ["failed", "answered"]
    assert [each["question"] for each in listed] == ["another", "What is 6 times 7?"]
    assert len(json.loads(plait("runs", "--json", "--limit", "1").out)) == 1
    only = plait("runs", "--status", "answered").out.splitlines()
    assert len(only) == 2 and "What is 6 times 7?" in only[1]
    assert plait("runs", "--status", "done").code == 2


def test_show_tells_the_run_again_as_it_was_told_live(plait: Shell) -> None:
    live = two_steps(plait).err.splitlines()
    told = plait("show", "last").out.splitlines()
    steps = [line for line in live if line.startswith(("Thought:", "Action:", "Observation:"))]
    assert [line for line in told if line.startswith(("Thought:", "Action:", "Observation:"))] == steps
    assert "Answer: It is 42." in told
    whole = json.loads(plait("show", "last", "--json").out)
    assert whole["answer"] == "It is 42."
    kinds = [event["type"] for event in whole["events"]]
    assert kinds.count("observed") == 1 and kinds.count("replied") == 2


def test_a_run_is_found_by_its_id_by_its_beginning_or_as_last(plait: Shell) -> None:
    run = two_steps(plait, "--json").object["run"]
    shown = {plait("show", word).out for word in (run, run[:-1], "last")}
    assert len(shown) == 1
    unknown = plait("show", "zzz")
    assert (unknown.code, unknown.out) == (2, "")
    assert "no run 'zzz'" in unknown.err and run not in unknown.err, "no near one"


def test_wire_shows_request_and_response_byte_for_byte(plait: Shell) -> None:
    two_steps(plait)
    plain = plait("show", "last", "--wire").out
    exported = [json.loads(line) for line in plait("export", "last").out.splitlines()]
    bodies = [row["body"] for row in exported if "body" in row]
    assert len(bodies) == 4
    assert all(f"\n{body}\n" in plain for body in bodies)
    as_object = [json.loads(line) for line in plait("show", "last", "--wire", "--json").out.splitlines()]
    assert [row["body"] for row in as_object] == bodies
    assert [row["type"] for row in as_object] == ["request", "response"] * 2
    pretty = plait("show", "last", "--wire", "--pretty").out
    assert '\n  "messages": [\n' in pretty
    assert plait("show", "last", "--pretty").code == 2


def test_the_key_stands_nowhere_in_what_is_shown(plait: Shell) -> None:
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-very-secret-key"}
    (plait.folder / "plait.toml").write_text("")
    done = plait("run", "q sk-very-secret-key", "--model", "openai:m", "--max-seconds", "1", env=env)
    assert done.code in (1, 4)
    everything = done.err + plait("show", "last", "--wire").out + plait("export", "last").out
    assert "sk-very-secret-key" not in everything
    assert "http://127.0.0.1:9/v1/chat/completions" in plait("show", "last", "--wire").out


def test_replay_compares_every_request(plait: Shell) -> None:
    run = two_steps(plait, "--json").object["run"]
    same = plait("replay", "last")
    assert same.code == 0
    assert same.out == f"Run {run} is the same, byte for byte: 2 requests in 2 steps, ended as answered.\n"
    found = json.loads(plait("replay", "last", "--json").out)
    assert found == {"run": run, "same": True, "steps": 2, "requests": 2, "whole": True}


def test_replay_stops_at_the_first_difference_and_shows_it(plait: Shell) -> None:
    two_steps(plait)
    assert plait("prompts", "copy", "react", "mine").code == 0
    path = plait.folder / "mine" / "react" / "question.j2"
    path.write_text("Answer this: {{ question }}")
    changed = plait("replay", "last", "--prompts", "mine")
    assert (changed.code, changed.out) == (1, "")
    assert "differs from its record at step 1" in changed.err
    assert "Answer this: What is 6" in changed.err and "Question: What is 6" in changed.err
    told = json.loads(plait("replay", "last", "--prompts", "mine", "--json").out)
    assert told["same"] is False and told["differs"]["step"] == 1


@dataclass(frozen=True)
class Shout:
    """A loop that says what the model said, louder."""

    loud: bool = True
    name: ClassVar[str] = "shout"
    phases: ClassVar[tuple[str, ...]] = ("say",)
    prompts: ClassVar[dict[str, str]] = {"say": "{{ question }}"}

    def run(self, task: Task, context: LoopContext) -> LoopRun:
        reply = yield from think("say", (user(task.question),))
        return Answered(reply.text.upper() if self.loud else reply.text)

    def splitter(self, phase: str) -> OneKind:
        return OneKind("answer")


def test_replay_says_when_the_requests_are_the_same_but_the_end_is_not(tmp_path: Path) -> None:
    import plait

    agent = plait.Agent(Shout(), model=plait.Scripted(["hello"]), journal=tmp_path / "j.db")
    run = agent.run("q")
    assert run.answer == "HELLO"
    assert agent.replay(run.id).requests == 1
    with pytest.raises(plait.ReplayDiffers, match="ends otherwise"):
        agent.using(loop=Shout(loud=False)).replay(run.id)


def test_a_waiting_run_is_answered_from_another_process(plait: Shell) -> None:
    model = plait.script([turn("ask_user", "Which city?"), turn("final_answer", "Lyon it is")])
    waits = plait("run", "q", "--loop", "json", "--model", model)
    assert (waits.code, waits.out) == (5, "")
    command = next(line for line in waits.err.splitlines() if line.startswith("Answer with: "))
    words = command.removeprefix("Answer with: plait ").replace("TEXT", "Lyon").split()
    done = plait(*words)
    assert (done.code, done.out) == (0, "Lyon it is\n")
    assert "Lyon" in plait("show", "last", "--wire").out
    assert plait("replay", "last").code == 0


def test_the_command_to_go_on_with_names_the_journal(plait: Shell) -> None:
    model = plait.script([turn("ask_user", "Which city?"), turn("final_answer", "ok")])
    waits = plait("run", "q", "--loop", "json", "--model", model, "--journal", "my own.db")
    command = next(line for line in waits.err.splitlines() if line.startswith("Answer with: "))
    assert re.search("--journal 'my own.db' --question [a-z2-7]{8} --answer TEXT", command)


@pytest.mark.parametrize(
    ("answer", "sent", "observed"),
    [("yes", "hello\n", "sent"), ("no", "", "The person refused this call."), ("too loud", "", "too loud")],
)
def test_a_call_that_needs_leave_waits_for_it(plait: Shell, answer: str, sent: str, observed: str) -> None:
    model = plait.script([action("send", "hello"), final("ok")])
    waits = plait("run", "q", "--model", model, "--tools", "tools.py", "--approve", "effects")
    assert waits.code == 5
    assert "May 'send' be called" in waits.err and "--answer yes" in waits.err
    assert not (plait.folder / "sent.txt").exists()
    done = plait("resume", "last", *question(plait), "--answer", answer)
    assert (done.code, done.out) == (0, "ok\n")
    assert observed in done.err
    found = plait.folder / "sent.txt"
    assert (found.read_text() if found.exists() else "") == sent


def test_an_edit_that_does_not_fit_is_wrong_usage_and_the_run_waits_on(plait: Shell) -> None:
    model = plait.script([action("send", "hello"), final("ok")])
    assert plait("run", "q", "--model", model, "--tools", "tools.py", "--approve", "effects").code == 5
    bad = plait("resume", "last", *question(plait), "--answer", 'edit {"txt": "hello"}')
    assert (bad.code, bad.out) == (2, "")
    assert "no parameter 'txt'" in bad.err and "still waits" in bad.err and "Traceback" not in bad.err
    assert not (plait.folder / "sent.txt").exists()
    assert "waiting" in plait("runs").out
    done = plait("resume", "last", *question(plait), "--answer", 'edit {"text": "good day"}')
    assert (done.code, (plait.folder / "sent.txt").read_text()) == (0, "good day\n")


def test_resume_of_a_run_that_does_not_wait_or_has_ended(plait: Shell) -> None:
    two_steps(plait)
    again = plait("resume", "last")
    assert (again.code, again.out) == (0, "It is 42.\n")
    assert len(plait("runs").out.splitlines()) == 2
    missing = plait("resume", "absent")
    assert missing.code == 2 and "no run 'absent'" in missing.err


def test_resume_with_an_answer_nobody_waits_for_is_wrong_usage(plait: Shell) -> None:
    model = plait.script([{"error": "BadRequest", "message": "no"}])
    assert plait("run", "q", "--model", model).code == 1
    done = plait("resume", "last", "--answer", "x")
    assert done.code == 2 and "does not wait" in done.err


def test_a_crashed_run_goes_on_when_the_cause_is_mended(plait: Shell) -> None:
    model = plait.script([action("send", "hello")])
    crashed = plait("run", "q", "--model", model, "--tools", "tools.py")
    assert crashed.code == 1 and "To continue after fixing this, run: plait resume" in crashed.err
    plait.script([action("send", "hello"), final("ok")])
    done = plait("resume", "last")
    assert (done.code, done.out) == (0, "ok\n")
    assert (plait.folder / "sent.txt").read_text() == "hello\n"


def test_fork_shares_the_steps_before_and_makes_the_rest_with_another_model(plait: Shell) -> None:
    parent = two_steps(plait, "--json").object["run"]
    other = plait.script(["never asked", final("Forty-two.")], "other.json")
    forked = plait("fork", "last", "--at", "2", "--model", other, "--json")
    found = forked.object
    assert (forked.code, found["answer"], found["models"]) == (0, "Forty-two.", {"act": "scripted:other.json"})
    assert found["run"] != parent
    assert [each["parent"] for each in json.loads(plait("runs", "--json").out)] == [parent, None]
    assert "Observation: 42" in plait("show", found["run"]).out
    assert "Observation" not in forked.err
    assert f"Run: {found['run']} (react, forked from {parent})" in forked.err
    beyond = plait("fork", parent, "--at", "9")
    assert beyond.code == 2 and "no step 9" in beyond.err
    assert plait("fork", parent).code == 2
    assert plait("fork", parent, "--at", "first").code == 2


def test_fork_with_another_option_of_the_loop(plait: Shell) -> None:
    two_steps(plait)
    forked = plait("fork", "last", "--at", "2", "--set", "transcript=user", "--json")
    assert forked.code == 0
    head = json.loads(plait("export", forked.object["run"]).out.splitlines()[0])["head"]
    assert head["loop"]["options"]["transcript"] == "user"


def test_export_is_a_line_of_json_for_the_run_and_one_a_row(plait: Shell) -> None:
    two_steps(plait)
    rows = [json.loads(line) for line in plait("export", "last").out.splitlines()]
    assert rows[0]["type"] == "run" and rows[0]["status"] == "answered"
    assert [row["seq"] for row in rows[1:-1]] == list(range(len(rows) - 2)) and rows[-1]["type"] == "digest"
    kinds = {(row["type"], row.get("work")) for row in rows[1:-1]}
    assert kinds == {(type, work) for type in ("intent", "result") for work in ("request", "call")} | {
        ("result", "think")
    }


@pytest.mark.parametrize("args", [["export", "last"], ["show", "last", "--wire"], ["show", "last", "--full"]])
def test_a_reader_that_has_enough_ends_the_command_in_silence(plait: Shell, args: list[str]) -> None:
    plait("run", "q", "--model", plait.script([action("long"), action("long"), final("ok")]), "--tools", "tools.py")
    process = plait.start(*args)
    assert process.stdout and process.stderr
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    said = process.stderr.read()
    assert (process.wait(20), said) == (0, "")
    process.stderr.close()


def test_a_damaged_journal_is_one_line(plait: Shell) -> None:
    (plait.folder / "journal.db").write_bytes(b"this is no database, whatever it is called" * 100)
    for command in (["runs"], ["show", "last"], ["resume", "last"], ["run", "q", "--model", plait.script(["x"])]):
        done = plait(*command)
        assert (done.code, done.out) == (1, "")
        assert done.err.count("\n") == 1 and "journal.db" in done.err


def test_show_names_the_call_that_was_refused(plait: Shell) -> None:
    model = plait.script([action("write_note", "Call Lyon."), final("refused")])
    (plait.folder / "tools.py").write_text(
        'import plait\n\n@plait.tool\ndef write_note(text: str) -> str:\n    """Writes."""\n    return "written"\n'
    )
    waiting = plait("run", "q", "--model", model, "--tools", "tools.py", "--approve", "effects")
    assert waiting.code == 5
    asked = question(plait)
    resumed = plait("resume", "last", *asked, "--answer", "It is too late.", "--load-tools")
    assert resumed.code == 0, resumed.err
    shown = plait("show", "last").out
    assert 'Action (not made): write_note "Call Lyon."' in shown and "It is too late." in shown
