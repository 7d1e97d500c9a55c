"""CodeAct, whole runs: a scripted model, a real sandbox, real tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import plait
from journal_rows import is_request
from plait.core import CodeLimits
from plait.core.events import Called, Executed
from plait.runtime.run import Run

PEOPLE = {"Lyon": 522250, "Nice": 348085}


@plait.tool(read_only=True)
def people(city: str) -> int:
    """Counts the people of a city."""
    return PEOPLE[city]


def agent(journal: Path, codes: Sequence[str], **more: Any) -> plait.Agent:
    replies = [f" so.\nACTION {n}:\n```python\n{code}\n```" for n, code in enumerate(codes, 1)]
    settings = {"tools": [people], "limits": plait.Limits(tools=9, code=CodeLimits(seconds=2.0)), **more}
    return plait.Agent("codeact", model=plait.Scripted(replies), journal=journal, **settings)


def observations(run: Run) -> dict[int, str]:
    """The observations in the last prompt."""
    body = [row.body for row in run.trace if is_request(row.record)][-1]
    found = {}
    for message in json.loads(body or b"")["messages"]:
        if match := re.match(r"OBSERVATION (\d+):\n", message["content"]):
            found[int(match[1])] = message["content"][match.end() :]
    return found


@pytest.fixture(params=["monty", "process"])
def sandbox(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_modules_that_compute_can_be_imported(tmp_path: Path) -> None:
    codes = [
        "import statistics, itertools\nfrom collections import Counter",
        "stop([statistics.mean([1, 2, 6]), Counter('aab')['a'], *itertools.repeat(1, 2)])",
    ]
    assert agent(tmp_path / "j.db", codes).run("How many?").answer == "[3, 2, 1, 1]"


def test_one_namespace_for_the_whole_run_and_stop_that_no_except_swallows(tmp_path: Path, sandbox: str) -> None:
    codes = [
        "a = people('Lyon')\nb = people('Nice')\nprint(a, b)",
        "try:\n    stop(a - b)\nexcept BaseException:\n    print('swallowed')\nfinally:\n    print('finally')",
    ]
    run = agent(tmp_path / "j.db", codes, sandbox=sandbox).run("How many more people live in Lyon than in Nice?")
    assert (run.status, run.answer, run.steps) == ("answered", "174165", 2)
    assert "".join(event.ran.output for event in run.events if isinstance(event, Executed)) == "522250 348085\n"


def test_calls_awaited_together_run_at_once(tmp_path: Path, sandbox: str) -> None:
    import asyncio

    began: list[str] = []
    both = asyncio.Event()

    @plait.tool(read_only=True)
    async def waits(city: str) -> str:
        """Returns when two of them run."""
        began.append(city)
        if len(began) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 20)
        return city

    code = "a, b = await asyncio.gather(waits('Lyon'), waits('Nice'))\nstop(a + b)"
    run = agent(tmp_path / "j.db", [code], tools=[waits], sandbox=sandbox).run("Both?")
    assert run.answer == "LyonNice"


def test_what_the_model_is_shown_of_each_kind_of_end(tmp_path: Path, sandbox: str) -> None:
    codes = [
        "import requests\nprint(1)",
        "print(people('Lyon'))\nx = population('Nice')",
        "print(people(town='Lyon'))",
        "x = {'a': 1}\nprint(x['b'])",
        "print(people('Rome'))",
        "print('x'",
        "x = 2",
        "while True:\n    pass",
        "stop(2)",
    ]
    run = agent(tmp_path / "j.db", codes, sandbox=sandbox).run("What happens?")
    assert (run.status, run.answer) == ("answered", "2"), run.reason
    seen = observations(run)
    assert "ImportError in line 1, `import requests`" in seen[1] and "Use the functions that you" in seen[1]
    assert seen[2].startswith("522250\nERROR: NameError in line 2, `x = population('Nice')`")
    assert "population" in seen[2] and "people" in seen[2] and "is not run again" in seen[2]
    assert "TypeError in line 1" in seen[3] and "`people(city: str) -> int`" in seen[3]
    assert "KeyError in line 2, `print(x['b'])`" in seen[4] and "Print the value first" in seen[4]
    assert "KeyError in line 1" in seen[5] and "The function itself failed" in seen[5]
    assert "SyntaxError in line 1" in seen[6] and "none of it has run" in seen[6]
    assert "without an error and printed nothing" in seen[7]
    assert "ran for too long" in seen[8]
    # One restores its saved state, the other has lost its process, and the run makes its session again.
    assert ("All variables are as they were before" in seen[8]) == (sandbox == "process")


def several(count: int) -> list[plait.Tool]:
    return [plait.tool(name=f"spare_{n}", read_only=True)(lambda: None) for n in range(count)]


def test_where_nothing_is_said_more_than_eight_tools_are_not_shown_and_the_first_turn_searches(tmp_path: Path) -> None:
    plan = " Count the people of Lyon.\n2. Say it."
    replies = [plan, " so.\nACTION 2:\n```python\nstop(people('Lyon'))\n```"]
    made = plait.Agent("codeact", model=plait.Scripted(replies), tools=[people, *several(8)], journal=tmp_path / "j.db")
    run = made.run("How many?")
    assert (run.answer, run.steps) == ("522250", 2)
    calls = [event.call for event in run.events if isinstance(event, Called)]
    assert [call.tool for call in calls] == ["method_search", "people"]
    assert calls[0].input == {"description": "Count the people of Lyon"}
    assert "`people(city: str) -> int`: Counts the people of a city." in observations(run)[1]
    assert made.replay(run.id).outcome == run.outcome


def test_where_nothing_is_said_eight_tools_are_told_and_the_first_turn_is_the_models(tmp_path: Path) -> None:
    replies = [" so.\nACTION 1:\n```python\nstop(people('Lyon'))\n```"]
    made = plait.Agent("codeact", model=plait.Scripted(replies), tools=[people, *several(7)], journal=tmp_path / "j.db")
    run = made.run("How many?")
    assert (run.answer, run.steps) == ("522250", 1)
    assert made.replay(run.id).outcome == run.outcome


def test_a_run_replays_from_its_record(tmp_path: Path) -> None:
    codes = ["a = people('Lyon')\nprint(a)", "print(datetime.now())\nstop(a)"]
    made = agent(tmp_path / "j.db", codes)
    run = made.run("How many?")
    replayed = made.replay(run.id)
    assert replayed.outcome == run.outcome
    assert run.answer == "522250"


def test_every_call_of_the_code_is_a_call_of_the_run(tmp_path: Path) -> None:
    code = "print([people(city) for city in ('Lyon', 'Nice')])\nstop()"
    run = agent(tmp_path / "j.db", [code]).run("How many?")
    assert [event.call.input for event in run.events if isinstance(event, Called)] == [
        {"city": "Lyon"},
        {"city": "Nice"},
    ]
    assert run.answer == "[522250, 348085]"


def test_a_call_that_needs_leave_is_refused_in_the_code_as_an_exception(tmp_path: Path) -> None:
    @plait.tool
    def send(text: str) -> str:
        """Sends."""
        raise AssertionError("it was not allowed")

    codes = ["send('hi')", "stop('not sent')"]
    waiting = agent(tmp_path / "j.db", codes, tools=[send], approve="effects")
    run = waiting.run("Send it.")
    assert run.status == "waiting"
    run = waiting.resume(run, "no")
    assert run.answer == "not sent"
    assert "PermissionError in line 1, `send('hi')`" in observations(run)[1]


def test_what_one_piece_repeats_ends_no_run_but_what_pieces_repeat_does(tmp_path: Path, sandbox: str) -> None:
    codes = [
        "for i in range(12):\n    n = people('Lyon')\nprint(n)",
        "found = 0\nfor city in range(20):\n    try:\n        people(str(city))\n"
        "    except KeyError:\n        found += 1\nprint(found)",
        "stop(n)",
    ]
    run = agent(tmp_path / "j.db", codes, sandbox=sandbox).run("How many people live in Lyon?")
    assert (run.status, run.answer) == ("answered", "522250")
    seen = observations(run)
    assert seen == {1: "522250", 2: "20"}  # and no word of repetition
    again = [f"print({i}, people('Lyon'))" for i in range(6)]
    run = agent(tmp_path / "j.db", [*again, " I can't."], sandbox=sandbox).run("How many people live in Lyon?")
    assert (run.status, run.reason) == ("stopped", "the same call to 'people' brought the same result 4 times")
    assert "You made exactly this call before" in observations(run)[2]


def test_pieces_in_a_row_with_nothing_but_errors_end_the_run(tmp_path: Path) -> None:
    codes = [
        f"for i in range(2):\n    try:\n        people('{n}')\n    except KeyError:\n        print({n})"
        for n in range(9)
    ]
    run = agent(tmp_path / "j.db", [*codes, " I can't."]).run("How many people live in Lyon?")
    assert (run.status, run.reason) == ("stopped", "8 pieces of code in a row brought nothing but errors")
    assert run.steps == 9


def test_a_call_with_effects_that_a_piece_repeats_ends_the_run(tmp_path: Path) -> None:
    sent: list[str] = []

    @plait.tool
    def send(text: str) -> str:
        """Sends a text."""
        sent.append(text)
        return "sent"

    run = agent(tmp_path / "j.db", ["while True:\n    send('Hello')", " I can't."], tools=[send]).run("Greet them.")
    assert (run.status, run.outcome.limit, sent) == ("stopped", "loop", ["Hello"] * 4)  # type: ignore[union-attr]


def test_a_run_that_was_shown_all_tools_is_forked_with_all_of_them(tmp_path: Path) -> None:
    """The loop shows none where nothing is said; the run's head must not be taken to say nothing."""
    (tmp_path / "tools.py").write_text(
        "import plait\n\n\n@plait.tool(read_only=True)\ndef people(city: str) -> int:\n"
        '    """Counts the people of a city."""\n    return 522250\n'
    )
    replies = [
        f" so.\nACTION {n}:\n```python\n{code}\n```" for n, code in enumerate(["n = people('Lyon')", "stop(n)"], 1)
    ]
    (tmp_path / "script.json").write_text(json.dumps(replies))
    first = plait.Agent(
        "codeact",
        model=f"scripted:{tmp_path / 'script.json'}",
        tools=[str(tmp_path / "tools.py")],
        limits=plait.Limits(tools=9),
        journal=tmp_path / "j.db",
    ).run("How many people live in Lyon?")
    from plait.journal.store import Journal

    head = Journal.at(tmp_path / "j.db").run(first.id).head
    forked = plait.Agent.from_journal(head, journal=tmp_path / "j.db", load_tools=True).fork(first.id, 2)
    assert (forked.status, forked.answer, forked.reason) == ("answered", "522250", None)


