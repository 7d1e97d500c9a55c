"""`plait chat` at a terminal: commands, the live line, what is written or pasted in several lines."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import time
from typing import Any

import pytest
from rich.cells import cell_len

from chat_support import plait as plait
from chat_support import runs, script
from chat_support import terminals as terminals
from cli_support import Shell, action, final, turn
from mcp_support import HERE, command
from plait.cli.drawing import OneLineView
from plait.core import Answered, Call, Observation
from plait.core import events as ev


def plain(text: str) -> str:
    """What is drawn without the terminal's control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def started(terminals: Any, *args: str) -> Any:
    """A chat that has asked for its first line."""
    at = terminals(*args)
    at.until("Ctrl-D ends the chat.", "> ")
    return at


def say(at: Any, line: str, *words: str) -> str:
    """Type a line; what is drawn until the words were and the next line is asked for."""
    at.type(line + "\n")
    return plain(at.until(*words, "> "))


def test_sessions_are_listed_switched_and_begun(plait: Shell, terminals: Any) -> None:
    for name, question in (("trip", "Where to?"), ("garden", "What to plant?"), ("garden", "And when?")):
        plait("run", question, "--session", name, "--model", script(plait, final("so")), "--quiet")
    at = started(terminals, "--model", script(plait, final("To Lyon."), final("Beans."), final("New.")))
    shown = say(at, "/sessions", "garden", "trip")
    assert re.search(r"session +turns +last +question *\n", shown)
    assert re.search(r"garden +2 +\d{4}-\d\d-\d\d \d\d:\d\d +And when\?\n +trip +1 ", shown)
    say(at, "/session trip", "Session trip, 1 turn so far.")
    say(at, "Sure?", "To Lyon.")
    assert re.search(r"\* +trip +2 +\S+ \S+ +Sure\?", say(at, "/sessions", "garden"))
    say(at, "/session gardn", "Session gardn, new.", "Did you mean garden?")
    say(at, "/session garden", "Session garden, 2 turns so far.")
    at.type("\x1b[A")  # the last question of that session, called up again
    at.until("And when?")
    say(at, "", "Beans.")
    say(at, "/new trip", "There is a session trip already.", "/session trip switches to it.")
    say(at, "/session", "This is the session garden.")
    say(at, "/new", "Session chat-", ", new.")
    say(at, "Hello", "New.")
    say(at, "/session our trip", "Session our trip, new.")
    at.type("/quit\n")
    assert at.close() == 0
    asked = [(run["question"], run["session"]) for run in runs(plait)][3:]
    assert asked[:2] == [("Sure?", "trip"), ("And when?", "garden")]
    assert asked[2][0] == "Hello" and asked[2][1].startswith("chat-")


def test_a_prompt_of_an_mcp_server_is_shown_and_asked_after_a_yes(plait: Shell, terminals: Any) -> None:
    word = f"mcp:{command(plait.folder / 'log', script=HERE / 'mcp_more.py')}"
    at = started(terminals, "--model", script(plait, final("It is fine.")), "--tools", word)
    say(at, "/prompt", "review", "text=... [tone=...] Reviews a text.")
    say(at, "/prompt nothing", "No MCP server of the agent has a prompt nothing.")
    at.type("/prompt review text=abc tone=stern\n")
    at.until("The server's prompt:", "Review this text in a stern tone: abc", "Ask this? [y/N]")
    say(at, "y", "It is fine.")
    at.type("/quit\n")
    assert at.close() == 0
    assert [run["question"] for run in runs(plait)] == ["Review this text in a stern tone: abc"]


def test_the_end_names_the_session_only_where_the_person_did_not(plait: Shell, terminals: Any) -> None:
    at = started(terminals, "--session", "trip", "--model", script(plait, final("so")))
    say(at, "/new", "Session chat-")
    say(at, "q", "so")
    at.type("\x04")
    at.until("To continue, run: plait chat --session chat-")
    assert at.close() == 0


