"""Claims about `plait world`: a task is run in a fresh world and graded, and what was sent is shown from the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_support import Shell, turn
from plait.lab.world import world_of

WORLD = ("--seed", "5", "--now", "2023-04-07")
WORD = "world:5,now=2023-04-07"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def weather_run(shell: Shell, text: str = "It is {temperature} °C here, {description}.") -> str:
    """A script that does task B; returns the model's spec."""
    world = world_of(WORD)
    here = world.call("get_user_location")
    where = {"latitude": here["latitude"], "longitude": here["longitude"]}
    now = world.call("get_current_weather", **where)["current_weather"]
    return shell.script(
        [
            turn("get_user_location", None),
            turn("get_current_weather", where),
            turn("send_message_discord", text.format(**now)),
            turn("final_answer", "Sent."),
        ]
    )


def run_b(shell: Shell, model: str, *flags: str) -> Any:
    return shell("world", "run", "B", "--loop", "json", "--model", model, *WORLD, *flags)


def test_the_tasks_are_listed(shell: Shell) -> None:
    told = shell("world", "tasks")
    assert [line[0] for line in told.out.splitlines()] == list("ABCDEF")
    listed = json.loads(shell("world", "tasks", "--all", "--json").out)
    assert len(listed) >= 30
    assert listed[2]["to"] == "#experimenting-with-simple-ai-agents"


def test_a_task_that_is_done_is_told_so_with_what_was_sent(shell: Shell) -> None:
    told = run_b(shell, weather_run(shell))
    assert told.code == 0
    sent, text, answer, grade = told.out.splitlines()
    assert sent == "1. Discord"
    assert text.startswith("   It is ")
    assert answer == "Answer: Sent."
    assert grade == "B: done"


def test_what_was_sent_is_shown_again_from_the_record(shell: Shell) -> None:
    first = run_b(shell, weather_run(shell))
    assert shell("world", "show", "last").out == first.out
    told = json.loads(shell("world", "show", "last", "--json").out)
    assert (told["task"], told["grade"], told["why"], told["world"]) == ("B", "done", [], "world:5")
    assert [each["service"] for each in told["sent"]] == ["discord"]
    assert "C: not done" in shell("world", "show", "last", "--task", "C").out


def test_a_flaw_is_told_with_its_reason(shell: Shell) -> None:
    told = run_b(shell, weather_run(shell, "It is {temperature} °C here, {description}. Humidity is 70%."), "--json")
    found = json.loads(told.out)
    assert (found["grade"], found["why"]) == ("flaw", ["70 is not from the world"])


def test_a_task_that_nobody_did_is_not_done_whatever_was_answered(shell: Shell) -> None:
    told = run_b(shell, shell.script([turn("final_answer", "It is sunny, I sent it.")]))
    assert told.out.splitlines()[0] == "Nothing was sent."
    assert told.out.splitlines()[-1] == "B: not done: nothing was sent to Discord"


def test_why_a_run_has_no_answer_is_told_however_quiet(shell: Shell) -> None:
    told = run_b(shell, shell.script([turn("get_user_location", None)]), "--quiet")
    assert told.code == 1
    assert told.err.splitlines()[0].startswith("crashed: ")
    assert told.err.splitlines()[-1].startswith("To continue after fixing this, run: plait resume ")
    assert told.out.splitlines()[-1] == "B: not done: nothing was sent to Discord"


def test_a_run_that_waits_says_how_it_goes_on(shell: Shell) -> None:
    waits = turn("get_current_weather", {"latitude": 51.0432, "longitude": 3.7211})
    told = run_b(shell, shell.script([waits, turn("final_answer", "Sent.")]), "--grounding", "ask", "--quiet")
    assert told.code == 5
    assert told.err.splitlines()[1].startswith("Approve with: plait resume ")


def test_a_made_up_value_that_the_check_of_arguments_notes_is_a_flaw(shell: Shell) -> None:
    world = world_of(WORD)
    now = world.call("get_current_weather", latitude=51.0432, longitude=3.7211)["current_weather"]
    model = shell.script(
        [
            turn("get_current_weather", {"latitude": 51.0432, "longitude": 3.7211}),
            turn("send_message_discord", f"{now['description']}, {now['temperature']} °C"),
            turn("final_answer", "Sent."),
        ]
    )
    told = json.loads(run_b(shell, model, "--grounding", "note", "--json").out)
    assert told["grade"] == "flaw"
    assert any("51.0432" in reason for reason in told["why"])


def test_a_picture_by_its_handle_is_in_what_was_sent(shell: Shell) -> None:
    world = world_of(WORD)
    apod = world.call("get_nasa_astronomy_picture_of_the_day")
    model = shell.script(
        [
            turn("get_nasa_astronomy_picture_of_the_day", None),
            turn("download_image", apod["url"]),
            turn("shrink_image", {"image": "image-1", "ratio": 0.5}),
            turn("send_message_discord", {"msg": f"Hello from Space! {apod['explanation']}", "image": "image-2"}),
            turn("final_answer", "Sent."),
        ]
    )
    told = shell("world", "run", "E", "--loop", "json", "--model", model, *WORLD)
    assert told.out.splitlines()[-1] == "E: done", told.out + told.err
    assert "with <Image " in told.out.splitlines()[0]


def test_code_reads_the_clock_that_the_world_has(shell: Shell) -> None:
    """Without --now the world's clock is this machine's, which code in the sandbox reads."""
    act = "I print it.\nACTION 2:\n```python\nprint(datetime.now().strftime('%d %B %Y'))\nstop()\n```"
    script = {"replies": {"decompose": ["1. Print the current date."], "act": ["(made by the loop)", act]}}
    (shell.folder / "code.json").write_text(json.dumps(script))
    model = "scripted:code.json"
    told = shell("world", "run", "A", "--loop", "codeact", "--model", model)
    assert told.out.splitlines()[-1] == "A: done", told.out + told.err
    assert shell("world", "show", "last").out.splitlines()[-1] == "A: done"


def test_the_usual_command_runs_in_a_world_as_well(shell: Shell) -> None:
    model = weather_run(shell)
    told = shell("run", "Tell Discord about the weather here.", "--loop", "json", "--model", model, "--tools", WORD)
    assert (told.code, told.out) == (0, "Sent.\n")
    shown = shell("world", "show", "last")
    assert shown.out.startswith("1. Discord\n")
    assert "B:" not in shown.out  # no task's question


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("world", "run", "Z"), "There is no task 'Z'"),
        (("world", "run", "A", "--here", "Atlantis"), "no town 'Atlantis'"),
        (("world", "run", "A", "--now", "soon"), "its date can't be read"),
        (("world", "run", "A", "--now", "1700-01-01"), "the years 2000 to 2199"),
        (("run", "Hi", "--loop", "react", "--tools", "world:seven"), "its seed is no whole number"),
        (("world", "show", "last"), "no journal"),
    ],
)
def test_wrong_usage_is_one_line(shell: Shell, args: tuple[str, ...], said: str) -> None:
    told = shell(*args)
    assert told.code in (1, 2)
    assert said in told.err
    assert len(told.err.splitlines()) == 1


def test_a_run_outside_a_world_is_told_apart(shell: Shell) -> None:
    shell("run", "Hello", "--loop", "json", "--model", shell.script([turn("final_answer", "Hello.")]))
    told = shell("world", "show", "last")
    assert told.code == 2
    assert "was not in a world" in told.err