def test_an_answer_tells_a_thing_by_its_words_and_not_by_its_handle(tmp_path: Path, sandbox: str) -> None:
    @plait.tool(read_only=True)
    def prices() -> plait.toolkits.Table:
        """Prices."""
        return plait.toolkits.Table(["close"], [(1.5,)])

    for code, answer in {
        "stop(prices())": "<Table columns=[close: float], 1 row>",
        "stop({'all': [prices()]})": '{"all": ["<Table columns=[close: float], 1 row>"]}',
    }.items():
        assert agent(tmp_path / "j.db", [code], tools=[prices], sandbox=sandbox).run("Prices?").answer == answer


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"seconds": "1"}, {"tool_calls": 1.5}, {"memory_mb": -1}, {"tool_calls": True}]
)
def test_limits_of_code_that_can_not_be_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(plait.ConfigError, match=r"Give a (whole )?number above zero"):
        CodeLimits(**limits)


def test_what_a_tool_lacks_is_said_in_plain_words_and_a_refusal_with_its_reason(tmp_path: Path) -> None:
    @plait.tool(read_only=True)
    def draw() -> str:
        """Draws."""
        raise plait.ConfigError("Images need Pillow.", hint="Install it.")

    @plait.tool
    def send() -> str:
        """Sends."""
        return "sent"

    asks = agent(tmp_path / "j.db", ["draw()", "send()", "stop('no')"], tools=[draw, send], approve="effects")
    waiting = asks.run("Draw and send it.")
    told = asks.resume(waiting, "not today")
    assert "ERROR: RuntimeError in line 1, `draw()`: Images need Pillow. Install it." in observations(told)[1]
    assert [event.text for event in told.events if getattr(event, "kind", "") == "told"] == ["refused: not today"]