def test_the_model_and_the_loop_change_from_the_next_turn(plait: Shell, terminals: Any) -> None:
    (plait.folder / "other.json").write_text(
        json.dumps({"by_turn": False, "replies": [turn("final_answer", "by json")]})
    )
    model = script(plait, final("first"), final("second"))
    at = started(terminals, "--session", "s", "--model", model)
    say(at, "/model", "Model: scripted:talk.json")
    say(at, "one", "first")
    say(at, "/loop", "Loop: react (dialect=blob", "There are: ", "json", "rewoo")
    say(at, "/loop jsn", "Error: ", "Did you mean json")
    say(at, "/loop react dialct=lines", "Error: ", "dialect")
    say(at, "/model opnai:x", "Error: ", "Did you mean openai")
    say(at, "/model openai:gpt-5", "Error: ", "OPENAI_API_KEY is not set")
    say(at, "/model reply=scripted:other.json", "Error: The loop 'react' has no phase 'reply'. Its phases: act.")
    say(at, "two", "second")  # nothing of that changed anything
    say(at, "/model act=scripted:other.json", "Model: scripted:other.json")
    say(at, "/loop json", "Loop: json")
    say(at, "three", "by json")
    say(at, "/loop phased reason=no", "Error: ")
    say(at, "/loop phased", "Loop: phased", "It has other phases; left out: act=scripted:other.json.")
    say(at, "/model reply=scripted:other.json", "Models: ", "reply=scripted:other.json")
    at.type("/exit\n")
    assert at.close() == 0
    assert [(run["loop"], run["models"]["act"]) for run in runs(plait) if "act" in run["models"]] == [
        ("react", "scripted:talk.json"),
        ("react", "scripted:talk.json"),
        ("json", "scripted:other.json"),
    ] or [run["loop"] for run in runs(plait)] == ["react", "react", "json"]


def test_tools_are_added_and_taken_away(plait: Shell, terminals: Any) -> None:
    replies = [action("calculator", "2+3"), final("five")]
    at = started(terminals, "--session", "s", "--model", script(plait, *replies))
    say(at, "/tools", "No tools. /tools calculator adds one")
    say(
        at,
        "/tools calculator tools.py",
        "Tools: calculator, tools.py",
        "They are: calculator, send, hang, stubborn, hostile, long",
    )
    say(at, "/tools calculator", "The tools of calculator are there already.")
    say(at, "/tools calculater", "Error: ", "calculator")
    (plait.folder / "broken.py").write_text("import plait\nthis is no Python\n")
    (plait.folder / "raises.py").write_text("1 / 0\n")
    say(at, "/tools broken.py", "Error: ", "broken.py")
    say(at, "/tools raises.py", "Error: ", "raises.py")
    say(at, "/tools 'tools.py", "Close the quotes.")
    say(at, "2+3?", "five")
    say(at, "/tools -calculater", "There are no tools calculater. Did you mean -calculator?")
    shown = say(at, "/tools -calculator", "Tools: tools.py", "They are: send, hang")
    assert "calculator" not in shown.split("\n", 1)[1]
    say(at, "2+3?", "five")  # a model that is not told of the tool, but calls it
    at.type("/quit\n")
    assert at.close() == 0
    sent = [json.loads(line) for line in plait("show", "last", "--wire", "--json").out.splitlines()]
    assert "calculator:" not in sent[0]["body"] and "send:" in sent[0]["body"]


def test_the_cost_is_the_sessions_by_phase(plait: Shell, terminals: Any) -> None:
    (plait.folder / "plait.toml").write_text('[prices]\n"scripted:*" = { input = 1, output = 2 }\n')
    model = script(plait, action("calculator", "1+1"), final("2"), final("3"))
    at = started(terminals, "--session", "s", "--tools", "calculator", "--model", model)
    say(at, "/cost", "Session s · 0 turns · 0 model calls · 0 + 0 tokens")
    say(at, "one", "2")
    say(at, "two", "3")
    shown = say(at, "/cost", "in all")
    assert "Session s · 2 turns · 3 model calls · " in shown
    assert re.search(
        r"phase +model +calls .*\nact +scripted:talk\.json +3 .*\ntools +1 tool call .*\nin all +3 ", shown
    )
    spent = [run["usage"]["input_tokens"] for run in runs(plait)]
    assert f"{sum(spent):,} + " in shown
    at.type("/quit\n")
    at.close()


