"""Only good runs become lines for training, each line as it was sent and received, with its source."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import run_in_process
from journal_rows import is_request
from plait.core import Call, Reply
from plait.core.errors import ServerFailed
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.lab import compare, find_trajectories, load_comparison

TASKS = [{"id": name, "question": f"What is {name}?", "answer": name} for name in ("a", "b", "c")]


def says(answer: str) -> str:
    return f"Thought: I know.\nFinal Answer: {answer}"


def parrot(think: Any) -> str:
    """Answers with the word that the question asks for; of c it says another."""
    asked = next(word for word in "abc" if any(f"What is {word}?" in each.content for each in think.messages))
    return says(asked if asked != "c" else "nonsense")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sent(journal: Path, run: str) -> list[Any]:
    """The messages of each request of a run, as the record has their bytes."""
    rows = Journal.at(journal).rows(run)
    return [json.loads(row.body or b"")["messages"] for row in rows if is_request(row.record)]


def words_of(thing: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in thing["messages"]]


def one(journal: Path, loop: Any, replies: Any, **options: Any) -> plait.Run:
    model = replies if isinstance(replies, plait.Scripted) else plait.Scripted(replies)
    run = plait.Agent(loop, model=model, journal=journal, tools=["calculator"], **options).run("What is 2 + 2?")
    assert run.status == "answered", run.reason
    return run


async def good(journal: Path, *runs: plait.Run, well: bool = True) -> None:
    for run in runs:
        await Results(Journal.at(journal).store).rate(run.id, well)


def test_what_is_graded_right_is_written_as_it_was_sent_and_nothing_else(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    done = compare(TASKS, loops="react", models=[plait.Scripted([parrot], name="p")], journal=journal, name="mine")
    ungraded = one(journal, "react", [says("4")])
    found = find_trajectories(comparison="mine", every=True, journal=journal)
    assert found.runs_left_out == {"not done right": 1, "neither graded nor rated": 1}
    written = found.write(tmp_path / "train")
    assert written.files == {"react.act.jsonl": 2} and not written.calls_left_out
    lines = lines_of(tmp_path / "train" / "react.act.jsonl")
    assert [line["task"] for line in lines] == ["a", "b"]
    for line, result in zip(lines, done.results, strict=False):
        assert line["messages"][:-1] == sent(journal, result.run)[0]
        assert line["messages"][-1] == {"role": "assistant", "content": says(line["task"])}
        about = {name: value for name, value in line.items() if name not in ("messages", "task")}
        assert about == {
            "run": result.run,
            "step": 1,
            "phase": "act",
            "loop": "react",
            "model": "scripted:p",
            "score": 1.0,
            "approved": False,
        }
    assert [path.name for path in (tmp_path / "train").iterdir()] == ["react.act.jsonl"]
    assert ungraded.id not in (tmp_path / "train" / "react.act.jsonl").read_text()


async def test_a_person_has_the_last_word(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    model = plait.Scripted([parrot])
    done = await plait.lab.acompare(TASKS, loops="react", models=[model], journal=journal)
    right, other, wrong = (result.run for result in done.results)
    results = Results(Journal.at(journal).store)
    await results.rate(right, False)
    await results.rate(wrong, True, "the answer is as good")
    found = find_trajectories(right, other, wrong, journal=journal)
    assert [(each.run, each.approved) for each in found.runs] == [(other, False), (wrong, True)]
    assert found.runs_left_out == {"rated bad": 1}
    assert [line.run for line in find_trajectories(every=True, approved=True, journal=journal)] == [wrong]
    assert [line.score for line in found] == [1.0, 0.0]


async def test_a_score_below_what_is_asked_for_is_not_good_enough(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    tasks = [
        {"id": "whole", "question": "What is b?", "answer": "b", "grader": "f1:0.5"},
        {"id": "half", "question": "What is b? Say more.", "answer": "b and more", "grader": "f1:0.4"},
    ]
    await plait.lab.acompare(tasks, loops="react", models=[plait.Scripted([parrot])], journal=journal)
    assert [each.task for each in find_trajectories(every=True, journal=journal)] == ["whole", "half"]
    strict = find_trajectories(every=True, journal=journal, min_score=0.9)
    assert [each.task for each in strict] == ["whole"] and strict.runs_left_out == {"of too low a score": 1}


async def test_replies_that_could_not_be_read_or_were_cut_are_no_examples(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    run = one(journal, "json", ["Let me talk first.", '{"thought": "t", "tool": "final_answer", "tool_input": 4}'])
    half = says("4")[:20]
    cut = one(journal, "react", [Reply(half, finish="length"), says("4")[20:]])
    await good(journal, run, cut)
    written = find_trajectories(every=True, journal=journal).write(tmp_path / "out")
    assert written.calls_left_out == {"could not be read": 1, "not ended by the model": 1}
    (whole,) = lines_of(tmp_path / "out" / "react.act.jsonl")  # the second request goes on where the first was cut
    assert sent(journal, cut.id)[1][-1] == {"role": "assistant", "content": half}
    assert whole["messages"] == [*sent(journal, cut.id)[0], {"role": "assistant", "content": says("4")}]
    (line,) = lines_of(tmp_path / "out" / "json.act.jsonl")
    assert line["messages"][:-1] == sent(journal, run.id)[1]
    assert line["messages"][-1]["content"].startswith('{"thought": "t"')


async def test_talk_in_place_of_a_list_of_actions_teaches_no_list(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    script = {"reason": ["Add."], "react": ["It is just 4.", "I said that it is 4."], "reply": ["It is 4."]}
    await good(journal, one(journal, "phased", plait.Scripted(script)))
    written = find_trajectories(every=True, journal=journal).write(tmp_path / "out")
    assert written.files == {"phased.reason.jsonl": 1, "phased.reply.jsonl": 1}
    assert written.calls_left_out == {"could not be read": 2}


async def test_a_reply_without_steps_teaches_none(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    run = one(journal, "codeact", plait.Scripted(["1.", CODE], by_turn=False), limits=plait.Limits(tools=0))
    assert run.phases[0].phase == "decompose"
    await good(journal, run)
    found = find_trajectories(run.id, journal=journal)
    assert [line.phase for line in found] == ["act"]
    assert found.write(tmp_path / "out").calls_left_out == {"could not be read": 1}


CODE = " I know.\nACTION 2:\n```python\nstop('4')\n```"


async def test_mended_replies_are_told_and_left_out_on_demand(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    blob = "Thought: add.\nAction:\n```json\n{'action': 'calculator', 'action_input': '2 + 2',}\n```"
    await good(journal, one(journal, "react", [blob, says("4")]))
    lines = list(find_trajectories(every=True, journal=journal))
    assert [bool(line.remarks) for line in lines] == [True, False] and lines[0].messages[-1]["content"] == blob
    assert [line.step for line in find_trajectories(every=True, journal=journal, strict=True)] == [2]


async def test_a_retried_request_stands_once_as_it_was_last_sent(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    run = one(journal, "react", [ServerFailed("down"), says("4")])
    assert len(sent(journal, run.id)) == 2
    await good(journal, run)
    assert len(list(find_trajectories(run.id, journal=journal))) == 1


async def test_native_calls_keep_their_shape_and_the_tools_that_were_offered(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    abilities = plait.models.base.Abilities(tools=True)
    called = Reply("", finish="calls", calls=(Call("calculator", {"expression": "2 + 2"}, "c1"),))
    run = one(journal, "tool_calling", plait.Scripted([called, "It is 4."], abilities=abilities))
    await good(journal, run)
    find_trajectories(run.id, journal=journal).write(tmp_path / "out")
    first, second = lines_of(tmp_path / "out" / "tool_calling.act.jsonl")
    assert first["tools"][0]["function"]["name"] == "calculator" and first["tools"] == second["tools"]
    call = first["messages"][-1]["tool_calls"][0]
    assert (call["id"], call["type"], call["function"]["name"]) == ("c1", "function", "calculator")
    assert json.loads(call["function"]["arguments"]) == {"expression": "2 + 2"}
    assert first["messages"][-1]["content"] is None
    tool = second["messages"][-2]
    assert (tool["role"], tool["tool_call_id"]) == ("tool", "c1") and second["messages"][-1]["content"] == "It is 4."


async def test_a_raw_prompt_is_one_user_message_and_an_opened_reply_one_message(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    raw = one(journal, plait.ReAct(transcript="completion"), [" I know.\nFinal Answer: 4"])
    await good(journal, raw)
    (line,) = find_trajectories(raw.id, journal=journal)
    assert line.raw and [message["role"] for message in line.messages] == ["user", "assistant"]
    assert line.messages[0]["content"].rstrip().endswith("Thought:") and "What is 2 + 2?" in line.messages[0]["content"]
    opened = one(journal, plait.CodeAct(), [" I know.\nACTION 1:\n```python\nstop('4')\n```"])
    await good(journal, opened)
    (line,) = find_trajectories(opened.id, journal=journal)
    before = sent(journal, opened.id)[0]
    if before[-1]["role"] == "assistant":
        assert line.messages[:-1] == tuple(before[:-1])
        assert line.messages[-1]["content"] == before[-1]["content"] + " I know.\nACTION 1:\n```python\nstop('4')\n```"
    roles = [message["role"] for message in line.messages]
    assert roles[-1] == "assistant" and roles[-2] != "assistant"


async def test_what_stands_twice_is_written_once_and_every_pass_is_the_same(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    first = one(journal, "react", [says("4")])
    second = one(journal, "react", [says("4")])
    other = one(journal, "react", [says("four")])
    await good(journal, first, second, other)
    found = find_trajectories(every=True, journal=journal)
    assert [line.run for line in found] == [first.id, other.id] == [line.run for line in found]
    one_, two = tmp_path / "one", tmp_path / "two"
    assert found.write(one_).calls_left_out == {"the same as another": 1}
    found.write(two)
    assert (one_ / "react.act.jsonl").read_bytes() == (two / "react.act.jsonl").read_bytes()


async def test_loops_and_models_are_told_apart(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    plain = one(journal, "react", plait.Scripted([says("4")], name="one"))
    lines = one(journal, plait.ReAct(dialect="lines"), plait.Scripted([says("4")], name="two"))
    await good(journal, plain, lines)

    def runs(**options: Any) -> list[str]:
        return [line.run for line in find_trajectories(every=True, journal=journal, **options)]

    assert runs(loop="react") == [plain.id, lines.id]
    assert runs(loop="react(dialect=lines)") == runs(loop="react( dialect = lines )") == [lines.id]
    assert runs(model="scripted:one") == [plain.id] and runs(loop="rewoo") == []
    found = find_trajectories(every=True, journal=journal, loop="react(dialect=lines)")
    assert found.runs_left_out == {"of another loop": 1} and next(iter(found)).loop == "react(dialect=lines)"


async def test_files_that_are_there_stay_and_nothing_half_written_is_left(tmp_path: Path) -> None:
    journal, out = tmp_path / "j.db", tmp_path / "out"
    script = {"reason": ["Add."], "react": ["[]"], "reply": ["It is 4."]}
    await good(journal, one(journal, "phased", plait.Scripted(script)))
    out.mkdir()
    (out / "phased.reply.jsonl").write_text("mine")
    found = find_trajectories(every=True, journal=journal)
    with pytest.raises(plait.ConfigError, match="there already"):
        found.write(out)
    assert [path.name for path in out.iterdir()] == ["phased.reply.jsonl"]
    assert (out / "phased.reply.jsonl").read_text() == "mine"
    assert found.write(out, force=True).lines == 3 and len(lines_of(out / "phased.reply.jsonl")) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(plait.PlaitError, match="can't be written"):
        found.write(tmp_path / "file")


def test_a_run_that_lost_its_cell_to_a_later_one_is_not_graded_any_more(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    options: dict[str, Any] = {"loops": "react", "journal": journal, "models": [plait.Scripted([parrot])]}
    (old,) = compare(TASKS[:1], **options).results
    (new,) = compare(TASKS[:1], again=True, **options).results
    found = find_trajectories(old.run, new.run, journal=journal)
    assert [each.run for each in found.runs] == [new.run]
    assert found.runs_left_out == {"neither graded nor rated": 1}


def test_deleted_and_damaged_runs_do_not_stop_the_others(tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    model = plait.Scripted(
        [lambda think: says(next(w for w in "abcd" if f"What is {w}?" in think.messages[-1].content))]
    )
    tasks = [*TASKS, {"id": "d", "question": "What is d?", "answer": "d"}]
    done = compare(tasks, loops="react", models=[model], journal=journal, name="mine")
    Journal.at(journal).close()
    connection = sqlite3.connect(journal)
    connection.execute("DELETE FROM runs WHERE id = ?", (done.results[0].run,))
    n = connection.execute("SELECT n FROM runs WHERE id = ?", (done.results[1].run,)).fetchone()[0]
    connection.execute("UPDATE events SET body = x'00', packed = 1 WHERE run = ? AND body IS NOT NULL", (n,))
    connection.commit()
    connection.close()
    found = find_trajectories(comparison="mine", journal=journal)
    assert found.runs_left_out == {"deleted": 1} and len(load_comparison("mine", journal).results) == 4
    written = found.write(tmp_path / "out")
    assert written.lines == 2 and written.calls_left_out == {"of a run whose record can't be read": 1}


def test_wrong_usage_is_told(tmp_path: Path) -> None:
    with pytest.raises(plait.ConfigError, match="No runs are named"):
        find_trajectories(journal=tmp_path / "j.db")
    with pytest.raises(plait.ConfigError, match="no comparison"):
        find_trajectories(comparison="x", journal=tmp_path / "j.db")
    with pytest.raises(plait.ConfigError):
        find_trajectories("x", journal=tmp_path / "j.db")
    with pytest.raises(plait.ConfigError):
        find_trajectories(every=True, loop="nope(", journal=tmp_path / "j.db")


# -- on the command line


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`plait ...` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Ended:
        capfd.readouterr()
        code = run_in_process([*words, "--journal", "j.db"])
        ended = Ended(code, *capfd.readouterr())
        assert "defect" not in ended.stderr
        return ended

    return call


def test_rating_and_writing_on_the_command_line(tmp_path: Path, command: Callable[..., Ended]) -> None:
    (tmp_path / "script.json").write_text(json.dumps([says("4")]))
    asked = command("run", "What is 2 + 2?", "--model", "scripted:script.json", "--json", "--quiet")
    run = json.loads(asked.stdout)["run"]
    nothing = command("trajectories", "last", "-o", "train")
    assert nothing.returncode == 3 and "0 lines of 0 good runs." in nothing.stdout
    assert "Runs left out: 1 neither graded nor rated." in nothing.stdout and not (tmp_path / "train").exists()
    assert command("rate", "list").stdout == ""
    assert command("rate", run, "bad").returncode == 0
    assert command("trajectories", "last", "-o", "train").returncode == 3
    rated = command("rate", "last", "good", "--why", "as it\nshould be", "--json")
    assert json.loads(rated.stdout)["good"] is True
    listed = command("rate", "list")
    assert run in listed.stdout and "as it should be" in listed.stdout and len(listed.stdout.splitlines()) == 2
    assert [rating["run"] for rating in json.loads(command("rate", "list", "--json").stdout)] == [run]
    done = command("trajectories", "--all", "-o", "train", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["files"] == {"react.act.jsonl": 1} and told["runs"] == [run]
    (line,) = lines_of(tmp_path / "train" / "react.act.jsonl")
    assert line["run"] == run and line["approved"] is True and line["score"] is None
    again = command("trajectories", "--all", "-o", "train")
    assert again.returncode == 2 and "--force" in again.stderr
    assert command("trajectories", "--all", "-o", "train", "--force").returncode == 0
    for words in (["rate", "last"], ["rate", "nope", "good"], ["rate", "last", "fine"], ["trajectories", "-o", "x"]):
        assert command(*words).returncode == 2, words
