"""Recorded runs checked against an agent as it is now: `plait replay -a A --last N [--run]` and `lab/regression.py`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import plait
from cli_support import Shell
from plait.core.errors import ConfigError
from plait.journal.results import Results
from plait.journal.store import Journal
from plait.lab.comparison import Comparison
from plait.lab.regression import RECORDED, RunChange, check_requests, find_runs, run_again

SUPPORT = '''
import json

import plait


def note(text):
    with open("log.txt", "a", encoding="utf-8") as file:
        file.write(text + "\\n")


@plait.tool
def refund(order: int, reason: str = "none") -> str:
    """Refund an order."""
    note(f"refund {order}")
    if order == 13:
        raise plait.ToolError("Order 13 is unknown.", hint="Ask for it.")
    return f"refunded {order}"


@plait.tool
async def mail(ctx: plait.Context[str], to: str) -> str:
    """Send a mail."""
    note(f"mail {to}")
    return f"{ctx.deps} wrote to {to}"


@plait.tool(read_only=True)
def look_up(order: int) -> str:
    """Look an order up."""
    note(f"look up {order}")
    return f"{order} is a chair"


class Shop:
    """Where orders are."""

    def cancel(self, order: int, *others: int) -> int:
        """Cancel orders."""
        note(f"cancel {order} {others}")
        return order + sum(others)


def reply(request):
    """The question has the calls as JSON; instructions change what is called and answered."""
    rules, question = (next(m.content for m in request.messages if m.role == role) for role in ("system", "user"))
    results = [each.content for each in request.messages if each.role == "tool"]
    calls = json.loads(question[question.index("["):])
    for each in calls if "LARGER" in rules else ():
        each["input"]["order"] += 100
    if calls and not results:
        return {"calls": calls}
    return {"answer": " | ".join(results).upper() if "LOUD" in rules else " | ".join(results)}


agent = plait.Agent(
    "tool_calling",
    model=plait.Scripted(reply),
    tools=[refund, mail, look_up, Shop().cancel],
    deps=str,
    make_deps=lambda: "Ada",
    approve="effects",
    name="support",
)
'''


def ask(*calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps([{"name": name, "input": given} for name, given in calls])


REFUND, OTHER = ask(("refund", {"order": 7})), ask(("refund", {"order": 8}))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "support.py").write_text(SUPPORT, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "support", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.fixture
def agent(shop: Path) -> plait.Agent[Any, Any]:
    import support  # type: ignore[import-not-found]

    made: plait.Agent[Any, Any] = support.agent.using(journal=shop / "journal.db")
    return made


def approve(waiting: plait.core.Waiting) -> str:
    return "yes"


def log(folder: Path) -> list[str]:
    """What tools did since the last look."""
    place = folder / "log.txt"
    found = place.read_text("utf-8").split("\n")[:-1] if place.exists() else []
    place.unlink(missing_ok=True)
    return found


def again(agent: plait.Agent[Any, Any], last: int = 50, **options: Any) -> tuple[Comparison, Sequence[RunChange]]:
    journal = Journal.at(agent.journal or None)
    rows = find_runs(journal, [agent.name], last)
    return asyncio.run(run_again({"now": agent}, rows, journal.store, **options))


# -- the same requests


def test_requests_are_the_same_until_the_instructions_change(agent: plait.Agent[Any, Any], shop: Path) -> None:
    runs = [agent.run(each, on_wait=approve) for each in (REFUND, OTHER)]
    assert log(shop) == ["refund 7", "refund 8"]
    rows = find_runs(Journal(shop / "journal.db"), ["support"], 50)
    assert [row.head.run for row in rows] == [run.id for run in reversed(runs)]
    same = asyncio.run(check_requests(agent, rows))
    assert [(each.same, each.requests, each.step, each.problem) for each in same] == [(True, 2, 0, "")] * 2
    changed = asyncio.run(check_requests(agent.using(instructions="Be brief."), rows))
    assert [(each.run, each.same, each.step) for each in changed] == [(run.id, False, 1) for run in reversed(runs)]
    assert "step 1" in changed[0].problem and "Be brief." in changed[0].problem
    assert log(shop) == []


# -- calls with effects


class Drawing(plait.Artifact):
    kind = "drawing"

    def __init__(self, width: int) -> None:
        self.width = width

    def about(self) -> str:
        return f"<Drawing {self.width}>"

    def dump(self) -> bytes:
        return str(self.width).encode()

    @classmethod
    def load(cls, data: bytes) -> Drawing:
        return cls(int(data))


def test_calls_with_effects_are_not_made_and_get_the_recorded_results(agent: plait.Agent[Any, Any], shop: Path) -> None:
    every = [
        ask(("look_up", {"order": 7}), ("refund", {"order": 7})),
        ask(("mail", {"to": "Ben"})),
        ask(("cancel", {"order": 1, "others": [2, 3]})),
        ask(("refund", {"order": "9", "reason": "broken"})),  # bound as a number
    ]
    before = [agent.run(each, on_wait=approve) for each in every]
    assert {run.status for run in before} == {"answered"} and before[1].answer == "Ada wrote to Ben"
    assert log(shop) == ["look up 7", "refund 7", "mail Ben", "cancel 1 (2, 3)", "refund 9"]
    made, changes = again(agent)
    assert log(shop) == ["look up 7"]
    assert all(each.same_answer and each.same_calls for each in changes) and len(changes) == 4
    assert all(each.grade.success for each in made.results) and len(made.results) == 8 and made.whole
    new = plait.open_journal(shop / "journal.db").load(changes[0].again)
    assert [(call.status, call.result) for call in new.calls_of("refund")] == [("ok", "refunded 9")]


def test_a_call_that_no_run_made_is_an_error_for_the_model(agent: plait.Agent[Any, Any], shop: Path) -> None:
    agent.run(REFUND, on_wait=approve)
    log(shop)
    made, (change,) = again(agent.using(instructions="LARGER"))
    assert log(shop) == []
    said = "Error: refund was not called: it has effects, and no recorded run made this call."
    assert change.answers == ("refunded 7", said) and not change.same_answer
    assert change.calls == (
        ("refund({'order': 7, 'reason': 'none'})",),
        ("refund({'order': 107, 'reason': 'none'})",),
    )
    assert [each.grade.success for each in made.results] == [True, False]


def test_with_effects_the_calls_are_made_and_nothing_of_the_other_comparison_is_reused(
    agent: plait.Agent[Any, Any], shop: Path
) -> None:
    agent.run(REFUND, on_wait=approve)
    log(shop)
    free = agent.using(approve="never")
    again(free)
    assert log(shop) == []
    again(free, effects=True)
    assert log(shop) == ["refund 7"]
    again(free, effects=True)  # finished
    assert log(shop) == []
    again(free, effects=True, again=True)
    assert log(shop) == ["refund 7"]


def test_a_hook_that_changes_a_call_gets_the_result_of_the_changed_one(
    agent: plait.Agent[Any, Any], shop: Path
) -> None:
    class Round(plait.Hook):
        def before_tool(self, context: Any, call: plait.core.Call) -> plait.core.Call | None:
            import msgspec

            order = call.input["order"]
            return msgspec.structs.replace(call, input={**call.input, "order": 5}) if order != 5 else None

    hooked = agent.using(hooks=[Round()])
    hooked.run(REFUND, on_wait=approve)
    assert log(shop) == ["refund 5"]
    _, (change,) = again(hooked)
    assert log(shop) == [] and change.same_answer and change.same_calls, change


@pytest.mark.parametrize("form", ["plain", "async", "partial", "object", "class", "inline"])
def test_no_form_of_a_tool_is_called(form: str, tmp_path: Path) -> None:
    called: list[str] = []

    def write(text: str, ending: str = "!") -> str:
        """Write a letter."""
        called.append(text)
        return text + ending

    async def write_later(text: str) -> str:
        """Write a letter."""
        return write(text)

    class Desk:
        def write(self, text: str) -> str:
            """Write a letter."""
            return write(text)

    class Pen:
        def __call__(self, text: str) -> str:
            """Write a letter."""
            return write(text)

    tool: Any = {
        "plain": lambda: write,
        "async": lambda: plait.tool(name="write")(write_later),
        "partial": lambda: partial(write, ending="?"),
        "object": lambda: plait.tool(name="write")(Pen()),
        "class": lambda: Desk,  # each run gets its own
        "inline": lambda: plait.tool(inline=True)(write),
    }[form]()
    script = plait.Scripted([{"calls": [{"name": "write", "input": {"text": "Hello"}}]}, {"answer": "done"}])
    agent = plait.Agent("tool_calling", model=script, tools=[tool], name="desk", journal=tmp_path / "j.db")
    run = agent.run("Write.")
    assert called == ["Hello"] and run.calls_of("write")[0].status == "ok"
    _, (change,) = again(agent)
    assert called == ["Hello"]
    (old,), (new,) = (
        plait.open_journal(tmp_path / "j.db").load(each).calls_of() for each in (change.run, change.again)
    )
    assert (old.input, old.result, old.status) == (new.input, new.result, new.status)


def test_errors_refusals_and_ends_come_as_they_are_recorded(agent: plait.Agent[Any, Any], shop: Path) -> None:
    class Ends:
        def close(self, order: int) -> str:
            """Close an order."""
            raise plait.EndRun(f"closed {order}")

    ending = agent.using(tools=[*agent.tools, Ends().close])
    error = ending.run(ask(("refund", {"order": 13})), on_wait=approve)
    refused = ending.run(REFUND, on_wait=lambda waiting: "no, too late")
    approved = ending.run(REFUND, on_wait=approve)  # the same question and call, with another result
    ended = ending.run(ask(("close", {"order": 4})), on_wait=approve)
    assert log(shop) == ["refund 13", "refund 7"] and ended.answer == "closed 4"
    made, changes = again(ending)
    assert log(shop) == []
    assert {each.run: each.answers[1] for each in changes} == {
        run.id: run.answer for run in (error, refused, approved, ended)
    }
    assert all(each.same_calls for each in changes) and all(each.grade.success for each in made.results)


def test_an_artifact_of_a_recorded_result_can_be_used_by_other_tools(tmp_path: Path) -> None:
    made: list[int] = []

    def draw(width: int) -> Drawing:
        """Draw and publish a picture."""
        made.append(width)
        return Drawing(width)

    @plait.tool(read_only=True)
    def measure(picture: Drawing) -> str:
        """Measure a picture."""
        return f"{picture.width} wide"

    script = plait.Scripted(
        [
            {"calls": [{"name": "draw", "input": {"width": 5}}]},
            {"calls": [{"name": "measure", "input": {"picture": "drawing-1"}}]},
            {"answer": "done"},
        ]
    )
    agent = plait.Agent("tool_calling", model=script, tools=[draw, measure], name="artist", journal=tmp_path / "j.db")
    before = agent.run("Draw.")
    assert before.calls_of("measure")[0].result == "5 wide"
    _, (change,) = again(agent)
    after = plait.open_journal(tmp_path / "j.db").load(change.again)
    assert made == [5] and change.same_calls
    assert [call.text for call in after.calls_of()] == [call.text for call in before.calls_of()]


@pytest.mark.parametrize("is_known", [True, False])
def test_child_runs_make_no_calls_with_effects(tmp_path: Path, is_known: bool) -> None:
    sent: list[str] = []
    wanted = ["Hello"]

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return f"sent {text}"

    def reply(request: Any) -> Any:
        results = [each.content for each in request.messages if each.role == "tool"]
        return {"answer": results[0]} if results else {"calls": [{"name": "send", "input": {"text": wanted[0]}}]}

    child = plait.Agent("tool_calling", model=plait.Scripted(reply), tools=[send], approve="effects")

    @plait.tool(read_only=True)  # a wrong mark
    async def helper(ctx: plait.Context, task: str) -> str:
        """Help with a task."""
        return str((await ctx.arun(child, task)).answer)

    for tool, name, given in ((child.as_tool("ask"), "ask", "question"), (helper, "helper", "task")):
        script = plait.Scripted([{"calls": [{"name": name, "input": {given: "Do it."}}]}, {"answer": "done"}])
        top = plait.Agent("tool_calling", model=script, tools=[tool], name=name, journal=tmp_path / "j.db")
        wanted[0] = "Hello"
        before = top.run("Go on.", on_wait=approve)
        assert before.calls_of(name)[0].result == "sent Hello" and sent == ["Hello"]
        wanted[0] = "Hello" if is_known else "Goodbye"
        _, (change,) = again(top)
        assert sent == ["Hello"]
        after = plait.open_journal(tmp_path / "j.db").load(change.again).calls_of(name)[0]
        assert after.result == "sent Hello" if is_known else "no recorded run made this call" in after.result
        sent.clear()


def test_calls_that_run_at_the_same_time_may_end_in_another_order(tmp_path: Path) -> None:
    pauses = [0.03, 0.0, 0.0, 0.03]

    @plait.tool(read_only=True)
    async def look(at: int) -> str:
        """Look."""
        await asyncio.sleep(pauses.pop(0))
        return str(at)

    both = {"calls": [{"name": "look", "input": {"at": at}} for at in (1, 2)]}
    agent = plait.Agent("tool_calling", model=plait.Scripted([both, {"answer": "3"}]), tools=[look], name="a")
    agent = agent.using(journal=tmp_path / "j.db")
    agent.run("?")
    _, (change,) = again(agent)
    assert change.same_calls and change.calls[0] == ("look({'at': 1})", "look({'at': 2})") and not pauses


def test_a_call_in_doubt_is_no_doubt_of_the_new_run(agent: plait.Agent[Any, Any], shop: Path) -> None:
    @plait.tool(timeout=0.05)
    async def hang() -> str:
        """Take long."""
        await asyncio.sleep(60)
        return ""

    slow = agent.using(tools=[hang], approve="never")
    before = slow.run(ask(("hang", {})))
    assert before.calls_of()[0].status == "in_doubt"
    _, (change,) = again(slow)
    assert change.same_answer
    assert plait.open_journal(shop / "journal.db").load(change.again).calls_of()[0].status == "raised"


# -- which runs


def test_its_own_runs_are_not_checked_the_next_time(agent: plait.Agent[Any, Any], shop: Path) -> None:
    first = agent.run(REFUND, on_wait=approve)
    again(agent)
    rows = find_runs(Journal(shop / "journal.db"), ["support"], 1)
    assert [row.head.run for row in rows] == [first.id]
    graded = find_runs(Journal(shop / "journal.db"), ["support"], 5, grade="right")
    assert len(graded) == 1 and graded[0].head.run != first.id


def test_equal_questions_are_one_task_with_a_new_run_for_each_recorded_one(
    agent: plait.Agent[Any, Any], shop: Path
) -> None:
    runs = {agent.run(REFUND, on_wait=approve).id for _ in range(8)}
    made, changes = again(agent.using(instructions="LOUD LARGER"))
    assert {each.run for each in changes} == runs and len({each.again for each in changes}) == 8 and made.whole
    assert [(row.n, row.tasks, row.success) for row in made.rows] == [(8, 1, 1.0), (8, 1, 0.0)]
    (pair,) = made.pairs
    assert (pair.tasks, pair.p, pair.word) == (1, 1.0, "too few to tell")
    shown = str(made)
    assert shown.startswith("8 recorded runs: 1 task,") and "In all 8 new runs, " in shown
    (listed,) = asyncio.run(Results(Journal.at(agent.journal or None).store).list_progress())
    assert (listed["finished"], listed["cells"]) == (8, 8)


def test_only_the_new_runs_are_paid_now(tmp_path: Path) -> None:
    price = plait.Price(1000, 1000)
    agent = plait.Agent("json", model=plait.Scripted(lambda _: {"answer": "a"}, rate=price), name="a")
    agent = agent.using(journal=tmp_path / "j.db")
    agent.run("Which?")
    made, (change,) = again(agent)
    cost = plait.open_journal(tmp_path / "j.db").load(change.again).cost_usd
    assert cost and f"In all 1 new run, {round(cost * 1000):,} tokens, {cost:.5f} USD." in str(made)
    assert str(made).startswith("1 recorded run: 1 task")


def test_every_recorded_answer_of_a_question_is_right_but_those_rated_bad(tmp_path: Path) -> None:
    said = ["red"]
    agent = plait.Agent("json", model=plait.Scripted(lambda _: {"answer": said[0]}), name="a")
    agent = agent.using(journal=tmp_path / "j.db")
    runs = plait.open_journal(tmp_path / "j.db")
    red = agent.run("Which?")
    said[0] = "blue"
    blue, only = agent.run("Which?"), agent.run("And here?")
    said[0] = "red"
    made, _ = again(agent)
    assert [each.grade.success for each in made.results] == [True] * 3 + [False, True, True]
    runs.rate(only, good=False)
    runs.rate(red, good=False)
    made, changes = again(agent)
    assert {each.run for each in changes} == {red.id, blue.id}  # nothing is right for the other question
    assert {each.run: each.grade.success for each in made.results[:2]} == {red.id: False, blue.id: True}
    assert [each.grade.success for each in made.results[2:]] == [False, False]
    (tmp_path / "checks.py").write_text("def right(task, run):\n    return run.answer == 'red'\n", "utf-8")
    made, changes = again(agent, grader=f"{tmp_path}/checks.py:right")
    assert len(changes) == 3 and [row.success for row in made.rows] == [1 / 3, 1.0]
    for run in (red, blue):
        runs.rate(run, good=False)
    with pytest.raises(ConfigError, match="None of these runs") as why:
        again(agent)
    assert "rated bad" in str(why.value.hint)


def test_runs_with_files_later_turns_and_unanswered_runs_are_left_out(agent: plait.Agent[Any, Any], shop: Path) -> None:
    (shop / "note.txt").write_text("a note")
    agent.run([REFUND, plait.attach(shop / "note.txt")], on_wait=approve)
    agent.run(REFUND, history=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "[]"}])
    agent.run(REFUND)  # waits
    agent.using(limits=plait.Limits(calls=1)).run(REFUND, on_wait=approve)
    with pytest.raises(ConfigError, match="None of these runs can be asked again") as why:
        again(agent)
    assert "no later turns of a conversation" in str(why.value.hint)
    whole = agent.run(OTHER, session="s", on_wait=approve)
    made, changes = again(agent)
    assert [each.run for each in changes] == [whole.id] and len(made.suite.tasks) == 1


def test_an_answer_that_is_a_list_is_one_answer(tmp_path: Path) -> None:
    answers: list[Any] = [["a", "b"]]
    model = plait.Scripted(lambda request: {"answer": answers[0]})
    agent = plait.Agent("json", model=model, output=list[str], name="lists", journal=tmp_path / "j.db")
    assert agent.run("Which?").answer == ["a", "b"]
    made, (change,) = again(agent)
    assert change.same_answer and all(each.grade.success for each in made.results)
    answers[0] = ["a"]
    made, (change,) = again(agent, again=True)
    assert change.answers == (["a", "b"], ["a"])
    assert [each.grade.success for each in made.results] == [True, False]


# -- the command


@pytest.fixture
def shell(shop: Path) -> Shell:
    made = Shell(shop)
    for question in (REFUND, OTHER):
        assert made("run", question, "-a", "support:agent", "--approve", "never", "--quiet", "--user", "ada").code == 0
    log(shop)
    return made


def test_the_command_checks_requests(shell: Shell, shop: Path) -> None:
    words = ("replay", "-a", "support:agent", "--last", "50")
    same = shell(*words)
    assert same.code == 0 and same.out.count("the same (2)") == 2, same.out + same.err
    assert "2 of 2 runs would send the same requests." in same.err
    changed = shell(*words, "--instructions", "Be brief.")
    assert changed.code == 1 and changed.out.count("differs from its record at step 1") == 2
    assert "0 of 2 runs" in changed.err
    found = json.loads(shell(*words, "--instructions", "Be brief.", "--json").out)
    assert [(each["same"], each["step"]) for each in found] == [(False, 1)] * 2
    one = shell("replay", "last", "-a", "support:agent", "--instructions", "Be brief.")
    assert one.code == 1 and "step 1" in one.err
    assert log(shop) == []


def test_filters_select_runs_and_made_by_another_agent(shell: Shell, shop: Path) -> None:
    words = ("replay", "-a", "support:agent")
    shell("run", REFUND, "-a", "support:agent", "--quiet", "--user", "ben")  # it waits
    counts = {
        ("--last", "1"): 1,
        ("--last", "9"): 3,
        ("--last", "9", "--user", "ada"): 2,
        ("--last", "9", "--status", "waiting"): 1,
        ("--last", "9", "--made-by", "support"): 3,
    }
    for given, count in counts.items():
        done = shell(*words, *given)
        assert f"{count} of {count} run" in done.err, (given, done.err)
    for given in (("--user", "eve"), ("--made-by", "billing")):
        none = shell(*words, "--last", "9", *given)
        assert none.code == 2 and "The journal has no such run" in none.err and "name=" in none.err
    assert "--rated" in shell(*words, "--last", "9", "--grade", "bad").err


def test_runs_that_are_not_shown_are_counted(shell: Shell, shop: Path) -> None:
    words = ("replay", "-a", "support:agent", "--last")
    assert "other agents" not in shell(*words, "9").err
    (shop / "other.py").write_text("from support import agent\n\nagent = agent.using(name='other')\n")
    assert shell("run", REFUND, "-a", "other:agent", "--approve", "never", "--quiet").code == 0
    assert "1 of the newest 3 runs are of other agents" in shell(*words, "9").err
    assert (
        "other agents" not in shell(*words, "2").err and "other agents" not in shell(*words, "9", "--user", "ada").err
    )
    assert shell("rate", "last", "bad").code == 0
    done = shell("replay", "-a", "other:agent", "--last", "9", "--rated", "bad")
    assert "1 of 1 run" in done.err
    assert "rated bad" in shell("replay", "-a", "other:agent", "--last", "9", "--run", "--quiet").err
    assert shell(*words, "9", "--run", "--quiet", "--rated", "good").code == 2


def test_a_gate_fails_only_if_the_prompt_is_worse(shell: Shell, shop: Path) -> None:
    words = ("replay", "-a", "support:agent", "--last", "9", "--run", "--quiet", "--instructions", "LOUD LARGER")
    assert shell(*words).code == 1 and shell(*words, "--fail-if", "wrong").code == 1
    assert shell(*words, "--fail-if", "worse").code == 0  # 2 questions prove nothing
    for order in range(4):
        question = ask(("refund", {"order": 20 + order}))
        assert shell("run", question, "-a", "support:agent", "--approve", "never", "--quiet").code == 0
    worse = shell(*words, "--fail-if", "worse")
    assert worse.code == 1 and "recorded is better than support:agent" in worse.out
    assert shell(*words[:-2], "--fail-if", "worse").code == 0


def test_a_question_that_is_rated_bad_alone_is_counted(shell: Shell, shop: Path) -> None:
    assert shell("rate", "last", "bad").code == 0
    done = shell("replay", "-a", "support:agent", "--last", "9", "--run", "--quiet")
    assert done.code == 0 and "1 run left out: rated bad" in done.err and "1 recorded run: 1 task" in done.out


def test_the_command_asks_again_and_compares(shell: Shell, shop: Path) -> None:
    words = ("replay", "-a", "support:agent", "--last", "50", "--run", "--quiet")
    same = shell(*words)
    assert same.code == 0 and RECORDED in same.out and "->" not in same.out, same.out + same.err
    other = shell(*words, "--instructions", "LOUD LARGER")
    assert other.code == 1
    assert other.out.count(", answer: ") == 2 and other.out.count(", calls: ") == 2
    assert "'order': 107" in other.out and "no recorded run made this call" in other.out.lower() + other.out
    loose = shell(*words, "--instructions", "LOUD", "--grader", "contains")  # letters do not count
    assert loose.code == 0 and loose.out.count(", answer: ") == 2
    own = shell("replay", "last", "-a", "support:agent", "--run", "--quiet", "--json")
    assert own.code == 0 and len(json.loads(own.out)["changes"]) == 1
    assert log(shop) == []


def test_dependencies_can_be_named(shell: Shell, shop: Path) -> None:
    (shop / "bare.py").write_text("from support import agent\n\nagent = agent.using(make_deps=None)\n")
    words = ("replay", "-a", "bare:agent", "--made-by", "support", "--last", "1", "--run", "--quiet")
    bare = shell(*words)
    assert bare.code == 2 and "--deps module:function" in bare.err
    assert shell(*words, "--deps", "builtins:str").code == 0


def test_several_instructions_are_rows(shell: Shell, shop: Path) -> None:
    (shop / "loud.txt").write_text("LOUD LARGER")
    words = ("replay", "-a", "support:agent", "--last", "50", "--run", "--quiet", "--instructions", "Be brief.")
    done = shell(*words, "--instructions", "@loud.txt", "--json")
    assert done.code == 1, done.err
    found = json.loads(done.out)
    assert len(found["rows"]) == 3 and len(found["changes"]) == 4
    changed = {each["variant"] for each in found["changes"] if each["answers"][0] != each["answers"][1]}
    assert len(changed) == 1 and "loud" in changed.pop()
    assert "Each two rows" in (shown := shell(*words, "--instructions", "@loud.txt").out)
    assert [line.split()[0] for line in shown.split("Each two rows")[1].splitlines()[3:5]] == ["recorded"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-a", "support:agent", "--run"), "not clear which runs"),
        (("--last", "2"), "not clear which runs"),
        (("last", "-a", "support:agent", "--last", "2"), "not clear which runs"),
        (("last", "--run"), "not clear which runs"),
        (("last", "--grader", "has"), "--grader works only with --run"),
        (("last", "-a", "support:agent", "--effects"), "--effects works only with --run"),
        (("last", "-a", "support:agent", "--fail-if", "worse"), "--fail-if works only with --run"),
        (("last", "-a", "support:agent", "--user", "ada"), "--user works only with --last"),
        (("-a", "support:agent", "--last", "2", "--tree"), "--tree works only with one RUN"),
        (("-a", "support:agent", "--last", "2", "--instructions", "a", "--instructions", "b"), "only with --run"),
        (("-a", "support:agent", "--last", "2", "--run", "--grader", "absent"), "absent"),
    ],
)
def test_wrong_usage_says_what_to_give(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell("replay", *words)
    assert (done.code, done.out) == (2, "") and said in done.err, done.err