def test_a_turn_folds_to_a_line_and_is_told_when_asked_for(plait: Shell, terminals: Any) -> None:
    thought = "I wonder what the hostile tool may say to that."
    replies = [action("hostile", None, thought), action("hang", 0.5), final("Done."), final("Again.")]
    model = script(plait, *replies)
    at = started(terminals, "--session", "s", "--model", model, "--tools", "tools.py")
    say(at, "/show", "Error: The session s has no turn yet.")
    at.type("What is it?\n")
    at.until("hang runs")  # the live line
    drawn = at.until("Done.", "3 steps · hostile, hang · ", "/show shows it", "> ")
    assert "I wonder" not in plain(drawn)
    shown = say(at, "/show", "thought", "action", "observation", "answered · run ")
    assert "Turn 1: What is it?" in shown and "I wonder what the hostile tool" in shown
    assert "\u202e" not in shown and "one two" in shown
    say(at, "and?", "Again.")
    assert "Turn 1: What is it?" in say(at, "/why 1", "hostile", "answered")
    assert "Turn 2: and?" in say(at, "/why", "answered")
    say(at, "/show 3", "There is no turn 3. There are turns 1 to 2.")
    at.type("/quit\n")
    assert at.close() == 0


def test_the_live_line_is_one_line_with_the_end_of_the_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    view = OneLineView(screen)
    view(ev.Asked(1, "act", "m"))
    for word in ["Lyon\n", "\x1b[2J", *["の町 "] * 30, "and the last word"]:
        view(ev.Thought(1, word))
    time.sleep(0.3)
    view(ev.Called(1, Call("people", "Lyon")))
    view(ev.Called(1, Call("people", "Nice")))
    view(ev.Called(1, Call("weather", "Nice")))
    view(ev.Observed(1, Call("people", "Lyon"), Observation("1")))
    time.sleep(0.3)
    view(ev.Ended(Answered("x"), None))
    view.close()
    drawn = plain(screen.getvalue())
    assert re.search(r"act · …[の町 ]+and the last word", drawn)
    assert "people, weather run" in drawn and "\x1b[2J" not in screen.getvalue()
    for line in re.split(r"\n|⠋|⠙|⠹|⠸|⠼|⠴|⠦|⠧|⠇|⠏", drawn):
        assert cell_len(line.strip()) <= 38, line


def test_unknown_commands_are_not_sent_and_two_slashes_send_one(plait: Shell, terminals: Any) -> None:
    at = started(terminals, "--session", "s", "--model", script(plait, final("A path.")))
    say(at, "/modle x", "There is no command /modle. Did you mean /model? /help lists the commands; // sends")
    say(at, "/etc/hosts is what?", "There is no command /etc/hosts.")
    say(at, "/cost x", "/cost takes no words. Write /cost alone.")
    shown = say(at, "/help", "/show [TURN], /why", "/sessions", "/quit, /exit")
    for name in ("show", "cost", "model", "loop", "tools", "session", "new"):
        assert re.search(rf"^/{name} ", shown, re.M)
    say(at, "//etc/hosts is what?", "A path.")
    at.type("\x04")
    assert at.close() == 0
    assert [run["question"] for run in runs(plait)] == ["/etc/hosts is what?"]


def test_a_paste_of_several_lines_is_one_turn_and_never_a_command(plait: Shell, terminals: Any) -> None:
    at = terminals("--session", "s", "--model", script(plait, final("Read."), final("Both.")))
    at.until("\x1b[?2004h> ")  # the terminal is asked to say what is pasted
    at.type("\x1b[200~/tools tools.py\nWhat does\tthis do?\n\x1b[201~")
    at.until("this do?")
    say(at, "", "Read.")
    at.type("A first line \\\n")
    at.until(". ")
    say(at, "and a second.", "Both.")
    at.type("\x04")
    assert at.close() == 0
    assert [run["question"] for run in runs(plait)] == [
        "/tools tools.py\nWhat does\tthis do?",
        "A first line \nand a second.",
    ]


def test_tab_completes_commands_sessions_and_loops(plait: Shell, terminals: Any) -> None:
    plait("run", "q", "--session", "trip", "--model", script(plait, final("so")), "--quiet")
    at = started(terminals, "--session", "s", "--model", script(plait))
    at.type("/lo\t")
    at.until("/loop ")
    say(at, "rew\t", "Loop: rewoo")
    say(at, "/session tr\t", "Session trip, 1 turn so far.")
    say(at, "/tools lookup:no.json calc\t", "Error: ")
    at.type("\x04")
    assert at.close() == 0


def test_what_is_wrong_for_every_turn_can_be_set_right(plait: Shell, terminals: Any) -> None:
    model = script(plait, final("Right."))
    at = started(terminals, "--session", "s", "--model", "openai:gpt-5")
    say(at, "one", "Error: openai:gpt-5 needs a key")
    say(at, f"/model {model}", "Model: scripted:talk.json")
    say(at, "two", "Right.")
    at.type("\x04")
    assert at.close() == 0
    assert [run["question"] for run in runs(plait)] == ["two"]