def test_later_turns_see_code_and_what_it_printed_but_not_the_results_inside_it(tmp_path: Path, sandbox: str) -> None:
    @plait.tool(read_only=True)
    def salaries() -> list[dict[str, Any]]:
        """Lists all salaries."""
        print("all were fetched")
        return [{"name": f"SECRET-{n}", "pay": n} for n in range(30)]

    codes = [
        "total = sum(row['pay'] for row in salaries())\nprint(total)\nprint(absent())",
        "silent = salaries()[:0]\nif total != 435: [people('Lyon')]",
        "stop(f'{total} in all')",
    ]
    made = agent(tmp_path / "j.db", codes, tools=[salaries, people], sandbox=sandbox)
    first = made.run("How much?", session="pay", user="u")
    assert first.answer == "435 in all"
    seen = "all were fetched\n435\nNameError: name 'absent' is not defined"
    results = [seen, "all were fetched", "(no output)"]
    messages = first.messages()
    assert [each["content"] for each in messages if each["role"] == "tool"] == results
    given = [each["tool_calls"][0]["function"] for each in messages if each.get("tool_calls")]
    assert [(each["name"], json.loads(each["arguments"])) for each in given] == [("python", {"code": c}) for c in codes]

    answered = {"codeact": [" so.\nACTION 1:\n```python\nstop('x')\n```"], "react": [{"answer": "x"}]}
    for loop, replies in answered.items():  # another loop sees the same
        run = made.using(loop=loop, model=plait.Scripted(replies)).run("And?", session="pay")
        (asked,) = (row.body.decode() for row in run.trace if is_request(row.record) and row.body)
        assert run.answer == "x" and "SECRET" not in asked and "absent()" in asked and "435\\nNameError" in asked
        fork = made.using(loop=loop, model=plait.Scripted(replies)).fork(run, at=1).messages()
        assert fork == run.messages() and "SECRET" not in json.dumps(fork)


def test_a_turn_whose_code_called_no_tool_is_shown_too(tmp_path: Path) -> None:
    made = agent(tmp_path / "j.db", ["x = 6 * 7\nprint(x)", "stop(x)"])
    made.run("How many?", session="s")
    later = made.using(model=plait.Scripted([" so.\nACTION 1:\n```python\nstop(1)\n```"])).run("And?", session="s")
    assert [(call.tool, call.result) for call in later.history[0].calls] == [
        ("python", "42"),
        ("python", "(no output)"),
    ]