def test_leave_is_asked_for_behind_the_live_line(plait: Shell, terminals: Any) -> None:
    model = script(plait, action("send", "hello", "Let me send it."), final("Sent."), chunk=3, delay=0.2)
    at = started(terminals, "--session", "s", "--model", model, "--tools", "tools.py", "--approve", "effects")
    at.type("Say hello.\n")
    asked = plain(at.until("May 'send' be called with", "(yes, no, a reason, or edit JSON; empty: the run waits) "))
    assert asked.splitlines()[-2].startswith("May 'send' be called")
    say(at, "yes", "Sent.", "2 steps · send · ")
    at.type("\x04")
    assert at.close() == 0
    assert (plait.folder / "sent.txt").read_text() == "hello\n"


WAITS = "(yes, no, a reason, or edit JSON; empty: the run waits) "


def test_a_stray_word_neither_gives_leave_nor_refuses(plait: Shell, terminals: Any) -> None:
    model = script(plait, action("send", "hello"), final("Sent."))
    at = started(terminals, "--session", "s", "--model", model, "--tools", "tools.py", "--approve", "effects")
    at.type("Say hello.\n")
    at.until(WAITS)
    for word, told in (
        ("yess", "'yess' is neither yes nor no."),
        ("yes please", "Say yes alone"),
        ("edit", "With which input?"),
        ('edit {"txt": "x"}', "no parameter 'txt'"),
    ):
        at.type(f"{word}\n")
        at.until(told, WAITS)
    say(at, "Y", "Sent.")
    at.type("\x04")
    assert at.close() == 0
    assert (plait.folder / "sent.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [("N", ""), ("no, later", "Refused. The model gets the reason."), ("It is too loud.", "Refused.")],
)
def test_a_refusal_and_a_reason_for_one_refuse_at_once(plait: Shell, terminals: Any, words: str, told: str) -> None:
    model = script(plait, action("send", "hello"), final("Not sent."))
    at = started(terminals, "--session", "s", "--model", model, "--tools", "tools.py", "--approve", "effects", "-v")
    at.type("Say hello.\n")
    at.until(WAITS)
    shown = say(at, words, "Not sent.")
    assert told in shown and f"refused this call{f': {words}' if told else '.'}" in shown
    at.type("\x04")
    assert at.close() == 0
    assert not (plait.folder / "sent.txt").exists()


PLAN = 'Plan: Tell them.\n#E1 = send["hello"]\nPlan: Say so.\n#E2 = LLM[Is this said: #E1]\n'


def test_a_plan_that_needs_leave_is_shown_with_its_steps(plait: Shell, terminals: Any) -> None:
    file = plait.folder / "plan.json"
    file.write_text(json.dumps({"replies": {"plan": [PLAN], "solve": ["Told."], "": ["yes"]}}))
    words = ("--loop", "rewoo", "--model", "scripted:plan.json", "--tools", "tools.py", "--approve", "plan")
    at = started(terminals, "--session", "s", *words)
    at.type("Say hello.\n")
    asked = plain(at.until("(yes, no, e to edit it, or what to change; empty: the run waits) "))
    assert "#E1 = send" in asked and re.search(r"# ●.*E1 +send", asked) and "Expected: " in asked, asked
    say(at, "yes", "Told.")
    at.type("\x04")
    assert at.close() == 0


@pytest.mark.parametrize("line", ["/tools tools.py", "/quit", "//x", "ends in a backslash \\"])
def test_from_a_pipe_every_line_is_a_question(plait: Shell, line: str) -> None:
    model = script(plait, final("one"), final("two"))
    done = plait("chat", "--session", "s", "--model", model, given=f"{line}\nnext\n")
    assert (done.code, done.out, done.err) == (0, "one\ntwo\n", "")
    assert [run["question"] for run in runs(plait)] == [line, "next"]


def test_sigterm_ends_a_chat_that_waits_for_a_line(plait: Shell, terminals: Any) -> None:
    at = started(terminals, "--session", "s", "--model", script(plait, final("so")))
    say(at, "q", "so")
    at.type("half a li")
    at.until("half a li")
    for _ in range(60):
        at.process.terminate()  # again if need be: one that comes while readline still draws is heeded at the next key
        with contextlib.suppress(subprocess.TimeoutExpired):
            at.process.wait(1)
            break
    assert at.close() == 130
